"""Starts and ends of episodes in the rows of a log, on the host."""

from typing import Any

import jax
import numpy as np

from neorl_core import Transition


def on_host(rows: Transition) -> Any:
    """The same rows as NumPy arrays."""
    return jax.tree.map(np.asarray, rows)


def episode_starts(rows: Transition) -> np.ndarray:
    """For every row, the index of the first row of its episode, int32.

    Raises a ``ValueError`` if the log does not mark where episodes end.
    """
    ends = episode_ends(rows)
    number = np.arange(len(ends), dtype=np.int32)
    starts = np.concatenate([[True], ends[:-1]])
    return np.maximum.accumulate(np.where(starts, number, 0)).astype(np.int32)


def episode_ends(rows: Transition) -> np.ndarray:
    """Whether an episode ends with a row; the last row of a log ends one.

    Raises a ``ValueError`` if the log does not mark where episodes end.
    """
    if rows.terminated is None or rows.truncated is None:
        raise ValueError(
            "the ends of episodes are not known; the learner must list terminated and truncated "
            "among its fields"
        )
    ends = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    ends = ends.copy()
    ends[-1:] = True
    return ends


def unmasked_rows(rows: Transition) -> np.ndarray:
    """Whether each row is unmasked; a ``ValueError`` if all rows are masked."""
    is_valid = np.ones(len(np.asarray(rows.reward)), bool) if rows.mask is None else rows.mask
    is_valid = np.asarray(is_valid, bool)
    if not is_valid.any():
        raise ValueError("every row is masked, so there is nothing to sample; mask fewer rows")
    return is_valid


def last_rows(ends: np.ndarray) -> np.ndarray:
    """For every row, the index of the first row from it on where ``ends`` is true, int32."""
    number = np.arange(len(ends), dtype=np.int32)
    indices = np.where(ends, number, len(ends) - 1)
    return np.minimum.accumulate(indices[::-1])[::-1].astype(np.int32)
