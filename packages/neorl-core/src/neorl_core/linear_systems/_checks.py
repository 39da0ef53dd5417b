"""Checks of the shapes of the matrices of linear systems."""

from typing import Any

import numpy as np
from jaxtyping import Array

from neorl_core._internal.checks import floats, require_rank
from neorl_core._internal.float_widths import checked_wide


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
