"""Training on a simulated plant, from scratch or after a log: sections, checks of collection."""

import dataclasses
from typing import Any, TypeAlias

from neorl_agents import Explorer
from neorl_agents.online import require_fine_tunable, rows_of_the_log
from neorl_core import InputError
from neorl_core.infrastructure import require_settings, setting


@dataclasses.dataclass(frozen=True)
class FineTuningConfig:
    """Continues training online: collect on the simulated plant, store, update.

    Attributes:
        run: Directory of the finished run whose learners are fine-tuned; if empty, the run trains
            on the log only. `neorl-train finetune RUN` sets it.
        environment: Name of the simulated plant; if empty, that of the run. A run on the user's own
            log has none: name the simulator of its plant.
        variant: Named settings of the learners; ``"offline"`` keeps those of the offline training.
        environments: Number of parallel episodes; multiplied by ``updates_per_step`` it must divide
            ``training.chunk``.
        updates_per_step: Critic gradient steps for every step of the plant.
        share: Fraction of every batch that comes from the log; one half is the symmetric
            sampling of RLPD. The rest comes from the rows collected online.
        warm_up: Steps of the plant before the first update, with the offline policy.
        capacity: Number of rows that the online buffer can store; beyond it, the oldest are
            overwritten.
    """

    run: str = ""
    environment: str = ""
    variant: str = "original"
    environments: int = setting(10, low=1)
    updates_per_step: int = setting(1, low=1)
    share: float = setting(0.5, low=0, high=1)
    warm_up: int = setting(1_000, low=1)
    capacity: int = setting(100_000, low=1)


def check_fine_tuning(
    settings: FineTuningConfig, algorithm: Any, *, chunk: int, where: str = "finetune"
) -> None:
    """Refuses settings with which no learner, or not this one, can be fine-tuned."""
    require_fine_tunable(algorithm)
    check_collection(settings, algorithm, chunk=chunk, where=where, share=settings.share)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


@dataclasses.dataclass(frozen=True)
class OnlineConfig:
    """How experience is collected if learners are trained on the plant itself.

    Used with ``training.on = "plant"``. A learner that learns from fresh rollouts of its own policy
    uses only ``environments``.

    Attributes:
        environments: Number of parallel episodes; multiplied by ``updates_per_step`` it must divide
            ``training.chunk`` for a learner that samples its batches from the buffer.
        updates_per_step: Critic gradient steps for every step of the plant.
        warm_up: Steps of the plant before the first update, with the untrained policy; at least one
            batch.
        capacity: Number of rows that the buffer can store; beyond it, the oldest are overwritten.
    """

    environments: int = setting(10, low=1)
    updates_per_step: int = setting(1, low=1)
    warm_up: int = setting(1_000, low=1)
    capacity: int = setting(100_000, low=1)


CollectionSettings: TypeAlias = FineTuningConfig | OnlineConfig
"""The settings for collecting experience on a plant."""


def check_collection(
    settings: CollectionSettings,
    algorithm: Any,
    *,
    chunk: int,
    where: str = "finetune",
    buffered: bool = True,
    by_priority: bool = False,
    share: float = 0.0,
) -> None:
    """Refuses settings with which a learner cannot collect on a plant and learn at the same time.

    Args:
        settings: Section of the configuration.
        algorithm: Learner with plain numbers.
        chunk: Critic gradient steps in one call of the compiled program.
        where: Name of the section, for messages.
        buffered: Whether the learner samples its batches from the buffer. One that learns from
            fresh rollouts uses only ``environments``.
        by_priority: Whether the learner itself determines how many steps precede an update.
        share: Fraction of every batch that comes from a log.
    """
    name = type(algorithm).__name__
    if not isinstance(algorithm, Explorer):
        raise InputError(
            f"{name} cannot be trained on a plant: it has no method explore(state) that returns "
            "the exploring policy"
        )
    require_settings(settings, where)
    if buffered:
        _check_buffer(settings, algorithm, where, share)
    if buffered and not by_priority:
        _check_cycle(settings, algorithm, chunk, where)


def _check_buffer(settings: CollectionSettings, algorithm: Any, where: str, share: float) -> None:
    name, size = type(algorithm).__name__, algorithm.batch_size
    online = size - rows_of_the_log(size, share)
    _require(
        settings.capacity >= max(size, settings.environments),
        f"{where}.capacity is {settings.capacity}, smaller than a batch of {name} ({size} rows) or "
        f"than one step of the {settings.environments} episodes; raise the capacity",
    )
    _require(
        settings.warm_up >= online,
        f"{where}.warm_up is {settings.warm_up}, and {online} of the {size} rows of a batch of "
        f"{name} come from the online buffer; raise the warm-up to that number or more",
    )
    _require(
        settings.warm_up <= settings.capacity,
        f"{where}.warm_up is {settings.warm_up}, more than the {settings.capacity} rows that the "
        "buffer holds; lower the warm-up, or raise the capacity",
    )


def _check_cycle(settings: CollectionSettings, algorithm: Any, chunk: int, where: str) -> None:
    name = type(algorithm).__name__
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
