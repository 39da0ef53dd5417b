"""Tail means of returns, plain or importance-weighted."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    is_concrete,
    require_length,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.float_widths import is_half_precision
from neorl_core._internal.sorting import sort_floats


def conditional_value_at_risk(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    tail: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Mean of the lowest fraction ``tail`` of the returns.

    It is ``1/tail`` times the integral of the quantile from zero to ``tail``. The sample that
    straddles the end of the tail contributes with the part inside; samples beyond it contribute
    nothing, even if they are infinite. At 1 it is the mean, towards 0 the minimum. For costs,
    negate samples and result. Weights are summed to within 2e-6 of their total in float32.

    Args:
        samples: Samples, for example returns of episodes, one or more.
        weights: Sample weights, not negative; equal if ``None``.
        tail: Fraction of the samples to average, in (0, 1]; NaN results under ``jit`` if it is
            outside.

    Returns:
        The tail mean, in the units of the samples; NaN if all weights are zero, one is negative or
        infinite, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``tail`` is outside (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(conditional_value_at_risk(jnp.array([4.0, 1.0, 2.0, 3.0]), tail=0.5))
        1.5

    Source: Rockafellar and Uryasev, Optimization of conditional value-at-risk, 2000.
    """
    tail = checked_probability("tail", tail, closed=True)
    if is_concrete(tail) and np.any(np.asarray(tail) <= 0):
        raise ValueError(
            f"tail must be in (0, 1], got {tail}; 1 is the mean; give a fraction, not a percentage"
        )
    ordered, mass = _distribution(samples, weights)
    cumulative = _cumulative(mass, weights is None)
    before = jnp.roll(cumulative, 1).at[0].set(0)
    target = jnp.asarray(tail).astype(mass.dtype) * cumulative[-1]
    # Not jnp.clip: its gradient tests whether the result equals an argument, which XLA may compute
    # twice with different rounding.
    room = target - before
    inside = jnp.where(room >= mass, mass, jnp.where(room <= 0, 0, room))
    part = inside / jnp.sum(inside)
    counted = jnp.where((part > 0) | jnp.isfinite(ordered), ordered, 0).astype(mass.dtype)
    return jnp.sum(part * counted).astype(ordered.dtype)


def _cumulative(mass: Float[Array, " sample"], counted: bool) -> Float[Array, " sample"]:
    """The cumulative mass; if all samples have weight one, their exact number."""
    if counted:
        return mass * jnp.arange(1, mass.shape[0] + 1).astype(mass.dtype)
    return jnp.cumsum(mass)


def _distribution(samples: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    """The samples in order and their scaled weights, in float32 or wider; NaN if invalid."""
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, 1)
    samples = floats(samples)
    dtype = jnp.float32 if is_half_precision(samples.dtype) else samples.dtype
    if weights is None:
        ordered = sort_floats(samples)
        any_nan = jnp.any(jnp.isnan(samples))
        return ordered, jnp.broadcast_to(
            jnp.where(any_nan, jnp.nan, 1).astype(dtype), ordered.shape
        )
    weights = floats(weights).astype(dtype)
    require_same_shape("samples", samples, "weights", weights)
    largest = jnp.max(weights)
    valid = jnp.all(weights >= 0) & (largest > 0) & (largest < jnp.inf)
    valid = valid & ~jnp.any(jnp.isnan(samples))
    # Powers of two do not round, and keep the sum in range.
    factor = jnp.where(largest > 2.0**64, 2.0**-64, jnp.where(largest < 2.0**-64, 2.0**64, 1.0))
    order = jnp.argsort(samples)
    return samples[order], jnp.where(valid, weights[order] * factor.astype(dtype), jnp.nan)
