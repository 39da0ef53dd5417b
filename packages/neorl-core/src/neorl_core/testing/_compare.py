"""Closeness of PyTrees, with a tolerance that follows the size of the numbers at hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RTOL = 2e-5
ATOL = 2e-6


def to_numpy(tree: Any) -> Any:
    """The tree with NumPy leaves; floating leaves in float64, random keys as their data."""
    return jax.tree.map(_leaf_to_numpy, tree)


def _leaf_to_numpy(leaf: Any) -> np.ndarray:
    if is_key(leaf):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    # ml_dtypes' bfloat16 is not a NumPy floating type, hence JAX's own test.
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def is_key(leaf: Any) -> bool:
    """Whether the leaf is an array of typed random keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def magnitude(*trees: Any) -> float:
    """Largest absolute finite number in the trees, at least one."""
    largest = 1.0
    for leaf in jax.tree.leaves(to_numpy(trees)):
        if leaf.size and jnp.issubdtype(leaf.dtype, jnp.floating):
            largest = max(largest, float(np.max(np.abs(leaf), where=np.isfinite(leaf), initial=0)))
    return largest


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    scale: float | None = None,
    message: str = "",
) -> None:
    """Equal structure, and leaves equal to ``atol * scale + rtol * |expected|``.

    NaN equals NaN, infinities must agree; integers and booleans must be equal.

    Args:
        actual: A PyTree.
        expected: A PyTree of the same structure and shapes.
        rtol: Relative tolerance.
        atol: Absolute tolerance for numbers of size one.
        scale: Size of the numbers that went into the result, since cancellation leaves errors of
            that size; by default that of the two trees.
        message: Said first when the comparison fails.

    Raises:
        AssertionError: If they differ; the path of the first differing leaf is named.
    """
    left, right = to_numpy(actual), to_numpy(expected)
    structures = jax.tree.structure(left), jax.tree.structure(right)
    assert structures[0] == structures[1], f"{message}: {structures[0]} is not {structures[1]}"
    scale = magnitude(left, right) if scale is None else scale
    paths = jax.tree_util.tree_leaves_with_path(left)
    for (path, got), want in zip(paths, jax.tree.leaves(right), strict=True):
        where = f"{message} at {jax.tree_util.keystr(path) or 'the result'}"
        assert got.shape == want.shape, f"{where}: shape {got.shape}, expected {want.shape}"
        exact = not jnp.issubdtype(want.dtype, jnp.floating)
        np.testing.assert_allclose(
            got,
            want,
            rtol=0 if exact else rtol,
            atol=0 if exact else atol * scale,
            err_msg=where,
        )
