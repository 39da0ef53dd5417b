"""What single channels of a log do: their range, standstills, saturation and modes."""

import dataclasses
import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_core import Channel
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._statistics import Moments, merge_moments, moments

# Sample of a log for expensive statistics: whole episodes, evenly spread over the log.


MOST_ROWS = 100_000


class Sample(NamedTuple):
    """Rows of some whole episodes, float64; NaN where a row is masked.

    Attributes:
        obs: Observations.
        action: Actions.
        episode: Index of the episode of each row.
        row: Index of each row in the log.
    """

    obs: np.ndarray
    action: np.ndarray
    episode: np.ndarray
    row: np.ndarray


def episodes_sample(dataset: Dataset) -> Sample:
    """Takes every n-th episode to get about ``MOST_ROWS`` rows; a single long episode is cut."""
    rows: Any = dataset.transitions
    every = max(1, -(-dataset.n_rows // MOST_ROWS))
    chosen = range(0, dataset.n_episodes, every)
    parts = [np.arange(dataset.episode_starts[i], dataset.episode_ends[i]) for i in chosen]
    index = np.concatenate(parts)[: 2 * MOST_ROWS]
    episode = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[: 2 * MOST_ROWS]
    used = np.asarray(rows.mask)[index][:, None]
    obs, action = (
        np.where(used, np.asarray(column[index], np.float64), np.nan)
        for column in (rows.obs, rows.action)
    )
    return Sample(obs, action, episode, index)


# Detects signals that stand still: frozen instruments and rarely sampled values.


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


# Ranges, saturation and movement of channels, computed block by block.


SATURATED = 0.005
"""A channel counts as saturated within this fraction of its range from either end."""
BINS = 24
"""Number of bins in the histogram of a channel over its range."""
MOVES = 1e-4
"""A step counts as a movement if it exceeds this fraction of the range."""


def used_blocks(column: np.ndarray, mask: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the unmasked rows of a column in blocks, float64."""
    for rows in blocks(len(column), column):
        chosen = np.asarray(column[rows])[np.asarray(mask[rows])]
        if len(chosen):
            yield chosen.astype(np.float64)


def summary(values: np.ndarray) -> dict[str, float]:
    """Minimum, mean, maximum and standard deviation."""
    values = np.asarray(values, np.float64)
    return {
        "min": float(values.min()),
        "mean": float(values.mean()),
        "max": float(values.max()),
        "std": float(values.std()),
    }


def channel_entries(
    channels: Sequence[Channel],
    column: np.ndarray,
    dataset: Dataset,
    still: Sequence[Standstills],
) -> list[dict[str, Any]]:
    """Report entries for every channel of a column; ``still`` holds its standstills."""
    mask: Any = dataset.transitions.mask
    low, high = (np.array([getattr(c, end) for c in channels]) for end in ("low", "high"))
    span = high - low
    seen: Moments | None = None
    near, outside = np.zeros(len(channels)), np.zeros(len(channels))
    histogram = np.zeros((len(channels), BINS), np.int64)
    for part in used_blocks(column, mask):
        seen = moments(part) if seen is None else merge_moments(seen, moments(part))
        close = (part <= low + SATURATED * span) | (part >= high - SATURATED * span)
        near += close.sum(axis=0)
        # A range limit rounded to float32 may lie slightly outside the range.
        slack = 1e-6 * np.maximum(np.abs(low), np.abs(high))
        outside += ((part < low - slack) | (part > high + slack)).sum(axis=0)
        bin_index = np.clip(((part - low) / span * BINS).astype(np.int64), 0, BINS - 1)
        for i in range(len(channels)):
            histogram[i] += np.bincount(bin_index[:, i], minlength=BINS)
    flat = [signal.longest[0][0] if signal.longest else 0 for signal in still]
    return [
        {
            "name": channel.name,
            "unit": channel.unit,
            "low": channel.low,
            "high": channel.high,
            **({} if seen is None else _numbers(seen, i)),
            "coverage": 0.0 if seen is None else float((seen.high - seen.low)[i] / span[i]),
            "saturated": 0.0 if seen is None else float(near[i] / seen.count),
            "outside": 0.0 if seen is None else float(outside[i] / seen.count),
            "constant": seen is None or bool(seen.low[i] == seen.high[i]),
            "longest_flat_s": float(flat[i] * dataset.spec.dt),
            "histogram": histogram[i].tolist(),
        }
        for i, channel in enumerate(channels)
    ]


def _numbers(seen: Moments, i: int) -> dict[str, float]:
    std = np.sqrt(seen.squares / seen.count)
    numbers = {"min": seen.low, "mean": seen.mean, "max": seen.high, "std": std}
    return {name: float(value[i]) for name, value in numbers.items()}


def movement(dataset: Dataset) -> list[dict[str, Any]]:
    """Size and frequency of the movements of each manipulated variable within episodes.

    A step leads from the action of an unmasked row to the next action, which may belong to a masked
    row, such as the last row of a log.
    """
    rows: Any = dataset.transitions
    span = np.array([channel.high - channel.low for channel in dataset.spec.action])
    n, moved = 0, np.zeros(len(span))
    total, square = np.zeros(len(span)), np.zeros(len(span))
    for part in blocks(dataset.n_rows, rows.action, rows.next_action):
        inside = np.asarray(rows.mask[part]) & ~np.asarray(
            rows.terminated[part] | rows.truncated[part]
        )
        step = (
            rows.next_action[part][inside].astype(np.float64) - rows.action[part][inside]
        ) / span
        n, moved = n + len(step), moved + (np.abs(step) > MOVES).sum(axis=0)
        total, square = total + step.sum(axis=0), square + (step**2).sum(axis=0)
    n = max(n, 1)
    std = np.sqrt(np.maximum(square / n - (total / n) ** 2, 0)) * span
    return [{"step_std": float(s), "moved": float(m)} for s, m in zip(std, moved / n, strict=True)]


# Movements of each actuator in manual and in automatic, to check the logged mode.


STILL_STEPS = 20
"""Smallest length of a long standstill of an actuator, in steps."""


def modes(sample: Sample, dataset: Dataset) -> list[dict[str, Any]]:
    """Movements of every manipulated variable with a logged mode, in manual and in automatic.

    Returns for each variable its name, the fraction of steps in manual, the fraction of these in
    which it moves, the fraction of the steps in automatic that belong to long standstills inside
    its range, and the fraction of the other steps in automatic in which it moves.
    """
    if dataset.mode is None or len(sample.action) < 2:
        return []
    follows = sample.episode[1:] == sample.episode[:-1]
    manual = np.asarray(dataset.mode[sample.row], np.bool_)
    entries = []
    for i, channel in enumerate(dataset.spec.action):
        span, value = channel.high - channel.low, sample.action[:, i]
        step = np.abs(np.diff(value))
        known = follows & np.isfinite(step)
        by_hand = known & manual[1:, i] & manual[:-1, i]
        automatic = known & ~manual[1:, i] & ~manual[:-1, i]
        inside = (value > channel.low + SATURATED * span) & (
            value < channel.high - SATURATED * span
        )
        moves = step > MOVES * span
        still = _long(automatic & ~moves & inside[1:])
        others = automatic & ~still
        entries.append(
            {
                "name": channel.name,
                "manual": _share(by_hand, known),
                "moves_in_manual": _share(moves & by_hand, by_hand),
                "still_in_automatic": _share(still, automatic),
                "moves_in_automatic": _share(moves & others, others),
            }
        )
    return entries


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.sum() / max(whole.sum(), 1))


def _long(still: np.ndarray) -> np.ndarray:
    """Which steps belong to long standstills."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], still, [False]]).astype(np.int8)))
    long = np.zeros_like(still)
    for first, stop in edges.reshape(-1, 2):
        long[first:stop] = stop - first >= STILL_STEPS
    return long
