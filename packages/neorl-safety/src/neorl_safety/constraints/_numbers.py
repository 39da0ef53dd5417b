"""Arithmetic of limits that treats NaN, infinities and subnormal numbers the same everywhere."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def finite_or_zero(x: Array) -> Array:
    """``x``, with zero where it is not finite."""
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


def flush(x: Array) -> Array:
    """Replaces subnormal numbers by zero of the same sign, since some processors do so anyway."""
    return jnp.where(jnp.abs(x) < jnp.finfo(x.dtype).tiny, jnp.copysign(jnp.zeros_like(x), x), x)


def subnormal(x: Array) -> Bool[Array, "..."]:
    """Whether a number is subnormal, judged by its bits: some processors compare it as zero."""
    width = jnp.uint64 if x.dtype == jnp.float64 else jnp.uint32
    info = jnp.finfo(x.dtype)
    largest_magnitude = (1 << (info.bits - 1)) - 1
    bits = jax.lax.bitcast_convert_type(x, width) & width(largest_magnitude)
    return (bits > 0) & (bits < width(1 << info.nmant))


def usable_ends(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """An interval with finite ends: malformed or inverted ends become the largest numbers."""
    largest = jnp.finfo(low.dtype).max
    usable_low = jnp.where(jnp.isfinite(low), flush(low), -largest)
    usable_high = jnp.where(jnp.isfinite(high), flush(high), largest)
    inverted = usable_low > usable_high
    valid = jnp.isfinite(low) & jnp.isfinite(high) & ~subnormal(low) & ~subnormal(high)
    return (
        jnp.where(inverted, -largest, usable_low),
        jnp.where(inverted, largest, usable_high),
        ~valid | inverted,
    )


def usable_step(rate: Array, period: Array) -> tuple[Array, Array]:
    """Largest change in one period; infinite if there is no limit, zero if it is malformed.

    A product beyond the largest number becomes that number, so a limit is never lost.
    """
    per_second = flush(rate)
    # Not `per_second < 0`, which is false for NaN; NaN must count as malformed.
    bad = ~(per_second >= 0) | subnormal(rate)
    unlimited = ~bad & jnp.isinf(rate)
    finite = jnp.where(bad | unlimited, 0, per_second)
    step = jnp.minimum(flush(finite * period), jnp.finfo(rate.dtype).max)
    return jnp.where(unlimited, jnp.inf, step), bad


def rounded_towards_first(first: Array, second: Array) -> Array:
    """``first + second``, rounded towards ``first`` if the sum is not a floating-point number.

    So the result is never further from ``first`` than ``second`` allows. The rounding error is
    computed by Knuth's TwoSum.
    """
    total = first + second
    part = total - first
    error = (first - (total - part)) + (second - part)
    rounded_away = jnp.where(second >= 0, error < 0, error > 0)
    constant_total = jax.lax.stop_gradient(
        total
    )  # nextafter has no derivative; one ulp back is a constant
    correction = jnp.where(
        rounded_away,
        jnp.nextafter(constant_total, jax.lax.stop_gradient(first)) - constant_total,
        0,
    )
    return total + correction
