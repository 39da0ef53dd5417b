"""Tail means: many samples, short floats, infinite samples, large weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import (
    conditional_value_at_risk,
)

RNG = np.random.default_rng(0)


@jax.jit
def lowest(samples, weights, fraction):
    return conditional_value_at_risk(samples, weights, tail=fraction)


@pytest.mark.nightly
def test_a_tail_of_short_floats_is_counted():
    values = (jnp.arange(1000) / 1000).astype(jnp.bfloat16)
    for weights in (None, jnp.ones(1000, jnp.bfloat16)):
        result = conditional_value_at_risk(values, weights, tail=0.5)
        assert result.dtype == jnp.bfloat16
        np.testing.assert_allclose(float(result), 0.2495, rtol=0.01)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "spread", [*(pytest.param(s, marks=pytest.mark.nightly) for s in (0.0, 3.0)), 1.0]
)
def test_tails_of_many_weighted_samples_equal_those_in_double(spread):
    n = 100_000
    samples, weights = RNG.permutation(n), np.exp(spread * RNG.normal(size=n)).astype(np.float32)
    order = np.argsort(samples)
    mass = weights[order].astype(np.float64)
    reached = np.cumsum(mass)
    given = jnp.asarray(samples, jnp.float32), jnp.asarray(weights)
    for p in (1e-4, 0.01, 0.5, 0.9, 0.9999):
        inside = np.clip(p * reached[-1] - (reached - mass), 0, mass)
        expected = np.sum(inside * np.arange(n)) / inside.sum()
        np.testing.assert_allclose(lowest(*given, p), expected, rtol=1e-5)


@pytest.mark.nightly
def test_what_lies_beyond_the_tail_may_be_infinite():
    samples = jnp.asarray([1.0, jnp.inf, 2.0])
    assert float(conditional_value_at_risk(samples, tail=0.3)) == 1
    np.testing.assert_allclose(conditional_value_at_risk(samples, tail=0.5), 4 / 3, rtol=1e-6)
    assert float(conditional_value_at_risk(samples, tail=1.0)) == np.inf
    assert float(conditional_value_at_risk(-samples, tail=0.3)) == -np.inf
    slope = jax.grad(lambda x: conditional_value_at_risk(x, tail=0.5))(samples)
    np.testing.assert_allclose(slope, [2 / 3, 0, 1 / 3], rtol=1e-6)


def test_large_weights_do_not_overflow_and_infinite_ones_are_flagged():
    samples, weights = jnp.arange(3.0), jnp.full(3, 3e38)
    np.testing.assert_allclose(lowest(samples, weights, 1.0), 1, rtol=1e-6)
    assert np.isnan(lowest(samples, weights.at[1].set(jnp.inf), 0.5))
    np.testing.assert_allclose(lowest(samples, jnp.full(3, 2e-38), 0.5), 1 / 3, rtol=1e-6)
