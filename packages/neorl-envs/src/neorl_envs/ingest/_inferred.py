"""Builds a dataset from bare arrays: our own extras beside them, and what numbers suggest."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from neorl_core import Channel, CostChannel, Spec
from neorl_envs.datasets._checks import DatasetError, plain_spec, read_spec, require_flags
from neorl_envs.datasets._dataset import OPTIONAL, Dataset, dataset_from_columns, optional_columns
from neorl_envs.datasets._file import require_sizes, stored_column

# Data that other formats do not provide for, stored beside their arrays under our own names.


DESCRIPTION = "neorl_description"
"""Name of the entry with specification and attributes as JSON."""
COLUMNS = ("cost", "mask", *OPTIONAL)


def extras_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """Costs, mask and optional columns by name; a mask that is true everywhere is left out."""
    rows: Any = dataset.transitions
    extras: dict[str, np.ndarray] = {}
    if dataset.spec.n_cost:
        extras["cost"] = rows.cost
    if not np.asarray(rows.mask).all():
        extras["mask"] = rows.mask
    return {**extras, **dict(optional_columns(dataset))}


def description_of(dataset: Dataset) -> str:
    """Specification and attributes as JSON."""
    return json.dumps({"spec": plain_spec(dataset.spec), "attributes": dict(dataset.attributes)})


def read_description(text: str, source: str) -> tuple[Spec, dict[str, Any]]:
    """Inverse of :func:`description_of`.

    Raises a ``DatasetError`` if the text was not written by that function.
    """
    try:
        value = json.loads(text)
        spec, attributes = value["spec"], value["attributes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{source}: {DESCRIPTION} is not a valid description: {error}"
        ) from error
    if not isinstance(attributes, dict):
        raise DatasetError(f"{source}: {DESCRIPTION}: attributes must be a JSON object")
    return read_spec(json.dumps(spec), source), attributes


def cost_channels(cost: np.ndarray | None) -> tuple[CostChannel, ...]:
    """Cost channels without a description: numbered, with limit 0 per step and unknown unit."""
    width = 0 if cost is None else cost.shape[1]
    return tuple(CostChannel(f"cost_{i}", "?", 0.0, "step") for i in range(width))


def column_cost(extras: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The costs as columns; formats with a single cost store it without the second axis."""
    cost = extras.get("cost")
    return cost[:, None] if cost is not None and cost.ndim == 1 else cost


# Builds a dataset from bare arrays, with a specification inferred from the numbers.


DEEPEST = 16
"""Deepest nesting of groups; a file whose groups contain one another is refused."""
INFERRED = "units ('?'), ranges, period (1 s) and horizon"


def read_tree(group: h5py.Group, key: str, source: str, deepest: int = DEEPEST) -> Any:
    """Numbers of an HDF5 file: an array, or a dictionary of what a group holds.

    Raises a ``DatasetError`` as :func:`read_array`, or if groups lie too deep in one another.
    """
    item = group[key] if isinstance(group.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(item, h5py.Group):
        return read_array(group, key, source)
    where = f"{source}: '{key}'"
    if deepest == 0:
        raise DatasetError(
            f"{where}: groups lie more than {DEEPEST} deep in one another; write plain arrays"
        )
    return {name: read_tree(item, name, where, deepest - 1) for name in map(str, item)}


def read_array(group: h5py.Group, key: str, source: str) -> np.ndarray:
    """Reads an array of an HDF5 file after checking its declaration.

    Raises a ``DatasetError`` if it holds no numbers, or more than the file can hold.
    """
    column = stored_column(group, key, source)
    if column.dtype.kind not in "biuf":
        raise DatasetError(
            f"{source}: column '{key}': expected numbers, got {column.dtype}; convert it"
        )
    require_sizes([column], column.file.filename)
    return np.asarray(column[()])


def read_flag(source: Any, name: str, column: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """Converts a column of zeros and ones to booleans.

    Raises a ``DatasetError`` if the shape differs or a value is neither 0 nor 1.
    """
    if column.shape != reward.shape:
        raise DatasetError(
            f"{source}: column '{name}': expected shape {reward.shape} like the reward, "
            f"got {column.shape}"
        )
    require_flags(source, name, column)
    return column.astype(np.bool_)


def inferred_dataset(
    source: str,
    columns: Mapping[str, np.ndarray],
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    attributes: dict[str, Any],
    mask: np.ndarray | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    extras: Mapping[str, np.ndarray] | None = None,
    description: str = "",
    action_range: tuple[np.ndarray, np.ndarray] | None = None,
) -> Dataset:
    """Builds a dataset with an inferred specification: unknown units, and a period of 1 s.

    The horizon is the length of the longest episode. Ranges are those of the data, except that an
    action channel within [-1, 1] gets the range [-1, 1], which these collections declare.

    ``names`` are channel names if the file has them; otherwise channels are numbered. ``extras``
    are ``cost``, ``mask`` and optional columns. A ``description`` that :mod:`neorl_envs.ingest`
    stored replaces all that is inferred. Raises a ``DatasetError`` if the columns are inconsistent
    or have no row.
    """
    for name, rank in (("obs", 2), ("action", 2), ("next_obs", 2), ("reward", 1)):
        if columns[name].ndim != rank:
            raise DatasetError(
                f"{source}: column '{name}': expected {rank} axes, got shape {columns[name].shape}"
            )
    if len(columns["reward"]) == 0:
        raise DatasetError(f"{source}: the dataset is empty; expected at least one row, got 0")
    optional: dict[str, Any] = dict(extras or {})
    optional["cost"] = cost = column_cost(optional)
    mask = optional.pop("mask", mask)
    if description:
        spec, all_attributes = read_description(description, source)
    else:
        spec = _inferred_spec(columns, terminated | truncated, names or {}, cost, action_range)
        inferred = "units" if any((names or {}).values()) else "channel names, units"
        all_attributes = {**attributes, "inferred": INFERRED.replace("units", inferred, 1)}
    return dataset_from_columns(
        spec,
        obs=columns["obs"],
        action=columns["action"],
        reward=columns["reward"],
        next_obs=columns["next_obs"],
        terminated=terminated,
        truncated=truncated,
        mask=mask,
        attributes=all_attributes,
        source=source,
        **optional,
    )


def _inferred_spec(
    columns: Mapping[str, np.ndarray],
    ended: np.ndarray,
    names: Mapping[str, Sequence[str]],
    cost: np.ndarray | None,
    action_range: tuple[np.ndarray, np.ndarray] | None,
) -> Spec:
    bounds = np.concatenate([[-1], np.flatnonzero(ended), [len(ended) - 1]])
    action = _action_channels(columns["action"], names.get("action", ()))
    if action_range is not None and _proper(action_range, len(action)):
        low, high = (np.ravel(end) for end in action_range)
        action = tuple(
            Channel(c.name, c.unit, float(a), float(b))
            for c, a, b in zip(action, low, high, strict=True)
        )
    return Spec(
        obs=_channels("obs", columns["obs"], names.get("obs", ())),
        action=action,
        cost=cost_channels(cost),
        dt=1.0,
        horizon=max(1, int(np.diff(bounds).max())),
    )


def _proper(ends: tuple[np.ndarray, np.ndarray], width: int) -> bool:
    low, high = (np.ravel(end) for end in ends)
    finite = low.size == high.size == width and np.isfinite(low).all() and np.isfinite(high).all()
    return bool(finite and (low < high).all())


def _channels(prefix: str, column: np.ndarray, names: Sequence[str]) -> tuple[Channel, ...]:
    """Channels with the ranges of the data, which are widened for constant channels."""
    channels = []
    for index, name in enumerate(_channel_names(prefix, column, names)):
        values = column[:, index][np.isfinite(column[:, index])]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        margin = max(0.5, abs(low) / 2) if low == high else 0.0
        channels.append(Channel(name, "?", low - margin, high + margin))
    return tuple(channels)


def _action_channels(column: np.ndarray, names: Sequence[str]) -> tuple[Channel, ...]:
    """Action channels; data within [-1, 1] get this range, which these collections declare."""
    if np.abs(column).max(initial=0.0) <= 1.0:
        return tuple(
            Channel(name, "?", -1.0, 1.0) for name in _channel_names("action", column, names)
        )
    return _channels("action", column, names)


def _channel_names(prefix: str, column: np.ndarray, names: Sequence[str]) -> Sequence[str]:
    return names or [f"{prefix}_{index}" for index in range(column.shape[1])]
