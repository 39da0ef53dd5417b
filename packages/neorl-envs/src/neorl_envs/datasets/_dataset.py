"""The dataset: a log of complete episodes in host memory, with specification and provenance."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import Spec, Transition
from neorl_envs.datasets._checks import (
    DatasetError,
    blocks,
    check_columns,
    check_episodes,
    check_finite,
    copied_rows,
    episode_reductions,
    plain_spec,
    require_flags,
)

# The optional columns of a dataset: time, modes, setpoints, test signals, terms, behaviour.


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
    "requested": Kind("<f4", "float32", "row", "action", "anywhere"),
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
    if kind.dtype == "bool":
        require_flags(source, name, array)
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


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Logged episodes, stored one after the other in flat host arrays in physical units.

    Rows of one episode are contiguous and in order of time. ``terminated | truncated`` is true in
    the last row of every episode and in no other row. Build a dataset with
    :func:`dataset_from_columns`, which derives missing columns and checks all of them; the
    constructor itself checks nothing.

    Attributes:
        transitions: NumPy columns with ``row`` as first axis; every field is present. Numbers may
            be NaN in rows whose ``mask`` is false.
        episode_starts: First row of every episode, int64, ascending from 0.
        spec: Channels, period and horizon.
        attributes: Name, attribution, excitation and provenance, as values that JSON can represent.
        behaviour: Index into ``attributes["behaviours"]`` of the policy that acted in each episode,
            int32; ``None`` if unknown.
        behaviour_log_prob: Log-density of what the behaviour of every row requested; ``None`` if
            unknown.
        requested: The action that was requested of the plant, before its own limits; NaN where
            nothing was, ``None`` if unknown.
        time: Time of every observation in seconds since ``attributes["time_origin"]``, float64;
            ``None`` if no times were recorded, so that gaps cannot be detected.
        mode: True if a manipulated variable was in manual; ``None`` if unknown.
        setpoint: Active setpoints, named by ``attributes["setpoints"]``; NaN if unknown.
        test_signal: Signal added to the controllers' outputs; NaN if unknown.
        term: Amounts that contribute to the reward, named by ``attributes["terms"]``; NaN if
            unknown.
    """

    transitions: Transition
    episode_starts: Int[np.ndarray, " episode"]
    spec: Spec
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    behaviour: Int[np.ndarray, " episode"] | None = None
    behaviour_log_prob: Float[np.ndarray, " row"] | None = None
    requested: Float[np.ndarray, "row act"] | None = None
    time: Float[np.ndarray, " row"] | None = None
    mode: Bool[np.ndarray, "row act"] | None = None
    setpoint: Float[np.ndarray, "row setpoint"] | None = None
    test_signal: Float[np.ndarray, "row act"] | None = None
    term: Float[np.ndarray, "row term"] | None = None

    def __repr__(self) -> str:
        """A short description of content and size, without the columns."""
        spec, name = self.spec, str(self.attributes.get("name", "")) or "log"
        ended = int(np.asarray(self.transitions.terminated).sum())
        return (
            f"Dataset({name}: {self.n_rows} rows in {self.n_episodes} episodes, {ended} of them "
            f"terminated; every {spec.dt:g} s {spec.n_obs} measured, {spec.n_action} manipulated "
            f"and {spec.n_cost} cost channels)"
        )

    @property
    def n_rows(self) -> int:
        """Number of rows, including masked rows."""
        return len(self.transitions.reward)

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.episode_starts)

    @property
    def episode_ends(self) -> Int[np.ndarray, " episode"]:
        """The row after the last one of every episode."""
        return np.append(self.episode_starts[1:], self.n_rows).astype(np.int64)

    @property
    def episode_lengths(self) -> Int[np.ndarray, " episode"]:
        """Number of rows of every episode."""
        return self.episode_ends - self.episode_starts

    def episode_returns(self) -> Float[np.ndarray, " episode"]:
        """Undiscounted return of every episode over its unmasked rows, float64."""
        return self._over_episodes(self.transitions.reward)

    def episode_costs(self) -> Float[np.ndarray, "episode cost"]:
        """Sum of every cost over the unmasked rows of every episode, float64."""
        return self._over_episodes(self.transitions.cost)

    def episode_worst_costs(self) -> Float[np.ndarray, "episode cost"]:
        """Largest of every cost over the rows of every episode, masked ones as zero, float64."""
        return self._over_episodes(self.transitions.cost, np.maximum)

    def episode(self, index: int) -> Transition:
        """The rows of one episode, as views."""
        rows = slice(int(self.episode_starts[index]), int(self.episode_ends[index]))
        return self._take(rows)

    def padded_rows(
        self, episodes: slice = slice(None)
    ) -> tuple[Int[np.ndarray, "episode time"], Bool[np.ndarray, "episode time"]]:
        """Row indices of episodes padded to equal length, so that ``column[rows]`` is a batch.

        Args:
            episodes: Range of episodes, a slice without a step; all by default.

        Returns:
            The row indices of each episode, where shorter episodes repeat their last row, and a
            mask that is false for repeated rows and where ``transitions.mask`` is false.
        """
        starts, ends = self.episode_starts[episodes, None], self.episode_ends[episodes, None]
        rows = starts + np.arange((ends - starts).max())
        rows, inside = np.minimum(rows, ends - 1), rows < ends
        mask: Any = self.transitions.mask
        return rows, inside & mask[rows]

    def select_episodes(
        self, chosen: Int[np.ndarray, " chosen"] | Bool[np.ndarray, " episode"]
    ) -> "Dataset":
        """A dataset of the chosen episodes; columns are copied.

        Args:
            chosen: Indices of episodes in the desired order, or a flag for every episode.

        Raises:
            ValueError: If no episode is chosen, an index is not an integer in range, or the number
                of flags differs from the number of episodes.
        """
        indices = self._indices(np.asarray(chosen))
        spans = zip(self.episode_starts[indices], self.episode_ends[indices], strict=True)
        rows = np.concatenate([np.arange(start, end) for start, end in spans])
        lengths = self.episode_lengths[indices]
        optional: dict[str, Any] = {
            name: column[indices if OPTIONAL[name].axis == "episode" else rows]
            for name, column in optional_columns(self)
        }
        return dataclasses.replace(
            self,
            transitions=self._take(rows),
            episode_starts=np.cumsum(lengths) - lengths,
            **optional,
        )

    def _indices(self, chosen: np.ndarray) -> np.ndarray:
        n = self.n_episodes
        if chosen.dtype == np.bool_:
            if chosen.shape != (n,):
                raise ValueError(f"expected a flag for each of {n} episodes, got {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        if chosen.size == 0:
            raise ValueError("select_episodes needs at least one episode, got none")
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise ValueError(
                f"expected indices of episodes, got {chosen.dtype} of shape {chosen.shape}; give "
                "integers, or a flag for every episode"
            )
        invalid = chosen[(chosen < 0) | (chosen >= n)]
        if invalid.size:
            raise ValueError(f"expected episodes from 0 to {n - 1}, got {invalid[0]}")
        return chosen.astype(np.int64)

    def columns(self) -> Iterator[tuple[str, np.ndarray]]:
        """Name and array of every stored column, in the order of the file."""
        yield from self.transitions._asdict().items()
        yield "episode_starts", self.episode_starts
        yield from optional_columns(self)

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 over the specification and every column; see the page on the file format."""
        return content_digest(self)

    def _take(self, rows: Any) -> Transition:
        return jax.tree.map(lambda column: column[rows], self.transitions)

    def _over_episodes(self, column: Any, reduction: np.ufunc = np.add) -> np.ndarray:
        mask: Any = self.transitions.mask

        def masked_rows(pieces: list[slice]) -> np.ndarray:
            used = copied_rows(mask, pieces).reshape((-1,) + (1,) * (column.ndim - 1))
            return np.where(used, copied_rows(column, pieces), 0)

        spans = self.episode_starts, self.episode_ends
        return episode_reductions(spans, masked_rows, reduction)


def content_digest(dataset: Dataset) -> str:
    """Computes the content hash from the columns; mapped columns are read in blocks."""
    digest = hashlib.sha256()
    digest.update(json.dumps(plain_spec(dataset.spec), sort_keys=True).encode())
    for name, column in dataset.columns():
        kind = as_stored(column[:0])
        digest.update(f"{name} {kind.dtype.str} {list(column.shape)}\n".encode())
        for rows in blocks(len(column) if column.size else 0, column):
            digest.update(as_stored(column[rows]).reshape(-1).data.cast("B"))
    return f"sha256:{digest.hexdigest()}"


def as_stored(column: np.ndarray) -> np.ndarray:
    """The column as stored in the file: contiguous, little-endian, booleans as ``uint8``."""
    if column.dtype == np.bool_:
        return np.ascontiguousarray(column).view(np.uint8)
    return np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))


def dataset_from_columns(
    spec: Spec,
    *,
    obs: Float[np.ndarray, "row obs"],
    action: Float[np.ndarray, "row act"],
    reward: Float[np.ndarray, " row"],
    next_obs: Float[np.ndarray, "row obs"],
    terminated: Bool[np.ndarray, " row"],
    truncated: Bool[np.ndarray, " row"],
    cost: Float[np.ndarray, "row cost"] | None = None,
    mask: Bool[np.ndarray, " row"] | None = None,
    behaviour: Int[np.ndarray, " episode"] | None = None,
    behaviour_log_prob: Float[np.ndarray, " row"] | None = None,
    requested: Float[np.ndarray, "row act"] | None = None,
    time: Float[np.ndarray, " row"] | None = None,
    mode: Bool[np.ndarray, "row act"] | None = None,
    setpoint: Float[np.ndarray, "row setpoint"] | None = None,
    test_signal: Float[np.ndarray, "row act"] | None = None,
    term: Float[np.ndarray, "row term"] | None = None,
    attributes: Mapping[str, Any] | None = None,
    source: str = "dataset",
) -> Dataset:
    """Builds a dataset from its columns, derives missing columns and checks their consistency.

    Shapes, flags, non-finite numbers and times are checked. Values that are suspicious but may be
    correct are left to :func:`~neorl_envs.inspection.dataset_report`: actions and observations
    outside their ranges, negative costs, episodes longer than the horizon, and ``next_obs`` that
    differs from the next row.

    Floats are cast to float32. They may be NaN in rows whose ``mask`` is false, except for values
    that an unmasked row refers to, such as the action of the next row. An episode ends where
    ``terminated | truncated`` is true; if the last row has neither flag, it is marked truncated,
    because the record ends there. ``next_action`` is the action of the following row, and zero at
    the end of an episode.

    Args:
        spec: Channels, period and horizon.
        obs: Observation before the action.
        action: The action that the plant received.
        reward: One number per row.
        next_obs: Observation after the action. At the end of an episode it is the last observation
            of that episode, never the first of the next one.
        terminated: Whether the plant ended the episode, so that nothing follows.
        truncated: Whether the record ended although the plant went on.
        cost: Costs of every row; may be omitted if the specification has no cost channel.
        mask: Flag for every row; a row whose flag is false is used in no loss and no statistic. All
            true by default.
        behaviour: Index into ``attributes["behaviours"]`` for every episode.
        behaviour_log_prob: Log-density of what was requested in every row, if known.
        requested: The action that was requested of the plant, before its own limits.
        time: Time of every observation in seconds. Within an episode the times are one period
            apart; a gap is allowed only after a masked row or between two episodes.
        mode: True (or 1) if a manipulated variable was in manual.
        setpoint: Active setpoints, one column each, named by ``attributes["setpoints"]``.
        test_signal: Signal added to every manipulated variable to excite the plant.
        term: Amounts that contribute to the reward, one column each, named by
            ``attributes["terms"]``.
        attributes: Attributes that can be stored as JSON.
        source: Name used in error messages; the file name if there is one.

    Returns:
        The dataset.

    Raises:
        DatasetError: If the shape of a column disagrees with the specification or the other
            columns, a flag is neither 0 nor 1, an unmasked row contains a non-finite number, or
            times are not one period apart. The message names column, row, expected and actual
            value.

    Example:
        >>> from neorl_core import Channel
        >>> spec = Spec(
        ...     obs=(Channel("level", "m", 0.0, 2.0),),
        ...     action=(Channel("valve", "%", 0.0, 100.0),),
        ...     cost=(),
        ...     dt=60.0,
        ...     horizon=10,
        ... )
        >>> level = np.array([[1.0], [1.1], [1.2]])
        >>> log = dataset_from_columns(
        ...     spec,
        ...     obs=level,
        ...     action=np.array([[40.0], [45.0], [50.0]]),
        ...     reward=np.zeros(3),
        ...     next_obs=level + 0.1,
        ...     terminated=np.array([False, True, False]),
        ...     truncated=np.zeros(3, bool),
        ... )
        >>> log.episode_lengths.tolist(), log.transitions.next_action[:, 0].tolist()
        ([2, 1], [45.0, 0.0, 0.0])
    """
    n_rows = len(np.atleast_1d(reward))
    terminated, truncated = (
        _flag(name, column, source)
        for name, column in (("terminated", terminated), ("truncated", truncated))
    )
    if truncated.shape == terminated.shape == (n_rows,) and n_rows and not terminated[-1]:
        truncated[-1] = True
    columns: dict[str, Any] = dict(
        obs=_single(obs),
        action=_single(action),
        reward=_single(reward),
        cost=_single(np.zeros((n_rows, 0)) if cost is None else cost),
        next_obs=_single(next_obs),
        next_action=None,
        terminated=terminated,
        truncated=truncated,
        mask=np.ones(n_rows, np.bool_) if mask is None else _flag("mask", mask, source),
    )
    check_columns(spec, Transition(**columns), source=source)
    columns["next_action"] = following(columns["action"], terminated | truncated)
    _check_next_is_known(source, columns["next_action"], columns["mask"])
    optional = {
        "behaviour": behaviour,
        "behaviour_log_prob": behaviour_log_prob,
        "requested": requested,
        "time": time,
        "mode": mode,
        "setpoint": setpoint,
        "test_signal": test_signal,
        "term": term,
    }
    return _checked(Transition(**columns), spec, dict(attributes or {}), optional, source)


def _checked(
    transitions: Transition,
    spec: Spec,
    attributes: dict[str, Any],
    optional: dict[str, Any],
    source: str,
) -> Dataset:
    ended = np.flatnonzero(np.asarray(transitions.terminated) | np.asarray(transitions.truncated))
    starts = np.append(0, ended[:-1] + 1).astype(np.int64)
    checked = {name: checked_optional(name, column, source) for name, column in optional.items()}
    dataset = Dataset(transitions, starts, spec, attributes, **checked)
    check_episodes(source, transitions, starts)
    check_optional(source, dataset)
    return dataset


def _flag(name: str, column: Any, source: str) -> Bool[np.ndarray, " row"]:
    """Copies a flag column as booleans; other numbers than 0 and 1 are refused, not made true."""
    array = np.asarray(column)
    require_flags(source, name, array)
    if array.dtype.kind not in "biuf":
        raise DatasetError(f"{source}: column '{name}': expected 0 or 1, got {array.dtype}")
    return array.astype(np.bool_)


def _check_next_is_known(source: str, next_action: np.ndarray, mask: np.ndarray) -> None:
    unknown = np.flatnonzero(mask & np.isnan(next_action).any(axis=-1))
    if unknown.size:
        row = int(unknown[0])
        raise DatasetError(
            f"{source}: column 'action', row {row + 1}: it is NaN, and row {row} before it is not "
            "masked, which needs it as its next action; mask that row too, or end the episode "
            "there (truncated)"
        )


def _single(column: np.ndarray) -> Float[np.ndarray, "row ..."]:
    with np.errstate(over="ignore"):  # the check for non-finite numbers reports an overflow
        return np.asarray(column, dtype=np.float32)


def following(
    action: Float[np.ndarray, "row act"], ended: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "row act"]:
    """The action of the next row, or zero at the end of an episode."""
    shifted = np.zeros_like(action)
    shifted[:-1] = action[1:]
    shifted[ended] = 0
    return shifted
