"""Linear least squares over a log, batch by batch, with a state of fixed size."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

RIDGE = 1e-6
"""Weight of the squared coefficients, in rows of inputs with a mean square of one."""
LEAST_SPREAD = 1e-6
"""Smallest standard deviation of a residual in the units of the targets: float32 rounding."""


class LeastSquares(NamedTuple):
    """Sufficient statistics of all batches so far for a linear map.

    Attributes:
        triangle: Upper triangle ``R`` with ``R' R = sum_b mean_{rows of b} z z'``, ``z = (inputs,
            1, targets)``, plus the ridge; shape ``(in + 1 + out, in + 1 + out)``.
        batches: Number of batches with an unmasked row.
    """

    triangle: Float[Array, "row row"]
    batches: Float[Array, ""]


def no_rows(n_inputs: int, n_targets: int) -> LeastSquares:
    """The state before the first batch, in which every coefficient is zero."""
    ridge = jnp.where(jnp.arange(n_inputs + 1 + n_targets) <= n_inputs, jnp.sqrt(RIDGE), 0.0)
    return LeastSquares(jnp.diag(ridge).astype(jnp.float32), jnp.zeros((), jnp.float32))


def with_rows(
    fit: LeastSquares,
    inputs: Float[Array, "batch in"],
    targets: Float[Array, "batch out"],
    mask: Bool[Array, " batch"] | None,
) -> LeastSquares:
    """Adds a batch by an orthogonal triangularisation.

    Normal equations would square the condition number of the inputs, which is large if they are the
    last steps of slow channels.

    Source: Golub and Van Loan, Matrix computations, 2013, section 6.5.3, for adding rows.
    """
    ones = jnp.ones((inputs.shape[0], 1), inputs.dtype)
    rows = jnp.concatenate([inputs, ones, targets], axis=-1)
    valid = jnp.ones(rows.shape[0], rows.dtype) if mask is None else mask.astype(rows.dtype)
    number = jnp.sum(valid)
    rows = rows * valid[:, None] / jnp.sqrt(jnp.maximum(number, 1))
    triangle = jnp.linalg.qr(jnp.concatenate([fit.triangle, rows]), mode="r")
    return LeastSquares(triangle, fit.batches + (number > 0))


def coefficients(fit: LeastSquares, n_targets: int) -> Float[Array, "rows out"]:
    """The linear map, with its intercept as last row."""
    factor, right_side = _split(fit, n_targets)
    return jax.scipy.linalg.solve_triangular(factor, right_side[: factor.shape[0]])


def spread(fit: LeastSquares, n_targets: int) -> Float[Array, " out"]:
    """Root mean square residual of every target, at least :data:`LEAST_SPREAD`."""
    factor, right_side = _split(fit, n_targets)
    squares = jnp.sum(jnp.square(right_side[factor.shape[0] :]), axis=0)
    # The triangle also includes the ridge penalty of the coefficients, which is no residual.
    ridge_penalty = RIDGE * jnp.sum(jnp.square(coefficients(fit, n_targets)), axis=0)
    squares = jnp.maximum(squares - ridge_penalty, 0)
    return jnp.maximum(jnp.sqrt(squares / jnp.maximum(fit.batches, 1)), LEAST_SPREAD)


def _split(fit: LeastSquares, n_targets: int) -> tuple[Array, Array]:
    """The triangle of the inputs, and the columns of the targets."""
    n = fit.triangle.shape[-1] - n_targets
    return fit.triangle[:n, :n], fit.triangle[:, n:]
