"""The entropy of the squashed Gaussian against SciPy's quadrature, wide and narrow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from neorl_core.distributions import tanh_gaussian_entropy


def entropy_by_quadrature(mean, std):
    """Of ``tanh(u)``: that of the Gaussian and the mean of ``log(1 - tanh(u)^2)``."""

    def slope(z):
        u = mean + std * z
        return stats.norm.pdf(z) * (np.log(4.0) - 2 * np.logaddexp(u, -u))

    kink = np.clip(-mean / std, -12, 12)
    pieces = [
        integrate.quad(slope, *ends, limit=200, epsabs=1e-13, epsrel=1e-13)[0]
        for ends in ((-12, kink), (kink, 12))
    ]
    return np.log(std) + 0.5 * (1 + np.log(2 * np.pi)) + sum(pieces)


@pytest.mark.nightly
@pytest.mark.parametrize("wide", [False, True])
def test_the_entropy_of_a_tanh_gaussian_has_the_error_it_states(wide):
    cases = [
        (m, s) for m in (0.0, 0.5, -3.0, 8.0, 20.0) for s in (-10.0, -4.0, -1.0, 0.0, 2.0, 5.0)
    ]
    with jax.enable_x64(wide):
        dtype = jnp.float64 if wide else jnp.float32
        entropy = jax.jit(jax.vmap(tanh_gaussian_entropy))
        mean, log_std = (jnp.asarray(column, dtype)[:, None] for column in zip(*cases, strict=True))
        actual = np.asarray(entropy(mean, log_std), np.float64)
    for (centre, width), value in zip(cases, actual, strict=True):
        std = np.exp(width)
        exact = entropy_by_quadrature(centre, std)
        size = 1 + abs(width) + 2 * stats.foldnorm.mean(abs(centre) / std, scale=std)
        assert abs(value - exact) < (1e-9 * (1 + size) if wide else 1e-6 * size), (centre, width)


@pytest.mark.nightly
@pytest.mark.parametrize("log_std", [-30.0, -50.0, -88.0, -100.0, -300.0])
def test_the_entropy_of_a_narrow_tanh_gaussian_is_that_of_its_tangent(log_std):
    """``log s + (1 + log 2 pi) / 2 + log(1 - tanh(mean)^2)``, and slopes of one and ``-2 tanh``."""
    for mean in (0.0, 0.7, -4.0):
        entropy = jax.jit(jax.value_and_grad(tanh_gaussian_entropy, argnums=(0, 1)))
        value, slopes = entropy(jnp.asarray([mean]), jnp.asarray([log_std]))
        exact = log_std + 0.5 * (1 + np.log(2 * np.pi)) + np.log(4) - 2 * np.logaddexp(mean, -mean)
        np.testing.assert_allclose(value, exact, rtol=1e-6)
        np.testing.assert_allclose(slopes[0], [-2 * np.tanh(mean)], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(slopes[1], [1.0], rtol=1e-5)
