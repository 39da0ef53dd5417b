"""Draws of mixtures and of what is cut to a box, and their slopes, against SciPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from neorl_core.distributions import (
    beta_log_prob,
    beta_sample,
    gaussian_mixture_sample,
    truncated_normal_log_prob,
    truncated_normal_sample,
)

N = 20_000
KEYS = jax.random.split(jax.random.key(2027), N)
LEAST = 1e-4
"""Smallest p-value that passes; the keys are fixed, so a pass stays a pass."""


def drawn(sample, *parameters, **box):
    draw = jax.jit(jax.vmap(functools.partial(sample, *parameters, **box)))
    return np.asarray(draw(KEYS), np.float64)


@pytest.mark.nightly
def test_beta_draws():
    a, b = jnp.asarray([0.5, 8.0]), jnp.asarray([0.25, 3.0])
    draws = drawn(beta_sample, a, b, low=2.0, high=6.0)
    for channel in range(2):
        exact = stats.beta(float(a[channel]), float(b[channel]), loc=2, scale=4)
        # Rounding puts many draws of the first channel on an end; SciPy's law has none there.
        inside = (draws[:, channel] > 2.001) & (draws[:, channel] < 5.999)
        low, high = exact.cdf([2.001, 5.999])
        shares = (exact.cdf(draws[inside, channel]) - low) / (high - low)
        assert stats.kstest(shares, "uniform").pvalue > LEAST


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mean", "log_std"),
    [(0.25, -1.0), (-0.9, -2.0), (3.0, 0.0), (-4.0, -0.5), (0.5, 6.0), (-60.0, 4.0), (9.0, -0.5)],
)
def test_truncated_normal_draws(mean, log_std):
    draws = drawn(truncated_normal_sample, jnp.asarray([mean]), jnp.asarray([log_std]))[:, 0]
    std = np.exp(log_std)
    exact = stats.truncnorm((-1 - mean) / std, (1 - mean) / std, mean, std)
    assert stats.kstest(draws, exact.cdf).pvalue > LEAST


@jax.jit
def first_and_slopes(centre, width):
    def first(centre, width):
        return truncated_normal_sample(centre, width, KEYS[0])[0]

    return jax.value_and_grad(first, argnums=(0, 1))(centre, width)


log_density = jax.jit(truncated_normal_log_prob)


def test_truncated_normal_draws_move_with_their_parameters():
    """The slope of a draw at a fixed share: ``-dF/dparameter / density``, by differences."""
    with jax.enable_x64(True):
        for mean, log_std in ((0.25, -1.0), (3.0, 0.0), (-3.0, 0.2), (0.5, 6.0)):
            centre, width = jnp.asarray([mean]), jnp.asarray([log_std])

            at, slopes = first_and_slopes(centre, width)

            def share(mean, log_std, at=float(at)):
                std = np.exp(log_std)
                low, here, high = special.ndtr((np.asarray([-1, at, 1]) - mean) / std)
                return (here - low) / (high - low)

            step = 1e-5
            density = np.exp(float(log_density(at[None], centre, width)))
            for slope, (up, down) in zip(
                slopes,
                [
                    (share(mean + step, log_std), share(mean - step, log_std)),
                    (share(mean, log_std + step), share(mean, log_std - step)),
                ],
                strict=True,
            ):
                expected = -(up - down) / (2 * step) / density
                np.testing.assert_allclose(slope[0], expected, rtol=2e-3, atol=1e-6)


def test_mixture_draws():
    logits = jnp.asarray([0.0, 1.0, -jnp.inf])
    mean, log_std = jnp.asarray([[-2.0], [1.0], [50.0]]), jnp.asarray([[-1.0], [0.25], [0.0]])
    draws = drawn(gaussian_mixture_sample, logits, mean, log_std)[:, 0]
    weight = special.softmax(np.asarray(logits, np.float64))

    def cdf(x):
        return sum(
            w * stats.norm.cdf(x, float(m[0]), np.exp(float(s[0])))
            for w, m, s in zip(weight, mean, log_std, strict=True)
        )

    assert stats.kstest(draws, cdf).pvalue > LEAST


def test_a_concentration_that_is_not_positive_has_no_density():
    x, one = jnp.zeros(1), jnp.ones(1)
    for wrong in (0.0, -1.0, jnp.nan):
        assert np.isnan(beta_log_prob(x, wrong * one, one))
        assert np.isnan(beta_log_prob(x, one, wrong * one))


def test_traced_ends_without_room_between_them_give_nan():
    density = jax.jit(
        lambda high: truncated_normal_log_prob(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), high=high)
    )
    assert np.isnan(density(-2.0))
    assert np.isfinite(density(2.0))
