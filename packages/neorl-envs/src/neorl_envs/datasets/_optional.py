"""The optional columns of a dataset: time, modes, setpoints, test signals, terms, behaviour."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neorl_core import Spec
from neorl_envs.datasets._checks import DatasetError, blocks, check_finite

if TYPE_CHECKING:
    from neorl_envs.datasets._dataset import Dataset

TIME_TOLERANCE = 0.01
"""Allowed deviation of the spacing of two times from the period, as a fraction of the period."""


class Kind(NamedTuple):
    """Storage and admissible values of one optional column.

    Attributes:
        code: NumPy type code of the numbers in the file.
        dtype: NumPy type of the numbers in memory.
        axis: First axis, ``"episode"`` or ``"row"``.
        width: Second axis: ``"action"`` for one value per manipulated variable, ``"setpoint"`` per
            setpoint, ``"term"`` per term of the reward; empty for a single value.
        missing: Rows in which NaN is allowed: ``"masked"``, ``"anywhere"`` or ``"nowhere"``.
    """

    code: str
    dtype: str
    axis: str
    width: str = ""
    missing: str = "nowhere"


OPTIONAL: Mapping[str, Kind] = {
    "behaviour": Kind("<i4", "int32", "episode"),
    "behaviour_log_prob": Kind("<f4", "float32", "row", missing="masked"),
    "time": Kind("<f8", "float64", "row"),
    "mode": Kind("|u1", "bool", "row", "action"),
    "setpoint": Kind("<f4", "float32", "row", "setpoint", "anywhere"),
    "test_signal": Kind("<f4", "float32", "row", "action", "anywhere"),
    "term": Kind("<f4", "float32", "row", "term", "anywhere"),
}
"""Optional columns in the order of the file. No loss uses them, so setpoints may be missing."""
NAMED = {"setpoint": "setpoints", "term": "terms"}
"""Attributes with the names of the entries of columns that have no channels of their own."""


def optional_columns(dataset: "Dataset") -> Iterator[tuple[str, np.ndarray]]:
    """Name and array of every optional column that is present."""
    for name in OPTIONAL:
        column = getattr(dataset, name)
        if column is not None:
            yield name, column


def checked_optional(name: str, column: Any, source: str) -> Any:
    """Converts an optional column to its type in memory; ``None`` stays ``None``.

    Raises a ``DatasetError`` if the column is not numeric, or if a mode is neither 0 nor 1.
    """
    if column is None:
        return None
    array, kind = np.asarray(column), OPTIONAL[name]
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"{source}: column '{name}': expected numbers, got {array.dtype}")
    if kind.dtype == "bool" and array.dtype != np.bool_:
        bad_rows = np.argwhere((array != 0) & (array != 1))
        if bad_rows.size:
            where = tuple(int(i) for i in bad_rows[0])
            raise DatasetError(
                f"{source}: column '{name}', row {where[0]}: expected 0 or 1, got {array[where]}"
            )
    return array.astype(kind.dtype, copy=False)


def check_optional(source: str, dataset: "Dataset") -> None:
    """Raises a ``DatasetError`` unless the optional columns agree with the rest."""
    mask: Any = dataset.transitions.mask
    for name, column in optional_columns(dataset):
        kind = OPTIONAL[name]
        _check_shape(source, name, column, dataset)
        if column.dtype.kind == "f":
            legal = {"masked": ~mask, "anywhere": np.True_, "nowhere": None}[kind.missing]
            check_finite(source, name, column, missing=legal)
    if dataset.behaviour is not None:
        _check_labels(source, dataset.behaviour, dataset.attributes)
    if dataset.time is not None:
        _check_time(source, dataset.spec, dataset)


def _check_shape(source: str, name: str, column: np.ndarray, dataset: "Dataset") -> None:
    kind = OPTIONAL[name]
    n = dataset.n_episodes if kind.axis == "episode" else dataset.n_rows
    widths = {"action": dataset.spec.n_action}
    widths |= {
        kind: _entries_per_row(dataset, attribute, column) for kind, attribute in NAMED.items()
    }
    shape = (n, widths[kind.width]) if kind.width else (n,)
    if column.shape != shape:
        raise DatasetError(
            f"{source}: column '{name}': expected shape {shape}, one "
            f"{'label per episode' if name == 'behaviour' else f'entry per {kind.axis}'}, "
            f"got {column.shape}"
        )


def _entries_per_row(dataset: "Dataset", attribute: str, column: np.ndarray) -> int:
    """The expected number of entries per row: the number of names, or any number without names."""
    named = dataset.attributes.get(attribute)
    if isinstance(named, list | tuple):
        return len(named)
    return column.shape[1] if column.ndim == 2 else 1


def _check_labels(source: str, behaviour: np.ndarray, attributes: Mapping[str, Any]) -> None:
    names = attributes.get("behaviours", [])
    if not isinstance(names, list | tuple):
        raise DatasetError(
            f"{source}: attribute 'behaviours': expected a list of names, got "
            f"{type(names).__name__}"
        )
    bad_rows = np.flatnonzero((behaviour < 0) | (behaviour >= len(names)))
    if bad_rows.size:
        raise DatasetError(
            f"{source}: column 'behaviour', row {bad_rows[0]}: expected an index into the "
            f"{len(names)} names of attribute 'behaviours', got {behaviour[bad_rows[0]]}"
        )


def _check_time(source: str, spec: Spec, dataset: "Dataset") -> None:
    """Checks that times in an episode are one period apart, except for gaps after masked rows."""
    time: Any = dataset.time
    mask: Any = dataset.transitions.mask
    last = np.zeros(dataset.n_rows, np.bool_)
    last[dataset.episode_ends - 1] = True
    slack = TIME_TOLERANCE * spec.dt
    for rows in blocks(dataset.n_rows - 1):
        step = np.diff(time[rows.start : rows.stop + 1])
        inside = ~last[rows]
        irregular = inside & mask[rows] & (np.abs(step - spec.dt) > slack)
        bad_rows = np.flatnonzero(irregular | (inside & (step <= 0)))
        if bad_rows.size:
            row = int(bad_rows[0])
            raise DatasetError(
                f"{source}: column 'time', row {rows.start + row}: expected {spec.dt:g} s to the "
                f"next row, got {step[row]:g} s; end the episode there (truncated), or mask the "
                "row where the gap is short"
            )
