"""What runs on the plant today, and the candidate that is to replace it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_train.configuration._retuning import (
    BEST,
    INCUMBENT,
    RESIDUAL,
    RETUNED,
    check_candidate,
    check_retuning,
    incumbent_name,
    is_artefact,
)
from neorl_train.configuration._sections import Config
from neorl_train.experience._behaviours import possible_imitations
from neorl_train.results._results import BEHAVIOUR, LINE, LOG, MEAN
from neorl_train.runs._names import FALLBACK

TAKEN = (RETUNED, RESIDUAL, BEST, INCUMBENT, BEHAVIOUR, LOG, MEAN, LINE, FALLBACK)
"""Names in the tables of a run that no controller of the user may have."""


def recorded_tunings(environment: Plant, dataset: Dataset | None) -> dict[str, int]:
    """Number of episodes of every tuning that recorded a part of a log.

    Args:
        environment: Plant of the log.
        dataset: The log; ``None`` if there is none.

    Returns:
        By name, in the order of the log; empty if the log does not state who acted.
    """
    if dataset is None or dataset.behaviour is None:
        return {}
    names, tunings = list(dataset.attributes.get("behaviours", ())), environment.tunings()
    counts = np.bincount(np.asarray(dataset.behaviour), minlength=len(names))
    return {
        name: int(count)
        for name, count in zip(names, counts, strict=True)
        if count and name in tunings
    }


def usual_incumbent(environment: Plant, dataset: Dataset | None) -> tuple[str, str]:
    """The tuning that runs on a plant today if nobody names one.

    It is the plant's first tuning, unless the log states that other tunings recorded it and the
    first one recorded nothing: then it is the tuning with the most episodes.

    Args:
        environment: The plant.
        dataset: Its log, if that is a file; ``None`` for a log that the run collects.

    Returns:
        Its name, and a sentence if it is not the first tuning; otherwise an empty one.
    """
    first, recorded = next(iter(environment.tunings())), recorded_tunings(environment, dataset)
    if dataset is None or not recorded or first in recorded:
        return first, ""
    name = max(recorded, key=lambda tuning: recorded[tuning])
    return name, (
        f"{name} is taken as what runs today, because it recorded {recorded[name]} of "
        f"{dataset.n_episodes} episodes of the log and {first}, the plant's first tuning, none "
        f"(name another with `--evaluation.incumbent '{first}'`)"
    )


def with_candidate_and_incumbent(
    config: Config, environment: Plant | None, dataset: Dataset | None
) -> tuple[Config, list[str]]:
    """Names the candidate, the incumbent and the retuned controller of a run.

    Args:
        config: A validated configuration.
        environment: Plant on which policies can act; ``None`` if there is only a log.
        dataset: The log, if it is a file.

    Returns:
        The configuration with all three, and notes on a choice that the user may not expect.

    Raises:
        InputError: If one of them does not exist, or two of them do not fit together.
    """
    given, retuning = config.evaluation, config.retuning
    imitations = possible_imitations(config, environment, dataset)
    own = [*config.classical.names, *imitations]
    tunings = [] if environment is None else list(environment.tunings())
    _check_own_names(config, tunings)
    file = [incumbent_name(given.incumbent)] if is_artefact(given.incumbent) else []
    incumbents = [*tunings, *own, *file, BEHAVIOUR]
    named = incumbent_name(given.incumbent)
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
    incumbent = given.incumbent or usual
    runs_today = incumbent_name(incumbent)
    if retuning.controller in (INCUMBENT, incumbent) and (
        environment is not None or runs_today in (*own, *file)
    ):
        retuning = dataclasses.replace(retuning, controller=runs_today)
    check_retuning(retuning, tunings, [*own, *file])
    if not given.incumbent and retuning.controller in incumbents:
        incumbent = retuning.controller
    if environment is None and retuning.controller not in ("", incumbent_name(incumbent)):
        raise InputError(
            f"evaluation.incumbent is {incumbent!r}, but a run on a log alone compares with the "
            f"controller that it retunes, {retuning.controller!r}; leave evaluation.incumbent out"
        )
    training, compared = config.training, (incumbent_name(incumbent), retuning.controller)
    check_candidate(
        given.candidate,
        retuning,
        training.algorithms,
        own,
        n_seeds=len(training.seeds),
        tunings=[name for name in tunings if name not in compared],
        policies=given.policies,
        taken=[*tunings, *file, FALLBACK],
    )
    default_candidate = BEST if retuning.controller else training.algorithms[-1]
    evaluation = dataclasses.replace(
        given, candidate=given.candidate or default_candidate, incumbent=incumbent
    )
    notes = [note] if note and not given.incumbent and incumbent == usual else []
    return dataclasses.replace(config, evaluation=evaluation, retuning=retuning), notes


def _check_own_names(config: Config, tunings: Sequence[str]) -> None:
    """Refuses a declared controller, or the incumbent's file, that has the name of another."""
    for name in config.classical.declared:
        if name in (*tunings, *TAKEN):
            what = "a tuning of the plant" if name in tunings else "something else in every run"
            raise InputError(
                f"classical.declared has {name}, which is the name of {what}; give the declared "
                "controller another name"
            )
    file, name = config.evaluation.incumbent, incumbent_name(config.evaluation.incumbent)
    others = (*tunings, *config.classical.names, *config.training.algorithms, *TAKEN)
    if is_artefact(file) and name in others:
        raise InputError(
            f"evaluation.incumbent is the file {file}, but the run has another controller or "
            f"policy called {name}; rename the file, or name that one without the suffix"
        )
