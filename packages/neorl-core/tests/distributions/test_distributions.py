"""Draws against SciPy's distributions: Kolmogorov-Smirnov and chi-squared tests on fixed keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.control import UniformPolicy
from neorl_core.distributions import (
    diagonal_gaussian_sample,
    tanh_gaussian_log_prob,
    tanh_gaussian_sample,
)

N = 20_000
KEYS = jax.random.split(jax.random.key(2026), N)
MEAN, LOG_STD = jnp.asarray([0.5, -2.0]), jnp.asarray([-0.5, 0.75])
LEAST = 1e-4
"""Smallest p-value that passes; the keys are fixed, so a pass stays a pass."""


def test_gaussian_draws():
    draws = np.asarray(jax.vmap(diagonal_gaussian_sample, (None, None, 0))(MEAN, LOG_STD, KEYS))
    for channel in range(2):
        exact = stats.norm(float(MEAN[channel]), float(jnp.exp(LOG_STD[channel])))
        assert stats.kstest(draws[:, channel], exact.cdf).pvalue > LEAST
    assert abs(np.corrcoef(draws.T)[0, 1]) < 5 / np.sqrt(N)


@pytest.mark.nightly
def test_tanh_gaussian_draws_and_their_densities():
    draws, log_p = jax.vmap(tanh_gaussian_sample, (None, None, 0))(MEAN, LOG_STD, KEYS)
    draws = np.asarray(draws)
    for channel in range(2):
        exact = stats.norm(float(MEAN[channel]), float(jnp.exp(LOG_STD[channel])))
        inside = np.clip(draws[:, channel].astype(np.float64), -1 + 1e-7, 1 - 1e-7)
        assert stats.kstest(inside, lambda a, exact=exact: exact.cdf(np.arctanh(a))).pvalue > LEAST
    # Through the action itself the density is the same where float32 still resolves the latent.
    unsaturated = np.all(np.abs(draws) < 0.999, axis=1)
    again = tanh_gaussian_log_prob(draws, jnp.tile(MEAN, (N, 1)), LOG_STD[None])
    np.testing.assert_allclose(again[unsaturated], log_p[unsaturated], atol=1e-3)
    assert np.mean(unsaturated) > 0.5


def test_saturated_actions_have_finite_densities_and_gradients():
    """At the bound in float32: a draw by its latent, a logged action by the margin."""
    far = jnp.asarray([30.0, -200.0])
    action, log_p = tanh_gaussian_sample(far, jnp.zeros(2), KEYS[0])
    assert action.tolist() == [1.0, -1.0]
    assert np.isfinite(log_p)
    # log N + 2 |u| - 2 log 2, where |u| is the latent itself.
    latent = diagonal_gaussian_sample(far, jnp.zeros(2), KEYS[0])
    exact = stats.norm.logpdf(latent, far).sum() + 2 * np.abs(latent).sum() - 4 * np.log(2)
    np.testing.assert_allclose(log_p, exact, rtol=1e-5)
    for bound in (-1.0, 1.0):
        logged = jnp.full(2, bound)
        value, gradient = jax.value_and_grad(
            lambda mean, logged=logged: tanh_gaussian_log_prob(logged, mean, jnp.zeros(2))
        )(jnp.zeros(2))
        assert np.isfinite(value)
        # The latent of 1 - 1e-5, to the resolution of float32 there.
        np.testing.assert_allclose(gradient, bound * np.arctanh(1 - 1e-5), rtol=1e-3)


def test_uniform_policy_draws():
    policy = UniformPolicy(jnp.asarray([-2.0]), jnp.asarray([6.0]))
    draws = np.asarray(jax.vmap(lambda key: policy((), jnp.zeros(1), key)[1][0])(KEYS))
    assert stats.kstest(draws, stats.uniform(-2, 8).cdf).pvalue > LEAST


def test_an_action_beyond_its_bounds_has_no_density():
    """An action of 7 had the density of 1."""
    zero = jnp.zeros(2)
    for action in (
        jnp.asarray([0.0, 7.0]),
        jnp.asarray([0.0, -1.001]),
        jnp.asarray([0.0, jnp.nan]),
    ):
        with pytest.raises(ValueError, match=r"in \[-1, 1\], got"):
            tanh_gaussian_log_prob(action, zero, zero)
    density = jax.jit(tanh_gaussian_log_prob)
    rows = jnp.asarray([[0.0, 7.0], [0.0, -1.001], [1.0, -1.0], [0.0, 1 + 2e-7]])
    values = density(rows, jnp.zeros((4, 2)), jnp.zeros((4, 2)))
    assert np.isnan(values).tolist() == [True, True, False, False]
    # What scaling rounds beyond a bound is on it.
    np.testing.assert_array_equal(values[3], density(rows[3].clip(-1, 1), zero, zero))
    slope = jax.jit(jax.grad(tanh_gaussian_log_prob, argnums=(0, 1)))
    assert all(np.isfinite(leaf).all() for leaf in slope(rows[2], zero, zero))
