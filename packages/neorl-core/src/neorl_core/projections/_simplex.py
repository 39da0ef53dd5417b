"""The probability simplex: projection onto it, and least squares over it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import floats, require_length, require_rank, require_whole
from neorl_core._internal.matrix_products import product


def project_simplex(values: Float[ArrayLike, " item"]) -> Float[Array, " item"]:
    """The nearest point with entries that are not negative and sum to one.

    ``max(values - tau, 0)`` with the ``tau`` that makes the sum one, found by one sort.

    Args:
        values: One axis, one entry or more.

    Returns:
        The projection; NaN if an entry is not finite.

    Raises:
        ValueError: If there is not one axis or no entry.

    Example:
        >>> import jax.numpy as jnp
        >>> project_simplex(jnp.array([0.5, 2.0, 1.5])).tolist()
        [0.0, 0.75, 0.25]

    Source: Duchi et al., Efficient projections onto the l1-ball, ICML 2008.
    """
    require_rank("values", values, 1, "item")
    require_length("values", values, 1)
    values = floats(values)
    # The answer knows only differences: taken first, they lose nothing to a common offset.
    shifted = values - jnp.max(values)
    largest_first = -jnp.sort(-shifted)
    excess = jnp.cumsum(largest_first) - 1
    count = jnp.arange(1, values.shape[0] + 1).astype(values.dtype)
    support = jnp.sum(largest_first * count > excess)
    tau = excess[support - 1] / support.astype(values.dtype)
    point = jnp.maximum(shifted - tau, 0)
    return jnp.where(jnp.all(jnp.isfinite(values)), point, jnp.nan)


def simplex_quadratic(
    matrix: Float[ArrayLike, "item item"], *, iterations: int = 400
) -> Float[Array, " item"]:
    """The ``x`` on the simplex that minimises ``x^T A x``, for a positive semidefinite ``A``.

    Accelerated projected gradient, started anew where a step goes against the last one.

    Args:
        matrix: ``A``, symmetric and positive semidefinite.
        iterations: Fixed number of gradient steps.

    Returns:
        The weights. Where several minimise, one of them. NaN if an entry is not finite.

    Raises:
        ValueError: If the matrix is empty or not square, or ``iterations`` is no whole number
            from one on.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(x, 3) for x in simplex_quadratic(jnp.diag(jnp.array([1.0, 3.0]))).tolist()]
        [0.75, 0.25]

    Source: O'Donoghue and Candes, Adaptive restart for accelerated gradient schemes, 2015.
    """
    require_rank("matrix", matrix, 2, "item, item")
    require_length("matrix", matrix, 1)
    matrix = floats(matrix)
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        raise ValueError(
            f"matrix must be square, got shape {matrix.shape}; "
            "give the matrix of the quadratic form"
        )
    iterations = require_whole("iterations", iterations, 1, "give the number of steps")
    scale = jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
    scaled = matrix / jnp.where(scale > 0, scale, 1)
    start = jnp.full(n, 1 / n, matrix.dtype)
    state = (start, start, jnp.ones((), matrix.dtype), scaled)
    point, *_ = jax.lax.fori_loop(0, iterations, _descend, state)
    return jnp.where(jnp.all(jnp.isfinite(matrix)), point, jnp.nan)


def _descend(_, state):
    point, ahead, momentum, matrix = state
    following = project_simplex(ahead - product(matrix, ahead))
    uphill = jnp.sum((ahead - following) * (following - point)) > 0
    larger = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
    push = jnp.where(uphill, 0, (momentum - 1) / larger)
    ahead = following + push * (following - point)
    return following, ahead, jnp.where(uphill, 1, larger), matrix
