"""Conversion of a continuous linear plant to its exact model at the sampling instants."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive, floats, require_rank
from neorl_core._internal.precision import checked_wide


def zero_order_hold(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    *,
    dt: float | Float[Array, ""],
) -> tuple[Float[Array, "state state"], Float[Array, "state act"]]:
    """Exact discretisation of ``x' = A x + B u`` with ``u`` held constant over a period.

    ``[[Ad, Bd], [0, I]] = exp([[A, B], [0, 0]] dt)``, so that ``x_{k+1} = Ad x_k + Bd u_k`` holds
    at the instants ``k dt`` without integration error. A constant drift is one more column of
    ``B``.

    Args:
        a: ``A``, per second.
        b: ``B``, per second and unit of the input.
        dt: Period in seconds, positive; NaN results under ``jit`` if it is not.

    Returns:
        ``(Ad, Bd)``, with a relative error of up to about a third of a rounding unit times ``|A|
        dt``. If the fastest pole is 10^4 times as fast as the sampling, the slow ones keep three
        digits in float32 and twelve in float64. NaN if ``|A| dt`` exceeds about 10^5.

    Raises:
        ValueError: If ``a`` is not square, ``b`` has a different number of rows, or a concrete
            ``dt`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> ad, bd = zero_order_hold(jnp.zeros((1, 1)), jnp.ones((1, 1)), dt=0.5)
        >>> float(ad[0, 0]), float(bd[0, 0])
        (1.0, 0.5)

    Source: Van Loan, Computing integrals involving the matrix exponential, 1978.
    """
    a, b = _checked(a, b)
    n = a.shape[0]
    dt = checked_positive("dt", dt)
    inputs = b.shape[1]
    block = jnp.zeros((n + inputs, n + inputs), jnp.result_type(a, b))
    dt = jnp.asarray(dt).astype(block.dtype)
    # The result is linear in each input, so inputs are scaled to keep the norm of the exponent
    # small.
    input_block = b.astype(block.dtype) * dt
    units = _powers_of_two(jax.lax.stop_gradient(input_block))
    block = block.at[:n, :n].set(a * dt).at[:n, n:].set(input_block / units)
    step = _exponential(block)
    return step[:n, :n], step[:n, n:] * units


def _checked(a: Any, b: Any) -> tuple[Array, Array]:
    """Both as floats; raises an error for half precision or a shape that does not fit."""
    require_rank("a", a, 2, "state, state")
    require_rank("b", b, 2, "state, act")
    square, shape = np.shape(a), np.shape(b)
    if square[0] != square[1] or square[0] < 1:
        raise ValueError(
            f"a must be square with axes (state, state), got shape {square}; "
            "check that it is the matrix of one system; for a batch of them use jax.vmap"
        )
    if shape[0] != square[0]:
        raise ValueError(
            f"b must have the axes (state, act) of sizes ({square[0]}, any), got shape {shape}; "
            "transpose it or check the other matrices"
        )
    return checked_wide("a", floats(a)), checked_wide("b", floats(b))


DEGREE, MOST_SQUARINGS = 14, 18
"""Degree of the series, whose rest is below a rounding unit of float64 at a norm of a half."""


def _exponential(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The exponential by its series at a norm of at most a half, and squaring.

    SciPy's and JAX's own solve linear equations. Under ``vmap`` that is a kernel of LAPACK which
    waits, in a thread of the processor's pool, for other threads of it: two programs at a time can
    then wait for ever. A series takes about as many products for such small matrices.
    """
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(matrix), axis=0), initial=0))
    squarings = jnp.ceil(jnp.log2(jnp.maximum(2 * norm, 1)))
    small, one = matrix * jnp.exp2(-squarings), jnp.eye(len(matrix), dtype=matrix.dtype)

    result = one
    for degree in range(DEGREE, 1, -1):
        result = one + _times(small, result) / degree

    # Without the identity, so that what a slow pole adds to it keeps its digits.
    doubles = jnp.arange(MOST_SQUARINGS, dtype=matrix.dtype) < squarings
    added, _ = jax.lax.scan(_squared, _times(small, result), doubles)
    result = one + added
    return jnp.where(squarings <= MOST_SQUARINGS, result, jnp.nan)


def _squared(added: Array, doubles: Array) -> tuple[Array, None]:
    """The square of a matrix less the identity, or the matrix itself."""
    return jnp.where(doubles, 2 * added + _times(added, added), added), None


def _times(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _powers_of_two(columns: Float[Array, "state act"]) -> Float[Array, "one act"]:
    """Powers of two not below each column's largest entry, within range; they scale exactly."""
    _, exponents = jnp.frexp(jnp.max(jnp.abs(columns), axis=0, keepdims=True, initial=0))
    limit = jnp.finfo(columns.dtype).minexp
    return jnp.ldexp(
        jnp.ones_like(columns, shape=exponents.shape), jnp.clip(exponents, limit, -limit)
    )
