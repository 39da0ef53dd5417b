"""Flattens nested host data, such as dictionary observations, to columns with named channels."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from neorl_envs.datasets._checks import DatasetError


def flatten_columns(
    nested: Any, *, source: str = "columns"
) -> tuple[Shaped[np.ndarray, "row channel"], tuple[str, ...]]:
    """Flattens dictionaries, lists and tuples of arrays to one column with named channels.

    Dictionaries are traversed in the order of their sorted keys. A leaf of shape ``(row,)`` becomes
    one channel, named by its path: ``"arm.speed"``. A leaf with further axes becomes one channel
    per index, which is appended to the name: ``"arm.angle.0"``.

    Args:
        nested: The arrays, each with ``row`` as first axis, in containers of any kind and depth.
            The channels of a plain array are named by their index.
        source: Name used in error messages.

    Returns:
        The column, and the name of each of its channels.

    Raises:
        DatasetError: If there is no array, an array is not numeric, the numbers of rows differ, or
            two channels would have the same name.

    Example:
        >>> import numpy as np
        >>> level = {"tank": {"level": np.zeros(3)}, "flows": np.ones((3, 2))}
        >>> column, names = flatten_columns(level)
        >>> column.shape, names
        ((3, 3), ('flows.0', 'flows.1', 'tank.level'))
    """
    import optree  # imported only here: most logs are flat, and commands start faster

    paths, leaves, _ = optree.tree_flatten_with_path(nested)
    if not leaves:
        raise DatasetError(f"{source}: expected at least one array, got none")
    parts, names = [], []
    for path, leaf in zip(paths, leaves, strict=True):
        key = ".".join(map(str, path))
        array = _numbers(source, key, leaf, like=parts[0] if parts else None)
        indices = np.ndindex(array.shape[1:])
        names += [".".join([*map(str, path), *map(str, index)]) or "0" for index in indices]
        parts.append(array.reshape(len(array), -1))
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DatasetError(
            f"{source}: two channels are called {repeated[0]!r}; rename one of the arrays"
        )
    return np.concatenate(parts, axis=1), tuple(names)


def _numbers(source: str, key: str, leaf: Any, like: np.ndarray | None) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DatasetError(
            f"{source}: {key or 'it'} must hold numbers with one row per step, got {array.dtype} "
            f"of shape {array.shape}; leave it out or convert it"
        )
    if like is not None and len(array) != len(like):
        raise DatasetError(
            f"{source}: {key} has {len(array)} rows; expected {len(like)} like the arrays beside it"
        )
    return array
