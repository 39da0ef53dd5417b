"""The stages that make the candidates of a run, and choose the one that it delivers."""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neorl_agents import save_policy
from neorl_agents.loops import LoopReport
from neorl_agents.models import error_after_moves
from neorl_agents.retuning import (
    LearnedPlants,
    OtherController,
    PlantFacts,
    Prediction,
    RetuneSettings,
    held_out_modes,
    learned_plants,
    model_settings,
    select,
)
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_envs.datasets import loops_of
from neorl_train._job.artefacts import parity_observations
from neorl_train._job.plant_model import run_facts
from neorl_train._job.resolved_run import Learned, ResolvedRun, Session
from neorl_train.candidates._enough_log import require_enough
from neorl_train.candidates._family import Material
from neorl_train.candidates._loop_changes import (
    declared_faceplates,
    declared_reports,
    loop_objections,
    require_declared,
    write_loop_changes,
)
from neorl_train.candidates._retuned import RULE, gain_text, retune_settings
from neorl_train.candidates._table import (
    BEST,
    FAMILIES,
    families_after_training,
    has_controllers,
    make_candidates,
    with_controllers,
)
from neorl_train.choosing import logged_episodes, movement_rows, other_estimates, value_estimates
from neorl_train.choosing._model_trust import log_modes, mode_checks, own_returns, why_no_mode
from neorl_train.configuration._classical import RetuningConfig
from neorl_train.configuration._guard import LimitsConfig
from neorl_train.configuration._sections import CandidateConfig
from neorl_train.data._behaviours import incumbent_episodes, own_episodes
from neorl_train.data._data_warnings import log_warnings
from neorl_train.data._experience import Experience, training_sample
from neorl_train.data._loop_records import left_out
from neorl_train.judging._evaluate import return_unit
from neorl_train.judging._pool import COMPARED, LEARNER, RESIDUAL, RETUNED, Candidate, Pool
from neorl_train.judging._rollouts import recorded_episodes
from neorl_train.judging._rule import LogPrediction
from neorl_train.judging._sentences import BrokenEpisodes


class Choice(NamedTuple):
    """The candidate of a run.

    Attributes:
        candidate: The policy to deliver.
        prediction: What a plant model predicts for it; ``None`` if the run learned none.
        notes: The reason, in sentences: the predictions of the pool.
    """

    candidate: Candidate
    prediction: LogPrediction | None
    notes: list[str]


def choose(material: Material, notes: Sequence[str] = ()) -> Choice:
    """The configured candidate, or the best one of the pool by the prediction of a plant model.

    Without a plant model the configured candidate is delivered. If nothing may be preferred to the
    incumbent, the retuned controller represents it.

    Raises:
        InputError: If the configured candidate could not be made.
    """
    requested = material.config.evaluation.candidate
    named = material.pool.named(requested)
    if requested != BEST and not named:
        raise InputError(
            f"evaluation.candidate is {requested!r}, which the run cannot produce: "
            f"{'; '.join(notes)}"
        )
    plants, incumbent = material.plants, material.incumbent
    if plants is None or incumbent is None:
        return Choice(named[0], None, [])
    name = material.config.retuning.controller
    pool = comparable(material)
    chosen, table = select(
        plants,
        {name: incumbent, **pool.policies},
        name,
        RULE,
        logged=[candidate.id for candidate in pool if candidate.from_log],
        searched=[candidate.id for candidate in pool.of(RETUNED, RESIDUAL)],
    )
    sentences = [_prediction_line(pool[row.name], row) for row in table if row.name != name]
    if requested != BEST:
        candidate = named[0]
    elif chosen == name:
        (candidate,) = pool.of(RETUNED)
        sentences.append(f"no candidate may be preferred to {name}; keep it")
    else:
        candidate = pool[chosen]
        sentences.append(
            f"{candidate.title} was chosen from the predictions alone, without a run on the plant"
        )
    prediction = {row.name: row for row in table}[candidate.id]
    own = own_returns(plants, incumbent)
    outcome = LogPrediction(
        prediction,
        name,
        own.predicted,
        own.logged,
        plants.scale,
        RULE,
        replayed_episodes=own.episodes,
    )
    return Choice(candidate, outcome, [*notes, *sentences])


def comparable(material: Material) -> Pool:
    """The candidates that are compared with each other: of every learner the first seed.

    The incumbent is compared already; under its second name it is a candidate only on request.
    """
    config, first = material.config, material.seed
    incumbent, requested = config.retuning.controller, config.evaluation.candidate

    def takes_part(candidate: Candidate) -> bool:
        if candidate.family == COMPARED:
            return False
        if candidate.family == LEARNER:
            return candidate.name in config.training.algorithms and candidate.seeds == (first,)
        return candidate.name != incumbent or requested == incumbent

    return material.pool.only(filter(takes_part, material.pool))


def with_others(
    prediction: LogPrediction,
    plants: LearnedPlants,
    incumbent: Policy,
    candidate: Policy,
    experience: Experience,
    loops: Sequence[LoopReport] = (),
) -> LogPrediction:
    """Adds other estimates of the gain, and facts about the log, to a prediction from a log."""
    dataset = experience.dataset
    episodes = logged_episodes(dataset)
    candidate_estimates, incumbent_estimates = (
        value_estimates(dataset, episodes, policy) for policy in (candidate, incumbent)
    )
    others = other_estimates(prediction.prediction, candidate_estimates, incumbent_estimates)
    return dataclasses.replace(
        prediction,
        others=others,
        excitation=plants.excitation,
        after_moves=error_after_moves(plants.model, plants.rows, plants.evaluation_starts),
        warnings=(*log_warnings(dataset, experience.signal_warnings), *loop_objections(loops)),
        broken=broken_episodes(dataset, plants.model.spec, prediction.incumbent),
    )


def broken_episodes(dataset: Dataset, spec: Spec, incumbent: str) -> BrokenEpisodes:
    """Counts the logged episodes that broke a limit.

    All episodes are counted if the log does not say which are the incumbent's own.
    """
    broken = np.asarray(recorded_episodes(dataset, spec).violated.any(axis=1))
    own = own_episodes(dataset, incumbent)
    counted = broken if own is None or not own.any() else broken[own]
    return BrokenEpisodes(int(counted.sum()), len(counted))


def _prediction_line(candidate: Candidate, prediction: Prediction) -> str:
    remarks = prediction.refusals or ("it may be preferred",)
    return "; ".join((f"{candidate.title}: predicted gain {gain_text(prediction)}", *remarks))


def fit_controllers(
    run: ResolvedRun, session: Session, material: Material
) -> tuple[Material, dict[str, Policy]]:
    """Fits the classical controllers, reads those that are given, and describes all of them.

    The material has those that may be delivered, the mapping all of them by name.
    """
    config = run.config
    if not has_controllers(material.config):
        return material, {}
    names = config.classical.controllers
    if names and material.dataset is not None:
        session.reporter.stage(f"fitting {', '.join(names)} on the log")
    with session.timings.stage("fit classical controllers"):
        material, controllers, lines = with_controllers(material)
    session.directory.update_record(controllers=lines)
    session.reporter.end()
    for line in lines:
        session.reporter.print_line(line)
    return material, controllers


def retune_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    material: Material,
    controllers: Mapping[str, Policy],
) -> Material:
    """Retunes a controller in a plant model of the log, and records the changes."""
    directory, name = session.directory, run.config.retuning.controller
    if not name or experience is None:
        return material
    session.reporter.stage(f"learning the plant from the log and retuning {name}")
    with session.timings.stage("retune"):
        if run.shared is None:
            material, lines = with_plants(material, controllers, run.config.limits)
        else:
            proposed, plants, incumbent, notes = run.shared
            material = material._replace(plants=plants, incumbent=incumbent, proposed=proposed)
            lines = list(notes)
        material, further = make_candidates((RETUNED, RESIDUAL), material)
    lines += further
    (retuned,) = material.pool.of(RETUNED)
    earlier = directory.record().get("controllers", []) if controllers else []
    changes = retuned.metadata["changes"]
    directory.update_record(controllers=[*earlier, *lines], changes=changes)
    write_candidates(run, session, experience, material.pool.of(RETUNED, RESIDUAL))
    session.reporter.end()
    for line in lines:
        session.reporter.note(line)
    return material


def learned_at_site(
    run: ResolvedRun, session: Session, experience: Experience
) -> tuple[Material, list[str]]:
    """Learns the plant of a run before the run itself, for a search with other sites.

    Returns:
        The plant models and the controller that runs today, and sentences on them.
    """
    config = CandidateConfig.of(run.config)
    material = Material(config, run.spec, run.environment, experience.dataset)
    material, controllers = fit_controllers(run, session, material)
    session.reporter.stage("learning the plant from the log")
    with session.timings.stage("learn the plants of the sites"):
        material, lines = with_plants(material, controllers, run.config.limits)
    session.reporter.end()
    return material, lines


def with_plants(
    material: Material, controllers: Mapping[str, Policy], limits: LimitsConfig
) -> tuple[Material, list[str]]:
    """Learns the plant from the training episodes of the log.

    Raises:
        InputError: If the log does not suffice.
    """
    config, environment, dataset = material.config, material.environment, material.dataset
    assert dataset is not None  # a plant is learned from a log
    name, seed = config.retuning.controller, config.retuning.seed
    known = {**controllers, **({} if environment is None else environment.tunings())}
    part, settings = training_sample(config.data, dataset), retune_settings(config.retuning)
    by_incumbent = incumbent_episodes(part, name)
    facts, notes = run_facts(limits, config.retuning.exogenous, environment, part)
    try:
        reports: tuple[LoopReport, ...] = ()
        with contextlib.suppress(InputError):  # Of a log that shows no loops nothing is refused.
            reports = declared_reports(Path(config.data.source), dataset, known[name])
        beside = require_declared(reports, declared_faceplates(dataset)) if reports else []
        memory = require_enough(
            reports, known[name], material.spec, part.episode_lengths,
            model_settings(settings.model, facts),
        )  # fmt: skip
        settings = dataclasses.replace(settings, model=memory)
        plants = learned_plants(
            part.transitions, material.spec, seed, facts, settings, by_incumbent=by_incumbent
        )
        plants = plants.with_model_error(known[name], _others(part, plants, known, name))
        plants, checked = _with_held_out_modes(
            config.retuning, part, plants, known, facts, settings
        )
    except InputError as error:
        raise InputError(f"retuning {name}: {error}") from error
    material = material._replace(plants=plants, incumbent=known[name], loops=reports)
    return material, [*left_out(dataset), *notes, *beside, *checked]


def _others(
    dataset: Dataset, plants: LearnedPlants, known: Mapping[str, Policy], name: str
) -> list[OtherController]:
    """The log's other controllers, each with the judging episodes that it generated."""
    starts = np.unique(plants.rows.start)
    judges = np.searchsorted(starts, plants.evaluation_starts)
    others = []
    for other in known:
        recorded = None if other == name else own_episodes(dataset, other)
        if recorded is not None:
            others.append(OtherController(known[other], recorded[judges]))
    return others


def _with_held_out_modes(
    retuning: RetuningConfig,
    dataset: Dataset,
    plants: LearnedPlants,
    known: Mapping[str, Policy],
    facts: PlantFacts,
    settings: RetuneSettings,
) -> tuple[LearnedPlants, list[str]]:
    """The plants with the modes that the run leaves out of a fit, and the result in words."""
    most, seed = retuning.held_out_modes, retuning.seed
    if not most:
        return plants, []
    modes = log_modes(dataset, known)
    name = retuning.controller
    left_out = held_out_modes(plants, modes, seed, facts, settings, incumbent=name, most=most)
    unit, spec = return_unit(dataset), plants.model.spec
    checks = mode_checks(left_out, spec, unit, why_no_mode(modes, most))
    return plants._replace(held_out=left_out), [f"{one.name}: {one.sentence}" for one in checks]


def with_learners(material: Material, learned: Mapping[str, Learned]) -> tuple[Material, list[str]]:
    """Adds the trained policies, what is made from them, and the families of others.

    Also returns sentences on those that are left out.
    """
    trained = {name: result.policies for name, result in learned.items()}
    families = families_after_training(material.config)
    material, notes = make_candidates(families, material._replace(trained=trained))
    compared = [
        Candidate(name, COMPARED, policy, (seed,))
        for result in learned.values()
        for name, policies in result.compared.items()
        for seed, policy in policies.items()
    ]
    return material._replace(pool=material.pool | compared), notes


def loop_changes_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    policy: Policy,
    reports: Sequence[LoopReport],
) -> None:
    """Writes the evidence for each declared loop that the candidate changes."""
    if experience is None or not declared_faceplates(experience.dataset):
        return
    session.reporter.stage("judging the loops before and after")
    with session.timings.stage("loops"):
        source, folder = Path(run.config.data.source), session.directory.path
        lines = write_loop_changes(folder, source, experience.dataset, policy, reports)
        session.directory.update_record(loops=lines)
    session.reporter.end()
    for line in lines:
        session.reporter.note(line)


def choose_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    material: Material,
    notes: list[str],
) -> tuple[Choice, Pool]:
    """Chooses the candidate without the plant, if the run has learned a model of it.

    The artefacts of all candidates to evaluate are written.
    """
    with session.timings.stage("choose"):
        choice = choose(material, notes)
        prediction, plants, incumbent = choice.prediction, material.plants, material.incumbent
        if prediction is not None and run.environment is None and experience is not None:
            assert plants is not None  # they made the prediction
            assert incumbent is not None
            policy = choice.candidate.policy
            prediction = with_others(
                prediction, plants, incumbent, policy, experience, material.loops
            )
            choice = choice._replace(prediction=prediction)
            compared = {"candidate": policy, "incumbent": incumbent}
            loops = [(one.measurement, one.setpoint) for one in loops_of(experience.dataset)]
            with_setpoint = [pair for pair in loops if all(pair)]
            movement = movement_rows(plants.evaluation_plant, compared, with_setpoint)
            session.directory.update_record(predicted_movement=movement)
    if choice.notes:
        session.directory.update_record(choice=choice.notes)
        for line in choice.notes:
            session.reporter.note(line)
    judged = material.pool.only(
        candidate
        for candidate in material.pool
        if candidate.family == COMPARED or FAMILIES.find(candidate.family).always_judged
    )
    if choice.candidate not in judged.candidates:
        judged = judged | [choice.candidate]
        write_candidates(run, session, experience, [choice.candidate])
    session.directory.update_record(candidates=judged.facts)
    return choice, judged


def write_candidates(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    candidates: Iterable[Candidate],
) -> None:
    """Writes the artefacts of policies that the run did not train, and records their digests."""
    directory, data = session.directory, run.config.data
    record, digests = directory.record(), {}
    rows = None if experience is None else experience.dataset.transitions
    obs = parity_observations(rows, run.environment)
    defaults: dict[str, Any] = {"role": "learner", "hyperparameters": {}, "origin": ""}
    defaults |= {"run": record["id"], "source": data.source, "constants": data.constants}
    for candidate in candidates:
        path = directory.path / candidate.file
        path.parent.mkdir(exist_ok=True)
        description = {**defaults, "algorithm": candidate.group, **candidate.metadata}
        digests[path.name] = save_policy(path, candidate.policy, run.spec, obs, description)
    directory.update_record(policies=record.get("policies", {}) | digests)
