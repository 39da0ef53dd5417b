"""The controller of a run that is retuned in a plant model learned from its log."""

import dataclasses
from collections.abc import Sequence

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import SearchSettings
from neorl_core import InputError
from neorl_core.infrastructure import MAX_SEED, setting

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
    updates: int = setting(HistoryModelSettings.updates, low=1)
    generations: int = setting(SearchSettings.generations, low=1)
    residual: bool = False
    modes: bool = False
    held_out_modes: int = setting(0, low=0)
    seed: int = setting(0, low=0, high=MAX_SEED)


def check_retuning(
    retuning: RetuningConfig, tunings: Sequence[str], controllers: Sequence[str]
) -> None:
    """Refuses a controller that the run does not have."""
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
