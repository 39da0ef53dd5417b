"""Ranges, saturation and movement of channels, computed block by block."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neorl_core import Channel
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.inspection._standstills import Standstills

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
    n = 0
    total = np.zeros(len(channels))
    square, near, outside = total.copy(), total.copy(), total.copy()
    least, most = np.full(len(channels), np.inf), np.full(len(channels), -np.inf)
    histogram = np.zeros((len(channels), BINS), np.int64)
    for part in used_blocks(column, mask):
        mean = part.mean(axis=0)
        if n:  # Chan, Golub and LeVeque (1979)
            square += ((part - mean) ** 2).sum(axis=0)
            square += (mean - total / n) ** 2 * n * len(part) / (n + len(part))
        else:
            square = ((part - mean) ** 2).sum(axis=0)
        total, n = total + part.sum(axis=0), n + len(part)
        least, most = np.minimum(least, part.min(axis=0)), np.maximum(most, part.max(axis=0))
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
            **(_numbers(least[i], total[i] / n, most[i], square[i] / n) if n else {}),
            "coverage": float((most[i] - least[i]) / span[i]) if n else 0.0,
            "saturated": float(near[i] / n) if n else 0.0,
            "outside": float(outside[i] / n) if n else 0.0,
            "constant": bool(n == 0 or least[i] == most[i]),
            "longest_flat_s": float(flat[i] * dataset.spec.dt),
            "histogram": histogram[i].tolist(),
        }
        for i, channel in enumerate(channels)
    ]


def _numbers(least: float, mean: float, most: float, variance: float) -> dict[str, float]:
    numbers = {"min": least, "mean": mean, "max": most, "std": np.sqrt(variance)}
    return {name: float(value) for name, value in numbers.items()}


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
