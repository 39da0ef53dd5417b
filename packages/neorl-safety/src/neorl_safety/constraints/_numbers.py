"""Arithmetic of limits that gives the same answer for NaN, infinities and subnormal numbers."""

import jax.numpy as jnp
from jaxtyping import Array


def finite_or_zero(x: Array) -> Array:
    """``x``, and zero where it is not finite."""
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


def flush(x: Array) -> Array:
    """Subnormal numbers to zero of the same sign, as some processors compare them anyway."""
    return jnp.where(jnp.abs(x) < jnp.finfo(x.dtype).tiny, jnp.copysign(jnp.zeros_like(x), x), x)


def usable_ends(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """An interval with finite ends: the largest number for a malformed end, or two inverted."""
    largest = jnp.finfo(low.dtype).max
    usable_low = jnp.where(jnp.isfinite(low), flush(low), -largest)
    usable_high = jnp.where(jnp.isfinite(high), flush(high), largest)
    inverted = usable_low > usable_high
    bad = ~(jnp.isfinite(low) & jnp.isfinite(high)) | inverted
    return (
        jnp.where(inverted, -largest, usable_low),
        jnp.where(inverted, largest, usable_high),
        bad,
    )


def usable_step(rate: Array, period: Array) -> tuple[Array, Array]:
    """Largest change in one period; infinite where there is no limit or a malformed one."""
    per_second = flush(rate)
    # Not `per_second < 0`: that is false for NaN, which must count as malformed.
    bad = ~(per_second >= 0)
    unlimited = bad | jnp.isinf(rate)
    step = flush(jnp.where(unlimited, 0, per_second) * period)
    return jnp.where(unlimited, jnp.inf, step), bad
