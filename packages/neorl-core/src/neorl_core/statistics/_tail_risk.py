"""Quantiles and tail means of returns, plain or importance-weighted."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    floats,
    is_concrete,
    require_length,
    require_probability,
    require_rank,
    require_same_shape,
)


def weighted_quantile(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    probability: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The smallest sample whose cumulative weight reaches ``probability``.

    The left inverse of the weighted empirical distribution: always one of the samples. With the
    weights of trajectories it estimates a quantile of the return of the evaluated policy. Without
    weights the samples are counted; weights are added up in twice their precision. As a
    probability may have been rounded, a step of the distribution is reached four rounding units
    of ``probability`` early: in float32 that is half a sample of a million.

    Args:
        samples: Samples, for example returns of episodes, one or more.
        weights: Not negative; equal ones if ``None``.
        probability: Probability in [0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The quantile, in the units of the samples; NaN if all weights are zero, one is negative or
        infinite, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``probability`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(weighted_quantile(jnp.array([3.0, 1.0, 2.0]), probability=0.5))
        2.0

    Source: Chandak et al., Universal off-policy evaluation, arXiv 2104.12820.
    """
    probability = require_probability("probability", probability, closed=True)
    ordered, mass = _distribution(samples, weights)
    if weights is None and is_concrete(probability):
        quantile = ordered[_count(probability, ordered.shape[0]) - 1]
        return jnp.where(jnp.isnan(mass[0]), jnp.nan, quantile)
    reached, rest = _sums(mass, weights is None)
    probability = jnp.asarray(probability).astype(mass.dtype)
    least = probability * (1 - 4 * jnp.finfo(mass.dtype).eps) * reached[-1]
    enough = ((reached - least) + rest >= 0) & (mass > 0)
    last = jnp.max(jnp.where(mass > 0, jnp.arange(mass.shape[0]), 0))
    index = jnp.where(probability < 1, jnp.argmax(enough), last)
    return jnp.where(jnp.isnan(least), jnp.nan, ordered[index])


def conditional_value_at_risk(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    fraction: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Mean of the lowest ``fraction`` of the returns.

    It is ``1/fraction`` times the integral of the quantile from zero to ``fraction``. The sample
    that straddles the fraction counts by the part inside; what lies beyond does not count, even if
    it is infinite. At 1 it is the mean, towards 0 the minimum. For costs, negate samples and
    result.

    Args:
        samples: Samples, for example returns of episodes, one or more.
        weights: Not negative; equal ones if ``None``.
        fraction: Tail fraction in (0, 1]; NaN results under ``jit`` where it is outside.

    Returns:
        The tail mean, in the units of the samples; NaN if all weights are zero, one is negative or
        infinite, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``fraction`` is outside (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(conditional_value_at_risk(jnp.array([4.0, 1.0, 2.0, 3.0]), fraction=0.5))
        1.5

    Source: Rockafellar and Uryasev, Optimization of conditional value-at-risk, 2000.
    """
    fraction = require_probability("fraction", fraction, closed=True)
    if is_concrete(fraction) and np.any(np.asarray(fraction) <= 0):
        raise ValueError(
            f"fraction must be in (0, 1], got {fraction}; 1 is the mean; give a fraction, not per "
            "cent"
        )
    ordered, mass = _distribution(samples, weights)
    reached, rest = _sums(mass, weights is None)
    before, rest = jnp.roll(reached, 1).at[0].set(0), jnp.roll(rest, 1).at[0].set(0)
    target_mass = jnp.asarray(fraction).astype(mass.dtype) * reached[-1]
    inside = jnp.clip((target_mass - before) - rest, 0, mass)
    part = inside / jnp.sum(inside)
    tail = jnp.where((part > 0) | jnp.isfinite(ordered), ordered, 0).astype(mass.dtype)
    return jnp.sum(part * tail).astype(ordered.dtype)


def _count(probability: ArrayLike, n: int) -> int:
    """How many of ``n`` samples are the known fraction: one or more."""
    fraction = np.asarray(probability)
    if fraction >= 1:
        return n
    dtype = fraction.dtype if jnp.issubdtype(fraction.dtype, jnp.floating) else np.float64
    eps = min(float(jnp.finfo(dtype).eps), float(jnp.finfo(np.float32).eps))
    return max(math.ceil(float(fraction) * n * (1 - 4 * eps)), 1)


def _sums(mass: Array, ones: bool) -> tuple[Array, Array]:
    """The cumulative sums, each as a float and what that float leaves out."""
    n = mass.shape[0]
    if ones:
        return mass * jnp.arange(1, n + 1).astype(mass.dtype), jnp.zeros_like(mass)
    return jax.lax.fori_loop(0, (n - 1).bit_length(), _double, (mass, jnp.zeros_like(mass)))


def _double(level: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
    """Sums of ``2^level`` entries become sums of twice as many."""
    index = jnp.arange(sums[0].shape[0]) - jnp.left_shift(1, level)
    first, rest = (jnp.where(index >= 0, part[jnp.maximum(index, 0)], 0) for part in sums)
    return _add((first, rest), sums)


def _add(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """The sum of two numbers, each an unevaluated sum of two floats."""
    total = first[0] + second[0]
    added = total - first[0]
    lost = (first[0] - (total - added)) + (second[0] - added) + (first[1] + second[1])
    result = total + lost
    return result, lost - (result - total)


def _distribution(samples: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    """The samples in order, and their weights up to a factor, in float32 or wider; NaN if bad."""
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, 1)
    samples = floats(samples)
    dtype = samples.dtype if jnp.finfo(samples.dtype).bits >= 32 else jnp.float32
    weights = jnp.ones(samples.shape, dtype) if weights is None else floats(weights).astype(dtype)
    require_same_shape("samples", samples, "weights", weights)
    largest = jnp.max(weights)
    valid = jnp.all(weights >= 0) & (largest > 0) & (largest < jnp.inf)
    valid = valid & ~jnp.any(jnp.isnan(samples))
    # Powers of two round nothing; the sum stays in range.
    factor = jnp.where(largest > 2.0**64, 2.0**-64, jnp.where(largest < 2.0**-64, 2.0**64, 1.0))
    order = jnp.argsort(samples)
    return samples[order], jnp.where(valid, weights[order] * factor.astype(dtype), jnp.nan)
