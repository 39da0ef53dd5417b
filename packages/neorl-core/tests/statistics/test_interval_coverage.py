"""Intervals cover as often as they say, by simulation and, for counts, by exact summation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from neorl_core.statistics import (
    Interval,
    bootstrap_interval,
    clopper_pearson_interval,
    paired_difference_interval,
    stratified_bootstrap_interval,
    student_interval,
)

DATASETS = 800
LEVEL = 0.9


def covers(interval: Interval, truth: float) -> np.ndarray:
    return np.asarray((interval.low <= truth) & (truth <= interval.high))


def assert_nominal(covered: np.ndarray, level: float) -> None:
    """Within three standard errors of the level."""
    error = 3 * np.sqrt(level * (1 - level) / len(covered))
    assert abs(covered.mean() - level) <= error, covered.mean()


@pytest.mark.nightly
def test_student_intervals_of_normal_samples_cover_exactly():
    samples = jax.random.normal(jax.random.key(0), (4000, 5)) * 3 + 7
    intervals = jax.vmap(functools.partial(student_interval, level=LEVEL))(samples)
    assert_nominal(covers(intervals, 7.0), LEVEL)
    assert_nominal(np.asarray(intervals.low <= 7.0), (1 + LEVEL) / 2)


@pytest.mark.nightly
def test_pairs_cover_and_are_narrower_than_unpaired_samples():
    common, noise = jax.random.normal(jax.random.key(1), (2, DATASETS, 12))
    better = common * 10 + noise + 0.5
    interval = functools.partial(paired_difference_interval, level=LEVEL)
    paired = jax.vmap(interval)(better, common * 10)
    assert_nominal(covers(paired, 0.5), LEVEL)
    alone = jax.vmap(functools.partial(student_interval, level=LEVEL))(better)
    assert np.mean(paired.high - paired.low) < 0.3 * np.mean(alone.high - alone.low)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_bootstrap_intervals_cover_at_either_end(method):
    samples = jax.random.normal(jax.random.key(2), (DATASETS, 40))
    keys = jax.random.split(jax.random.key(3), DATASETS)
    interval = functools.partial(bootstrap_interval, level=LEVEL, resamples=400, method=method)
    intervals = jax.vmap(interval)(samples, keys)
    assert_nominal(covers(intervals, 0.0), LEVEL)
    assert_nominal(np.asarray(intervals.low <= 0.0), (1 + LEVEL) / 2)
    assert_nominal(np.asarray(intervals.high >= 0.0), (1 + LEVEL) / 2)


def second_moment(samples):
    return jnp.mean(samples**2, axis=0)


@pytest.mark.nightly
def test_bca_balances_the_ends_of_a_skewed_statistic_better_than_percentiles():
    samples = jax.random.normal(jax.random.key(4), (DATASETS, 20))
    keys = jax.random.split(jax.random.key(5), DATASETS)

    def missed_above(method: str) -> float:
        interval = functools.partial(
            bootstrap_interval, statistic=second_moment, level=LEVEL, resamples=400, method=method
        )
        return float(np.mean(jax.vmap(interval)(samples, keys).high < 1.0))

    nominal = (1 - LEVEL) / 2
    assert abs(missed_above("bca") - nominal) < abs(missed_above("percentile") - nominal)


@pytest.mark.nightly
def test_a_stratified_interval_covers_the_aggregate():
    means = jnp.asarray([0.0, 5.0, -3.0])
    noise = jax.random.normal(jax.random.key(6), (DATASETS, 20, 3))
    keys = jax.random.split(jax.random.key(7), DATASETS)
    interval = functools.partial(
        stratified_bootstrap_interval, statistic=jnp.mean, level=LEVEL, resamples=400
    )
    intervals = jax.vmap(interval)(noise + means[None, None, :], keys)
    assert_nominal(covers(intervals, 2 / 3), LEVEL)


@pytest.mark.parametrize(
    "trials", [5, *(pytest.param(n, marks=pytest.mark.nightly) for n in (40, 3000))]
)
def test_counts_cover_whatever_the_probability(trials):
    """The exact coverage: the chances of all counts whose interval holds the probability."""
    counts = np.arange(trials + 1)
    exact = clopper_pearson_interval(counts, np.full_like(counts, trials), level=LEVEL)
    near_zero = np.asarray([0.01, 0.1, 0.3, 1, 2]) / trials
    probabilities = np.concatenate([near_zero, np.linspace(0.005, 0.995, 199), 1 - near_zero])
    chances = stats.binom.pmf(counts[:, None], trials, probabilities[None])

    assert isinstance(exact, Interval)
    low, high = np.asarray(exact.low)[:, None], np.asarray(exact.high)[:, None]
    covered = np.sum(chances * ((low <= probabilities) & (probabilities <= high)), axis=0)
    assert covered.min() >= LEVEL - 1e-9


def counts_over_ten_decades():
    """None, few, some, half, nearly all and all of 1 to 10^9 trials."""
    pairs = set()
    for n in (1, 2, 10, 60, 1000, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9):
        some = {0, 1, 2, 5, 16, 17, 100, 401, round(n**0.5), n // 30, n // 3, n // 2}
        pairs |= {(k, n) for k in some if k <= n} | {(n - k, n) for k in some if k <= n}
    return np.asarray(sorted(pairs)).T


@jax.jit
def limits_of_counts(k, n, level):
    return clopper_pearson_interval(k, n, level=level)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.95, 0.999, 0.999999])
# SciPy's inverse is itself no nearer than 2e-8; its forward tails are.
@pytest.mark.nightly
@pytest.mark.parametrize(("wide", "excess"), [(False, 2e-5), (True, 3e-8)])
def test_exact_limits_are_never_narrower_than_the_exact_ones(level, wide, excess):
    k, n = counts_over_ten_decades()
    delta = (1 - level) / 2
    if not wide:  # The level is what float32 holds of it.
        delta = float((1 - np.float32(level)) / 2)
    with jax.enable_x64(wide):
        interval = limits_of_counts(jnp.asarray(k), jnp.asarray(n), level)
    low, high = (np.asarray(end, np.float64) for end in interval[1:])
    some, not_all = k > 0, k < n
    assert np.all(low[~some] == 0)
    assert np.all(high[~not_all] == 1)
    k_low, n_low, low = k[some], n[some], low[some]
    k_high, n_high, high = k[not_all], n[not_all], high[not_all]
    # The chances of as many successes at the lower limit, and of as few at the upper one.
    as_many = special.betainc(k_low, n_low - k_low + 1, low)
    as_few = np.where(
        high < 0.5,
        special.betaincc(k_high + 1, n_high - k_high, high),
        special.betainc(n_high - k_high, k_high + 1, 1 - high),
    )
    assert np.all(as_many <= delta * (1 + 1e-10))
    assert np.all(as_few <= delta * (1 + 1e-10))
    np.testing.assert_allclose(low, stats.beta.ppf(delta, k_low, n_low - k_low + 1), rtol=excess)
    exact = stats.beta.isf(delta, k_high + 1, n_high - k_high)
    np.testing.assert_allclose(high, exact, rtol=excess)


def test_the_rule_of_three_and_its_kin():
    """Episodes without, with one and with three violations that prove a rate below one in 100."""
    upper = clopper_pearson_interval(
        jnp.asarray([0, 0, 1, 1, 3, 3]),
        jnp.asarray([298, 299, 472, 473, 772, 773]),
        level=0.90,
    ).high
    np.testing.assert_array_equal(np.asarray(upper) <= 0.01 + 1e-7, [False, True] * 3)
