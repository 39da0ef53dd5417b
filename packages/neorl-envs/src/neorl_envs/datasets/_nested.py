"""Nested host data, such as dictionary observations, as flat columns with named channels."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from neorl_envs.datasets._checks import DatasetError


def flatten_columns(
    nested: Any, *, source: str = "columns"
) -> tuple[Shaped[np.ndarray, "row channel"], tuple[str, ...]]:
    """One column out of dictionaries, lists and tuples of arrays, and the names of its channels.

    Dictionaries are taken in the order of their sorted keys. A leaf of shape ``(row,)`` is one
    channel, named by the path to it: ``"arm.speed"``; one with further axes is a channel for
    every index, which follows in the name: ``"arm.angle.0"``.

    Args:
        nested: The arrays, each with ``row`` as first axis; depth and kinds of containers are
            free. A plain array is a tree of one leaf, whose channels are called by index.
        source: Named in the messages.

    Returns:
        The column and as many names.

    Raises:
        DatasetError: If there is no array, one holds no numbers, numbers of rows differ, or two
            channels would bear one name.

    Example:
        >>> import numpy as np
        >>> level = {"tank": {"level": np.zeros(3)}, "flows": np.ones((3, 2))}
        >>> column, names = flatten_columns(level)
        >>> column.shape, names
        ((3, 3), ('flows.0', 'flows.1', 'tank.level'))
    """
    import optree  # where nested data arise: most logs are flat, and a command starts sooner

    paths, leaves, _ = optree.tree_flatten_with_path(nested)
    if not leaves:
        raise DatasetError(f"{source}: expected at least one array, got none")
    parts, names = [], []
    for path, leaf in zip(paths, leaves, strict=True):
        place = ".".join(map(str, path))
        array = _numbers(source, place, leaf, like=parts[0] if parts else None)
        indices = np.ndindex(array.shape[1:])
        names += [".".join([*map(str, path), *map(str, index)]) or "0" for index in indices]
        parts.append(array.reshape(len(array), -1))
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DatasetError(
            f"{source}: two channels are called {repeated[0]!r}; rename one of the arrays"
        )
    return np.concatenate(parts, axis=1), tuple(names)


def _numbers(source: str, place: str, leaf: Any, like: np.ndarray | None) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise DatasetError(
            f"{source}: {place or 'it'} must hold numbers with a row a step, got {array.dtype} of "
            f"shape {array.shape}; leave it out or convert it"
        )
    if like is not None and len(array) != len(like):
        raise DatasetError(
            f"{source}: {place} has {len(array)} rows; expected {len(like)} like the arrays "
            "beside it"
        )
    return array
