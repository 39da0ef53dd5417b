"""Signals that stand still: an instrument that froze, a value that comes rarely."""

import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import Channel
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset

MOST_COUNTED = 1000
"""A standstill of more steps is reported as this long."""
LONGEST_KEPT = 5
FROZEN_STEPS, FROZEN_TIMES = 20, 10
"""A standstill is doubtful from so many steps on, and from so many times the usual length on."""
USUAL = 0.99
"""Share of the standstills, and of the steps without one, that are no longer than the usual one."""
WATCHED = 5000
"""Rows of a standstill in which it is looked whether other signals move."""
RARE = 10
"""A signal with more steps between two changes, on average, counts as sampled rarely."""


@dataclasses.dataclass
class Standstills:
    """Lengths of the stretches in which one signal stands still.

    Attributes:
        lengths: Number of standstills by their number of steps; a step that moves ends one of
            length zero.
        longest: Steps and first row of the longest ones.
        steps: Number of steps that were looked at.
        moves: How many of them moved.
    """

    lengths: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros(MOST_COUNTED + 1, np.int64)
    )
    longest: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    steps: int = 0
    moves: int = 0

    def end(self, firsts: np.ndarray, lengths: np.ndarray) -> None:
        """Takes standstills that have ended."""
        self.lengths += np.bincount(np.minimum(lengths, MOST_COUNTED), minlength=MOST_COUNTED + 1)
        some = np.argsort(-lengths, kind="stable")[:LONGEST_KEPT]
        stretches = [*self.longest, *((int(lengths[i]), int(firsts[i])) for i in some)]
        self.longest = heapq.nlargest(LONGEST_KEPT, stretches)

    @property
    def usual(self) -> int:
        """Steps that 99 % of the standstills do not exceed."""
        total = np.cumsum(self.lengths)
        return int(np.searchsorted(total, USUAL * total[-1])) if total[-1] else 0


def standstills(column: np.ndarray, dataset: Dataset) -> list[Standstills]:
    """Counts how long every channel of a column stands still.

    A standstill goes on from one episode to the next where the stamps do; without stamps it ends
    with its episode, and at a masked row in any case.
    """
    width = column.shape[1]
    channels = [Standstills() for _ in range(width)]
    first, length = np.zeros(width, np.int64), np.zeros(width, np.int64)
    linked = _linked(dataset)
    for rows in blocks(dataset.n_rows, column):
        start = max(rows.start - 1, 0)
        values = np.asarray(column[start : rows.stop])
        link = linked[start + 1 : rows.stop]
        same = (values[1:] == values[:-1]) & link[:, None]
        for i, channel in enumerate(channels):
            channel.steps += int(link.sum())
            channel.moves += int((link & ~same[:, i]).sum())
            ends = np.flatnonzero(~same[:, i])  # in steps of this block
            if not len(ends):
                length[i] += len(same)
                continue
            begins = np.append(0, ends[:-1] + 1)
            lengths = ends - begins
            firsts = start + begins
            lengths[0] += length[i]
            firsts[0] = first[i] if length[i] else firsts[0]
            channel.end(firsts, lengths)
            first[i], length[i] = start + ends[-1] + 1, len(same) - 1 - ends[-1]
    for i, channel in enumerate(channels):
        channel.end(first[i : i + 1], length[i : i + 1])
    return channels


def _linked(dataset: Dataset) -> np.ndarray:
    """Whether each row is one period behind the row above it."""
    mask = np.asarray(dataset.transitions.mask, np.bool_)
    linked = mask.copy()
    linked[1:] &= mask[:-1]
    linked[:1] = False
    if dataset.time is None:
        linked[dataset.episode_starts] = False
        return linked
    step = np.diff(np.asarray(dataset.time))
    linked[1:] &= np.abs(step - dataset.spec.dt) < 0.5 * dataset.spec.dt
    return linked


def frozen(
    obs: Sequence[Standstills], action: Sequence[Standstills], dataset: Dataset, skipped: set[str]
) -> list[dict[str, Any]]:
    """Standstills of measurements far beyond the usual ones, while other signals moved.

    Args:
        obs: Standstills of every observation.
        action: Standstills of every action.
        dataset: The log.
        skipped: Observations that may stand still, as set points do.

    Returns:
        For each its name, its first row, the time it begins at, its duration and the usual one,
        in seconds.
    """
    dt, time = dataset.spec.dt, dataset.time
    doubtful = []
    for i, (channel, signal) in enumerate(zip(dataset.spec.obs, obs, strict=True)):
        if channel.name in skipped or not signal.moves:
            continue
        for steps, row in signal.longest:
            if steps < max(FROZEN_STEPS, FROZEN_TIMES * signal.usual):
                continue
            others = [s for j, s in enumerate(obs) if j != i], action
            if _others_move(others, dataset, row, steps, i):
                doubtful.append(
                    {
                        "name": channel.name,
                        "row": row,
                        "start": float(row * dt if time is None else time[row]),
                        "duration_s": float(steps * dt),
                        "usual_s": float(signal.usual * dt),
                    }
                )
    return doubtful


def _others_move(
    others: tuple[Sequence[Standstills], Sequence[Standstills]],
    dataset: Dataset,
    row: int,
    steps: int,
    skipped: int,
) -> bool:
    """Whether at least half of the other signals that often move go on moving."""
    rows = slice(row, row + min(steps, WATCHED) + 1)
    columns: Any = dataset.transitions
    obs = np.delete(np.asarray(columns.obs[rows]), skipped, axis=1)
    moving = []
    for signals, column in zip(others, (obs, np.asarray(columns.action[rows])), strict=True):
        rates = (np.diff(column, axis=0) != 0).mean(axis=0)
        for signal, rate in zip(signals, rates, strict=True):
            usual = signal.moves / max(signal.steps, 1)
            if usual > 1 / RARE:
                moving.append(rate >= 0.5 * usual)
    return bool(moving) and sum(moving) >= 0.5 * len(moving)


def rarely_sampled(
    channels: Sequence[Channel], signals: Sequence[Standstills], dt: float, skipped: set[str]
) -> list[dict[str, Any]]:
    """Measurements that change once in ten periods or less often, as laboratory values do."""
    return [
        {"name": channel.name, "every_s": float(signal.steps / signal.moves * dt)}
        for channel, signal in zip(channels, signals, strict=True)
        if channel.name not in skipped and 5 <= signal.moves <= signal.steps / RARE
    ]
