"""The affine layer, in the form that is fast on each platform."""

from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FEW_COLUMNS = 4
"""On a CPU, products with at most this many columns are computed one column at a time."""
MOST_ROWS = 1024
"""With more rows the plain expression is faster on a CPU too, because a transposition in memory
then costs more than it saves. Nothing between 256 and 1,920 rows was measured."""


def affine(
    x: Float[Array, "*batch in"], weight: Float[Array, "in out"], bias: Float[Array, " out"]
) -> Float[Array, "*batch out"]:
    """``x @ weight + bias`` along the last axis.

    With one batch axis of at most ``MOST_ROWS`` rows, a CPU uses hand-written forward and backward
    passes (``tools/studies/benchmarks/affine.py`` compares them with the plain expression). All
    other cases use the plain expression: other platforms, more rows, and inputs with no batch axis
    or several. With one batch axis only reverse-mode differentiation works, to any order;
    ``jax.vmap`` over rows supports both modes.
    """
    if x.ndim != 2 or x.shape[0] > MOST_ROWS:
        return plain_affine(x, weight, bias)
    return jax.lax.platform_dependent(x, weight, bias, cpu=cpu_affine, default=plain_affine)


def plain_affine(x: Array, weight: Array, bias: Array) -> Array:
    """``x @ weight + bias``, as it stands."""
    return x @ weight + jnp.reshape(bias, (1,) * (x.ndim - 1) + bias.shape)


@jax.custom_vjp
def cpu_affine(x: Array, weight: Array, bias: Array) -> Array:
    """``x @ weight + bias`` for one batch axis, for a CPU.

    The result is that of the plain expression up to the order of sums. For small matrices XLA's own
    choice on a CPU is slow in three places: (a) it folds the transposition of the weights' gradient
    into a product, so here the narrower factor is transposed in memory first; (b) it sums the bias'
    gradient in a reduction, so here that is a product with ones; (c) it is slow for a product with
    few columns, such as a policy's last layer, so here those are computed column by column.
    """
    return _product(x, weight) + bias[None, :]


def _forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return cpu_affine(x, weight, bias), (x, weight)


def _backward(operands: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array, Array]:
    x, weight = operands
    in_memory = jax.lax.optimization_barrier
    if x.shape[-1] > cotangent.shape[-1]:
        slope = in_memory(in_memory(cotangent.T) @ x).T
    else:
        slope = in_memory(x.T) @ cotangent
    ones = jnp.ones((1, x.shape[0]), cotangent.dtype)
    return _product_with_transposed(cotangent, weight), slope, (ones @ cotangent)[0]


cpu_affine.defvjp(_forward, _backward)


def _product(x: Array, weight: Array) -> Array:
    columns = weight.shape[1]
    if columns > FEW_COLUMNS:
        return x @ weight
    return jnp.concatenate([x @ weight[:, j : j + 1] for j in range(columns)], axis=1)


def _product_with_transposed(cotangent: Array, weight: Array) -> Array:
    columns = weight.shape[1]
    if columns > FEW_COLUMNS:
        return cotangent @ weight.T
    outer = [cotangent[:, j : j + 1] * weight[:, j][None, :] for j in range(columns)]
    return reduce(jnp.add, outer)
