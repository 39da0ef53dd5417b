"""Inverse distribution functions that JAX lacks, by a bracketed solve."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    floats,
    require_positive,
    require_probability,
    require_together,
)
from neorl_core._internal.float_widths import narrowed, widened

_HALVINGS = 64


def beta_quantile(
    probability: Float[ArrayLike, "*batch"],
    a: Float[ArrayLike, "*batch"],
    b: Float[ArrayLike, "*batch"],
) -> Float[Array, "*batch"]:
    """The point below which a Beta(a, b) variable falls with the given probability.

    ``x`` with ``I_x(a, b) = probability``, where ``I`` is the regularised incomplete beta
    function, by 64 halvings of [0, 1]: exact to the rounding of ``I`` itself. In float32 that
    rounding grows with ``a + b``; above 1000 use float64. Not differentiable.

    Args:
        probability: Probability in [0, 1].
        a: First shape parameter, positive.
        b: Second shape parameter, positive; the three broadcast as NumPy does.

    Returns:
        In [0, 1]; NaN where an argument is outside its range under ``jit``.

    Raises:
        ValueError: If the shapes do not broadcast, or an argument is known and outside its range.

    Example:
        >>> round(float(beta_quantile(0.5, 2.0, 2.0)), 4)
        0.5
    """
    probability = require_probability("probability", probability, closed=True, many=True)
    a = require_positive("a", a, many=True)
    b = require_positive("b", b, many=True)
    require_together(probability=probability, a=a, b=b)
    p, a, b = jnp.broadcast_arrays(floats(probability), floats(a), floats(b))
    dtype = jnp.result_type(p, a, b)
    p, a, b = (widened(part.astype(dtype)) for part in (p, a, b))
    valid = (p >= 0) & (p <= 1) & (a > 0) & (b > 0)
    low, high = jnp.zeros_like(p), jnp.ones_like(p)
    low, high, _ = jax.lax.fori_loop(0, _HALVINGS, _halve, (low, high, (p, a, b)))
    x = jnp.where(p >= 1, 1, jnp.where(p <= 0, 0, (low + high) / 2))
    return narrowed(jnp.where(valid, x, jnp.nan), dtype)


def _halve(_, bracket):
    low, high, (p, a, b) = bracket
    middle = (low + high) / 2
    below = jax.scipy.special.betainc(a, b, middle) < p
    return jnp.where(below, middle, low), jnp.where(below, high, middle), (p, a, b)


def student_quantile(
    probability: Float[ArrayLike, "*batch"], degrees: Float[ArrayLike, "*batch"]
) -> Float[Array, "*batch"]:
    """The point below which a Student t variable falls with the given probability.

    With ``y = t^2 / (degrees + t^2)``, which is Beta(1/2, degrees/2) distributed,
    ``t = sign(p - 1/2) sqrt(degrees y / (1 - y))``. The logarithm of ``y`` or ``1 - y`` is solved
    for, so that few degrees and far tails keep their digits. Where the rounding of
    the beta function would show (above 200 degrees in float32, 10^4 in float64) the Cornish-Fisher
    series to the third order replaces it (Abramowitz and Stegun, 26.7.5). Not differentiable.

    Args:
        probability: Probability in [0, 1].
        degrees: Degrees of freedom, positive; the two broadcast as NumPy does.

    Returns:
        The quantile; infinite at 0 and 1 and where it overflows, NaN outside the ranges under
        ``jit``.

    Raises:
        ValueError: If the shapes do not broadcast, or an argument is known and outside its range.

    Example:
        >>> round(float(student_quantile(0.975, 9.0)), 3)
        2.262
    """
    probability = require_probability("probability", probability, closed=True, many=True)
    degrees = require_positive("degrees", degrees, many=True)
    require_together(probability=probability, degrees=degrees)
    p, degrees = jnp.broadcast_arrays(floats(probability), floats(degrees))
    dtype = jnp.result_type(p, degrees)
    p, degrees = widened(p.astype(dtype)), widened(degrees.astype(dtype))
    tail = jnp.minimum(p, 1 - p)
    valid = (p >= 0) & (p <= 1) & (degrees > 0)
    safe_tail, safe_degrees = jnp.where(valid, tail, 0.5), jnp.where(valid, degrees, 1)
    size = jnp.sqrt(safe_degrees) * jnp.exp(_log_odds(safe_tail, safe_degrees) / 2)
    t = jnp.where(p == 0.5, 0, jnp.sign(p - 0.5) * size)
    many = safe_degrees > (1e4 if jnp.finfo(p.dtype).bits >= 64 else 200)
    series = _cornish_fisher(jax.scipy.special.ndtri(p), safe_degrees)
    return narrowed(jnp.where(valid, jnp.where(many & (tail > 0), series, t), jnp.nan), dtype)


def _log_odds(tail: Array, degrees: Array) -> Array:
    """``log(y / (1 - y))`` where a tail of the Student distribution is left beyond ``y``."""
    half = jnp.full_like(tail, 0.5)
    inner = _log_beta_quantile(1 - 2 * tail, half, degrees / 2)
    outer = _log_beta_quantile(2 * tail, degrees / 2, half)
    by_outer = jnp.log(-jnp.expm1(outer)) - outer
    by_inner = inner - jnp.log(-jnp.expm1(inner))
    # One less a small tail has lost the tail's digits, wherever y lies.
    return jnp.where((tail < 0.1) | (outer < inner), by_outer, by_inner)


def _log_beta_quantile(p: Array, a: Array, b: Array) -> Array:
    """``log x`` with ``I_x(a, b) = p``: halved, and by the first term of the series near zero."""
    least = jnp.log(jnp.finfo(p.dtype).eps)
    low, high = jnp.full_like(p, least), jnp.zeros_like(p)
    low, high, _ = jax.lax.fori_loop(0, _HALVINGS, _halve_log, (low, high, (p, a, b)))
    first = (jnp.log(p) + jnp.log(a) + jax.scipy.special.betaln(a, b)) / a
    return jnp.where(first < least, first, (low + high) / 2)


def _halve_log(_, bracket):
    low, high, (p, a, b) = bracket
    middle = (low + high) / 2
    below = jax.scipy.special.betainc(a, b, jnp.exp(middle)) < p
    return jnp.where(below, middle, low), jnp.where(below, high, middle), (p, a, b)


def _cornish_fisher(z: Array, degrees: Array) -> Array:
    square = z**2
    first = (square + 1) / 4
    second = (5 * square**2 + 16 * square + 3) / 96
    third = (3 * square**3 + 19 * square**2 + 17 * square - 15) / 384
    return z * (1 + (first + (second + third / degrees) / degrees) / degrees)
