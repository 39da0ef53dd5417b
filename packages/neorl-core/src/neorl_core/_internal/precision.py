"""Sums and products that keep their precision, whatever floats come in and on every device."""

import functools
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike

from neorl_core._internal.checks import floats

# Half-precision floats (bfloat16, float16): sums are accumulated in float32.
#
# A running sum of ones in bfloat16 stops at 256. Recurrences, sums and statistics therefore widen
# their inputs and return results in the original dtype; float32 and float64 pass unchanged.


Tree = TypeVar("Tree")


def is_half_precision(dtype: DTypeLike) -> bool:
    """Whether ``dtype`` is a floating dtype of fewer than 32 bits."""
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def widen(value: ArrayLike) -> Array:
    """``value`` as floats; half precision is widened to float32."""
    array = floats(value)
    return array.astype(jnp.float32) if is_half_precision(array.dtype) else array


def narrow(tree: Tree, dtype: DTypeLike) -> Tree:
    """The tree with its floats in ``dtype`` if that has half precision; otherwise unchanged."""
    if not is_half_precision(dtype):
        return tree

    def cast(leaf: Array) -> Array:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def checked_wide(name: str, array: Array) -> Array:
    """The array itself; raises an error for half precision, for which JAX has no linear algebra."""
    if is_half_precision(array.dtype):
        raise ValueError(
            f"{name} must be float32 or float64, got {array.dtype.name}; "
            f"cast with {name}.astype(jnp.float32)"
        )
    return array


# Matrix products that keep the precision of their factors on every device.


def product(*factors: Array) -> Array:
    """The product of matrices and vectors, from left to right.

    Accelerators multiply float32 matrices in a shorter format unless full precision is requested,
    which costs an estimate or a Riccati equation its last digits.
    """
    return functools.reduce(_times, factors)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
