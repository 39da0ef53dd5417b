"""Length of a training, and its division into chunks."""

import dataclasses
import math

from neorl_core import InputError
from neorl_train.configuration._sections import (
    CheckpointConfig,
    Config,
    TrainingConfig,
    memory_limit,
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Length of a training and of its chunks.

    Attributes:
        updates: Gradient steps of the critic (of the policy for behaviour cloning) per seed.
        chunk: Updates in one call of the compiled program.
        interval: Updates between two checkpoints and validations.
        memory: Largest number of bytes that the training may take; the memory of the machine or the
            device is a limit in any case.

    Raises:
        ValueError: If a number is below one, the others are not multiples of ``chunk``, or there is
            no memory.
    """

    updates: int = TrainingConfig.updates
    chunk: int = TrainingConfig.chunk
    interval: int = CheckpointConfig.interval
    memory: float = math.inf

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
    training, interval = config.training, config.checkpoints.interval
    return Plan(training.updates, training.chunk, interval, memory_limit(config.devices.memory))


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
