"""Limits for the odds of a binomial probability, for any number of trials and in any precision.

Computed as a difference of three log-gammas, the incomplete beta function has no correct digit in
float32 at a million trials. With ``v`` the log odds minus their mode ``log(a / b)``, the density of
Beta(a, b) is ``exp(-D(v)) / Z`` with the deviance

``D(v) = (a + b) log(1 + x (e^v - 1)) - a v``,  ``x = a / (a + b)``,

which can be computed without cancellation; ``Z`` uses Stirling's corrections instead of log-gammas.
The tail is smooth, falls at least exponentially and is integrated by Gauss-Legendre quadrature.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_NEWTON_STEPS = 8
_ROOT_STEPS = 12


@jax.jit
def upper_log_odds(
    a: Float[Array, "*batch"], b: Float[Array, "*batch"], delta: Float[Array, ""]
) -> Float[Array, "*batch"]:
    """``v`` that the log odds of Beta(a, b), minus ``log(a/b)``, exceed with probability ``delta``.

    Newton's method on the logarithm of the tail, which is concave: once to the right of the root,
    it stays there and converges.

    Args:
        a: First parameter of the Beta distribution, at least one.
        b: Second parameter, at least one, same shape.
        delta: Probability of an error, in (0, 1/2).
    """
    wide = jnp.finfo(a.dtype).bits >= 64
    nodes, weights = (jnp.asarray(part, a.dtype) for part in _gauss_legendre(48 if wide else 24))
    log_delta = jnp.log(delta)
    z = -jax.scipy.special.ndtri(delta)
    # The part beyond this end is less than a rounding unit of the tail.
    end = _deviance_root(a, b, (40.0 if wide else 18.0) - log_delta)[..., None]
    start = _deviance_root(a, b, jnp.maximum(z**2 / 2, 1e-2))
    log_scale = jnp.log(2 * jnp.pi * (1 / a + 1 / b)) / 2
    log_scale = log_scale + _stirling_error(a) + _stirling_error(b) - _stirling_error(a + b)
    columns = a[..., None], b[..., None]
    nodes, weights = (part.reshape((1,) * a.ndim + (-1,)) for part in (nodes, weights))

    def improve(_, v: Array) -> Array:
        here = v[..., None]
        drop = _deviance(here + (end - here) * nodes, *columns) - _deviance(here, *columns)
        inverse_hazard = jnp.sum(weights * jnp.exp(-drop), axis=-1) * (end - here)[..., 0]
        log_tail = jnp.log(inverse_hazard) - _deviance(v, a, b) - log_scale
        return v + (log_tail - log_delta) * inverse_hazard

    return jax.lax.fori_loop(0, _NEWTON_STEPS, improve, start)


@functools.cache
def _gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _deviance(v: Array, a: Array, b: Array) -> Array:
    """``D(v)``; by the cumulants of a Bernoulli variable if the closed form would cancel."""
    total = a + b
    # In terms of the rarer outcome, whose probability is at most one half.
    x, v = jnp.minimum(a, b) / total, jnp.where(a > b, -v, v)
    closed = total * (jnp.log1p(x * jnp.expm1(v)) - x * v)
    c, s = x * (1 - x), jnp.abs(a - b) / total
    even = 1 + c * (-126 + c * (1680 - 5040 * c))
    odd = s * (1 + c * (-60 + 360 * c))
    series = odd + v / 8 * even
    series = 1 + c * (-30 + 120 * c) + v / 7 * series
    series = s * (1 - 12 * c) + v / 6 * series
    series = 1 - 6 * c + v / 5 * series
    series = s + v / 4 * series
    series = total * c * v**2 / 2 * (1 + v / 3 * series)
    near = 0.05 if jnp.finfo(v.dtype).bits >= 64 else 0.4
    return jnp.where(jnp.abs(v) < near, series, closed)


def _slope(v: Array, a: Array, b: Array) -> Array:
    return a * (b / (b + a * jnp.exp(v))) * jnp.expm1(v)


def _deviance_root(a: Array, b: Array, deviance: Array) -> Array:
    """The positive ``v`` with ``D(v) = deviance``, by Newton's method: the deviance is convex."""
    normal = jnp.sqrt(2 * deviance * (1 / a + 1 / b))
    return jax.lax.fori_loop(
        0,
        _ROOT_STEPS,
        lambda _, v: v - (_deviance(v, a, b) - deviance) / _slope(v, a, b),
        normal,
    )


def _stirling_error(x: Array) -> Array:
    """``log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2``."""
    large = 16 if jnp.finfo(x.dtype).bits >= 64 else 4
    near = jnp.minimum(x, large)
    closed = jax.scipy.special.gammaln(near) - (near - 0.5) * jnp.log(near) + near
    inverse = 1 / jnp.maximum(x, large)
    square = inverse**2
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    return jnp.where(x < large, closed - math.log(2 * math.pi) / 2, series)
