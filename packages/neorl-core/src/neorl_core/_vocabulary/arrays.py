"""Conversion of plain numbers to arrays, done once before compiled code is entered."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")


def as_arrays(tree: Tree) -> Tree:
    """Turns every numeric leaf into a JAX array of strong dtype.

    A float, an int and an array in the same place would give three different compiled programs.
    After this conversion, trees of equal structure share one. Floats become float32, integers
    int32, booleans bool; arrays keep their dtype (float64 only if it is enabled).

    Args:
        tree: A PyTree whose leaves are numbers or arrays.

    Returns:
        The same tree with array leaves.

    Raises:
        TypeError: If a leaf is neither a number nor an array; the message names its path.
        ValueError: If an integer does not fit in int32; the message names its path.

    Example:
        >>> as_arrays({"rate": 0.5, "steps": 3})
        {'rate': Array(0.5, dtype=float32), 'steps': Array(3, dtype=int32)}
    """
    return jax.tree_util.tree_map_with_path(_as_array, tree)


def _as_array(path: tuple, leaf: object) -> jax.Array:
    if isinstance(leaf, jax.Array):
        # Random keys have no weak type.
        return leaf.astype(leaf.dtype) if getattr(leaf, "weak_type", False) else leaf
    if isinstance(leaf, bool | np.bool_):
        return jnp.asarray(leaf, dtype=jnp.bool_)
    where = jax.tree_util.keystr(path) or "leaf"
    if isinstance(leaf, int):
        if not -(2**31) <= leaf < 2**31:
            raise ValueError(f"{where} is {leaf}, which does not fit in int32; give it as a float")
        return jnp.asarray(leaf, dtype=jnp.int32)
    if isinstance(leaf, float):
        return jnp.asarray(leaf, dtype=jnp.float32)
    if isinstance(leaf, np.ndarray | np.number):
        return jnp.asarray(leaf, dtype=jax.dtypes.canonicalize_dtype(leaf.dtype))
    raise TypeError(
        f"{where} is a {type(leaf).__name__}; expected a number or an array, so make text a static "
        "field, such as equinox.field(static=True)"
    )
