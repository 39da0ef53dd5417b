"""Half-precision floats (bfloat16, float16): what adds up does so in float32.

A running sum in bfloat16 stops at 256 ones. So recurrences, sums and statistics widen what comes,
and give back the dtype that came; float32 and float64 pass as they are.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike

from neorl_core._internal.checks import floats

Tree = TypeVar("Tree")


def is_half_precision(dtype: DTypeLike) -> bool:
    """Whether it is a floating dtype of fewer than 32 bits."""
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def widened(value: ArrayLike) -> Array:
    """``value`` as floats, in float32 where its own dtype is of half precision."""
    array = floats(value)
    return array.astype(jnp.float32) if is_half_precision(array.dtype) else array


def narrowed(tree: Tree, dtype: DTypeLike) -> Tree:
    """The tree with its floats in a half-precision ``dtype``; as it is where ``dtype`` is wider."""
    if not is_half_precision(dtype):
        return tree

    def narrow(leaf: Array) -> Array:
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(narrow, tree)


def checked_wide(name: str, array: Array) -> Array:
    """The array; refuses a half-precision dtype, in which JAX has no linear algebra."""
    if is_half_precision(array.dtype):
        raise ValueError(
            f"{name} must be float32 or float64, got {array.dtype.name}; "
            f"cast with {name}.astype(jnp.float32)"
        )
    return array
