"""Checks of the matrices of linear systems: bad shapes raise errors, bad values give NaN."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_core._internal.checks import floats, require_rank
from neorl_core._internal.float_widths import checked_wide
from neorl_core._internal.matrix_products import symmetric


def checked_square(name: str, matrix: Any, axis: str = "state") -> Array:
    """The matrix as floats; raises an error unless it is square, not empty and at least float32."""
    require_rank(name, matrix, 2, f"{axis}, {axis}")
    shape = np.shape(matrix)
    if shape[0] != shape[1] or shape[0] < 1:
        raise ValueError(
            f"{name} must be square with axes ({axis}, {axis}), got shape {shape}; "
            "check that it is the matrix of one system; for a batch of them use jax.vmap"
        )
    return checked_wide(name, floats(matrix))


def checked_matrix(name: str, matrix: Any, shape: tuple[int | None, ...], axes: str) -> Array:
    """The matrix as floats; raises an error for half precision or a shape unlike ``shape``."""
    require_rank(name, matrix, 2, axes)
    shape_received = np.shape(matrix)
    if any(
        expected is not None and expected != actual
        for expected, actual in zip(shape, shape_received, strict=True)
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} must have the axes ({axes}) of sizes ({sizes}), got shape {shape_received}; "
            "transpose it or check the other matrices"
        )
    return checked_wide(name, floats(matrix))


def checked_vector(name: str, vector: Any, size: int, axis: str) -> Array:
    """The vector as floats; raises an error for half precision or a length other than ``size``."""
    require_rank(name, vector, 1, axis)
    if np.shape(vector)[0] != size:
        raise ValueError(
            f"{name} must have the axis ({axis}) of size {size}, got shape {np.shape(vector)}; "
            "check the matrices"
        )
    return checked_wide(name, floats(vector))


def is_semidefinite(matrix: Array) -> Array:
    """Whether a matrix is symmetric and positive semidefinite up to rounding, whatever the units.

    Rows and columns are scaled to a diagonal of ones, so that a channel in pascal is judged like
    one in bar. A row whose diagonal is zero must be zero.
    """
    matrix = jax.lax.stop_gradient(matrix)
    if matrix.shape[0] == 0:
        return jnp.ones((), bool)
    diagonal = jnp.diagonal(matrix)
    root = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    unit = matrix / root[:, None] / root[None, :]
    # Rounding of eigenvalues scales with the norm, at most the largest entry times the number of
    # rows.
    slack = max(1e-5, 16 * len(matrix) * float(jnp.finfo(matrix.dtype).eps))
    even = jnp.all(jnp.abs(unit - unit.T) <= slack)
    empty = jnp.all((diagonal > 0) | ((diagonal == 0) & jnp.all(matrix == 0, axis=1)))
    return even & empty & (jnp.min(jnp.linalg.eigvalsh(symmetric(unit))) >= -slack)
