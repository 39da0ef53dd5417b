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
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs; empty for none.
        penalised_statistics: Statistics with these penalties subtracted from the reward; the same
            statistics if there are none.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec
    penalty_weights: tuple[float, ...] = ()
    penalised_statistics: DataStatistics | None = None

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.rows.obs)

    def rows_for(self, learner: Learner) -> Transition:
        """The rows as a learner receives them; see :func:`neorl_agents.learning.rows_for`."""
        return rows_for(learner, self.rows, self.penalty_weights)

    def statistics_for(self, learner: Learner) -> DataStatistics:
        """Statistics with the reward that a learner receives."""
        return statistics_for_learner(learner, self.statistics, self.penalised_statistics)

    def mean_reward(self, learner: Learner) -> float:
        """Mean of the reward that a learner receives."""
        reward = self.rows.reward
        if any(self.penalty_weights) and not reads_costs(learner):
            reward = reward_minus_costs(reward, self.rows.cost, self.penalty_weights)
        return float(np.asarray(reward, np.float64).mean())

    def actions(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Observations and actions of the rows, one block at a time, in the order of the log."""
        rows: Any = self.rows
        for start in range(0, self.n_rows, ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            yield rows.obs[block], rows.action[block]


def training_data(
    dataset: Dataset, *, penalty_weights: Sequence[float] = (), spec: Spec | None = None
) -> TrainingData:
    """Prepares a complete log for training: every row that is not masked.

    Args:
        dataset: The log.
        penalty_weights: Penalty per unit of each cost, subtracted from the reward for learners that
            do not read costs; none by default.
        spec: Specification with the cost limits of the run; by default that of the log.

    Returns:
        Its rows and their statistics.

    Raises:
        InputError: If every row is masked.
    """
    mask = np.asarray(dataset.transitions.mask)
    if not mask.any():
        raise InputError("every row of the log is masked, so there is nothing to train on")
    rows = jax.tree.map(partial(unmasked_rows, mask), cut_at_gaps(dataset.transitions))
    plain, penalised = plain_and_penalised(dataset, penalty_weights)
    return TrainingData(rows, plain, spec or dataset.spec, tuple(penalty_weights), penalised)


def plain_and_penalised(
    dataset: Dataset,
    penalty_weights: Sequence[float],
    episodes: Int[np.ndarray, " chosen"] | None = None,
) -> tuple[DataStatistics, DataStatistics]:
    """Statistics with the reward as logged, and with the cost penalties subtracted from it."""
    plain = data_statistics(dataset, episodes=episodes)
    if not any(penalty_weights):
        return plain, plain

    def penalised(reward: np.ndarray, cost: np.ndarray) -> np.ndarray:
        return reward_minus_costs(reward, cost, penalty_weights)

    return plain, data_statistics(dataset, episodes=episodes, reward=penalised)


def statistics_for_learner(
    learner: Learner, plain: DataStatistics, penalised: DataStatistics | None
) -> DataStatistics:
    """The statistics with those of the reward that a learner receives."""
    return plain if penalised is None or reads_costs(learner) else penalised


def cut_at_gaps(rows: Transition) -> Transition:
    """Removes masked rows, and truncates each row that precedes one.

    Once masked rows are gone, only the flags show which rows are consecutive: otherwise windows,
    n-step returns and returns-to-go would join rows that do not belong together.

    Returns:
        The same rows, with ``truncated`` also true if the next row is masked and the row is not
        terminal.
    """
    mask = np.asarray(rows.mask)
    if mask.all():
        return rows._replace(mask=None)
    next_known = np.concatenate([mask[1:], [True]])
    cut = np.asarray(rows.truncated) | (~next_known & ~np.asarray(rows.terminated))
    zeroed = np.where(cut[:, None], 0, np.asarray(rows.next_action))
    return rows._replace(truncated=cut, next_action=zeroed, mask=None)  # pyright: ignore


def unmasked_rows(mask: Bool[np.ndarray, " row"], column: np.ndarray) -> np.ndarray:
    """The rows of a column that are not masked; without a copy if there are none."""
    return np.asarray(column) if mask.all() else np.asarray(column)[mask]
