"""The controller of a run that is retuned in a plant model learned from its log."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

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
AVERAGE = "-mean"
"""Suffix of the name of the average of a learner's seeds."""
IMITATED = "imitated-"
"""Prefix of the name of the controller that imitates who recorded a part of the log."""
IMITATOR = "pid_imitation"
"""The classical controller that imitates them."""
ARTEFACT = ".safetensors"
"""Suffix of a policy artefact."""


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


def average_name(algorithm: str) -> str:
    """The name of the average of a learner's seeds, ``"iql-mean"`` for ``"iql"``."""
    return f"{algorithm}{AVERAGE}"


def average_of(candidate: str) -> str:
    """The learner whose seeds a candidate averages; empty if it is not an average."""
    return candidate.removesuffix(AVERAGE) if candidate.endswith(AVERAGE) else ""


def imitation_name(behaviour: str) -> str:
    """The name of the controller that imitates a behaviour, ``"imitated-B"`` for ``"B"``."""
    return f"{IMITATED}{behaviour}"


def imitated_behaviour(name: str) -> str:
    """The behaviour that a controller imitates; empty if it is not such a controller."""
    return name.removeprefix(IMITATED) if name.startswith(IMITATED) else ""


def incumbent_name(incumbent: str) -> str:
    """The name in tables of what runs today: that of its file, without suffix, if it is one.

    Example:
        >>> incumbent_name("policies/old.safetensors"), incumbent_name("PI 2.5")
        ('old', 'PI 2.5')
    """
    return Path(incumbent).stem if is_artefact(incumbent) else incumbent


def is_artefact(incumbent: str) -> bool:
    """Whether ``evaluation.incumbent`` is the path of a policy artefact."""
    return Path(incumbent).suffix == ARTEFACT


def file_name(name: str) -> str:
    """The name of a controller, with the characters replaced that a file name must not contain.

    Example:
        >>> file_name("PID 106/1500")
        'PID 106_1500'
    """
    return re.sub(r"[^\w. +()-]", "_", name)


def check_candidate(
    candidate: str,
    retuning: RetuningConfig,
    algorithms: Sequence[str],
    controllers: Sequence[str] = (),
    *,
    n_seeds: int = 1,
    tunings: Sequence[str] = (),
    policies: Sequence[str] = (),
    taken: Sequence[str] = (),
) -> None:
    """Refuses a candidate that the run does not have, and policies with the name of another one.

    Args:
        candidate: Its name; empty for the default.
        retuning: Section that may add the retuned controller.
        algorithms: Names of the learners.
        controllers: Names of the classical controllers that the run fits or declares.
        n_seeds: Number of seeds of every learner.
        tunings: Names of the plant's tunings that may be delivered; none without a plant and a log.
        policies: Files of ``evaluation.policies``.
        taken: Further names that none of these files may have, such as that of the incumbent.

    Raises:
        InputError: Names the candidates that it has, or the file to rename.
    """
    if candidate == RESIDUAL and RESIDUAL not in algorithms and not retuning.residual:
        raise InputError(
            f"evaluation.candidate is {candidate!r}, but no network is trained on top of a "
            "controller; request one with --retuning.controller incumbent --retuning.residual"
        )
    if candidate in (RETUNED, BEST) and not retuning.controller:
        raise InputError(
            f"evaluation.candidate is {candidate!r}, but no controller is retuned; name one with "
            "--retuning.controller, a tuning of the plant or one of classical.controllers or "
            "classical.declared"
        )
    if average_of(candidate) in algorithms and n_seeds < 2:
        raise InputError(
            f"evaluation.candidate is {candidate!r}, the average of several seeds, and "
            "training.seeds has one; give two or more with --training.seeds 0 1"
        )
    both = [name for name in controllers if name in algorithms]
    if both:
        raise InputError(
            f"{', '.join(both)} is a learner and a classical controller of this run, and their "
            "policies would have the same name; leave one of them out"
        )
    averages = [average_name(name) for name in algorithms] if n_seeds > 1 else []
    names = [*algorithms, *averages, *controllers, *tunings]
    names += [RETUNED, BEST] if retuning.controller else []
    names += [RESIDUAL] if retuning.controller and retuning.residual else []
    for file in policies:
        if (name := Path(file).stem) in (*names, *taken, RETUNED, RESIDUAL, BEST):
            raise InputError(
                f"evaluation.policies has {file}, but another policy of the run is called {name}; "
                "rename the file"
            )
        names.append(name)
    if candidate not in ("", *names):
        raise InputError(
            f"evaluation.candidate is {candidate!r}, which this run does not produce; choose one "
            f"of its learners and controllers with --evaluation.candidate: {', '.join(names)}"
        )


def check_retuning(
    retuning: RetuningConfig, tunings: Sequence[str], controllers: Sequence[str]
) -> None:
    """Refuses small counts, and a controller that the run does not have.

    Args:
        retuning: Section to check.
        tunings: Names of the plant's tunings; none if there is only a log.
        controllers: Names of the controllers that the run fits or declares, and of the incumbent if
            that is a file.

    Raises:
        InputError: Names the controllers that can be retuned.
    """
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
