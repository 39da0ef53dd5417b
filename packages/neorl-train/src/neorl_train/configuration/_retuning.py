"""The controller of a run that is retuned in a plant model learned from its log."""

import dataclasses
from collections.abc import Sequence

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import SearchSettings
from neorl_core import InputError

INCUMBENT = "incumbent"
"""Refers to the controller that runs on the plant today, as the one to retune."""


@dataclasses.dataclass(frozen=True)
class RetuningConfig:
    """A controller that is retuned in a plant model learned from the log.

    Attributes:
        controller: Name of a tuning of the plant, one of ``classical.controllers`` or one of
            ``classical.declared``; ``"incumbent"`` is the controller that runs on the plant today,
            also if ``evaluation.incumbent`` names its file. If empty, none is retuned.
        exogenous: Observations that no controller influences, such as weather, demand or
            setpoints; a plant declares its own.
        updates: Gradient steps of each network of the model.
        generations: Generations of each search.
        residual: Whether a network of bounded authority is trained on top of the retuned
            controller, in the same model.
        modes: Whether the other modes of the log are candidates too: the tunings of the plant that
            recorded a part of it; without a plant, an imitation by ``classical.pid_imitation`` of
            the mode or shift that ran the plant best, if the log shows which one did.
        held_out_modes: Largest number of other controllers of the log whose episodes are left out
            of a further fit, which then predicts them. The model is not used if it errs too much; a
            gain must not be small beside this error. Each takes as long as the model itself; zero
            for none.
        seed: Seed of the model, of the search and of the network.
    """

    controller: str = ""
    exogenous: tuple[str, ...] = ()
    updates: int = HistoryModelSettings.updates
    generations: int = SearchSettings.generations
    residual: bool = False
    modes: bool = False
    held_out_modes: int = 0
    seed: int = 0


def check_retuning(
    retuning: RetuningConfig, tunings: Sequence[str], controllers: Sequence[str]
) -> None:
    """Refuses small counts, and a controller that the run does not have."""
    for name in ("updates", "generations"):
        if getattr(retuning, name) < 1:
            raise InputError(f"retuning.{name} must be at least 1, got {getattr(retuning, name)}")
    if retuning.held_out_modes < 0:
        raise InputError(
            f"retuning.held_out_modes must not be negative, got {retuning.held_out_modes}"
        )
    if retuning.modes and not retuning.controller:
        raise InputError(
            "retuning.modes has no effect without a pool of candidates; name the controller to "
            "retune with --retuning.controller, or select a mode with --evaluation.candidate"
        )
    known = [*tunings, *controllers]
    if retuning.controller and retuning.controller not in known:
        raise InputError(
            f"retuning.controller is {retuning.controller!r}; choose one of "
            f"{', '.join(known) or 'none that is known yet'}, or fit one on the log with "
            "--classical.controllers pid_imitation and name that, or declare its loops as "
            "[[classical.declared.NAME]]"
        )
