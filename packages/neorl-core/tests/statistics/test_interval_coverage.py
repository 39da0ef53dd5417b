"""Intervals cover as often as they say, by simulation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import (
    Interval,
    bootstrap_interval,
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
