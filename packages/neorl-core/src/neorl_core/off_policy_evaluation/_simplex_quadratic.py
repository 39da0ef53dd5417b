"""Least squares over the simplex, as needed for the weights of MAGIC."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.matrix_products import product
from neorl_core.projections._simplex import project_simplex


def simplex_quadratic(
    matrix: Float[Array, "item item"], *, iterations: int = 400
) -> Float[Array, " item"]:
    """A point of the simplex that nearly minimises ``x^T A x``, for positive semidefinite ``A``.

    Accelerated projected gradient, restarted when a step opposes the previous one. It is accurate
    to 3e-5 for condition numbers up to 1e3. For larger ones the value is not quite minimal: within
    5 per cent of the minimum at 1e4, a few times as large at 1e8.

    Args:
        matrix: ``A``, symmetric and positive semidefinite, with at least one item.
        iterations: Fixed number of gradient steps.

    Returns:
        The weights; NaN if an entry is not finite.

    Source: O'Donoghue and Candes, Adaptive restart for accelerated gradient schemes, 2015.
    """
    n = matrix.shape[0]
    scale = jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
    scaled = matrix / jnp.where(scale > 0, scale, 1)
    start = jnp.full(n, 1 / n, matrix.dtype)
    state = (start, start, jnp.ones((), matrix.dtype), scaled)
    point, *_ = jax.lax.fori_loop(0, iterations, _descend, state)
    return jnp.where(jnp.all(jnp.isfinite(matrix)), point, jnp.nan)


def _descend(_, state):
    point, extrapolated, momentum, matrix = state
    following = project_simplex(extrapolated - product(matrix, extrapolated))
    uphill = jnp.sum((extrapolated - following) * (following - point)) > 0
    larger = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
    push = jnp.where(uphill, 0, (momentum - 1) / larger)
    extrapolated = following + push * (following - point)
    return following, extrapolated, jnp.where(uphill, 1, larger), matrix
