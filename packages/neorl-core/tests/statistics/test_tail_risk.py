"""Quantiles and tail means: many samples, short floats, infinite samples, large weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import conditional_value_at_risk, weighted_quantile

RNG = np.random.default_rng(0)
QUANTILES = (0.0, 1e-4, 0.07, 0.5, 0.9, 0.99995, 1.0)


@jax.jit
def quantile(samples, weights, level):
    return weighted_quantile(samples, weights, quantile=level)


@jax.jit
def lowest(samples, weights, fraction):
    return conditional_value_at_risk(samples, weights, tail=fraction)


def rank(quantile, n):
    """The index of the quantile of n samples, in integer arithmetic."""
    parts = round(quantile * 10**6)
    return max(-(-parts * n // 10**6), 1) - 1


@pytest.mark.parametrize("n", [1000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_a_quantile_of_many_samples_is_the_one_that_is_counted(n):
    samples = jnp.arange(n, dtype=jnp.float32)[::-1]
    equal = jnp.full(n, 0.1)
    for p in QUANTILES:
        expected = rank(p, n)
        assert float(weighted_quantile(samples, quantile=p)) == expected
        assert float(quantile(samples, None, p)) == expected
        # Weights are added up to 2e-6 of their sum.
        assert abs(float(quantile(samples, equal, p)) - expected) <= 2e-6 * n


def test_a_level_that_is_rounded_reaches_its_step():
    assert float(weighted_quantile(jnp.arange(100.0), quantile=jnp.float32(0.07))) == 6


@pytest.mark.nightly
def test_a_quantile_of_short_floats_is_counted_too():
    values = (jnp.arange(1000) / 1000).astype(jnp.bfloat16)
    for weights in (None, jnp.ones(1000, jnp.bfloat16)):
        for p in (0.0, 0.1, 0.5, 0.9, 1.0):
            result = weighted_quantile(values, weights, quantile=p)
            assert result.dtype == jnp.bfloat16
            assert float(result) == float(values[rank(p, 1000)])
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
        low, high = (np.argmax(reached >= near * reached[-1]) for near in (p - 2e-6, p + 2e-6))
        assert low <= float(quantile(*given, p)) <= high
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
    assert float(quantile(samples, weights, 0.5)) == 1
    np.testing.assert_allclose(lowest(samples, weights, 1.0), 1, rtol=1e-6)
    assert np.isnan(quantile(samples, weights.at[1].set(jnp.inf), 0.5))
    assert np.isnan(lowest(samples, weights.at[1].set(jnp.inf), 0.5))
    np.testing.assert_allclose(lowest(samples, jnp.full(3, 2e-38), 0.5), 1 / 3, rtol=1e-6)
    # A sample without weight is never the quantile, at either end.
    ends = jnp.asarray([0.0, 1.0, 0.0])
    assert [float(quantile(samples, ends, p)) for p in (0.0, 1.0)] == [1, 1]
