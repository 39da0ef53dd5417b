"""Conformal limits cover one more outcome; tails of a return distribution."""

import fractions
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import (
    conditional_value_at_risk,
    conformal_quantile,
    conformal_sample_size,
    weighted_conformal_quantile,
)

# An eager call would compile every operation by itself.
conformal_quantile, weighted_conformal_quantile, conditional_value_at_risk = map(
    jax.jit, (conformal_quantile, weighted_conformal_quantile, conditional_value_at_risk)
)

KEY = jax.random.key(0)


def test_one_more_outcome_is_covered_exactly_as_often_as_promised():
    n, miscoverage, draws = 19, 0.1, 6000
    scores = jax.random.exponential(KEY, (draws, n + 1))
    quantile = jax.vmap(functools.partial(conformal_quantile, miscoverage=miscoverage))
    limit = jax.jit(quantile)(scores[:, :n])
    covered = np.mean(np.asarray(scores[:, n] <= limit))
    assert abs(covered - 0.9) < 3 * np.sqrt(0.09 / draws)


@pytest.mark.parametrize(("miscoverage", "least"), [(0.1, 9), (0.05, 19), (0.01, 99), (0.001, 999)])
def test_the_number_of_scores_that_a_level_needs(miscoverage, least):
    assert np.isinf(conformal_quantile(np.zeros(least - 1, np.float32), miscoverage=miscoverage))
    assert np.isfinite(conformal_quantile(np.zeros(least, np.float32), miscoverage=miscoverage))
    assert conformal_sample_size(miscoverage) == least


def test_the_number_of_scores_is_that_of_exact_arithmetic():
    for promised in range(1, 200):
        wanted = fractions.Fraction(promised, 200)
        least = math.ceil(1 / wanted - 1)
        assert conformal_sample_size(promised / 200) == least
        assert conformal_sample_size(1 - (200 - promised) / 200) == least, "as 1 less a coverage"
    for wrong in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"miscoverage must be in \(0, 1\)"):
            conformal_sample_size(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("n", "miscoverage"),
    [(10**7 - 2, "0.05"), (10**6 - 1, "0.3"), (10**6, "0.001"), (10**6 - 2, "0.7")],
)
def test_the_rank_among_many_scores_is_the_exact_one(n, miscoverage):
    above = math.floor((n + 1) * fractions.Fraction(miscoverage))
    limit = conformal_quantile(np.arange(n, dtype=np.float32), miscoverage=float(miscoverage))
    assert float(limit) == n - above


def test_weights_cover_a_shifted_population():
    """Scores of Exp(1); the case to come is of density ``2 x exp(-x^2)``, known as a ratio."""
    n, miscoverage, draws = 200, 0.2, 3000
    key_log, key_next = jax.random.split(KEY)
    scores = jax.random.exponential(key_log, (draws, n))
    shifted = jnp.sqrt(jax.random.exponential(key_next, (draws,)))

    def ratio(x):
        return 2 * x * jnp.exp(-(x**2) + x)

    quantile = jax.jit(
        jax.vmap(functools.partial(weighted_conformal_quantile, miscoverage=miscoverage))
    )
    limit = quantile(scores, ratio(scores), ratio(shifted))
    covered = np.mean(np.asarray(shifted <= limit))
    assert 0.8 - 3 * np.sqrt(0.16 / draws) <= covered <= 0.8 + 0.06
    plain = jax.jit(jax.vmap(functools.partial(conformal_quantile, miscoverage=miscoverage)))(
        scores
    )
    assert np.mean(np.asarray(shifted <= plain)) > 0.83


def test_bad_scores_and_weights_are_flagged_under_jit():
    scores, nan = jnp.arange(30.0), jnp.asarray([jnp.nan] * 30)
    assert np.isnan(conformal_quantile(scores.at[3].set(jnp.nan)))
    weighted = weighted_conformal_quantile
    assert np.isnan(weighted(nan, jnp.ones(30), 1.0))
    assert np.isnan(weighted(scores, -jnp.ones(30), 1.0))
    assert np.isnan(weighted(scores, jnp.ones(30), -1.0))
    assert np.isinf(weighted(scores, jnp.zeros(30), 0.0))
    for bad in (jnp.zeros(30), -jnp.ones(30), nan):
        assert np.isnan(conditional_value_at_risk(scores, bad, tail=0.5))
    assert np.isnan(conditional_value_at_risk(nan, jnp.ones(30), tail=0.5))


def test_weights_carry_tails_to_another_policy():
    """Draws from U(0, 1), weighted by ``2 x``, have the distribution function ``x^2``."""
    samples = jax.random.uniform(KEY, (20_000,))
    for p in (0.1, 0.5, 0.9):
        lowest = conditional_value_at_risk(samples, 2 * samples, tail=p)
        np.testing.assert_allclose(lowest, np.sqrt(p) * 2 / 3, atol=0.02)
