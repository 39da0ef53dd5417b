"""The families of candidates, the names that they give to a run, and what they make in it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neorl_core import InputError, Policy, Spec
from neorl_core.infrastructure import Registry, unknown_name
from neorl_envs import Dataset
from neorl_envs.datasets import todays_controller
from neorl_envs.plants import Plant
from neorl_train.candidates._declared import DECLARATIONS, DECLARED
from neorl_train.candidates._family import (
    Family,
    Made,
    Material,
    RunInputs,
    check_family,
    require_own_names,
)
from neorl_train.candidates._fitted import FITTED, IDENTIFIED, tuning_text
from neorl_train.candidates._given import FILES, unchanged_artefact
from neorl_train.candidates._imitated import IMITATED, IMITATIONS
from neorl_train.candidates._learner import AVERAGE, AVERAGED, TRAINED
from neorl_train.candidates._residual import NETWORK
from neorl_train.candidates._retuned import SEARCHED
from neorl_train.candidates._tuned import MODES, TUNED
from neorl_train.configuration._classical import INCUMBENT, check_retuning
from neorl_train.configuration._sections import CandidateConfig
from neorl_train.data._behaviours import usual_incumbent
from neorl_train.judging._pool import GIVEN, LEARNER, RESIDUAL, RETUNED
from neorl_train.judging._results import BEHAVIOUR, LINE, LOG, MEAN
from neorl_train.runs._directory import FALLBACK

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
OWN = (LEARNER, AVERAGE, *CLASSICAL, TUNED, RETUNED, RESIDUAL, GIVEN)
"""The families of this package, in the order in which their names are listed."""
BEST = "best"
"""Requests that the candidate be chosen from the pool without the plant."""


def families_after_training(config: CandidateConfig) -> tuple[str, ...]:
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


def _twice(config: CandidateConfig, name: str, first: str, second: str) -> str:
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


def _of_file(config: CandidateConfig, name: str) -> str:
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


TAKEN = (RETUNED, RESIDUAL, BEST, INCUMBENT, BEHAVIOUR, LOG, MEAN, LINE, FALLBACK)
"""Names in the tables of a run that no controller of the user may have."""


def with_todays_controller(
    config: CandidateConfig, environment: Plant | None, dataset: Dataset | None
) -> tuple[CandidateConfig, list[str]]:
    """Retunes the controller that the log declares, unless the run says what runs today.

    The notes say what was declared, in engineering units, and how to leave it out.
    """
    if config.classical.declared or dataset is None or environment is not None:
        return config, []
    today = todays_controller(dataset)
    given = {config.evaluation.incumbent, config.retuning.controller}
    if not today.loops or not given <= {"", today.name, INCUMBENT}:
        return config, []
    moved = {loop["manipulated"] for loop in today.loops}
    missing = [channel.name for channel in dataset.spec.action if channel.name not in moved]
    if missing:
        return config, [
            "the plant.toml of the log declares no loop for "
            f"{', '.join(missing)}, so today's controller is not complete and nothing is retuned; "
            "add a [[loop]] for each, and convert the log again"
        ]
    declared = dataclasses.replace(config.classical, declared={today.name: today.loops})
    retuning = dataclasses.replace(config.retuning, controller=today.name)
    evaluation = dataclasses.replace(config.evaluation, incumbent=today.name)
    note = (
        "the plant.toml of the log declares today's controller, so it is retuned, and every "
        f"candidate is compared with it ({'; '.join(today.sentences)}); "
        f"`--evaluation.incumbent {BEHAVIOUR!r}` leaves it out"
    )
    if not config.training.algorithms:
        note += ", and `--training.algorithms iql` trains a learner beside it"
    changed = {"classical": declared, "retuning": retuning, "evaluation": evaluation}
    return dataclasses.replace(config, **changed), [note]


def with_candidate_and_incumbent(
    config: CandidateConfig, environment: Plant | None, dataset: Dataset | None
) -> tuple[CandidateConfig, list[str]]:
    """Names the candidate, the incumbent and the retuned controller of a run.

    The notes are on choices that the user may not expect.

    Raises:
        InputError: If one of them does not exist, or two of them do not fit together.
    """
    given, retuning = config.evaluation, config.retuning
    inputs = RunInputs(config, environment, dataset)
    tunings = inputs.tunings
    own = [name for family in CLASSICAL for name in FAMILIES.find(family).names(inputs)]
    _check_own_names(config, tunings)
    file = [given.runs_today] if given.incumbent_file else []
    incumbents = [*tunings, *own, *file, BEHAVIOUR]
    named = given.runs_today
    if named and named not in incumbents:
        if Path(given.incumbent).is_file():
            raise InputError(
                f"evaluation.incumbent is the file {given.incumbent}, and a controller in a file "
                "is a policy artefact, NAME.safetensors; declare a PID in the configuration, as "
                "[[classical.declared.NAME]]"
            )
        raise unknown_name("controller as evaluation.incumbent", given.incumbent, incumbents)
    usual, note = BEHAVIOUR, ""
    if environment is not None:
        usual, note = usual_incumbent(environment, dataset)
    unnamed = not given.incumbent
    given = dataclasses.replace(given, incumbent=given.incumbent or usual)
    runs_today = given.runs_today
    if retuning.controller in (INCUMBENT, given.incumbent) and (
        environment is not None or runs_today in (*own, *file)
    ):
        retuning = dataclasses.replace(retuning, controller=runs_today)
    logged = todays_controller(dataset) if dataset is not None and environment is None else None
    # A controller of the log that is named in another spelling is not there yet, but may be named.
    beside = [logged.name] if logged and logged.loops else []
    check_retuning(
        retuning, tunings, [*own, *file, *(one for one in beside if one != retuning.controller)]
    )
    if unnamed and retuning.controller in incumbents:
        given = dataclasses.replace(given, incumbent=retuning.controller)
    if environment is None and retuning.controller not in ("", given.runs_today):
        raise InputError(
            f"evaluation.incumbent is {given.incumbent!r}, but a run on a log alone compares with "
            f"the controller that it retunes, {retuning.controller!r}; leave evaluation.incumbent "
            "out"
        )
    config = dataclasses.replace(config, evaluation=given, retuning=retuning)
    check_candidate(inputs._replace(config=config), (*tunings, *file, FALLBACK))
    notes = [note] if note and unnamed and given.incumbent == usual else []
    if not given.candidate:
        candidate, reason = default_candidate(config)
        given, notes = dataclasses.replace(given, candidate=candidate), [*notes, *reason]
    return dataclasses.replace(config, evaluation=given), notes


def default_candidate(config: CandidateConfig) -> tuple[str, list[str]]:
    """The candidate if nobody names one, and why it is that one if there are several learners.

    With a plant model the pool is compared in it. Without one, nothing but the plant could say
    which learner is better, so the last one that was named is judged.
    """
    learners = config.training.algorithms
    if config.retuning.controller:
        return BEST, []
    if len(learners) == 1:
        return learners[0], []
    return learners[-1], [
        f"{learners[-1]} is judged as the candidate, because it was named last; name another with "
        "`--evaluation.candidate`, or have the best one chosen in a model of the plant with "
        "`--retuning.controller incumbent`"
    ]


def _check_own_names(config: CandidateConfig, tunings: Sequence[str]) -> None:
    """Refuses a declared controller, or the incumbent's file, that has the name of another."""
    for name in config.classical.declared:
        if name in (*tunings, *TAKEN):
            what = "a tuning of the plant" if name in tunings else "something else in every run"
            raise InputError(
                f"classical.declared has {name}, which is the name of {what}; give the declared "
                "controller another name"
            )
    file, name = config.evaluation.incumbent_file, config.evaluation.runs_today
    others = (*tunings, *config.classical.names, *config.training.algorithms, *TAKEN)
    if file and name in others:
        raise InputError(
            f"evaluation.incumbent is the file {file}, but the run has another controller or "
            f"policy called {name}; rename the file, or name that one without the suffix"
        )


def has_controllers(config: CandidateConfig) -> bool:
    """Whether a run fits a classical controller, declares one, or names the incumbent's file."""
    return bool(config.classical.names or config.evaluation.incumbent_file)


def with_controllers(material: Material) -> tuple[Material, dict[str, Policy], list[str]]:
    """Fits, imitates and declares the controllers of a run, and reads the incumbent's file.

    Returns:
        The material with those that may be delivered, all of them by name with the incumbent of a
        file, and a description of the models and of the numbers.

    Raises:
        InputError: If a fit refuses the log, or a file was changed since the run began.
    """
    material, notes = make_candidates(CLASSICAL, material)
    controllers = {candidate.name: candidate.policy for candidate in material.pool.of(*CLASSICAL)}
    today = material.config.evaluation
    if today.incumbent_file:
        file, spec = today.incumbent_file, material.spec
        policy = unchanged_artefact(file, spec, material.digests).policy
        controllers[today.runs_today] = policy
        tuning = tuning_text(policy, spec) or "it declares no tuning parameter"
        notes.append(f"{today.runs_today} (from {file}): {tuning}")
    return material, controllers, notes


def run_controllers(
    config: CandidateConfig,
    dataset: Dataset | None,
    environment: Any,
    spec: Spec,
    digests: Mapping[str, str],
) -> dict[str, Policy]:
    """The controllers of a run by name, as :func:`with_controllers` returns them."""
    return with_controllers(Material(config, spec, environment, dataset, digests))[1]
