"""The pool of candidates of a run, and the choice of the one that it delivers."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_agents.artefact import POLICY_KINDS
from neorl_agents.policies import average_policy
from neorl_agents.retuning import Prediction, select
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_train._pipeline.artefacts import unchanged_artefact
from neorl_train._pipeline.controllers import without_incumbent_file
from neorl_train._pipeline.resolved_run import ResolvedRun, Session
from neorl_train._pipeline.retuning import (
    RULE,
    Retuning,
    gain_words,
    save_policies,
)
from neorl_train.configuration._retuning import (
    BEST,
    IMITATOR,
    RETUNED,
    average_name,
    average_of,
    file_name,
    imitated_behaviour,
)
from neorl_train.configuration._sections import Config
from neorl_train.evaluation._episodes import recorded_episodes
from neorl_train.experience._behaviours import own_episodes
from neorl_train.experience._data_warnings import log_warnings
from neorl_train.experience._experience import Experience
from neorl_train.plant_models._own_returns import own_returns
from neorl_train.selection import (
    logged_episodes,
    movement_rows,
    other_estimates,
    value_estimates,
)
from neorl_train.verdicts._trial import LogPrediction
from neorl_train.verdicts._trial_plan import BrokenEpisodes


class OtherCandidate(NamedTuple):
    """A candidate that the run has neither trained nor retuned.

    Attributes:
        policy: The policy.
        description: What it is, such as ``"mode PI of the log"``, or the file of a policy; empty
            for a controller that was fitted to all episodes.
        in_log: Whether it recorded a part of the log itself.
        metadata: Metadata of its artefact, as plain JSON.
    """

    policy: Policy
    description: str
    in_log: bool
    metadata: dict[str, Any]


def other_candidates(
    config: Config,
    dataset: Dataset | None,
    environment: Any,
    controllers: Mapping[str, Policy],
) -> tuple[dict[str, OtherCandidate], list[str]]:
    """The fitted controllers and the modes of the log that may be delivered.

    For a log alone, the imitations of its modes and shifts are among the fitted controllers.

    Args:
        config: Configuration, resolved.
        dataset: The log; ``None`` if there is none.
        environment: The plant; ``None`` if there is only a log.
        controllers: Controllers of the run by name: fitted, declared, and the incumbent of a file,
            which is no candidate.

    Returns:
        The candidates by the names of their artefacts, and sentences on those that are left out.

    Raises:
        InputError: If the configured candidate is a tuning that recorded no episode of the log.
    """
    seed, own = config.training.seeds[0], without_incumbent_file(controllers, config)
    fitted = {
        f"{file_name(name)}-{seed}": OtherCandidate(
            policy, _imitation_words(name), False, {"controller": name, "seed": seed}
        )
        for name, policy in own.items()
    }
    if dataset is None or environment is None:
        return fitted, []
    modes, notes = _modes(config, dataset, environment.tunings())
    # A controller that was fitted keeps its name.
    return {**modes, **fitted}, notes


def given_candidates(
    config: Config, spec: Spec, digests: Mapping[str, str]
) -> dict[str, OtherCandidate]:
    """The policies that the run was given as files.

    Args:
        config: Configuration, resolved.
        spec: Channels that they must have.
        digests: Digests of the files when the run began.

    Returns:
        The candidates by the names of their artefacts.

    Raises:
        InputError: If a file is missing or was changed since.
    """
    seed = config.training.seeds[0]
    candidates: dict[str, OtherCandidate] = {}
    for file in config.evaluation.policies:
        artefact, name = unchanged_artefact(file, spec, digests), Path(file).stem
        metadata = {"controller": name, "seed": seed, "given_digest": artefact.digest}
        candidates |= {
            f"{file_name(name)}-{seed}": OtherCandidate(artefact.policy, file, False, metadata)
        }
    return candidates


def _imitation_words(name: str) -> str:
    """What an imitation is; empty for any other controller."""
    behaviour = imitated_behaviour(name)
    return f"{IMITATOR} of the episodes of {behaviour}" if behaviour else ""


def _modes(
    config: Config, dataset: Dataset, tunings: Mapping[str, Policy]
) -> tuple[dict[str, OtherCandidate], list[str]]:
    """The tunings of the plant that recorded a part of the log, except the one to beat."""
    requested, seed = config.evaluation.candidate, config.training.seeds[0]
    compared = (config.retuning.controller, config.evaluation.incumbent)
    recorded = [name for name in _recorded(dataset, tunings) if name not in compared]
    others = (*config.training.algorithms, *config.classical.names)
    if requested in tunings and requested not in (*others, *recorded):
        raise InputError(
            f"evaluation.candidate is {requested!r}, which recorded no episode of the log; choose "
            f"one of {', '.join((*others, *recorded))}"
        )
    modes: dict[str, OtherCandidate] = {}
    notes: list[str] = []
    for name in recorded:
        if not (config.retuning.modes or name == requested):
            continue
        policy, description = tunings[name], f"mode {name} of the log"
        if all(type(policy) is not kind.policy for kind in POLICY_KINDS.values()):
            notes.append(
                f"{description} is not a candidate, because a {type(policy).__name__} cannot be "
                "written to an artefact"
            )
            continue
        metadata = {"controller": name, "seed": seed}
        modes[f"{file_name(name)}-{seed}"] = OtherCandidate(policy, description, True, metadata)
    return modes, notes


def _recorded(dataset: Dataset, names: Iterable[str]) -> list[str]:
    """The controllers that recorded at least one episode."""
    masks = {name: own_episodes(dataset, name) for name in names}
    return [name for name, mask in masks.items() if mask is not None and mask.any()]


def seed_averages(
    config: Config, policies: Mapping[str, Policy]
) -> tuple[dict[str, OtherCandidate], list[str]]:
    """Averages the seeds of every learner.

    Args:
        config: Configuration, resolved.
        policies: Trained policies by name.

    Returns:
        The averages by the names of their artefacts, and sentences on learners whose
        actions cannot be averaged; both empty if there is only one seed.
    """
    seeds = config.training.seeds
    averages: dict[str, OtherCandidate] = {}
    notes: list[str] = []
    for name in config.training.algorithms if len(seeds) > 1 else ():
        try:
            policy = average_policy([policies[f"{name}-{seed}"] for seed in seeds])
        except InputError as error:
            notes.append(f"the seeds of {name} cannot be averaged: {error}")
            continue
        description, metadata = (
            f"mean of {len(seeds)} seeds",
            {"algorithm": name, "seeds": [*seeds]},
        )
        averages[average_name(name)] = OtherCandidate(policy, description, False, metadata)
    return averages, notes


def choose_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    retuning: Retuning | None,
    policies: Mapping[str, Policy],
    others: Mapping[str, OtherCandidate],
) -> tuple[str, LogPrediction | None, dict[str, Policy]]:
    """Chooses the candidate without the plant, if the run has learned a model of it.

    Args:
        run: The run.
        session: Its directory and reporter.
        experience: The log; ``None`` if there is none.
        retuning: The retuned controller with its learned plants; ``None`` if none was retuned.
        policies: Trained policies and the retuned one by name.
        others: Result of :func:`other_candidates`.

    Returns:
        Name of the candidate, the prediction of a plant model for it if there is one, and the
        candidate itself by name if it is not one of ``policies``; its artefact has been written.

    Raises:
        InputError: If the average of a learner's seeds is requested and they cannot be averaged.
    """
    config, prediction = run.config, None
    averages, notes = seed_averages(config, policies)
    others = {**others, **averages}
    candidate, requested = _artefact_of(config), config.evaluation.candidate
    if requested != BEST and candidate not in (*policies, *others):
        raise InputError(
            f"evaluation.candidate is {requested!r}, which the run cannot produce: "
            f"{'; '.join(notes)}"
        )
    if retuning is not None:
        with session.timings.stage("choose"):
            candidate, prediction, words = chosen_candidate(config, retuning, policies, others)
            if run.environment is None and experience is not None:
                policy = policies[candidate] if candidate in policies else others[candidate].policy
                prediction = with_others(prediction, retuning, policy, experience)
                compared = {"candidate": policy, "incumbent": retuning.incumbent}
                movement = movement_rows(retuning.plants.evaluation_plant, compared)
                session.directory.update_record(predicted_movement=movement)
        words = [*notes, *words]
        session.directory.update_record(choice=words)
        for line in words:
            session.reporter.note(line)
    if candidate in policies:
        return candidate, prediction, {}
    chosen = others[candidate]
    save_policies(run, session, experience, {candidate: chosen.policy}, **chosen.metadata)
    return candidate, prediction, {candidate: chosen.policy}


def _artefact_of(config: Config) -> str:
    """The name of the artefact of the configured candidate."""
    requested = config.evaluation.candidate
    if average_of(requested) in config.training.algorithms:
        return requested
    return f"{file_name(requested)}-{config.training.seeds[0]}"


def chosen_candidate(
    config: Config,
    retuning: Retuning,
    policies: Mapping[str, Policy],
    others: Mapping[str, OtherCandidate],
) -> tuple[str, LogPrediction, list[str]]:
    """The policy to deliver, chosen without the plant, and the reason.

    The pool contains the incumbent, the retuned controller, the one with a network on top if there
    is one, the other controllers that were fitted on the log, modes of the log, policies from
    files, the first seed of every learner, and the average of its seeds. If nothing may be
    preferred to the incumbent, the retuned controller represents it.

    Args:
        config: Configuration, resolved.
        retuning: Retuned controller with its learned plants.
        policies: Trained policies and the retuned one by name.
        others: The other candidates by name.

    Returns:
        Its name in ``policies`` or ``others``, its prediction, and sentences on the pool.
    """
    first, name = config.training.seeds[0], config.retuning.controller
    requested = config.evaluation.candidate
    candidates = {name: retuning.incumbent}
    searched = [f"{kind}-{first}" for kind in retuning.policies]
    candidates |= {kind: policies[kind] for kind in searched}
    # The incumbent is a candidate already; under its second name it is one only on request.
    others = {
        key: other
        for key, other in others.items()
        if key != f"{file_name(name)}-{first}" or requested == name
    }
    candidates |= {key: other.policy for key, other in others.items()}
    candidates |= {f"{a}-{first}": policies[f"{a}-{first}"] for a in config.training.algorithms}
    in_log = [key for key, other in others.items() if other.in_log]
    chosen, table = select(
        retuning.plants, candidates, name, RULE, logged=in_log, searched=searched
    )
    titles = {key: key for key in candidates}
    titles |= {
        key: f"{key} ({other.description})" for key, other in others.items() if other.description
    }
    words = [_candidate_line(titles[row.name], row) for row in table if row.name != name]
    if requested != BEST:
        candidate = _artefact_of(config)
    elif chosen == name:
        candidate = f"{RETUNED}-{first}"
        words.append(f"no candidate may be preferred to {name}; keep it")
    else:
        candidate = chosen
        words.append(
            f"{titles[chosen]} was chosen from the predictions alone, without a run on the plant"
        )
    prediction = {row.name: row for row in table}[candidate]
    own = own_returns(retuning.plants, retuning.incumbent)
    outcome = LogPrediction(
        prediction,
        name,
        own.predicted,
        own.logged,
        retuning.plants.scale,
        RULE,
        replayed_episodes=own.episodes,
    )
    return candidate, outcome, words


def with_others(
    prediction: LogPrediction, retuning: Retuning, candidate: Policy, experience: Experience
) -> LogPrediction:
    """Adds other estimates of the gain, and facts about the log, to a prediction from a log.

    Args:
        prediction: Prediction of the plant model.
        retuning: Retuned controller, for the incumbent.
        candidate: The policy to deliver.
        experience: The log, and the warnings about its signals.
    """
    dataset = experience.dataset
    episodes = logged_episodes(dataset)
    candidate_estimates, incumbent_estimates = (
        value_estimates(dataset, episodes, policy) for policy in (candidate, retuning.incumbent)
    )
    others = other_estimates(prediction.prediction, candidate_estimates, incumbent_estimates)
    return dataclasses.replace(
        prediction,
        others=others,
        excitation=retuning.plants.excitation,
        warnings=tuple(log_warnings(dataset, experience.signal_warnings)),
        broken=broken_episodes(dataset, retuning.plants.model.spec, prediction.incumbent),
    )


def broken_episodes(dataset: Dataset, spec: Spec, incumbent: str) -> BrokenEpisodes:
    """Counts the logged episodes that broke a limit.

    Args:
        dataset: The log.
        spec: Channels with the cost limits of the run.
        incumbent: Controller whose episodes are counted; all of them if the log does not say which
            are its own.
    """
    broken = np.asarray(recorded_episodes(dataset, spec).violated.any(axis=1))
    own = own_episodes(dataset, incumbent)
    counted = broken if own is None or not own.any() else broken[own]
    return BrokenEpisodes(int(counted.sum()), len(counted))


def _candidate_line(title: str, prediction: Prediction) -> str:
    gain = f"{title}: predicted gain {gain_words(prediction)}"
    remarks = prediction.refusals or ("it may be preferred",)
    return "; ".join((gain, *remarks))
