"""The controller of a run that is retuned in a plant model learned from its log."""

import dataclasses
from collections.abc import Sequence

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import SearchSettings
from neorl_core import InputError

RETUNED = "retuned"
"""Name of the retuned controller among the candidates."""
INCUMBENT = "incumbent"
"""Refers to the controller that runs on the plant today, as the one to retune."""
RESIDUAL = "residual"
"""Name of the retuned controller with a network on top."""
BEST = "best"
"""Requests that the candidate be chosen from the pool without the plant."""


@dataclasses.dataclass(frozen=True)
class RetuningConfig:
    """A controller that is retuned in a plant model learned from the log.

    Attributes:
        controller: Name of a tuning of the plant, or one of ``classical.controllers``;
            ``"incumbent"`` is the controller that runs on the plant today. If empty, none is
            retuned.
        exogenous: Observations that no controller influences, such as weather, demand or
            set-points; a plant declares its own.
        updates: Gradient steps of each network of the model.
        generations: Generations of each search.
        residual: Whether a network of bounded authority is trained on top of the retuned
            controller, in the same model.
        seed: Seed of the model, of the search and of the network.
    """

    controller: str = ""
    exogenous: tuple[str, ...] = ()
    updates: int = HistoryModelSettings.updates
    generations: int = SearchSettings.generations
    residual: bool = False
    seed: int = 0


def check_candidate(
    candidate: str,
    retuning: RetuningConfig,
    algorithms: Sequence[str],
    controllers: Sequence[str] = (),
) -> None:
    """Refuses a candidate that the run does not produce.

    Args:
        candidate: Its name; empty for the default.
        retuning: Section that may add the retuned controller.
        algorithms: Names of the learners.
        controllers: Names of the classical controllers that the run fits on its log.

    Raises:
        InputError: Names those that it produces.
    """
    if candidate == RESIDUAL and RESIDUAL not in algorithms and not retuning.residual:
        raise InputError(
            f"evaluation.candidate is {candidate!r}, and no network is trained on top of a "
            "controller; ask for it with --retuning.controller incumbent --retuning.residual"
        )
    if candidate in (RETUNED, BEST) and not retuning.controller:
        raise InputError(
            f"evaluation.candidate is {candidate!r}, and no controller is retuned; name one with "
            "--retuning.controller, a tuning of the plant or one of classical.controllers"
        )
    names = [*algorithms, *controllers, *((RETUNED, BEST) if retuning.controller else ())]
    names += [RESIDUAL] if retuning.controller and retuning.residual else []
    if candidate not in ("", *names):
        raise InputError(
            f"evaluation.candidate is {candidate!r}, which is not trained; choose one of "
            f"training.algorithms or classical.controllers with --evaluation.candidate: "
            f"{', '.join(names)}"
        )


def check_retuning(
    retuning: RetuningConfig, tunings: Sequence[str], controllers: Sequence[str]
) -> None:
    """Refuses counts below one, and a controller that is neither a tuning nor fitted to the log.

    Args:
        retuning: Section to check.
        tunings: Names of the plant's tunings; none if there is only a log.
        controllers: Names of the classical controllers that the run fits.

    Raises:
        InputError: Names the controllers that can be retuned.
    """
    for name in ("updates", "generations"):
        if getattr(retuning, name) < 1:
            raise InputError(f"retuning.{name} must be at least 1, got {getattr(retuning, name)}")
    known = [*tunings, *controllers]
    if retuning.controller and retuning.controller not in known:
        raise InputError(
            f"retuning.controller is {retuning.controller!r}; choose one of "
            f"{', '.join(known) or 'none that is known yet'}, or fit one on the log with "
            "--classical.controllers pid_imitation and name that"
        )
