"""Events in the steps after every row of a log, as far as the log contains them."""

import numpy as np

from neorl_agents.critics._columns import Columns


def steps_left(columns: Columns) -> np.ndarray:
    """Number of rows from each row to the end of its piece, itself included, shape ``(row,)``."""
    rows = np.arange(len(columns.last))
    ends = np.where(columns.last, rows, len(rows))
    next_end = np.minimum.accumulate(ends[::-1])[::-1]
    return np.minimum(next_end, len(rows) - 1) - rows + 1


def window_sums(columns: Columns, values: np.ndarray, horizon: int, discount: float) -> np.ndarray:
    """``sum_{i < horizon} discount^i values_{t+i}`` within the piece of every row.

    Values and sums have the shape ``(row, channel)``; steps beyond the end of a piece add zero.
    """
    remaining, total = steps_left(columns), np.zeros(values.shape)
    padded = np.concatenate([values, np.zeros((horizon, values.shape[1]))])
    for i in range(horizon):
        inside = (remaining > i)[:, None]
        total += discount**i * np.where(inside, padded[i : i + len(values)], 0)
    return total


def fully_observed(columns: Columns, horizon: int, episode_length: int) -> np.ndarray:
    """Whether the log contains everything within the horizon of a row, shape ``(row,)``.

    A row is kept if its window ends within its piece, or the plant ended the episode before that.
    Rows whose window passes the longest episode are dropped, even if the plant ended it earlier;
    otherwise rows close to the time limit would be kept only if an event ended the episode.
    """
    remaining = steps_left(columns)
    end = np.arange(len(remaining)) + remaining - 1
    in_time = columns.age + horizon <= episode_length
    return in_time & ((remaining >= horizon) | columns.terminated[end])
