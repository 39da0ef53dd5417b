"""Names the candidate of a run, what runs today, and the controller that is retuned."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset
from neorl_envs.plant_logs import todays_controller
from neorl_envs.plants import Plant
from neorl_train.candidates._family import RunInputs
from neorl_train.candidates._table import BEST, CLASSICAL, FAMILIES, check_candidate
from neorl_train.configuration._classical import INCUMBENT, check_retuning
from neorl_train.configuration._sections import Config
from neorl_train.data._behaviours import usual_incumbent
from neorl_train.judging._pool import RESIDUAL, RETUNED
from neorl_train.judging._results import BEHAVIOUR, LINE, LOG, MEAN
from neorl_train.runs._directory import FALLBACK

TAKEN = (RETUNED, RESIDUAL, BEST, INCUMBENT, BEHAVIOUR, LOG, MEAN, LINE, FALLBACK)
"""Names in the tables of a run that no controller of the user may have."""


def with_todays_controller(
    config: Config, environment: Plant | None, dataset: Dataset | None
) -> tuple[Config, list[str]]:
    """Retunes the controller that the log declares, unless the run says what runs today.

    The notes say what was declared, in engineering units, and how to leave it out.
    """
    given = config.evaluation.incumbent or config.retuning.controller or config.classical.declared
    if given or dataset is None or environment is not None:
        return config, []
    today = todays_controller(dataset)
    if not today.loops:
        return config, []
    declared = dataclasses.replace(config.classical, declared={today.name: today.loops})
    retuning = dataclasses.replace(config.retuning, controller=today.name)
    evaluation = dataclasses.replace(config.evaluation, incumbent=today.name)
    note = (
        "the plant.toml of the log declares today's controller, so it is retuned, and every "
        f"candidate is compared with it ({'; '.join(today.sentences)}); "
        f"`--evaluation.incumbent {BEHAVIOUR!r}` leaves it out"
    )
    changed = {"classical": declared, "retuning": retuning, "evaluation": evaluation}
    return dataclasses.replace(config, **changed), [note]


def with_candidate_and_incumbent(
    config: Config, environment: Plant | None, dataset: Dataset | None
) -> tuple[Config, list[str]]:
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
    check_retuning(retuning, tunings, [*own, *file])
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


def default_candidate(config: Config) -> tuple[str, list[str]]:
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


def _check_own_names(config: Config, tunings: Sequence[str]) -> None:
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
