"""Fine-tuning an offline run on a simulated plant: its section, and what is checked of it."""

import dataclasses
from typing import Any

from neorl_agents import Explorer
from neorl_agents.online import require_fine_tunable, rows_of_the_log
from neorl_core import InputError


@dataclasses.dataclass(frozen=True)
class FineTuningConfig:
    """Training that goes on online: collect on the simulated plant, store, update.

    Attributes:
        run: Directory of the finished run whose learners are fine-tuned; empty trains on the log
            alone. `neorl-train finetune RUN` sets it.
        environment: Name of the simulated plant; empty takes that of the run. A run on a log of
            one's own has none: name the simulator of that plant.
        variant: Settings of the learners, by the name that they give them; ``"offline"`` keeps
            those of the offline training.
        environments: Number of episodes side by side; times ``updates_per_step`` a divisor of
            ``training.chunk``.
        updates_per_step: Critic gradient steps for every step of the plant.
        share: Share of every batch that comes from the log, in [0, 1]; half of it is the symmetric
            sampling of RLPD. The rest comes from the rows collected online.
        warm_up: Steps of the plant before the first update, with the offline policy.
        capacity: Rows that the online buffer holds; beyond, the oldest are forgotten.
    """

    run: str = ""
    environment: str = ""
    variant: str = "original"
    environments: int = 10
    updates_per_step: int = 1
    share: float = 0.5
    warm_up: int = 1_000
    capacity: int = 100_000


def check_fine_tuning(
    settings: FineTuningConfig, algorithm: Any, *, chunk: int, where: str = "finetune"
) -> None:
    """Refuses settings that no learner, or not this one, can be fine-tuned with.

    Args:
        settings: Section of the configuration.
        algorithm: Learner with plain numbers.
        chunk: Critic gradient steps in one call of the compiled program.
        where: Name of the section, for messages.

    Raises:
        InputError: Naming the first bad value, what it is and what it must be.
    """
    require_fine_tunable(algorithm)
    check_collection(settings, algorithm, chunk=chunk, where=where)


def check_collection(
    settings: FineTuningConfig,
    algorithm: Any,
    *,
    chunk: int,
    where: str = "finetune",
    buffered: bool = True,
) -> None:
    """Refuses numbers with which a learner cannot collect on a plant and learn meanwhile.

    Args:
        settings: Section of the configuration.
        algorithm: Learner with plain numbers.
        chunk: Critic gradient steps in one call of the compiled program.
        where: Name of the section, for messages.
        buffered: Whether the learner draws its batches from the buffer. One that learns from fresh
            rollouts takes ``environments`` alone.

    Raises:
        InputError: If the learner does not explore; else naming the first bad value.
    """
    name = type(algorithm).__name__
    if not isinstance(algorithm, Explorer):
        raise InputError(
            f"{name} cannot be trained on a plant: it has no explore(state), the policy to try"
        )
    for field in ("environments", "updates_per_step", "warm_up", "capacity"):
        value = getattr(settings, field)
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(
            whole and value >= 1, f"{where}.{field} must be a whole number from 1, got {value}"
        )
    _require(0 <= settings.share <= 1, f"{where}.share must be in [0, 1], got {settings.share}")
    if buffered:
        _check_buffer(settings, algorithm, chunk, where)


def _check_buffer(settings: FineTuningConfig, algorithm: Any, chunk: int, where: str) -> None:
    name, size = type(algorithm).__name__, algorithm.batch_size
    online = size - rows_of_the_log(size, settings.share)
    _require(
        settings.capacity >= max(size, settings.environments),
        f"{where}.capacity is {settings.capacity}, smaller than a batch of {name} ({size} rows) or "
        f"than one step of the {settings.environments} episodes; let the buffer hold more",
    )
    _require(
        settings.warm_up >= online,
        f"{where}.warm_up is {settings.warm_up}, and {online} of the {size} rows of a batch of "
        f"{name} come from the online buffer; collect as many steps before the first update",
    )
    _require(
        settings.warm_up <= settings.capacity,
        f"{where}.warm_up is {settings.warm_up}, more than the {settings.capacity} rows that the "
        "buffer holds; collect fewer, or let it hold more",
    )
    steps = settings.environments * settings.updates_per_step
    per_update = algorithm.batches_per_update
    _require(
        steps % per_update == 0,
        f"{where}.environments times {where}.updates_per_step is {steps}; it must be a multiple of "
        f"{per_update}, the critic steps of one update of {name}",
    )
    _require(
        chunk % steps == 0,
        f"training.chunk is {chunk}; it must be a multiple of {steps}, the critic steps after one "
        f"step of the {settings.environments} episodes",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
