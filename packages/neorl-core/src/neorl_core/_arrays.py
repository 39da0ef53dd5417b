"""From plain numbers to array leaves, once, at the entry of compiled code."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")


def as_arrays(tree: Tree) -> Tree:
    """Turns every numeric leaf into a JAX array of strong dtype.

    A float, an int and an array in the same place make three different compiled programs. After
    this function, equal structures make one. Floats become float32, integers int32, booleans
    bool; arrays keep their dtype (float64 only where it is enabled).

    Args:
        tree: A PyTree whose leaves are numbers or arrays.

    Returns:
        The same tree with array leaves.

    Raises:
        TypeError: If a leaf is neither a number nor an array; its path is named.
    """
    return jax.tree_util.tree_map_with_path(_as_array, tree)


def _as_array(path: tuple, leaf: object) -> jax.Array:
    if isinstance(leaf, jax.Array):
        return leaf.astype(leaf.dtype) if leaf.weak_type else leaf
    if isinstance(leaf, bool | np.bool_):
        return jnp.asarray(leaf, dtype=jnp.bool_)
    if isinstance(leaf, int):
        return jnp.asarray(leaf, dtype=jnp.int32)
    if isinstance(leaf, float):
        return jnp.asarray(leaf, dtype=jnp.float32)
    if isinstance(leaf, np.ndarray | np.number):
        return jnp.asarray(leaf, dtype=leaf.dtype)
    where = jax.tree_util.keystr(path)
    raise TypeError(f"{where or 'leaf'} is a {type(leaf).__name__}; expected a number or an array")
