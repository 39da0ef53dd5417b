"""Variances of block bootstrap means in closed form, and coverage of an autocorrelated series."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import (
    block_bootstrap_interval,
    block_bootstrap_replicates,
    bootstrap_interval,
)

LENGTH, BLOCK, COEFFICIENT = 240, 12, 0.8
SERIES = np.random.default_rng(0).normal(size=LENGTH).cumsum() * 0.3


def variance_of_the_circular_mean(series, block):
    """Of ``n / l`` independent blocks, each as likely."""
    twice = np.concatenate([series, series])
    means = [twice[start : start + block].mean() for start in range(len(series))]
    return np.var(means) * block / len(series)


def variance_of_the_moving_mean(series, block):
    means = [series[i : i + block].mean() for i in range(len(series) - block + 1)]
    return np.var(means) * block / len(series)


def variance_of_the_stationary_mean(series, block):
    """Politis and Romano 1994, lemma 1, with circular autocovariances."""
    n, centred = len(series), series - series.mean()
    covariance = [np.mean(centred * np.roll(centred, -lag)) for lag in range(n)]
    lags = np.arange(1, n)
    weights = (1 - lags / n) * (1 - 1 / block) ** lags
    return (covariance[0] + 2 * np.sum(weights * covariance[1:])) / n


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("blocks", "exact"),
    [
        ("circular", variance_of_the_circular_mean),
        ("moving", variance_of_the_moving_mean),
        ("stationary", variance_of_the_stationary_mean),
    ],
)
def test_the_mean_has_the_variance_of_the_drawn_blocks(blocks, exact):
    resamples = 4000
    means = np.asarray(
        block_bootstrap_replicates(
            jnp.asarray(SERIES, jnp.float32),
            jax.random.key(1),
            block_length=BLOCK,
            blocks=blocks,
            resamples=resamples,
        )
    )
    expected = exact(SERIES, BLOCK)
    assert abs(means.var() / expected - 1) < 5 * np.sqrt(2 / resamples)
    if blocks != "moving":  # Its ends are drawn less often.
        assert abs(means.mean() - SERIES.mean()) < 5 * np.sqrt(expected / resamples)


@pytest.mark.nightly
def test_the_mean_of_an_autocorrelated_series_is_covered_by_blocks_alone():
    """Six hundred steps of an AR(1), many times."""
    count, length, level = 150, 600, 0.9
    noise = jax.random.normal(jax.random.key(2), (count, length + 100))

    def step(state, noise):
        state = COEFFICIENT * state + noise
        return state, state

    _, series = jax.lax.scan(step, jnp.zeros(count), noise.T)
    keys = jax.random.split(jax.random.key(3), count)

    def covered(interval):
        limits = jax.jit(jax.vmap(functools.partial(interval, level=level, resamples=150)))(
            series[100:].T, keys
        )
        return np.mean((np.asarray(limits.low) <= 0) & (np.asarray(limits.high) >= 0))

    blocks = covered(functools.partial(block_bootstrap_interval, block_length=30))
    # The variance of the mean is (1 + 0.8) / (1 - 0.8) = 9 times that of independent samples.
    independent = covered(functools.partial(bootstrap_interval, method="percentile"))
    assert 0.75 < blocks < 0.96
    assert independent < 0.55
