"""Checks of a learner before it is trained."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import Log, reads_costs, require_log
from neorl_core import InputError, Transition
from neorl_train.data._streamed import StreamedData, require_streamable
from neorl_train.data._training_data import TrainingData
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
    columns; of a log that stays in its file, the costs of every episode and the range of every
    action.

    Args:
        learners: Learners with valid hyperparameters.
        data: Training split.

    Raises:
        InputError: Names the learner, and says what to do.
    """
    parts = [
        part
        for learner in learners
        for part in (learner, *(fit.learner for fit in learner.fits().values()))
    ]
    if isinstance(data, StreamedData):
        has_costs = any(reads_costs(part) for part in parts)
        episodes = _episode_rows(data, has_costs=has_costs)
        for part in parts:
            require_log(part, data.spec, episodes)
    else:
        for part in parts:
            require_log(part, data.spec, data.rows_for(part))


def _episode_rows(data: StreamedData, *, has_costs: bool) -> Transition:
    """Two rows for each episode, of which the costs are those that its limits bound.

    Actions, observations and rewards are the smallest and the largest of the log, so they move if
    those of any rows do. Costs are read from the file only if a learner reads them.
    """
    statistics = data.statistics
    n_episodes = int(statistics.episode_length.count)
    obs, action, reward = (
        np.stack([np.asarray(field.min), np.asarray(field.max)] * n_episodes)
        for field in (statistics.obs, statistics.action, statistics.reward)
    )
    cost = None
    if has_costs and data.spec.cost:
        first = data.limited_costs()
        # The second row changes neither the sum of a cost nor its worst step.
        second = np.where([channel.per == "step" for channel in data.spec.cost], first, 0)
        cost = np.stack([first, second], axis=1).reshape(2 * n_episodes, -1)
    columns: dict[str, Any] = {
        "obs": obs,
        "action": action,
        "reward": reward,
        "next_obs": obs,
        "terminated": np.zeros(2 * n_episodes, bool),
        "truncated": np.tile([False, True], n_episodes),
        "cost": cost,
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
