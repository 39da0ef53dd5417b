"""What the matrices of linear systems must be, checked before tracing where they are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_core._internal.checks import floats, is_concrete, require_rank
from neorl_core._internal.float_widths import require_wide


def require_square(name: str, matrix: Any, axis: str = "state") -> Array:
    """The matrix as floats; refuses one that is not square, empty, or of half precision."""
    require_rank(name, matrix, 2, f"{axis}, {axis}")
    shape = jnp.shape(matrix)
    if shape[0] != shape[1] or shape[0] < 1:
        raise ValueError(
            f"{name} must be square with axes ({axis}, {axis}), got shape {shape}; "
            "check that it is the matrix of one system; for a batch of them use jax.vmap"
        )
    return require_wide(name, floats(matrix))


def require_matrix(name: str, matrix: Any, shape: tuple[int | None, ...], axes: str) -> Array:
    """The matrix as floats; refuses half precision, and a size that is not that of ``shape``."""
    require_rank(name, matrix, 2, axes)
    got = jnp.shape(matrix)
    if any(want is not None and want != have for want, have in zip(shape, got, strict=True)):
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name} must have the axes ({axes}) of sizes ({sizes}), got shape {got}; "
            "transpose it or check the other matrices"
        )
    return require_wide(name, floats(matrix))


def require_definite(name: str, matrix: Array, *, strictly: bool) -> bool | Array:
    """Refuses a known matrix that is not symmetric positive (semi)definite.

    Returns:
        Whether it is. What is being traced cannot be refused, so its result must depend on this.
    """
    if not is_concrete(matrix):
        return _is_definite(jax.lax.stop_gradient(matrix), strictly)
    values = np.asarray(matrix, np.float64)
    scale = max(1.0, float(np.abs(values).max(initial=0)))
    slack = 1e-5 * scale
    kind = "positive definite" if strictly else "positive semidefinite"
    least = np.linalg.eigvalsh((values + values.T) / 2).min(initial=np.inf)
    with np.errstate(invalid="ignore"):
        asymmetry = np.abs(values - values.T).max(initial=0)
    if not asymmetry <= slack or not (least > 0 if strictly else least >= -slack):
        raise ValueError(
            f"{name} must be symmetric and {kind}, got least eigenvalue {least:.3g} and "
            f"asymmetry {asymmetry:.3g}; check its signs"
        )
    return True


def _is_definite(matrix: Array, strictly: bool) -> Array:
    """The same judgement of a traced matrix, in its own dtype."""
    scale = jnp.max(jnp.abs(matrix), initial=1)
    symmetric = jnp.max(jnp.abs(matrix - matrix.T), initial=0) <= 1e-5 * scale
    if strictly:
        # Its rounding is that of each row and not of the largest entry, as eigenvalues' would be.
        return symmetric & jnp.all(jnp.isfinite(jnp.linalg.cholesky(matrix)))
    # Eigenvalues round with the norm, which is up to as many times the largest entry as rows.
    slack = max(1e-5, 16 * len(matrix) * float(jnp.finfo(matrix.dtype).eps)) * scale
    return symmetric & (jnp.min(jnp.linalg.eigvalsh(matrix), initial=jnp.inf) >= -slack)


def require_stable(name: str, matrix: Array) -> None:
    """Refuses a known matrix with an eigenvalue on or outside the unit circle."""
    if not is_concrete(matrix):
        return
    radius = np.abs(np.linalg.eigvals(np.asarray(matrix, np.float64))).max()
    if not radius < 1:
        raise ValueError(
            f"{name} must be stable (spectral radius below one), got {radius:.6g}; "
            "close a stabilising loop first"
        )


def require_stabilisable(matrix: Array, inputs: Array, what: str) -> None:
    """Refuses a known pair with a mode outside the open unit disc that the inputs do not reach."""
    if not is_concrete((matrix, inputs)):
        return
    a, b = np.asarray(matrix, np.float64), np.asarray(inputs, np.float64)
    b = b / (np.abs(b).max(initial=0) or 1.0)
    for mode in np.linalg.eigvals(a):
        if abs(mode) >= 1 - 1e-9:
            pencil = np.hstack([mode * np.eye(len(a)) - a, b])
            if np.linalg.matrix_rank(pencil, tol=1e-7 * max(1.0, np.abs(pencil).max())) < len(a):
                raise ValueError(
                    f"the pair is not {what}: nothing acts on the mode {mode:.6g}, "
                    "which does not decay by itself; "
                    "add an actuator or a sensor, or leave that mode out"
                )
