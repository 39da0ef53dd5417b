"""What one algorithm is trained on."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics

ROWS_AT_ONCE = 65_536


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What one algorithm is trained on.

    Attributes:
        rows: The training split as host arrays, physical units, the penalised reward; without
            masked rows, so its own ``mask`` is ``None``, and truncated before each gap.
        statistics: Statistics of the same split with the same reward.
        spec: Channels, period and horizon.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec

    @property
    def n_rows(self) -> int:
        """Rows that are trained on."""
        return len(self.rows.obs)

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, a block at a time, in the order of the log."""
        rows: Any = self.rows
        for start in range(0, self.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            yield rows.obs[block], rows.action[block]


def training_data(dataset: Dataset) -> TrainingData:
    """A complete log to be trained on: every row that is not masked, with the log's own reward.

    Args:
        dataset: The log.

    Returns:
        Its rows and their statistics.

    Raises:
        InputError: If every row is masked.
    """
    mask = np.asarray(dataset.transitions.mask)
    if not mask.any():
        raise InputError("every row of the log is masked, so there is nothing to train on")
    rows = jax.tree.map(partial(unmasked, mask), cut_at_gaps(dataset.transitions))
    return TrainingData(rows, data_statistics(dataset), dataset.spec)


def penalised(
    reward: Float[np.ndarray, "*rows"],
    cost: Float[np.ndarray, "*rows cost"],
    weights: Sequence[float],
) -> Float[np.ndarray, "*rows"]:
    """``reward - sum_i weights[i] cost[i]`` on the host, the same in blocks of any size."""
    for i, weight in enumerate(weights):
        if weight:
            reward = reward - np.float32(weight) * cost[..., i]
    return reward


def cut_at_gaps(rows: Transition) -> Transition:
    """The rows without their mask, truncated where it leaves the next one out.

    What follows a row must be known by its flags alone once masked rows are gone: windows, returns
    over several steps and returns to go would join what was apart otherwise.

    Args:
        rows: A log in order, host arrays.

    Returns:
        The same rows; ``truncated`` also where the next row is masked and nothing terminated.
    """
    mask = np.asarray(rows.mask)
    if mask.all():
        return rows._replace(mask=None)
    following = np.concatenate([mask[1:], [True]])
    cut = np.asarray(rows.truncated) | (~following & ~np.asarray(rows.terminated))
    zeroed = np.where(cut[:, None], 0, np.asarray(rows.next_action))
    return rows._replace(truncated=cut, next_action=zeroed, mask=None)  # pyright: ignore


def unmasked(mask: Bool[np.ndarray, " row"], column: np.ndarray) -> np.ndarray:
    """The rows of a column that count; no copy where all of them do."""
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]
