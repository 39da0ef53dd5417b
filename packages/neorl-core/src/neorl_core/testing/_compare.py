"""Closeness of PyTrees, judged by the size of each leaf and by the effect of rounding."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RTOL = 2e-5
ATOL = 2e-6
DRAWS = 3
STEP = 8.0
FLUSHED = 1e-36
"""Smaller numbers may be flushed to zero: programs differ in how they treat subnormals."""


def to_numpy(tree: Any) -> Any:
    """The tree with NumPy leaves; floats become float64, random keys their data."""
    return jax.tree.map(_leaf_to_numpy, tree)


def _leaf_to_numpy(leaf: Any) -> np.ndarray:
    if is_key(leaf):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    return array.astype(np.float64) if is_float(array) else array


def is_key(leaf: Any) -> bool:
    """Whether the leaf is an array of typed random keys."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_float(leaf: Any) -> bool:
    """Whether the leaf consists of floats; only JAX counts bfloat16 of ml_dtypes among them."""
    dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return bool(jnp.issubdtype(dtype, jnp.floating))


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    scale: float | None = None,
    message: str = "",
) -> None:
    """Requires equal structure, and leaves equal to ``atol * scale + rtol * |expected|``.

    NaN equals NaN, infinities must agree; integers and booleans must be equal.

    Args:
        actual: A PyTree.
        expected: A PyTree of the same structure and shapes.
        rtol: Relative tolerance.
        atol: Absolute tolerance for numbers of size one.
        scale: Size of the numbers that entered the result, since cancellation leaves errors of that
            size; by default the largest finite number of each leaf.
        message: Text at the start of the error message.

    Raises:
        AssertionError: If they differ; the message names the path of the first differing leaf.
    """
    _compare(actual, expected, rtol, atol, scale, message)


def assert_stable(
    actual: Any,
    expected: Any,
    sensitivity: Callable[[], Any],
    *,
    rtol: float,
    atol: float,
    message: str,
    least: float = 0.0,
) -> None:
    """Like :func:`assert_close`, but also accepts differences that rounding the arguments explains.

    Args:
        actual: A PyTree.
        expected: A PyTree of the same structure and shapes.
        sensitivity: Returns the effect of rounding, in the structure of ``expected``; called only
            if the two differ by more than the tolerances.
        rtol: Relative tolerance.
        atol: Absolute tolerance for numbers of size one.
        message: Text at the start of the error message.
        least: Smallest size to assume for the numbers of a leaf.
    """
    try:
        _compare(actual, expected, rtol, atol, None, message, least=least)
    except AssertionError:
        _compare(actual, expected, rtol, atol, None, message, sensitivity(), least)


def _compare(
    actual: Any,
    expected: Any,
    rtol: float,
    atol: float,
    scale: float | None,
    message: str,
    slack: Any = None,
    least: float = 0.0,
) -> None:
    left, right = to_numpy(actual), to_numpy(expected)
    structures = jax.tree.structure(left), jax.tree.structure(right)
    assert structures[0] == structures[1], f"{message}: {structures[0]} is not {structures[1]}"
    paths, targets = jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right)
    spreads = [0.0] * len(targets) if slack is None else jax.tree.leaves(slack)
    for (path, result), target, spread in zip(paths, targets, spreads, strict=True):
        where = f"{message} at {jax.tree_util.keystr(path) or 'the result'}"
        assert result.shape == target.shape, (
            f"{where}: shape {result.shape}, expected {target.shape}"
        )
        if not is_float(target):
            np.testing.assert_array_equal(result, target, err_msg=where)
            continue
        size = max(_size(result, target), least) if scale is None else scale
        with np.errstate(invalid="ignore"):
            near = np.abs(result - target) <= atol * size + spread + FLUSHED
        np.testing.assert_allclose(np.where(near, target, result), target, rtol=rtol, err_msg=where)


def _size(*arrays: np.ndarray) -> float:
    """The largest finite number of some arrays."""
    sizes = [np.max(np.abs(a), where=np.isfinite(a), initial=0) for a in arrays if a.size]
    return float(max(sizes, default=0.0))


def rounding(function: Callable[..., Any], args: Any, options: Any, size: float) -> Any:
    """Change of a result if every floating argument changes by the relative amount ``size``.

    A correct program in floats of that precision may have this error, since it returns the exact
    result for arguments near the given ones. If the result jumps instead of moving, for example at
    ties or when rounding to integers, no error is allowed.

    Returns:
        The largest change of each number of the result, in the structure of the result.
    """
    middle = to_numpy(function(*args, **options))
    total = jax.tree.map(lambda leaf: np.zeros(leaf.shape), middle)
    for seed in range(DRAWS):
        near, far = (
            _change(function, _perturb((args, options), seed, by), middle)
            for by in (size, STEP * size)
        )
        # At a jump, the larger step causes no larger change.
        changes = jax.tree.map(lambda a, b: np.where(b >= 3 * a, a, 0), near, far)
        total = jax.tree.map(np.maximum, total, changes)
    return total


def _change(function: Callable[..., Any], perturbed: tuple, middle: Any) -> Any:
    args, options = perturbed
    try:
        with np.errstate(all="ignore"):
            result = to_numpy(function(*args, **options))
    except Exception:  # perturbed out of its range, so nothing is known
        result = middle

    def change(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not is_float(a) or a.shape != b.shape:
            return np.zeros(b.shape)
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.abs(a - b), nan=0, posinf=0)

    return jax.tree.map(change, result, middle)


def _perturb(tree: Any, seed: int, size: float) -> Any:
    """Moves each floating number up or down by the relative amount ``size``, fixed by the seed."""
    rng = np.random.default_rng(seed)

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, float | np.ndarray | jax.Array) or not is_float(leaf):
            return leaf
        array = np.asarray(leaf)
        signs = rng.choice(np.asarray([-1.0, 1.0]), array.shape)
        perturbed = (array * (1 + size * signs)).astype(array.dtype)
        return float(perturbed) if isinstance(leaf, float) else perturbed

    return jax.tree.map(move, tree)
