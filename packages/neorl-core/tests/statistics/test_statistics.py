"""Statistics in float64 against SciPy, and what holds over many samples at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.statistics import (
    DEFAULT_LEVEL,
    PairedTest,
    bootstrap_interval,
    holm,
    interquartile_mean,
    optimality_gap,
    paired_difference_interval,
    rank_correlation,
    wilcoxon_test,
)
from neorl_core.statistics._intervals import replicates, sample_mean
from neorl_core.statistics._ranks import midranks, sizes_and_signs, sort_floats

# An eager call would compile every operation by itself.
bootstrap_interval = jax.jit(
    bootstrap_interval, static_argnames=("statistic", "resamples", "method")
)
wilcoxon_test = jax.jit(wilcoxon_test, static_argnames="alternative")
(
    holm,
    interquartile_mean,
    optimality_gap,
    paired_difference_interval,
    rank_correlation,
) = map(
    jax.jit,
    (
        holm,
        interquartile_mean,
        optimality_gap,
        paired_difference_interval,
        rank_correlation,
    ),
)

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_p_values_out_of_range_become_nan_under_jit():
    assert np.isnan(holm(jnp.asarray([0.1, 1.1]))).all()


def test_bootstrap_intervals_equal_scipys_on_the_same_replicates():
    """Row N32: bootstrap intervals are those of SciPy."""
    samples = np.random.default_rng(0).exponential(size=30)

    class Drawn:
        bootstrap_distribution = np.asarray(
            replicates(samples, KEY, statistic=sample_mean, resamples=999)
        )

    for ours, theirs in (("percentile", "percentile"), ("bca", "BCa")):
        interval = bootstrap_interval(samples, KEY, level=0.9, resamples=999, method=ours)
        expected = stats.bootstrap(
            (samples,),
            np.mean,
            confidence_level=0.9,
            n_resamples=0,
            method=theirs,
            bootstrap_result=Drawn(),
        ).confidence_interval
        np.testing.assert_allclose(interval[1:], expected, rtol=1e-12)


def test_samples_that_all_agree_have_an_interval_of_no_width():
    assert bootstrap_interval(jnp.full(5, 3.25), KEY, resamples=50) == (3.25, 3.25, 3.25)


def how_many_differ(samples):
    return jnp.sum(jnp.diff(jnp.sort(samples)) > 0).astype(samples.dtype)


def test_a_statistic_that_no_replicate_reaches_has_limits_all_the_same():
    # A draw with replacement of 30 different numbers repeats some: all replicates are below.
    samples = np.random.default_rng(4).normal(size=30)
    interval = bootstrap_interval(samples, KEY, statistic=how_many_differ, resamples=200)
    drawn = replicates(samples, KEY, statistic=how_many_differ, resamples=200)
    assert np.max(drawn) < interval.estimate == 29
    # Every draw without one sample has 28, so nothing accelerates: the limits are quantiles.
    bias = stats.norm.ppf(1 - 0.5 / 200)
    ends = stats.norm.cdf(2 * bias + stats.norm.ppf([0.025, 0.975]))
    np.testing.assert_allclose(interval[1:], np.quantile(drawn, ends), rtol=1e-12)


def test_a_statistic_that_every_replicate_passes_has_limits_all_the_same():
    samples = np.random.default_rng(4).normal(size=30)
    interval = bootstrap_interval(samples, KEY, statistic=how_many_repeat, resamples=200)
    drawn = replicates(samples, KEY, statistic=how_many_repeat, resamples=200)
    assert np.min(drawn) > interval.estimate == -29
    bias = stats.norm.ppf(0.5 / 200)
    ends = stats.norm.cdf(2 * bias + stats.norm.ppf([0.025, 0.975]))
    np.testing.assert_allclose(interval[1:], np.quantile(drawn, ends), rtol=1e-12)


def how_many_repeat(samples):
    return -how_many_differ(samples)


def mean_without_the_first(samples):
    return jnp.mean(samples[1:])


@pytest.mark.nightly
def test_large_samples_are_resampled_in_blocks():
    samples = np.random.default_rng(1).normal(size=3000)
    drawn = replicates(samples, KEY, statistic=sample_mean, resamples=1000)
    assert drawn.shape == (1000,)
    np.testing.assert_allclose(np.std(drawn), samples.std() / 3000**0.5, rtol=0.1)
    interval = bootstrap_interval(
        samples[:1100], KEY, statistic=mean_without_the_first, resamples=200
    )
    assert interval.low < interval.estimate < interval.high


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_paired_tests_equal_scipys(alternative):
    """Row N32: paired tests are those of SciPy."""
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, 20)) + np.asarray([[0.4], [0.0]])
    ours = wilcoxon_test(first, second, alternative=alternative)
    theirs = stats.wilcoxon(first, second, alternative=alternative, method="exact")
    np.testing.assert_allclose(ours.p_value, theirs.pvalue, rtol=1e-12)
    coarse, other = np.round(rng.normal(size=(2, 100)), 1)
    ours = wilcoxon_test(coarse, other, alternative=alternative)
    theirs = stats.wilcoxon(
        coarse, other, alternative=alternative, method="asymptotic", correction=True
    )
    np.testing.assert_allclose(ours.p_value, theirs.pvalue, rtol=1e-10)


def test_a_test_of_nan_is_nan():
    first = jnp.asarray([1.0, jnp.nan, 2.0])
    result = wilcoxon_test(first, jnp.zeros(3))
    assert isinstance(result, PairedTest)
    assert np.isnan(result.p_value)


@pytest.mark.parametrize("count", [1, 4, 8, 19, 20, 41])
def test_the_interquartile_mean_is_scipys_trimmed_mean(count):
    scores = np.random.default_rng(count).normal(size=count)
    np.testing.assert_allclose(
        interquartile_mean(scores), stats.trim_mean(scores, 0.25), rtol=1e-12
    )


def test_ranks_are_scipys():
    values = np.round(np.random.default_rng(10).normal(size=200), 1)
    ranks = jax.jit(midranks)
    zeros = np.asarray([0.0, -0.0, 1e-30, -1e-30, np.inf, -np.inf, -0.0])
    for part in (values, values[:1], values[:0], zeros):
        np.testing.assert_array_equal(ranks(jnp.asarray(part)), stats.rankdata(part))
    same, unranked = np.full(200, 2.0), np.append(values[1:], np.nan)
    np.testing.assert_array_equal(ranks(jnp.asarray(same)), stats.rankdata(same))
    assert np.isnan(ranks(jnp.asarray(unranked))).all()


@pytest.mark.nightly
def test_sorting_by_bits_is_sorting():
    values = np.random.default_rng(12).normal(size=(3, 50)) * 10.0 ** np.arange(-20, 30)
    values[:, :4] = [[0.0, -0.0, np.inf, -np.inf]]
    for dtype in (jnp.float32, jnp.float64):
        given = jnp.asarray(values, dtype)
        np.testing.assert_array_equal(sort_floats(given), np.sort(np.asarray(given)))
        sizes, signs = sizes_and_signs(given[0, 4:])
        expected = np.asarray(given[0, 4:])[np.argsort(np.abs(given[0, 4:]))]
        assert signs.tolist() == np.sign(expected).tolist()
        np.testing.assert_array_equal(sizes.view(dtype), np.abs(expected))
    weights = jnp.arange(5.0)
    slope = jax.grad(lambda x: jnp.sum(weights * sort_floats(x)))(jnp.asarray([3.0, 1, 2, 5, 4]))
    assert slope.tolist() == [2, 0, 1, 4, 3]


def test_two_pairs_have_a_rank_correlation():
    ours = [rank_correlation(np.array([1.0, 2.0]), np.array(y)) for y in ([3.0, 4.0], [4.0, 3.0])]
    np.testing.assert_allclose(ours, [1, -1], rtol=1e-12)


def test_what_is_left_out_is_as_documented():
    scores = np.array([[0.2, 1.6], [0.6, 0.8]])
    np.testing.assert_allclose(optimality_gap(scores), 1 - (0.2 + 1 + 0.6 + 0.8) / 4)
    first, second = np.random.default_rng(5).normal(size=(2, 12))
    assert DEFAULT_LEVEL == 0.95
    expected = stats.ttest_rel(first, second).confidence_interval(DEFAULT_LEVEL)
    np.testing.assert_allclose(paired_difference_interval(first, second)[1:], expected, rtol=1e-9)


@pytest.mark.nightly
def test_equal_policies_are_told_apart_no_more_often_than_the_level():
    first, second = jax.random.normal(KEY, (2, 2000, 10))
    p_values = np.asarray(jax.jit(jax.vmap(wilcoxon_test))(first, second).p_value)
    for level in (0.05, 0.2):
        error = 3 * np.sqrt(level * (1 - level) / 2000)
        # A discrete test stays below its level by at most the chance of one value.
        assert level - 0.01 - error <= np.mean(p_values <= level) <= level + error
