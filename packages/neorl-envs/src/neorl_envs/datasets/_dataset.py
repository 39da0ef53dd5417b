"""A log of complete episodes on the host: columns, episode starts, specification, provenance."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import Spec, Transition, spec_to_dict
from neorl_envs.datasets._checks import check_columns


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Episodes one after the other in flat host arrays, physical units throughout.

    Rows of one episode are contiguous and in order of time. The last row of every episode has
    ``terminated | truncated``, and no other row has. Build one with :func:`dataset_from_columns`,
    which derives and checks; the constructor itself checks nothing.

    Attributes:
        transitions: NumPy columns with ``row`` as first axis; every field is present.
        episode_starts: First row of every episode, int64, ascending, the first is 0.
        spec: Channels, period and horizon.
        attributes: What JSON can hold: name, attribution, excitation, provenance.
        behaviour: Index of the behaviour that acted in every episode, int32, into
            ``attributes["behaviours"]``; ``None`` where unknown.
        behaviour_log_prob: Log-density of every action under its behaviour; ``None`` where
            unknown.
    """

    transitions: Transition
    episode_starts: Int[np.ndarray, " episode"]
    spec: Spec
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    behaviour: Int[np.ndarray, " episode"] | None = None
    behaviour_log_prob: Float[np.ndarray, " row"] | None = None

    def __repr__(self) -> str:
        """What it is of and how large, without its columns."""
        spec, name = self.spec, str(self.attributes.get("name", "")) or "log"
        ended = int(np.asarray(self.transitions.terminated).sum())
        return (
            f"Dataset({name}: {self.n_rows} rows in {self.n_episodes} episodes, {ended} of them "
            f"terminated; every {spec.dt:g} s {spec.n_obs} measured, {spec.n_action} manipulated "
            f"and {spec.n_cost} cost channels)"
        )

    @property
    def n_rows(self) -> int:
        """Number of rows, masked ones included."""
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
        return self._episode_sums(self.transitions.reward)

    def episode_costs(self) -> Float[np.ndarray, "episode cost"]:
        """Sum of every cost over the unmasked rows of every episode, float64."""
        return self._episode_sums(self.transitions.cost)

    def episode(self, index: int) -> Transition:
        """The rows of one episode, as views."""
        rows = slice(int(self.episode_starts[index]), int(self.episode_ends[index]))
        return self._take(rows)

    def select_episodes(self, indices: Int[np.ndarray, " chosen"]) -> "Dataset":
        """A dataset of the given episodes, in the given order; columns are copied."""
        chosen = np.asarray(indices, dtype=np.int64)
        if chosen.size == 0:
            raise ValueError("select_episodes needs at least one episode, got none")
        spans = zip(self.episode_starts[chosen], self.episode_ends[chosen], strict=True)
        rows = np.concatenate([np.arange(start, end) for start, end in spans])
        lengths = self.episode_lengths[chosen]
        return dataclasses.replace(
            self,
            transitions=self._take(rows),
            episode_starts=np.cumsum(lengths) - lengths,
            behaviour=None if self.behaviour is None else self.behaviour[chosen],
            behaviour_log_prob=(
                None if self.behaviour_log_prob is None else self.behaviour_log_prob[rows]
            ),
        )

    def columns(self) -> Iterator[tuple[str, np.ndarray]]:
        """Name and array of every stored column, in the order of the file."""
        yield from self.transitions._asdict().items()
        yield "episode_starts", self.episode_starts
        if self.behaviour is not None:
            yield "behaviour", self.behaviour
        if self.behaviour_log_prob is not None:
            yield "behaviour_log_prob", self.behaviour_log_prob

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 over the specification and every column; see the page of the file format."""
        digest = hashlib.sha256()
        digest.update(json.dumps(spec_to_dict(self.spec), sort_keys=True).encode())
        for name, column in self.columns():
            stored = as_stored(column)
            digest.update(f"{name} {stored.dtype.str} {list(stored.shape)}\n".encode())
            if stored.size:
                digest.update(stored.reshape(-1).data.cast("B"))
        return f"sha256:{digest.hexdigest()}"

    def _take(self, rows: Any) -> Transition:
        return jax.tree.map(lambda column: column[rows], self.transitions)

    def _episode_sums(self, column: Any) -> np.ndarray:
        mask = np.asarray(self.transitions.mask).reshape((-1,) + (1,) * (column.ndim - 1))
        rows = np.where(mask, column, 0).astype(np.float64)
        return np.add.reduceat(rows, self.episode_starts, axis=0)


def as_stored(column: np.ndarray) -> np.ndarray:
    """The column as it lies in the file: contiguous, little-endian, booleans as ``uint8``."""
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
    attributes: Mapping[str, Any] | None = None,
    source: str = "dataset",
) -> Dataset:
    """Builds a dataset from its columns; derives the rest, and checks everything.

    Floats are cast to float32. Episodes end where ``terminated | truncated``; the last row is
    marked truncated if it is neither, because the record ends there. ``next_action`` is the
    action of the following row, and zero at the end of an episode.

    Args:
        spec: Channels, period and horizon.
        obs: Observation before the action.
        action: The action that the plant received.
        reward: One number a row.
        next_obs: Observation after the action; at the end of an episode that of the episode
            itself, never of the next one.
        terminated: The plant ended the episode; nothing follows.
        truncated: The record ended; the plant went on.
        cost: May be left out where the specification has no cost channel.
        mask: Flag of every row; where false, the row reaches no loss and no statistic. All true
            by default.
        behaviour: Index into ``attributes["behaviours"]`` for every episode.
        behaviour_log_prob: Log-density of every action, where known.
        attributes: What JSON can hold.
        source: Named in error messages; a file name where there is one.

    Returns:
        The dataset.

    Raises:
        DatasetError: If a column has another shape than the specification and the other columns
            say, or a number is not finite; column, row, expected and actual are named.

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
    n_rows = len(reward)
    cost = np.zeros((n_rows, 0)) if cost is None else cost
    truncated = np.array(truncated, dtype=np.bool_)
    terminated = np.asarray(terminated, dtype=np.bool_)
    if truncated.shape == terminated.shape == (n_rows,) and n_rows and not terminated[-1]:
        truncated[-1] = True
    columns: dict[str, Any] = dict(
        obs=_single(obs),
        action=_single(action),
        reward=_single(reward),
        cost=_single(cost),
        next_obs=_single(next_obs),
        next_action=None,
        terminated=terminated,
        truncated=truncated,
        mask=np.ones(n_rows, np.bool_) if mask is None else np.asarray(mask, np.bool_),
    )
    transitions = Transition(**columns)
    check_columns(spec, transitions, source=source)
    ended = terminated | truncated
    next_action: dict[str, Any] = {"next_action": following(columns["action"], ended)}
    log_prob = behaviour_log_prob
    return Dataset(
        transitions=transitions._replace(**next_action),
        episode_starts=np.append(0, np.flatnonzero(ended)[:-1] + 1).astype(np.int64),
        spec=spec,
        attributes=dict(attributes or {}),
        behaviour=None if behaviour is None else np.asarray(behaviour, dtype=np.int32),
        behaviour_log_prob=None if log_prob is None else np.asarray(log_prob, np.float32),
    )


def _single(column: np.ndarray) -> Float[np.ndarray, "row ..."]:
    with np.errstate(over="ignore"):  # an overflow is found, and named, as a number not finite
        return np.asarray(column, dtype=np.float32)


def following(
    action: Float[np.ndarray, "row act"], ended: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "row act"]:
    """The action of the next row, and zero where the episode ended."""
    shifted = np.zeros_like(action)
    shifted[:-1] = action[1:]
    shifted[ended] = 0
    return shifted
