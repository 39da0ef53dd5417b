"""Large samples, infinite values, far tails, and rows that hold NaN behind a mask."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core import (
    LoggedTrajectories,
    advantage_weights,
    conditional_value_at_risk,
    doubly_robust_return,
    masked_mean,
    optimality_gap,
    pdis_return,
    ppo_clipped_loss,
    project_simplex,
    scaled_advantage,
    squared_loss,
    student_quantile,
    td3_bc_policy_loss,
    tis_return,
    weighted_quantile,
    zero_order_hold,
)

RNG = np.random.default_rng(0)
PROBABILITIES = (0.0, 1e-4, 0.07, 0.5, 0.9, 0.99995, 1.0)


@jax.jit
def quantile(samples, weights, probability):
    return weighted_quantile(samples, weights, probability=probability)


@jax.jit
def tail(samples, weights, share):
    return conditional_value_at_risk(samples, weights, share=share)


def rank(probability, n):
    """The index of the quantile of n samples, in whole numbers."""
    parts = round(probability * 10**6)
    return max(-(-parts * n // 10**6), 1) - 1


@pytest.mark.parametrize("n", [1000, 1_000_000])
def test_a_quantile_of_many_samples_is_the_one_that_is_counted(n):
    samples = jnp.arange(n, dtype=jnp.float32)[::-1]
    equal = jnp.full(n, 0.1)
    for p in PROBABILITIES:
        expected = rank(p, n)
        assert float(weighted_quantile(samples, probability=p)) == expected
        assert float(quantile(samples, None, p)) == expected
        assert float(quantile(samples, equal, p)) == expected


def test_a_known_probability_is_counted_in_double():
    samples = jnp.arange(2_000_001.0)
    for p in PROBABILITIES:
        assert float(weighted_quantile(samples, probability=p)) == rank(p, 2_000_001)
    assert float(weighted_quantile(jnp.arange(100.0), probability=jnp.float32(0.07))) == 6


def test_a_quantile_of_short_floats_is_counted_too():
    values = (jnp.arange(1000) / 1000).astype(jnp.bfloat16)
    for weights in (None, jnp.ones(1000, jnp.bfloat16)):
        for p in (0.0, 0.1, 0.5, 0.9, 1.0):
            found = weighted_quantile(values, weights, probability=p)
            assert found.dtype == jnp.bfloat16
            assert float(found) == float(values[rank(p, 1000)])
        found = conditional_value_at_risk(values, weights, share=0.5)
        assert found.dtype == jnp.bfloat16
        np.testing.assert_allclose(float(found), 0.2495, rtol=0.01)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_tails_of_many_weighted_samples_equal_those_in_double(spread):
    n = 100_000
    samples, weights = RNG.permutation(n), np.exp(spread * RNG.normal(size=n)).astype(np.float32)
    order = np.argsort(samples)
    mass = weights[order].astype(np.float64)
    reached = np.cumsum(mass)
    given = jnp.asarray(samples, jnp.float32), jnp.asarray(weights)
    for p in (1e-4, 0.01, 0.5, 0.9, 0.9999):
        low, high = (np.argmax(reached >= near * reached[-1]) for near in (p - 5e-7, p + 5e-7))
        assert low <= float(quantile(*given, p)) <= high
        inside = np.clip(p * reached[-1] - (reached - mass), 0, mass)
        expected = np.sum(inside * np.arange(n)) / inside.sum()
        np.testing.assert_allclose(tail(*given, p), expected, rtol=2e-6)


def test_what_lies_beyond_the_share_may_be_infinite():
    samples = jnp.asarray([1.0, jnp.inf, 2.0])
    assert float(conditional_value_at_risk(samples, share=0.3)) == 1
    np.testing.assert_allclose(conditional_value_at_risk(samples, share=0.5), 4 / 3, rtol=1e-6)
    assert float(conditional_value_at_risk(samples, share=1.0)) == np.inf
    assert float(conditional_value_at_risk(-samples, share=0.3)) == -np.inf
    slope = jax.grad(lambda x: conditional_value_at_risk(x, share=0.5))(samples)
    np.testing.assert_allclose(slope, [2 / 3, 0, 1 / 3], rtol=1e-6)


def test_large_weights_do_not_overflow_and_infinite_ones_are_flagged():
    samples, weights = jnp.arange(3.0), jnp.full(3, 3e38)
    assert float(quantile(samples, weights, 0.5)) == 1
    np.testing.assert_allclose(tail(samples, weights, 1.0), 1, rtol=1e-6)
    assert np.isnan(quantile(samples, weights.at[1].set(jnp.inf), 0.5))
    assert np.isnan(tail(samples, weights.at[1].set(jnp.inf), 0.5))
    np.testing.assert_allclose(tail(samples, jnp.full(3, 2e-38), 0.5), 1 / 3, rtol=1e-6)
    # A sample without weight is never the quantile, at either end.
    ends = jnp.asarray([0.0, 1.0, 0.0])
    assert [float(quantile(samples, ends, p)) for p in (0.0, 1.0)] == [1, 1]


def test_nan_in_a_masked_row_reaches_no_gradient_of_td3_bc():
    q, action, logged = RNG.normal(size=4), RNG.normal(size=(4, 2)), RNG.normal(size=(4, 2))
    mask = np.asarray([True, False, True, False])
    loss = functools.partial(td3_bc_policy_loss, alpha=2.5)
    slopes = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

    def at(filler):
        rows = (q, action, logged)
        kept = (np.where(mask if x.ndim == 1 else mask[:, None], x, filler) for x in rows)
        return slopes(*(jnp.asarray(x, jnp.float32) for x in kept), jnp.asarray(mask))

    value, (to_q, to_action) = at(np.nan)
    kept = mask[:, None] * (action - logged)
    size = np.abs(q[mask]).mean()
    expected = (kept**2).sum() / 4 - 2.5 * q[mask].mean() / size
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(to_q, -2.5 * mask / (2 * size), rtol=1e-5)
    np.testing.assert_allclose(to_action, kept / 2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mask", [None, np.ones(64, bool)])
def test_without_masked_rows_td3_bc_is_the_plain_formula_to_the_bit(mask):
    rows = [jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in (64, (64, 3), (64, 3))]

    def plain(q, action, logged):
        value = masked_mean(q, mask) / jax.lax.stop_gradient(masked_mean(jnp.abs(q), mask))
        return masked_mean(jnp.mean(jnp.square(action - logged), axis=-1), mask) - 2.5 * value

    def ours(q, action, logged):
        return td3_bc_policy_loss(q, action, logged, mask, alpha=2.5)

    found, expected = (jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*rows) for f in (ours, plain))
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))


def test_nan_must_leave_before_the_loss_that_masked_mean_reduces():
    """What the docstring says: after the loss is too late for the gradient."""
    prediction, mask = jnp.asarray([1.0, 2.0]), jnp.asarray([True, False])
    target = jnp.asarray([0.0, jnp.nan])

    def late(x):
        return masked_mean(squared_loss(x, target), mask)

    def early(x):
        return masked_mean(squared_loss(x, jnp.where(mask, target, 0)), mask)

    assert float(late(prediction)) == float(early(prediction))
    assert np.isnan(jax.grad(late)(prediction)[1])
    assert np.all(np.isfinite(jax.grad(early)(prediction)))


@pytest.mark.parametrize("apart", [100.0, 1e30, np.inf])
def test_a_clipped_gain_is_finite_however_far_the_policies_are_apart(apart):
    value_and_slope = jax.jit(jax.value_and_grad(ppo_clipped_loss))
    for gain in (0.0, 1.0, 3.0):
        value, slope = value_and_slope(apart, 0.0, gain)
        np.testing.assert_allclose(value, -1.2 * gain, rtol=1e-6)
        assert float(slope) == 0
    value, slope = value_and_slope(-apart, 0.0, 2.0)
    assert float(value) == float(slope) == 0
    value, slope = value_and_slope(-apart, 0.0, -2.0)
    np.testing.assert_allclose(value, 1.6, rtol=1e-6)
    assert float(slope) == 0
    assert float(value_and_slope(apart, 0.0, -1.0)[0]) == np.inf


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e8, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([1e7, 1e7 - 0.5, 0.0], [0.5, 0.5, 0.0]),  # In float32 the second is 1e7 too.
        ([4e6, 4e6 - 0.5, 0.0], [0.75, 0.25, 0.0]),
        ([1e7, 1e7 - 1.0, -1e30], [1.0, 0.0, 0.0]),
        ([-3e38, 3e38], [0.0, 1.0]),
    ],
)
def test_a_projection_onto_the_simplex_sums_to_one_far_from_it(values, expected):
    given = np.asarray(values, np.float32)
    np.testing.assert_allclose(project_simplex(given), expected, atol=1e-6)
    slope = jax.jacobian(project_simplex)(jnp.asarray(given))
    assert np.all(np.isfinite(slope))


def test_a_common_offset_changes_no_projection():
    values = np.asarray([0.25, -0.5, 0.125, 0.0], np.float32)
    for offset in (2.0**10, 2.0**20, -(2.0**20)):
        np.testing.assert_array_equal(
            project_simplex(values + np.float32(offset)), project_simplex(values)
        )


def test_infinite_advantages_have_the_weight_of_their_limit():
    ends = jnp.asarray([jnp.inf, -jnp.inf, 3.0, jnp.nan])
    plain = advantage_weights(ends, temperature=0.0)
    np.testing.assert_array_equal(plain, [1, 1, 1, np.nan])
    traced = jax.jit(lambda t: advantage_weights(ends, temperature=t))
    np.testing.assert_array_equal(traced(0.0), plain)
    np.testing.assert_allclose(traced(1.0), [100, 0, np.exp(3), np.nan], rtol=1e-6)


def test_a_return_of_zero_is_zero_under_any_weight():
    huge = LoggedTrajectories(jnp.asarray([100.0, 0.0]), jnp.zeros(2))
    log = huge._replace(q_value=jnp.zeros(2), value=jnp.zeros(2))
    later = jnp.asarray([0.0, 1.0])
    for estimate in (tis_return, pdis_return, doubly_robust_return):
        value, slope = jax.value_and_grad(functools.partial(estimate, discount=1.0))(log)
        assert float(value) == 0
        assert np.all(np.isfinite(slope.log_ratio))
        assert float(estimate(log._replace(reward=later), discount=1.0)) == np.inf
        assert float(estimate(log._replace(reward=later), discount=0.0)) == 0
        assert float(estimate(log._replace(reward=-later), discount=1.0)) == -np.inf
        never = log._replace(log_ratio=jnp.asarray([-jnp.inf, 100.0]), reward=later)
        assert float(estimate(never, discount=1.0)) == 0
        reached = log._replace(log_ratio=jnp.asarray([1.0, 100.0]), reward=later)
        assert float(estimate(reached, discount=0.0)) == 0
        # A return of zero under a weight that is a number keeps its slope in the rewards.
        usual = log._replace(log_ratio=jnp.log(jnp.asarray([2.0, 3.0])))
        slope = jax.grad(functools.partial(estimate, discount=1.0))(usual)
        expected = [6, 6] if estimate is tis_return else [2, 6]
        np.testing.assert_allclose(slope.reward, expected, rtol=1e-6)


def test_student_quantiles_equal_scipys_for_few_degrees_and_far_tails():
    p = np.asarray([1e-12, 1e-6, 0.025, 0.3, 0.4999, 0.6, 0.975, 1 - 1e-9, 1 - 1e-12])[:, None]
    degrees = np.asarray([0.2, 0.5, 1, 1.5, 4, 30, 100, 190, 1e3, 9.9e3, 1.1e4, 1e8])
    p, degrees = np.broadcast_arrays(p, degrees)
    with jax.enable_x64(True):
        double = jax.jit(student_quantile)(p, degrees)
    np.testing.assert_allclose(double, stats.t.ppf(p, degrees), rtol=1e-8)
    low = p[:, 0] < 0.99  # Nearer to 1 than that float32 is coarse, or 1.
    p, degrees = p[low].astype(np.float32), degrees[low].astype(np.float32)
    single = jax.jit(student_quantile)(p, degrees)
    expected = stats.t.ppf(p.astype(np.float64), degrees.astype(np.float64))
    expected = np.where(np.abs(expected) > np.finfo(np.float32).max, -np.inf, expected)
    np.testing.assert_allclose(single, expected, rtol=1e-4)


def test_hyperparameters_leave_the_dtype_of_the_array():
    short, wide = jnp.arange(3, dtype=jnp.bfloat16), np.float64(0.5)
    assert optimality_gap(short, target=jnp.float32(1)).dtype == jnp.bfloat16
    assert scaled_advantage(short, epsilon=jnp.float32(1e-6)).dtype == jnp.bfloat16
    with jax.enable_x64(True):
        single = jnp.arange(3, dtype=jnp.float32)
        assert optimality_gap(single, target=wide).dtype == jnp.float32
        assert scaled_advantage(single, epsilon=wide).dtype == jnp.float32
        assert advantage_weights(single, temperature=wide, ceiling=wide).dtype == jnp.float32
        np.testing.assert_allclose(optimality_gap(single, target=wide), 1 / 6, rtol=1e-6)


@pytest.mark.parametrize("stiffness", [1e2, 1e3, 1e4, 5e4])
def test_a_stiff_plant_loses_the_digits_that_the_docstring_says(stiffness):
    a, b = np.asarray([[-stiffness, 1.0], [0.0, -1e-3]]), np.asarray([[0.0], [1.0]])
    ad, _ = zero_order_hold(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32), dt=1.0)
    slow = np.exp(-1e-3)
    assert abs(float(ad[1, 1]) / slow - 1) < 4e-8 * stiffness + 1e-6
    with jax.enable_x64(True):
        ad, _ = zero_order_hold(jnp.asarray(a), jnp.asarray(b), dt=1.0)
        assert abs(float(ad[1, 1]) / slow - 1) < 1e-16 * stiffness + 1e-14
