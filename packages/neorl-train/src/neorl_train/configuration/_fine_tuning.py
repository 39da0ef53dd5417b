"""Fine-tuning an offline run on a simulated plant: its section, and what is checked of it."""

import dataclasses
from typing import Any

from neorl_agents.online import require_fine_tunable
from neorl_core import InputError
from neorl_train.configuration._online import check_collection


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
    _require(0 <= settings.share <= 1, f"{where}.share must be in [0, 1], got {settings.share}")
    check_collection(settings, algorithm, chunk=chunk, where=where, share=settings.share)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
