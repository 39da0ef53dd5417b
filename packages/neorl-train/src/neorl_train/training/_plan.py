"""Length of a training, and the checks of its learner, its data and its numbers."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import Learner
from neorl_agents.learning import Log, reads_costs, require_log
from neorl_core import InputError, Transition
from neorl_train.configuration._sections import (
    CheckpointConfig,
    Config,
    TrainingConfig,
    memory_limit,
)
from neorl_train.data._training_data import StreamedData, TrainingData, require_streamable
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._processes import LeaderCheckpoints


@dataclasses.dataclass(frozen=True)
class Plan:
    """Length of a training and of its chunks.

    Attributes:
        updates: Gradient steps of the critic (of the policy for behaviour cloning) per seed.
        chunk: Updates in one call of the compiled program.
        interval: Updates between two checkpoints and validations.
        memory: Largest number of bytes that the training may take; the memory of the machine or the
            device is a limit in any case.
        debug_nans: Whether a training that diverges says where the first NaN came from.
        best: Whether it ends with the policies of the checkpoint whose validation has the smallest
            ``held_out_distance``.

    Raises:
        ValueError: If a number is below one, the others are not multiples of ``chunk``, or there is
            no memory.
    """

    updates: int = TrainingConfig.updates
    chunk: int = TrainingConfig.chunk
    interval: int = CheckpointConfig.interval
    memory: float = math.inf
    debug_nans: bool = False
    best: bool = False

    def __post_init__(self) -> None:
        for name in ("chunk", "updates", "interval"):
            value = getattr(self, name)
            if value < 1 or value % self.chunk:
                raise ValueError(
                    f"Plan.{name} must be a positive multiple of chunk = {self.chunk}, got {value}"
                )
        if not self.memory > 0:
            raise ValueError(f"Plan.memory must be above 0 bytes, got {self.memory}")


DEFAULT_PLAN = Plan()
"""The default plan of a run."""


def plan_of(config: Config) -> Plan:
    """The plan of every learner of a run."""
    training, interval, devices = config.training, config.checkpoints.interval, config.devices
    memory = memory_limit(devices.memory)
    best = config.checkpoints.best
    return Plan(training.updates, training.chunk, interval, memory, devices.debug_nans, best)


def plan_in_chunks(updates: int, cycle: int = 1, *, checkpoints: bool = False) -> Plan:
    """A plan whose chunk is the largest divisor of its length that is at most 1,000 updates.

    Args:
        updates: Gradient steps of the critic.
        cycle: Gradient steps per ``update`` of the learner.
        checkpoints: Whether every chunk ends in a checkpoint, or only the last one.

    Raises:
        InputError: If ``updates`` is not a positive multiple of ``cycle``.
    """
    if updates < 1 or updates % cycle:
        raise InputError(f"updates must be a positive multiple of {cycle}, got {updates}")
    lengths = range(cycle, max(1000, cycle) + 1, cycle)
    chunk = max(length for length in lengths if updates % length == 0)
    return Plan(updates, chunk, chunk if checkpoints else updates)


def check_trainable(learner: Learner, data: TrainingData | StreamedData, plan: Plan) -> None:
    """Refuses an invalid learner, invalid hyperparameters, a partial update, and too few rows."""
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
    """Refuses an invalid learner, invalid hyperparameters, and a partial update."""
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


AnyCheckpoints: TypeAlias = Checkpoints | LeaderCheckpoints | None
MAX_NAMED = 3
"""Number of tensors that are named; the others are counted."""


class DivergedError(InputError):
    """A training whose metrics or states are no longer finite.

    Args:
        message: What is not finite, and what to do.
        seeds: Seeds of which it is not.
        step: Update at which this was found.
        checkpoint: Update of the last checkpoint, which is finite; ``None`` if none was saved.
    """

    def __init__(
        self, message: str, seeds: Sequence[int] = (), step: int = 0, checkpoint: int | None = None
    ) -> None:
        super().__init__(message)
        self.seeds, self.step, self.checkpoint = tuple(seeds), step, checkpoint


def require_finite_metrics(
    name: str,
    seeds: Sequence[int],
    step: int,
    metrics: Sequence[dict[str, float]],
    snapshot: Any,
    checkpoints: AnyCheckpoints,
) -> None:
    """Refuses a metric that is not finite.

    ``snapshot`` returns all states, stacked by seed; it is called only if needed.
    """
    bad = [
        (i, metric, value)
        for i, of_seed in enumerate(metrics)
        for metric, value in of_seed.items()
        if not math.isfinite(value)
    ]
    if bad:
        i, metric, value = bad[0]
        tensors = _enumeration(_not_finite(snapshot(), i))
        fault = f"{metric} of seed {seeds[i]} is {value}{tensors}"
        diverged = list(dict.fromkeys(seeds[i] for i, _, _ in bad))
        raise _diverged(name, fault, diverged, step, checkpoints)


def require_finite_states(
    name: str,
    seeds: Sequence[int],
    step: int,
    snapshot: Any,
    checkpoints: AnyCheckpoints,
) -> None:
    """Refuses states that are not finite, even if every metric so far was.

    Metrics are computed before a step, so none of them shows the effect of the very last step.
    """
    bad = {seed: tensors for i, seed in enumerate(seeds) if (tensors := _not_finite(snapshot, i))}
    if bad:
        seed, (first, *others) = next(iter(bad.items()))
        fault = f"{first} of seed {seed}{_enumeration(others)} is not finite"
        raise _diverged(name, fault, list(bad), step, checkpoints)


def _not_finite(snapshot: Any, i: int) -> list[str]:
    """The tensors of a learner's state that contain a non-finite number."""
    learner = snapshot["state"].learner
    return [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, leaf in jax.tree.leaves_with_path(learner)
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(leaf[i]).all()
    ]


def _enumeration(tensors: list[str]) -> str:
    if not tensors:
        return ""
    more = len(tensors) - MAX_NAMED
    return f" (and so {', '.join(tensors[:MAX_NAMED])}{f' and {more} more' if more > 0 else ''})"


def _diverged(
    name: str, fault: str, seeds: Sequence[int], step: int, checkpoints: AnyCheckpoints
) -> DivergedError:
    """The error, with the last checkpoint: none is written of a state that is not finite."""
    steps = []
    if checkpoints is not None:
        checkpoints.wait()
        steps = checkpoints.steps()
    last = steps[-1] if steps else None
    checkpoint = (
        "no checkpoint was saved"
        if last is None
        else f"the last good checkpoint is that of update {last}"
    )
    message = (
        f"{name} diverged: {fault} at update {step}; {checkpoint}; lower its learning rates, or "
        "scale the reward (--devices.debug-nans names the line of code that gave the first NaN)"
    )
    return DivergedError(message, seeds, step, last)
