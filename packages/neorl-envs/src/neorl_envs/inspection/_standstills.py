"""Detects signals that stand still: frozen instruments and rarely sampled values."""

import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_core import Channel
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset

MOST_COUNTED = 1000
"""Longer standstills are counted as having this many steps."""
LONGEST_KEPT = 5
FROZEN_STEPS, FROZEN_TIMES = 20, 10
"""Smallest length of a suspicious standstill, in steps and in multiples of the usual length."""
USUAL = 0.99
"""Quantile of the lengths of standstills (zero for a step that moves) that counts as usual."""
WATCHED = 5000
"""Largest number of rows of a standstill in which movements of other signals are checked."""
RARE = 10
"""A signal with at least this many steps between changes, on average, counts as rarely sampled."""


@dataclasses.dataclass
class Standstills:
    """Lengths of the periods in which one signal stands still.

    Attributes:
        lengths: Number of standstills by length in steps; a step that moves counts as a standstill
            of length zero.
        longest: Length in steps and first row of the longest standstills.
        steps: Number of steps examined.
        moves: Number of steps in which the signal moved.
    """

    lengths: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros(MOST_COUNTED + 1, np.int64)
    )
    longest: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    steps: int = 0
    moves: int = 0

    def end(self, firsts: np.ndarray, lengths: np.ndarray) -> None:
        """Adds standstills that have ended."""
        self.lengths += np.bincount(np.minimum(lengths, MOST_COUNTED), minlength=MOST_COUNTED + 1)
        longest_first = np.argsort(-lengths, kind="stable")[:LONGEST_KEPT]
        stretches = [*self.longest, *((int(lengths[i]), int(firsts[i])) for i in longest_first)]
        self.longest = heapq.nlargest(LONGEST_KEPT, stretches)

    @property
    def usual_length(self) -> int:
        """Length in steps that 99 % of the standstills do not exceed."""
        total = np.cumsum(self.lengths)
        return int(np.searchsorted(total, USUAL * total[-1])) if total[-1] else 0


def standstills(column: np.ndarray, dataset: Dataset) -> list[Standstills]:
    """Measures how long every channel of a column stands still.

    A standstill continues into the next episode if the recorded times are consecutive. Without
    times it ends with its episode. It always ends at a masked row.
    """
    width = column.shape[1]
    channels = [Standstills() for _ in range(width)]
    first, length = np.zeros(width, np.int64), np.zeros(width, np.int64)
    linked = _row_links(dataset)
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


def _row_links(dataset: Dataset) -> np.ndarray:
    """Whether each row is one period after the previous row."""
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


def frozen_signals(
    obs: Sequence[Standstills], action: Sequence[Standstills], dataset: Dataset, skipped: set[str]
) -> list[dict[str, Any]]:
    """Standstills of measurements that are far longer than usual, while other signals moved.

    ``skipped`` are observations that may stand still, such as setpoints. Returns for each
    standstill the name of the channel, its first row, its start time, and its own and the usual
    duration in seconds.
    """
    dt, time = dataset.spec.dt, dataset.time
    suspicious = []
    for i, (channel, signal) in enumerate(zip(dataset.spec.obs, obs, strict=True)):
        if channel.name in skipped or not signal.moves:
            continue
        for steps, row in signal.longest:
            if steps < max(FROZEN_STEPS, FROZEN_TIMES * signal.usual_length):
                continue
            others = [s for j, s in enumerate(obs) if j != i], action
            if _others_move(others, dataset, row, steps, i):
                suspicious.append(
                    {
                        "name": channel.name,
                        "row": row,
                        "start": float(row * dt if time is None else time[row]),
                        "duration_s": float(steps * dt),
                        "usual_s": float(signal.usual_length * dt),
                    }
                )
    return suspicious


def _others_move(
    others: tuple[Sequence[Standstills], Sequence[Standstills]],
    dataset: Dataset,
    row: int,
    steps: int,
    skipped: int,
) -> bool:
    """Whether at least half of the other signals that often move continue to move."""
    rows = slice(row, row + min(steps, WATCHED) + 1)
    columns: Any = dataset.transitions
    obs = np.delete(np.asarray(columns.obs[rows]), skipped, axis=1)
    moving = []
    for signals, column in zip(others, (obs, np.asarray(columns.action[rows])), strict=True):
        rates = (np.diff(column, axis=0) != 0).mean(axis=0)
        for signal, rate in zip(signals, rates, strict=True):
            usual_rate = signal.moves / max(signal.steps, 1)
            if usual_rate > 1 / RARE:
                moving.append(rate >= 0.5 * usual_rate)
    return bool(moving) and sum(moving) >= 0.5 * len(moving)


def rarely_sampled(
    channels: Sequence[Channel], signals: Sequence[Standstills], dt: float, skipped: set[str]
) -> list[dict[str, Any]]:
    """Measurements that change at most once in ten periods, such as laboratory values."""
    return [
        {"name": channel.name, "every_s": float(signal.steps / signal.moves * dt)}
        for channel, signal in zip(channels, signals, strict=True)
        if channel.name not in skipped and 5 <= signal.moves <= signal.steps / RARE
    ]
