"""Quantiles of Student's distribution, which JAX lacks."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_HALVINGS = 64


def student_quantile(
    probability: Float[Array, "*batch"], degrees: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The point that a Student t variable stays below with the given probability.

    With ``y = t^2 / (degrees + t^2)``, which has the distribution Beta(1/2, degrees/2), ``t =
    sign(p - 1/2) sqrt(degrees y / (1 - y))``. The equation is solved for the logarithm of ``y`` or
    ``1 - y``, so that few degrees of freedom and far tails keep their digits. Where the rounding of
    the beta function would show, it is replaced by the Cornish-Fisher series to third order
    (Abramowitz and Stegun, 26.7.5). Not differentiable.

    Args:
        probability: Probability in [0, 1], in float32 or wider; NaN gives NaN.
        degrees: Degrees of freedom, positive; same shape.
    """
    tail = jnp.minimum(probability, 1 - probability)
    safe = jnp.where(jnp.isnan(tail), 0.5, tail)
    size = jnp.sqrt(degrees) * jnp.exp(_log_odds(safe, degrees) / 2)
    t = jnp.where(probability == 0.5, 0, jnp.sign(probability - 0.5) * size)
    series = _cornish_fisher(jax.scipy.special.ndtri(probability), degrees)
    return jnp.where(_many(degrees) & (tail > 0), series, t)


def _many(degrees: Array) -> Array:
    """Where the incomplete beta function has lost more digits than a truncated series would."""
    return degrees > (1e4 if jnp.finfo(degrees.dtype).bits >= 64 else 200)


def _log_odds(tail: Array, degrees: Array) -> Array:
    """``log(y / (1 - y))`` beyond which the Student distribution has probability ``tail``."""
    half = jnp.full_like(tail, 0.5)
    inner = _log_beta_quantile(1 - 2 * tail, half, degrees / 2)
    outer = _log_beta_quantile(2 * tail, degrees / 2, half)
    by_outer = jnp.log(-jnp.expm1(outer)) - outer
    by_inner = inner - jnp.log(-jnp.expm1(inner))
    # One minus a small tail has lost the tail's digits, whatever y is.
    return jnp.where((tail < 0.1) | (outer < inner), by_outer, by_inner)


def _log_beta_quantile(p: Array, a: Array, b: Array) -> Array:
    """``log x`` with ``I_x(a, b) = p``, by bisection; near zero by the first term of the series."""
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
