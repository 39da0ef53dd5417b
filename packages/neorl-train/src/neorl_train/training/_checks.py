"""Checks of a learner before it is trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import Log, require_log
from neorl_core import InputError, Transition
from neorl_train.experience._streamed import StreamedData, require_streamable
from neorl_train.experience._training_data import TrainingData
from neorl_train.training._plan import Plan


def check_trainable(learner: Learner, data: TrainingData | StreamedData, plan: Plan) -> None:
    """Refuses an invalid learner, invalid hyperparameters, a partial update, and too few rows.

    Raises:
        InputError: Names the learner and the field.
    """
    check_learner(learner, plan)
    name, has_rollouts = type(learner).__name__, learner.source(Log()).cycle > 0
    if has_rollouts and plan.chunk % stride(learner):
        raise InputError(
            f"training.chunk of a run (Plan.chunk) must be a multiple of {stride(learner)}, after "
            f"which {name} makes new rollouts (rollouts.every), got {plan.chunk}"
        )
    if isinstance(data, StreamedData):
        require_streamable(name, learner, data.readers)
        if has_rollouts:
            raise InputError(
                f"{name} starts model rollouts from rows of the log, which is too large for "
                "data.memory; raise data.memory so that the log is read into memory, or choose "
                "another learner"
            )
    if learner.batch_size > data.n_rows:
        raise InputError(
            f"{name} takes batches of {learner.batch_size} rows, and there are {data.n_rows} to "
            "train on; set a smaller steps.batch_size"
        )


def check_logs(learners: Sequence[Learner], data: TrainingData | StreamedData) -> None:
    """Refuses a log that one of several learners cannot use, before any of them is trained.

    The learners that a learner fits first, such as a model, are checked too. The checks read whole
    columns. Of a log that stays in its file only the statistics are checked: costs of which none is
    above zero, actions that never move, a single episode, and a limit that even the smallest logged
    cost of a step exceeds are refused, but not one that only the sum over every episode exceeds.

    Args:
        learners: Learners with valid hyperparameters.
        data: Training split.

    Raises:
        InputError: Names the learner, and says what to do.
    """
    for learner in learners:
        for part in (learner, *(fit.learner for fit in learner.fits().values())):
            is_streamed = isinstance(data, StreamedData)
            rows = _extreme_rows(data) if is_streamed else data.rows_for(part)
            require_log(part, data.spec, rows)


def _extreme_rows(data: StreamedData) -> Transition:
    """The smallest and the largest logged values as two rows, each an episode if the log has two.

    No episode of the log costs less than the first row, and none costs anything if the second does
    not, so whatever is refused here would be refused of the whole log.
    """
    statistics = data.statistics
    obs, action, reward, cost = (
        np.stack([np.asarray(field.min), np.asarray(field.max)])
        for field in (statistics.obs, statistics.action, statistics.reward, statistics.cost)
    )
    has_episodes = int(statistics.episode_length.count) > 1
    columns: dict[str, Any] = {
        "obs": obs,
        "action": action,
        "reward": reward,
        "next_obs": obs,
        "terminated": np.zeros(2, bool),
        "truncated": np.asarray([has_episodes, True]),
        "cost": cost if data.spec.cost else None,
    }
    return Transition(**columns)


def stride(learner: Learner) -> int:
    """Number of critic gradient steps that a chunk of training on a log must be a multiple of."""
    return learner.batches_per_update * max(1, learner.source(Log()).cycle)


def check_learner(learner: Learner, plan: Plan) -> None:
    """Refuses an invalid learner, invalid hyperparameters, and a partial update.

    Raises:
        InputError: Names the learner and the field.
    """
    if isinstance(learner, type | str) or not isinstance(learner, Learner):
        raise InputError(
            f"expected a learner, such as neorl_agents.IQL(), got {learner!r}; create an instance "
            "of a class first, and look up a name with neorl_agents.ALGORITHMS['iql']()"
        )
    name, per_update = type(learner).__name__, learner.batches_per_update
    try:
        learner.validate()
    except ValueError as error:
        raise InputError(str(error)) from error
    if plan.chunk % per_update:
        raise InputError(
            f"Plan.chunk must be a multiple of {per_update}, the critic steps of one update of "
            f"{name}, got {plan.chunk}"
        )
