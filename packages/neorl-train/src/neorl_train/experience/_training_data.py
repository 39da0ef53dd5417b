"""Training data of one algorithm."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from neorl_agents import Learner
from neorl_agents.learning import reads_costs, reward_minus_costs, rows_for
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics

ROWS_AT_ONCE = 65_536


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Training data as logged, and the penalties on the costs.

    Attributes:
        rows: The training split as host arrays, physical units, with reward and cost as logged;
            without masked rows, so its own ``mask`` is ``None``, and truncated before each gap.
        statistics: Statistics of these rows.
        spec: Channels with the cost limits of the run, control period and horizon.
        prices: Penalty per unit of each cost, subtracted from the reward for learners that do not
            read costs; empty for none.
        priced_statistics: Statistics with these penalties subtracted from the reward; the same
            statistics if there are none.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec
    prices: tuple[float, ...] = ()
    priced_statistics: DataStatistics | None = None

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.rows.obs)

    def rows_for(self, learner: Learner) -> Transition:
        """The rows as a learner receives them; see :func:`neorl_agents.learning.rows_for`."""
        return rows_for(learner, self.rows, self.prices)

    def statistics_for(self, learner: Learner) -> DataStatistics:
        """Statistics with the reward that a learner receives."""
        return chosen_statistics(learner, self.statistics, self.priced_statistics)

    def mean_reward(self, learner: Learner) -> float:
        """Mean of the reward that a learner receives."""
        reward = self.rows.reward
        if any(self.prices) and not reads_costs(learner):
            reward = reward_minus_costs(reward, self.rows.cost, self.prices)
        return float(np.asarray(reward, np.float64).mean())

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, one block at a time, in the order of the log."""
        rows: Any = self.rows
        for start in range(0, self.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            yield rows.obs[block], rows.action[block]


def training_data(
    dataset: Dataset, *, prices: Sequence[float] = (), spec: Spec | None = None
) -> TrainingData:
    """Prepares a complete log for training: every row that is not masked.

    Args:
        dataset: The log.
        prices: Penalty per unit of each cost, subtracted from the reward for learners that do not
            read costs; none by default.
        spec: Specification with the cost limits of the run; by default that of the log.

    Returns:
        Its rows and their statistics.

    Raises:
        InputError: If every row is masked.
    """
    mask = np.asarray(dataset.transitions.mask)
    if not mask.any():
        raise InputError("every row of the log is masked, so there is nothing to train on")
    rows = jax.tree.map(partial(unmasked, mask), cut_at_gaps(dataset.transitions))
    own, priced = both_statistics(dataset, prices)
    return TrainingData(rows, own, spec or dataset.spec, tuple(prices), priced)


def both_statistics(
    dataset: Dataset,
    prices: Sequence[float],
    episodes: Int[np.ndarray, " chosen"] | None = None,
) -> tuple[DataStatistics, DataStatistics]:
    """Statistics with the reward as logged, and with the cost penalties subtracted from it."""
    own = data_statistics(dataset, episodes=episodes)
    if not any(prices):
        return own, own

    def priced(reward: np.ndarray, cost: np.ndarray) -> np.ndarray:
        return reward_minus_costs(reward, cost, prices)

    return own, data_statistics(dataset, episodes=episodes, reward=priced)


def chosen_statistics(
    learner: Learner, own: DataStatistics, priced: DataStatistics | None
) -> DataStatistics:
    """The statistics with those of the reward that a learner receives."""
    return own if priced is None or reads_costs(learner) else priced


def cut_at_gaps(rows: Transition) -> Transition:
    """Removes masked rows, and truncates each row that precedes one.

    Once masked rows are gone, only the flags show which rows are consecutive: otherwise windows,
    n-step returns and returns-to-go would join rows that do not belong together.

    Args:
        rows: A log in order, as host arrays.

    Returns:
        The same rows, with ``truncated`` also true if the next row is masked and the row is not
        terminal.
    """
    mask = np.asarray(rows.mask)
    if mask.all():
        return rows._replace(mask=None)
    following = np.concatenate([mask[1:], [True]])
    cut = np.asarray(rows.truncated) | (~following & ~np.asarray(rows.terminated))
    zeroed = np.where(cut[:, None], 0, np.asarray(rows.next_action))
    return rows._replace(truncated=cut, next_action=zeroed, mask=None)  # pyright: ignore


def unmasked(mask: Bool[np.ndarray, " row"], column: np.ndarray) -> np.ndarray:
    """The rows of a column that are not masked; without a copy if there are none."""
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]
