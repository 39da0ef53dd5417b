"""The families of candidates: those of this package, and those of others."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import Registry
from neorl_train.candidates._declared import DECLARATIONS, DECLARED
from neorl_train.candidates._family import (
    Family,
    Made,
    Material,
    RunInputs,
    check_family,
    require_own_names,
)
from neorl_train.candidates._fitted import FITTED, IDENTIFIED
from neorl_train.candidates._given import FILES
from neorl_train.candidates._imitated import IMITATED, IMITATIONS
from neorl_train.candidates._learner import AVERAGE, AVERAGED, TRAINED
from neorl_train.candidates._residual import NETWORK
from neorl_train.candidates._retuned import SEARCHED
from neorl_train.candidates._tuned import MODES, TUNED
from neorl_train.configuration._sections import Config
from neorl_train.judging._pool import GIVEN, LEARNER, RESIDUAL, RETUNED

FAMILIES: Registry[Family] = Registry(
    "neorl.candidates",
    "family of candidates",
    {
        FITTED: IDENTIFIED,
        IMITATED: IMITATIONS,
        DECLARED: DECLARATIONS,
        TUNED: MODES,
        GIVEN: FILES,
        RETUNED: SEARCHED,
        RESIDUAL: NETWORK,
        LEARNER: TRAINED,
        AVERAGE: AVERAGED,
    },
    check_family,
)
"""Families of candidates by name, in the order in which they are made.

A distribution adds its own through the entry points ``neorl.candidates``, a script through
``FAMILIES.register``. A run asks the families that ``evaluation.families`` names.
"""

CLASSICAL = (FITTED, IMITATED, DECLARED)
"""Families of controllers that are evaluated as such, also if they are not delivered."""
BEFORE_TRAINING = (*CLASSICAL, TUNED, GIVEN)
"""Families that may refuse a log, so they are asked before anything is trained."""
OWN = (LEARNER, AVERAGE, *CLASSICAL, TUNED, RETUNED, RESIDUAL, GIVEN)
"""The families of this package, in the order in which their names are listed."""
BEST = "best"
"""Requests that the candidate be chosen from the pool without the plant."""


def families_after_training(config: Config) -> tuple[str, ...]:
    """The families that need the trained policies, and those of other distributions."""
    return (LEARNER, AVERAGE, *config.evaluation.families)


def candidate_names(inputs: RunInputs) -> dict[str, str]:
    """Every name under which a run can produce a candidate, with the family that does.

    Raises:
        InputError: If two candidates have the same name.
    """
    names: dict[str, str] = {}
    for family in (*OWN, *inputs.config.evaluation.families):
        for name in FAMILIES.find(family).names(inputs):
            if name in names:
                raise InputError(_twice(inputs.config, name, names[name], family))
            names[name] = family
    return names


def _twice(config: Config, name: str, first: str, second: str) -> str:
    if second == GIVEN:
        return _of_file(config, name)
    if first == LEARNER and second in CLASSICAL:
        return (
            f"{name} is a learner and a classical controller of this run, and their policies "
            "would have the same name; leave one of them out"
        )
    return (
        f"{name} is the name of a candidate of the family {first} and of one of the family "
        f"{second}; give one of them another name"
    )


def _of_file(config: Config, name: str) -> str:
    files = [file for file in config.evaluation.policies if Path(file).stem == name]
    return (
        f"evaluation.policies has {files[-1]}, but another policy of the run is called {name}; "
        "rename the file"
    )


def check_candidate(inputs: RunInputs, taken: Sequence[str] = ()) -> None:
    """Refuses a candidate that the run does not have, and policies with the name of another one.

    Args:
        inputs: What is known of the run.
        taken: Further names that no given file may have, such as that of the incumbent.

    Raises:
        InputError: Names the candidates that it has, or the file to rename.
    """
    config = inputs.config
    candidate, retuned = config.evaluation.candidate, bool(config.retuning.controller)
    reserved = (*taken, RETUNED, RESIDUAL, BEST)
    for name in FAMILIES.find(GIVEN).names(inputs):
        if name in reserved:
            raise InputError(_of_file(config, name))
    names = list(candidate_names(inputs))
    if candidate in names or not candidate or (candidate == BEST and retuned):
        return
    asked = RETUNED if candidate == BEST else candidate
    for family in (*OWN, *config.evaluation.families):
        reason = FAMILIES.find(family).refusal(inputs, asked)
        if reason:
            raise InputError(f"evaluation.candidate is {candidate!r}, {reason}")
    names += [BEST] if retuned else []
    raise InputError(
        f"evaluation.candidate is {candidate!r}, which this run does not produce; choose one "
        f"of its learners and controllers with --evaluation.candidate: {', '.join(names)}"
    )


def make_candidates(families: Iterable[str], material: Material) -> tuple[Material, list[str]]:
    """Asks families for their candidates, one after another.

    Args:
        families: Names of the families.
        material: What they are made from; each family also gets the candidates before it.

    Returns:
        The material with the enlarged pool, and sentences for the user.

    Raises:
        InputError: If a family refuses the log, or two candidates have the same name.
    """
    notes: list[str] = []
    for name in families:
        family = FAMILIES.find(name)
        made: Made = family.make(material)
        if name in material.config.evaluation.families:
            inputs = RunInputs(material.config, material.environment, material.dataset)
            require_own_names(name, family.names(inputs), made)
        material = material._replace(pool=material.pool | made.candidates)
        notes += made.notes
    return material, notes
