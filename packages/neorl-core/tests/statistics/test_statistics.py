"""Statistics in float64 against SciPy, and what holds over many samples at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core._internal.sorting import sizes_and_signs, sort_floats
from neorl_core.statistics import (
    DEFAULT_LEVEL,
    Moments,
    PairedTest,
    RewardNormaliser,
    bootstrap_interval,
    bootstrap_replicates,
    clopper_pearson_interval,
    empty_moments,
    holm,
    interquartile_mean,
    merge_moments,
    normalise_reward,
    optimality_gap,
    paired_difference_interval,
    paired_t_test,
    rank_correlation,
    reward_normaliser,
    sample_moments,
    sign_flip_test,
    update_moments,
    variance,
    wilcoxon_test,
)
from neorl_core.statistics._ranks import midranks

# An eager call would compile every operation by itself.
bootstrap_interval, bootstrap_replicates = (
    jax.jit(function, static_argnames=("statistic", "resamples", *more))
    for function, more in ((bootstrap_interval, ["method"]), (bootstrap_replicates, []))
)
sign_flip_test = jax.jit(sign_flip_test, static_argnames=("alternative", "resamples"))
paired_t_test, wilcoxon_test = (
    jax.jit(test, static_argnames="alternative") for test in (paired_t_test, wilcoxon_test)
)
variance = jax.jit(variance, static_argnames="ddof")
(
    clopper_pearson_interval,
    holm,
    interquartile_mean,
    merge_moments,
    normalise_reward,
    optimality_gap,
    paired_difference_interval,
    rank_correlation,
    sample_moments,
) = map(
    jax.jit,
    (
        clopper_pearson_interval,
        holm,
        interquartile_mean,
        merge_moments,
        normalise_reward,
        optimality_gap,
        paired_difference_interval,
        rank_correlation,
        sample_moments,
    ),
)

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_values_out_of_range_become_nan_under_jit():
    assert np.isnan(clopper_pearson_interval(4.0, 3.0)).all()
    assert np.isnan(holm(jnp.asarray([0.1, 1.1]))).all()


def test_counts_of_no_trial_say_nothing():
    share, low, high = clopper_pearson_interval(0, 0)
    assert np.isnan(share)
    assert (low, high) == (0, 1)


def test_bootstrap_intervals_equal_scipys_on_the_same_replicates():
    """Row N32: bootstrap intervals are those of SciPy."""
    samples = np.random.default_rng(0).exponential(size=30)

    class Drawn:
        bootstrap_distribution = np.asarray(bootstrap_replicates(samples, KEY, resamples=999))

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
    replicates = bootstrap_replicates(samples, KEY, statistic=how_many_differ, resamples=200)
    assert np.max(replicates) < interval.estimate == 29
    # Every draw without one sample has 28, so nothing accelerates: the limits are quantiles.
    bias = stats.norm.ppf(1 - 0.5 / 200)
    ends = stats.norm.cdf(2 * bias + stats.norm.ppf([0.025, 0.975]))
    np.testing.assert_allclose(interval[1:], np.quantile(replicates, ends), rtol=1e-12)


def test_a_statistic_that_every_replicate_passes_has_limits_all_the_same():
    samples = np.random.default_rng(4).normal(size=30)
    interval = bootstrap_interval(samples, KEY, statistic=how_many_repeat, resamples=200)
    replicates = bootstrap_replicates(samples, KEY, statistic=how_many_repeat, resamples=200)
    assert np.min(replicates) > interval.estimate == -29
    bias = stats.norm.ppf(0.5 / 200)
    ends = stats.norm.cdf(2 * bias + stats.norm.ppf([0.025, 0.975]))
    np.testing.assert_allclose(interval[1:], np.quantile(replicates, ends), rtol=1e-12)


def how_many_repeat(samples):
    return -how_many_differ(samples)


def mean_without_the_first(samples):
    return jnp.mean(samples[1:])


@pytest.mark.nightly
def test_large_samples_are_resampled_in_blocks():
    samples = np.random.default_rng(1).normal(size=3000)
    replicates = bootstrap_replicates(samples, KEY, resamples=1000)
    assert replicates.shape == (1000,)
    np.testing.assert_allclose(np.std(replicates), samples.std() / 3000**0.5, rtol=0.1)
    interval = bootstrap_interval(
        samples[:1100], KEY, statistic=mean_without_the_first, resamples=200
    )
    assert interval.low < interval.estimate < interval.high


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_paired_tests_equal_scipys(alternative):
    """Row N32: paired tests are those of SciPy."""
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, 20)) + np.asarray([[0.4], [0.0]])
    ours = paired_t_test(first, second, alternative=alternative)
    theirs = stats.ttest_rel(first, second, alternative=alternative)
    np.testing.assert_allclose(ours, (theirs.statistic, theirs.pvalue), rtol=1e-11)
    ours = wilcoxon_test(first, second, alternative=alternative)
    theirs = stats.wilcoxon(first, second, alternative=alternative, method="exact")
    np.testing.assert_allclose(ours.p_value, theirs.pvalue, rtol=1e-12)
    coarse, other = np.round(rng.normal(size=(2, 100)), 1)
    ours = wilcoxon_test(coarse, other, alternative=alternative)
    theirs = stats.wilcoxon(
        coarse, other, alternative=alternative, method="asymptotic", correction=True
    )
    np.testing.assert_allclose(ours.p_value, theirs.pvalue, rtol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("shift", [-7.0, 0.02, 7.0])
@pytest.mark.parametrize("n", [5, 150, 20_000])
def test_the_t_test_keeps_the_digits_of_small_tails_in_float32(n, shift):
    """On either side alike: one less the other side has none left below 6e-8."""
    noise = np.random.default_rng(6).normal(size=n)
    # The shift is t itself.
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    first = jnp.asarray(noise + shift / n**0.5, jnp.float32)
    for alternative in ("two-sided", "greater", "less"):
        ours = paired_t_test(first, jnp.zeros(n, jnp.float32), alternative=alternative)
        exact = stats.ttest_1samp(np.asarray(first, np.float64), 0.0, alternative=alternative)
        np.testing.assert_allclose(ours.statistic, exact.statistic, rtol=2e-4)
        by_statistic = stats.t.cdf(-abs(float(ours.statistic)), n - 1)
        upper = by_statistic if ours.statistic > 0 else 1 - by_statistic
        lower = 1 - by_statistic if ours.statistic > 0 else by_statistic
        tails = {"two-sided": 2 * by_statistic, "greater": upper, "less": lower}
        np.testing.assert_allclose(ours.p_value, tails[alternative], rtol=2e-4)


def test_the_same_difference_in_every_pair_is_certain():
    ones, zeros = np.ones(5), np.zeros(5)
    assert tuple(paired_t_test(ones, zeros)) == (np.inf, 0)
    assert paired_t_test(ones, zeros, alternative="greater").p_value == 0
    assert paired_t_test(ones, zeros, alternative="less").p_value == 1
    assert paired_t_test(zeros, ones, alternative="less").p_value == 0
    assert np.isnan(paired_t_test(ones, ones).p_value)


def test_a_test_of_nan_is_nan():
    first = jnp.asarray([1.0, jnp.nan, 2.0])
    results = (
        paired_t_test(first, jnp.zeros(3)),
        wilcoxon_test(first, jnp.zeros(3)),
        sign_flip_test(first, jnp.zeros(3), KEY),
    )
    for result in results:
        assert isinstance(result, PairedTest)
        assert np.isnan(result.p_value)


def test_drawn_sign_flips_keep_their_level_and_near_the_exact_value():
    difference = np.random.default_rng(3).normal(size=14) + 0.5
    every = sign_flip_test(difference, np.zeros(14), KEY, resamples=2**14).p_value
    drawn = sign_flip_test(difference, np.zeros(14), KEY, resamples=2**14 - 1).p_value
    assert abs(every - drawn) < 4 * np.sqrt(every * (1 - every) / 2**14)
    certain = sign_flip_test(np.ones(30), np.zeros(30), KEY, resamples=99).p_value
    np.testing.assert_allclose(certain, 0.02)


def test_flips_are_drawn_in_blocks_of_bounded_memory():
    """Ten million signs; the normal approximation is near."""
    difference = np.random.default_rng(8).normal(size=100_000) + 0.004
    drawn = sign_flip_test(difference, np.zeros(100_000), KEY, resamples=200).p_value
    near = stats.ttest_1samp(difference, 0.0).pvalue
    assert abs(drawn - near) < 4 * np.sqrt(2 * near / 200) + 0.01


def test_a_drawn_test_of_one_side_counts_what_was_observed_too():
    falls = sign_flip_test(-np.ones(30), np.zeros(30), KEY, alternative="less", resamples=99)
    rises = sign_flip_test(np.ones(30), np.zeros(30), KEY, alternative="greater", resamples=99)
    np.testing.assert_allclose([falls.p_value, rises.p_value], 0.01)


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
@pytest.mark.parametrize("test", [paired_t_test, wilcoxon_test, sign_flip_test])
def test_equal_policies_are_told_apart_no_more_often_than_the_level(test):
    first, second = jax.random.normal(KEY, (2, 2000, 10))
    keys = jax.random.split(KEY, 2000)
    with_key = test is sign_flip_test
    arguments = (first, second, keys) if with_key else (first, second)
    p_values = np.asarray(jax.jit(jax.vmap(test))(*arguments).p_value)
    for level in (0.05, 0.2):
        error = 3 * np.sqrt(level * (1 - level) / 2000)
        # A discrete test stays below its level by at most the chance of one value.
        assert level - 0.01 - error <= np.mean(p_values <= level) <= level + error


def test_welford_over_a_scan_is_the_moments_at_once():
    samples = 1e6 + np.random.default_rng(4).normal(size=(500, 3))
    start = empty_moments((3,), jnp.float64)
    running, _ = jax.lax.scan(lambda m, x: (update_moments(m, x), None), start, samples)
    assert isinstance(running, Moments)
    np.testing.assert_allclose(variance(running), samples.var(axis=0), rtol=1e-8)
    np.testing.assert_allclose(variance(sample_moments(samples)), samples.var(axis=0), rtol=1e-12)


def test_merging_in_any_grouping_gives_one_result():
    samples = np.random.default_rng(5).normal(size=(60, 2)) * 3 + 40
    parts = [sample_moments(part) for part in np.split(samples, [10, 11, 11, 35])]
    forwards, backwards = parts[0], parts[-1]
    for part in parts[1:]:
        forwards = merge_moments(forwards, part)
    for part in parts[-2::-1]:
        backwards = merge_moments(part, backwards)
    for merged in (forwards, backwards):
        np.testing.assert_allclose(merged.count, 60)
        np.testing.assert_allclose(merged.mean, samples.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(variance(merged), samples.var(axis=0), rtol=1e-13)


def test_moments_of_nothing_change_nothing_however_large_the_mean():
    large = sample_moments(jnp.full(2, 2e19, jnp.float32))
    for merged in (merge_moments(empty_moments(), large), merge_moments(large, empty_moments())):
        assert [float(part) for part in merged[:3]] == [2.0, float(np.float32(2e19)), 0.0]


def test_a_float32_goes_on_counting_a_year_of_seconds():
    """From 2^25 samples on, one by one: the count, the mean and the spread all follow."""
    before, more = 2**25, 100_000
    samples = (300 + np.random.default_rng(7).normal(size=more)).astype(np.float32)
    start = Moments(
        *(jnp.asarray(part, jnp.float32) for part in (before, 290.0, before * 4.0, np.zeros(3)))
    )
    step = jax.jit(
        lambda start, samples: jax.lax.scan(
            lambda moments, x: (update_moments(moments, x), None), start, samples
        )[0]
    )
    running = step(start, samples)
    wide = samples.astype(np.float64)
    mean = (before * 290.0 + wide.sum()) / (before + more)
    away = np.sum((wide - mean) ** 2) + before * (4.0 + (290.0 - mean) ** 2)
    assert float(running.count) == before + more
    np.testing.assert_allclose(running.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(running.m2, away, rtol=1e-6)


def test_the_running_sum_of_rewards_begins_anew_with_an_episode():
    ended = jnp.asarray([False, True])
    state, first = normalise_reward(reward_normaliser((2,)), jnp.ones(2), ended, discount=0.5)
    state, second = normalise_reward(state, jnp.ones(2), ended, discount=0.5)
    assert isinstance(state, RewardNormaliser)
    assert state.discounted.tolist() == [1.5, 0.0]
    # All sums were one at first, of no spread, so that the clip holds; then 1, 1, 1.5 and 1.
    assert first.tolist() == [10.0, 10.0]
    np.testing.assert_allclose(second, 1 / np.std([1, 1, 1.5, 1]), rtol=1e-6)


def test_the_first_reward_of_one_environment_has_no_unit():
    for unit in (1e-6, 1.0, 1e6):
        _, scaled = normalise_reward(reward_normaliser(), -3.0 * unit, False, discount=0.9)
        np.testing.assert_allclose(scaled, -1.0, rtol=1e-6)


@pytest.mark.parametrize("missing", [jnp.nan, jnp.inf])
def test_a_reward_that_is_not_finite_leaves_the_normaliser_alone(missing):
    """Of two environments the second goes on; an end is an end without a reward too."""
    step = jax.jit(
        lambda state, reward, ended: normalise_reward(state, reward, ended, discount=0.5)
    )
    ended = jnp.zeros(2, bool)
    start, _ = step(reward_normaliser((2,)), jnp.asarray([1.0, 3.0]), ended)
    alone, scaled = step(start, jnp.full(2, missing), ended)
    jax.tree.map(np.testing.assert_array_equal, alone, start)
    assert np.isnan(scaled).all()
    state, scaled = step(start, jnp.asarray([missing, 2.0]), jnp.asarray([True, False]))
    assert state.discounted.tolist() == [0.0, 3.5]
    assert float(state.moments.count) == 3
    np.testing.assert_allclose(scaled, [np.nan, 2 / np.std([1, 3, 3.5])], rtol=1e-6)


@pytest.mark.parametrize("n", [10**4, 10**6])
def test_moments_of_many_samples_in_float32(n):
    samples = (1e3 + np.random.default_rng(9).normal(size=n)).astype(np.float32)
    moments = sample_moments(samples)
    wide = samples.astype(np.float64)
    np.testing.assert_allclose(moments.mean, wide.mean(), rtol=2e-7)
    np.testing.assert_allclose(variance(moments), wide.var(), rtol=1e-4)


def test_the_variance_of_too_few_samples_is_nan():
    assert np.isnan(variance(empty_moments()))
    assert np.isnan(variance(sample_moments(jnp.ones(1)), ddof=1))
