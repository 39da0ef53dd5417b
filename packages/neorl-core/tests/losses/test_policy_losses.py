"""Losses of policies where rows are masked, and where numbers are infinite, large or short."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.losses import (
    advantage_weights,
    masked_mean,
    ppo_clipped_loss,
    scaled_advantage,
    squared_loss,
    td3_bc_policy_loss,
)

RNG = np.random.default_rng(0)


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

    actual, expected = (
        jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*rows) for f in (ours, plain)
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, actual, expected))


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


def test_infinite_advantages_have_the_weight_of_their_limit():
    ends = jnp.asarray([jnp.inf, -jnp.inf, 3.0, jnp.nan])
    plain = advantage_weights(ends, inverse_temperature=0.0)
    np.testing.assert_array_equal(plain, [1, 1, 1, np.nan])
    traced = jax.jit(lambda t: advantage_weights(ends, inverse_temperature=t))
    np.testing.assert_array_equal(traced(0.0), plain)
    np.testing.assert_allclose(traced(1.0), [100, 0, np.exp(3), np.nan], rtol=1e-6)


@pytest.mark.parametrize("mask", [None, jnp.ones(70_000, bool)])
def test_a_mean_of_many_short_floats_is_summed_in_float32(mask):
    """The count and the sum are beyond 65,504, the largest float16."""
    mean = masked_mean(jnp.ones(70_000, jnp.float16), mask)
    assert (mean.dtype, float(mean)) == (jnp.float16, 1.0)


def test_an_advantage_whose_square_overflows_is_scaled():
    advantage = np.asarray([1e20, -1e20, 2e20])
    expected = advantage / np.std(advantage)
    for dtype in (jnp.float32, jnp.bfloat16):
        scaled = scaled_advantage(jnp.asarray(advantage, dtype))
        assert scaled.dtype == dtype
        np.testing.assert_allclose(np.asarray(scaled, np.float64), expected, rtol=1e-2)
    largest = scaled_advantage(jnp.asarray([3e38, -3e38]))
    np.testing.assert_allclose(largest, [1, -1], rtol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 3e-5, 7e9])
def test_an_advantage_is_scaled_as_by_the_plain_formula_to_the_bit(unit):
    """What keeps squares in range is a power of two, which rounds nothing."""
    advantage = jnp.asarray(unit * RNG.normal(size=256), jnp.float32)
    mask = jnp.asarray(RNG.uniform(size=256) < 0.7)

    def plain(x):
        mean = masked_mean(x, mask)
        return jnp.sqrt(masked_mean(jnp.square(x - mean), mask))

    counted = jnp.where(mask, advantage, 0)
    expected = counted / jnp.maximum(plain(counted), 1e-6)
    np.testing.assert_array_equal(scaled_advantage(advantage, mask), expected)


def test_weights_are_no_mask():
    """0.5 counted as one row in the sum and as half a row in the count."""
    x, halves = jnp.asarray([1.0, 3.0]), jnp.asarray([0.5, 0.5])
    for call in (masked_mean, scaled_advantage):
        with pytest.raises(ValueError, match="mask must be boolean, got float32; compare it"):
            call(x, halves)
    assert float(masked_mean(x, jnp.asarray([0, 2]))) == 3.0
