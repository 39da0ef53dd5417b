"""The pool of candidates of a run, and the choice of the one that it delivers."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from neorl_agents.artefact import POLICY_KINDS
from neorl_agents.policies import average_policy
from neorl_agents.retuning import Prediction, select
from neorl_core import InputError, Policy
from neorl_envs import Dataset
from neorl_train._pipeline.resolved_run import ResolvedRun, Session
from neorl_train._pipeline.retuning import (
    RULE,
    Retuning,
    gain_words,
    leave_policies,
    own_episodes,
    with_seed,
)
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.configuration._retuning import BEST, RETUNED, average_name, average_of, file_name
from neorl_train.configuration._sections import Config
from neorl_train.experience._experience import Experience
from neorl_train.experience._hindrances import log_doubts
from neorl_train.experience._split import training_sample
from neorl_train.selection import logged_episodes, other_estimates, value_estimates
from neorl_train.verdicts._trial import LogPrediction

IMITATOR = "pid_imitation"
"""The classical controller that imitates a mode of a log whose plant is not known."""
LEAST_EPISODES = 8
"""Smallest number of episodes of a mode that is imitated; fewer say little about its return."""


class Further(NamedTuple):
    """A candidate that the run has neither trained nor retuned.

    Attributes:
        policy: The policy.
        words: What it is, such as ``"mode PI of the log"``; empty for a fitted controller.
        logged: Whether it recorded a part of the log itself.
        about: Metadata of its artefact, as plain JSON.
    """

    policy: Policy
    words: str
    logged: bool
    about: dict[str, Any]


def further_candidates(
    config: Config,
    dataset: Dataset | None,
    environment: Any,
    controllers: Mapping[str, Policy],
) -> tuple[dict[str, Further], list[str]]:
    """The fitted controllers and the modes of the log that may be delivered.

    Args:
        config: Configuration, resolved.
        dataset: The log; ``None`` if there is none.
        environment: The plant; ``None`` if there is only a log.
        controllers: Fitted classical controllers by name.

    Returns:
        The candidates by the names of their artefacts, and sentences on those that are left out.

    Raises:
        InputError: If the configured candidate is a tuning that recorded no episode of the log.
    """
    seed = config.training.seeds[0]
    fitted = {
        name: Further(policy, "", False, {"controller": name.rpartition("-")[0], "seed": seed})
        for name, policy in with_seed(controllers, config).items()
    }
    if dataset is None:
        return fitted, []
    if environment is None:
        modes, notes = _imitated_mode(config, dataset)
    else:
        modes, notes = _modes(config, dataset, environment.tunings())
    # A controller that was fitted keeps its name.
    return {**modes, **fitted}, notes


def _modes(
    config: Config, dataset: Dataset, tunings: Mapping[str, Policy]
) -> tuple[dict[str, Further], list[str]]:
    """The tunings of the plant that recorded a part of the log, except the one to beat."""
    wanted, seed = config.evaluation.candidate, config.training.seeds[0]
    beaten = (config.retuning.controller, config.evaluation.incumbent)
    logged = [name for name in _recorded(dataset, tunings) if name not in beaten]
    others = (*config.training.algorithms, *config.classical.controllers)
    if wanted in tunings and wanted not in (*others, *logged):
        raise InputError(
            f"evaluation.candidate is {wanted!r}, which recorded no episode of the log; choose "
            f"one of {', '.join((*others, *logged))}"
        )
    modes: dict[str, Further] = {}
    notes: list[str] = []
    for name in logged:
        if not (config.retuning.modes or name == wanted):
            continue
        policy, words = tunings[name], f"mode {name} of the log"
        if all(type(policy) is not kind.policy for kind in POLICY_KINDS.values()):
            notes.append(f"{words} is no candidate: no artefact holds a {type(policy).__name__}")
            continue
        about = {"controller": name, "seed": seed}
        modes[f"{file_name(name)}-{seed}"] = Further(policy, words, True, about)
    return modes, notes


def _imitated_mode(config: Config, dataset: Dataset) -> tuple[dict[str, Further], list[str]]:
    """An imitation of the mode with the best logged return, because its controller is unknown."""
    if not config.retuning.modes:
        return {}, []
    if IMITATOR not in config.classical.controllers:
        return {}, [
            f"no mode of the log competes: add {IMITATOR} to classical.controllers, which imitates "
            "the best one"
        ]
    part, seed = training_sample(config.data, dataset), config.training.seeds[0]
    recorded = _recorded(part, part.attributes.get("behaviours", ()), LEAST_EPISODES)
    if len(recorded) < 2:
        return {}, [
            f"no mode of the log competes: {len(recorded)} of them recorded at least "
            f"{LEAST_EPISODES} training episodes, and a choice needs two"
        ]
    returns = part.episode_returns()
    best = max(recorded, key=lambda name: float(returns[recorded[name]].mean()))
    rows = part.select_episodes(np.flatnonzero(recorded[best])).transitions
    task = task_of(config.classical, dataset.spec, None)
    policy = settings_of(config.classical, IMITATOR).fit(rows, dataset.spec, task).policy
    words = f"imitation of mode {best} of the log, which had the best return"
    about = {"controller": best, "seed": seed}
    return {f"{file_name(best)}-{seed}": Further(policy, words, False, about)}, []


def _recorded(dataset: Dataset, names: Iterable[str], least: int = 1) -> dict[str, np.ndarray]:
    """Which episodes each controller recorded, for those that recorded at least so many."""
    own = {name: own_episodes(dataset, name) for name in names}
    return {
        name: filled for name, filled in own.items() if filled is not None and filled.sum() >= least
    }


def averages(
    config: Config, policies: Mapping[str, Policy]
) -> tuple[dict[str, Further], list[str]]:
    """The average of every learner's seeds.

    Args:
        config: Configuration, resolved.
        policies: Trained policies by name.

    Returns:
        The averages by the names of their artefacts, and sentences on learners that have none
        because their actions cannot be averaged; neither if there is only one seed.
    """
    seeds = config.training.seeds
    made: dict[str, Further] = {}
    notes: list[str] = []
    for name in config.training.algorithms if len(seeds) > 1 else ():
        try:
            policy = average_policy([policies[f"{name}-{seed}"] for seed in seeds])
        except InputError as error:
            notes.append(f"the seeds of {name} have no average: {error}")
            continue
        about = {"algorithm": name, "seeds": list(seeds)}
        made[average_name(name)] = Further(policy, f"mean of {len(seeds)} seeds", False, about)
    return made, notes


def choose_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    retuning: Retuning | None,
    policies: Mapping[str, Policy],
    further: Mapping[str, Further],
) -> tuple[str, LogPrediction | None, dict[str, Policy]]:
    """Chooses the candidate without the plant, if the run has learned a model of it.

    Args:
        run: The run.
        session: Its directory and reporter.
        experience: The log; ``None`` if there is none.
        retuning: The retuned controller with its learned plants; ``None`` if none was retuned.
        policies: Trained policies and the retuned one by name.
        further: Result of :func:`further_candidates`.

    Returns:
        Name of the candidate, the prediction of a plant model for it if there is one, and the
        candidate itself by name if it is not one of ``policies``; it now has an artefact.

    Raises:
        InputError: If the average of a learner's seeds is to be delivered and there is none.
    """
    config, prediction = run.config, None
    made, notes = averages(config, policies)
    further = {**further, **made}
    candidate, wanted = _artefact_of(config), config.evaluation.candidate
    if wanted != BEST and candidate not in (*policies, *further):
        raise InputError(
            f"evaluation.candidate is {wanted!r}, which is not made: {'; '.join(notes)}"
        )
    if retuning is not None:
        with session.timings.stage("choose"):
            candidate, prediction, words = chosen_candidate(config, retuning, policies, further)
            if run.environment is None and experience is not None:
                policy = policies[candidate] if candidate in policies else further[candidate].policy
                prediction = with_others(prediction, retuning, policy, experience)
        words = [*notes, *words]
        session.directory.update_record(choice=words)
        for line in words:
            session.reporter.say(line)
    if candidate in policies:
        return candidate, prediction, {}
    one = further[candidate]
    leave_policies(run, session, experience, {candidate: one.policy}, **one.about)
    return candidate, prediction, {candidate: one.policy}


def _artefact_of(config: Config) -> str:
    """The name of the artefact of the configured candidate."""
    wanted = config.evaluation.candidate
    if average_of(wanted) in config.training.algorithms:
        return wanted
    return f"{file_name(wanted)}-{config.training.seeds[0]}"


def chosen_candidate(
    config: Config,
    retuning: Retuning,
    policies: Mapping[str, Policy],
    further: Mapping[str, Further],
) -> tuple[str, LogPrediction, list[str]]:
    """The policy to deliver, chosen without the plant, and the reason.

    The pool contains the incumbent, the retuned controller, the one with a network on top if there
    is one, the other controllers that were fitted on the log, modes of the log, the first seed of
    every learner, and the average of its seeds. If nothing may be preferred to the incumbent, the
    retuned controller represents it.

    Args:
        config: Configuration, resolved.
        retuning: Retuned controller with its learned plants.
        policies: Trained policies and the retuned one by name.
        further: The other candidates by name.

    Returns:
        Its name in ``policies`` or ``further``, its prediction, and sentences on the pool.
    """
    first, name = config.training.seeds[0], config.retuning.controller
    wanted = config.evaluation.candidate
    pool = {name: retuning.incumbent}
    searched = [f"{made}-{first}" for made in retuning.policies]
    pool |= {made: policies[made] for made in searched}
    # The incumbent is in the pool already; under its second name it may be asked for.
    others = {n: one for n, one in further.items() if n != f"{name}-{first}" or wanted == name}
    pool |= {n: one.policy for n, one in others.items()}
    pool |= {f"{a}-{first}": policies[f"{a}-{first}"] for a in config.training.algorithms}
    logged = [n for n, one in others.items() if one.logged]
    chosen, table = select(retuning.plants, pool, name, RULE, logged=logged, searched=searched)
    known = {n: f"{n} ({one.words})" for n, one in others.items() if one.words}
    words = [_pool_words(known.get(one.name, one.name), one) for one in table if one.name != name]
    if wanted != BEST:
        taken = _artefact_of(config)
    elif chosen == name:
        taken = f"{RETUNED}-{first}"
        words.append(f"nothing may be preferred to {name}: keep what runs")
    else:
        taken = chosen
        words.append(f"{known.get(chosen, chosen)} was chosen without the plant")
    prediction = {one.name: one for one in table}[taken]
    plants, kept = retuning.plants, retuning.kept
    logged_return = float(plants.logged.mean())
    outcome = LogPrediction(prediction, name, kept.returns, logged_return, plants.scale, RULE)
    return taken, outcome, words


def with_others(
    prediction: LogPrediction, retuning: Retuning, candidate: Policy, experience: Experience
) -> LogPrediction:
    """Adds other estimates of the gain, and the defects of the log, to a prediction from a log.

    Args:
        prediction: Prediction of the plant model.
        retuning: Retuned controller, for the incumbent.
        candidate: The policy to deliver.
        experience: The log, and the doubts about its signals.
    """
    dataset = experience.dataset
    episodes = logged_episodes(dataset)
    mine, theirs = (
        value_estimates(dataset, episodes, policy) for policy in (candidate, retuning.incumbent)
    )
    others = other_estimates(prediction.prediction, mine, theirs)
    return dataclasses.replace(
        prediction,
        others=others,
        excitation=retuning.plants.excitation,
        doubts=tuple(log_doubts(dataset, experience.signal_warnings)),
    )


def _pool_words(name: str, one: Prediction) -> str:
    gain = f"{name}: predicted gain {gain_words(one)}"
    return f"{gain}; {'; '.join(one.refusals)}" if one.refusals else f"{gain}; it may be preferred"
