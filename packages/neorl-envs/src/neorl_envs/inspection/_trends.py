"""Trends of all channels over the whole log: smallest and largest value in each interval."""

import dataclasses
from typing import Any

import numpy as np

from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset

INTERVALS = 600


@dataclasses.dataclass(frozen=True)
class Trends:
    """Trends of all channels.

    Attributes:
        start: Start of the first interval, seconds; row number if the log has no times.
        end: End of the last interval.
        stamped: Whether ``start`` and ``end`` are times.
        low: Smallest value in each interval, by channel; NaN if there is none.
        high: Largest value in each interval, by channel.
    """

    start: float
    end: float
    stamped: bool
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]


def trends(dataset: Dataset, intervals: int = INTERVALS) -> Trends:
    """Computes the trends of all observations and actions and of the reward, block by block.

    Args:
        dataset: The log.
        intervals: Number of intervals of the time axis; fewer if the log has fewer periods.

    Returns:
        The smallest and largest unmasked value in every interval.
    """
    columns: Any = dataset.transitions
    named = [
        ([channel.name for channel in dataset.spec.obs], columns.obs),
        ([channel.name for channel in dataset.spec.action], columns.action),
        (["reward"], columns.reward),
    ]
    stamped = dataset.time is not None
    at = np.asarray(dataset.time) if stamped else np.arange(dataset.n_rows, dtype=np.float64)
    width = dataset.spec.dt if stamped else 1.0
    start, end = float(at.min()), float(at.max()) + width
    intervals = max(1, min(intervals, int((end - start) / width)))
    low, high = {}, {}
    for names, column in named:
        least = np.full((intervals, len(names)), np.nan)
        most = least.copy()
        for rows in blocks(dataset.n_rows, column):
            used = np.asarray(columns.mask[rows])
            values = np.asarray(column[rows], np.float64).reshape(len(used), -1)[used]
            if not len(values):
                continue
            middle = at[rows][used] - start + width / 2  # safe from rounding at the edges
            bin_index = (middle * intervals / (end - start)).astype(np.int64)
            bin_index = np.clip(bin_index, 0, intervals - 1)
            first = np.flatnonzero(np.diff(bin_index, prepend=-1))
            np.fmin.at(least, bin_index[first], np.fmin.reduceat(values, first, axis=0))
            np.fmax.at(most, bin_index[first], np.fmax.reduceat(values, first, axis=0))
        low |= dict(zip(names, least.T, strict=True))
        high |= dict(zip(names, most.T, strict=True))
    return Trends(start, end, stamped, low, high)
