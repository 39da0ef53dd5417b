"""Fine-tuning of an offline run on a simulated plant: its section and its checks."""

import dataclasses
from typing import Any

from neorl_agents.online import require_fine_tunable
from neorl_core import InputError
from neorl_train.configuration._online import check_collection


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
        share: Fraction of every batch that comes from the log, in [0, 1]; one half is the symmetric
            sampling of RLPD. The rest comes from the rows collected online.
        warm_up: Steps of the plant before the first update, with the offline policy.
        capacity: Number of rows that the online buffer can store; beyond it, the oldest are
            overwritten.
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
    """Refuses settings with which no learner, or not this one, can be fine-tuned.

    Args:
        settings: Section of the configuration.
        algorithm: Learner with plain numbers.
        chunk: Critic gradient steps in one call of the compiled program.
        where: Name of the section, for messages.

    Raises:
        InputError: Names the first invalid value, what it is and what it must be.
    """
    require_fine_tunable(algorithm)
    _require(
        0 <= settings.share <= 1,
        f"{where}.share must be in [0, 1], the fraction of each "
        f"batch that comes from the log, got {settings.share}",
    )
    check_collection(settings, algorithm, chunk=chunk, where=where, share=settings.share)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
