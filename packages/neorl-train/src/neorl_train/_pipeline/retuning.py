"""The controller that a run retunes in a plant model learned from its log."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from neorl_agents import save_policy
from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    Change,
    ChoiceRule,
    LearnedPlants,
    OtherController,
    PlantFacts,
    Prediction,
    RefineResult,
    RetuneResult,
    RetuneSettings,
    SearchSettings,
    held_out_modes,
    learned_plants,
    refine,
    retune,
    select,
)
from neorl_core import InputError, Policy, Spec
from neorl_envs import Dataset
from neorl_train._pipeline.artefacts import parity_observations
from neorl_train._pipeline.controllers import tuning_parameters
from neorl_train._pipeline.plant_model import run_facts
from neorl_train._pipeline.resolved_run import ResolvedRun, Session
from neorl_train.configuration._retuning import RESIDUAL, RETUNED, incumbent_name, is_artefact
from neorl_train.configuration._sections import Config
from neorl_train.evaluation._logged import reward_unit
from neorl_train.experience._behaviours import own_episodes
from neorl_train.experience._experience import Experience
from neorl_train.experience._split import training_sample
from neorl_train.plant_models._trust import log_modes, mode_checks, why_no_mode
from neorl_train.results._results import group_of
from neorl_train.results._wording import number, with_ends
from neorl_train.runs._names import policy_file

RULE = ChoiceRule()


class Retuning(NamedTuple):
    """State of a run's retuned controller.

    Attributes:
        plants: Learned plants, which also judge the pool of candidates.
        incumbent: The controller that runs today.
        policies: The retuned controller, and the one with a network on top, by name; the incumbent
            if nothing was better.
        words: Description of the changes and the predictions, in sentences.
        changes: The changed parameters alone, in words.
    """

    plants: LearnedPlants
    incumbent: Policy
    policies: dict[str, Policy]
    words: list[str]
    changes: list[str]


def retune_stage(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    controllers: Mapping[str, Policy],
) -> tuple[Retuning | None, dict[str, Policy]]:
    """Retunes a controller in a plant model of the log, and records the changes.

    Args:
        run: The run.
        session: Its directory and reporter.
        experience: The log; ``None`` if there is none.
        controllers: Fitted classical controllers by name.

    Returns:
        The retuned controller with its learned plants, and its policies by name with the first
        seed; ``None`` and no policy if the run retunes none.
    """
    config, directory, name = run.config, session.directory, run.config.retuning.controller
    if not name or experience is None:
        return None, {}
    session.reporter.stage(f"learning the plant from the log and retuning {name}")
    with session.timings.stage("retune"):
        retuning = retuning_of(config, experience.dataset, run.environment, controllers, run.spec)
    earlier_words = directory.record().get("controllers", []) if controllers else []
    directory.update_record(controllers=[*earlier_words, *retuning.words], changes=retuning.changes)
    policies = with_seed(retuning.policies, config)
    seed = config.training.seeds[0]
    save_policies(run, session, experience, policies, controller=name, seed=seed)
    session.reporter.end()
    for line in retuning.words:
        session.reporter.note(line)
    return retuning, policies


def with_seed(policies: Mapping[str, Policy], config: Config) -> dict[str, Policy]:
    """The same policies, each with the first seed in its name, like those of the learners."""
    return {f"{name}-{config.training.seeds[0]}": policy for name, policy in policies.items()}


def save_policies(
    run: ResolvedRun,
    session: Session,
    experience: Experience | None,
    policies: Mapping[str, Policy],
    **metadata: Any,
) -> None:
    """Writes the artefacts of policies that the run did not train, and records their digests.

    Args:
        run: The run.
        session: Its directory.
        experience: The log, for the observations on which the artefacts are checked; ``None`` if
            there is none.
        policies: Policies by the names of their files.
        **metadata: Metadata of each file, as plain JSON.
    """
    directory, data = session.directory, run.config.data
    record, digests = directory.record(), {}
    rows = None if experience is None else experience.dataset.transitions
    obs = parity_observations(rows, run.environment)
    defaults = {"role": "learner", "hyperparameters": {}, "origin": "", "run": record["id"]}
    defaults |= {"source": data.source, "constants": data.constants}
    for name, policy in policies.items():
        path = directory.path / policy_file(name)
        path.parent.mkdir(exist_ok=True)
        description = {**defaults, "algorithm": group_of(name), **metadata}
        digests[path.name] = save_policy(path, policy, run.spec, obs, description)
    directory.update_record(policies=record.get("policies", {}) | digests)


def retuning_of(
    config: Config,
    dataset: Dataset,
    environment: Any,
    controllers: Mapping[str, Policy],
    spec: Spec,
) -> Retuning:
    """Learns the plant from the training episodes and retunes the controller in it.

    Args:
        config: Configuration, resolved.
        dataset: Complete log; its held-out episodes are not used.
        environment: The plant, for its tunings; ``None`` if there is only a log.
        controllers: Fitted, declared and given controllers by name.
        spec: Channels, with the limits of the run.

    Raises:
        InputError: If the log does not suffice, or the controller declares no tunable parameter.
    """
    name, seed = config.retuning.controller, config.retuning.seed
    known = dict(controllers) | ({} if environment is None else environment.tunings())
    part = training_sample(config.data, dataset)
    by_incumbent = own_episodes(part, name)
    facts, notes = run_facts(config, environment, part)
    try:
        settings = RetuneSettings(
            model=HistoryModelSettings(updates=config.retuning.updates),
            search=SearchSettings(generations=config.retuning.generations),
            rule=RULE,
        )
        plants = learned_plants(
            part.transitions, spec, seed, facts, settings, by_incumbent=by_incumbent
        )
        plants = plants.with_model_error(known[name], _others(part, plants, known, name))
        plants, checked = _with_held_out_modes(config, part, plants, known, facts, settings)
        result = _retuned(plants, known[name], config, settings)
        policies = {RETUNED: result.policy}
        words = [*notes, *checked, *retuning_words(name, result, plants)]
        if config.retuning.residual:
            refined = refine(plants, result.policy, seed, settings)
            policies[RESIDUAL] = refined.policy
            words += residual_words(refined, spec)
    except InputError as error:
        raise InputError(f"retuning {name}: {error}") from error
    changes = changed_parameters(result)
    return Retuning(plants, known[name], policies, words, changes)


def _retuned(
    plants: LearnedPlants, controller: Policy, config: Config, settings: RetuneSettings
) -> RetuneResult:
    """The result of the search; a policy in a file that declares no parameter stays as it is."""
    seed, file = config.retuning.seed, config.evaluation.incumbent
    given = is_artefact(file) and config.retuning.controller == incumbent_name(file)
    if not given or tuning_parameters(controller, plants.model.spec):
        return retune(plants, controller, seed, settings)
    _, table = select(plants, {TODAY: controller}, TODAY, settings.rule)
    return RetuneResult(controller, TODAY, (), table)


def residual_words(result: RefineResult, spec: Spec) -> list[str]:
    """Describes the authority and the predictions of a network on top of the retuned controller.

    Args:
        result: Result of its training.
        spec: Channels, for names and units.
    """
    chosen = {row.name: row for row in result.table}[result.chosen]
    if result.chosen == result.table[0].name:
        best = max(result.table[1:], key=lambda prediction: prediction.low)
        return [
            "no network is added to the retuned controller, because of the best candidate: "
            f"{'; '.join(best.refusals)}"
        ]
    reach = ", ".join(
        f"{channel.name} by at most {number(float(most))} {channel.unit}".rstrip()
        for channel, most in zip(spec.action, result.authority, strict=True)
    )
    return [
        f"residual: a network adds to the action of the retuned controller; it moves {reach}",
        f"predicted gain in return over the retuned controller: {gain_words(chosen)}; the linear "
        f"part of the model alone predicts {number(chosen.by_member[-1])}",
    ]


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
    config: Config,
    dataset: Dataset,
    plants: LearnedPlants,
    known: Mapping[str, Policy],
    facts: PlantFacts,
    settings: RetuneSettings,
) -> tuple[LearnedPlants, list[str]]:
    """The plants with the modes that the run leaves out of a fit, and the result in words."""
    most, seed = config.retuning.held_out_modes, config.retuning.seed
    if not most:
        return plants, []
    modes = log_modes(dataset, known)
    name = config.retuning.controller
    left_out = held_out_modes(plants, modes, seed, facts, settings, incumbent=name, most=most)
    unit, spec = reward_unit(dataset), plants.model.spec
    checks = mode_checks(left_out, spec, unit, why_no_mode(modes, most))
    return plants._replace(held_out=left_out), [f"{one.name}: {one.sentence}" for one in checks]


def retuning_words(name: str, result: RetuneResult, plants: LearnedPlants) -> list[str]:
    """Describes in sentences what was changed and what the model predicts.

    Args:
        name: Name of the controller.
        result: Result of the search.
        plants: The learned plants.
    """
    history, judged = plants.model.history, plants.evaluation_plant.n_episodes
    steps = f"{history} step{'s' * (history != 1)}"
    if not result.changes:
        return [
            f"{name} declares no tuning parameter, so it is kept as it is; the candidates were "
            f"compared in a plant model with {steps} of history, on {judged} episodes that were "
            "not used for the model"
        ]
    lines = [
        f"{name} was retuned in a plant model with {steps} of history; the "
        f"candidates were compared on {judged} episodes that were used neither for the model nor "
        "for the search"
    ]
    chosen = {row.name: row for row in result.table}[result.chosen]
    if result.chosen == result.table[0].name:
        best = max(result.table[1:], key=lambda prediction: prediction.low)
        why = "; ".join(best.refusals)
        return [*lines, f"{name} is kept as it is, because of the best candidate: {why}"]
    return [
        *lines,
        *changed_parameters(result),
        f"predicted gain in return over {name}: {gain_words(chosen)}; the linear part of the model "
        f"alone predicts {number(chosen.by_member[-1])}",
    ]


def changed_parameters(result: RetuneResult) -> list[str]:
    """Every parameter that the retuned controller changes, before and after."""
    return [change_words(change) for change in result.changes if change.before != change.after]


def gain_words(prediction: Prediction) -> str:
    """A predicted gain with its interval."""
    return with_ends(prediction.gain, prediction.low, prediction.high)


def change_words(change: Change) -> str:
    """A controller parameter before and after, with enough digits to show the difference.

    Example:
        >>> from neorl_agents.retuning import Change
        >>> change_words(Change("gain of TIC_101", "% per °C", 2.1, 2.9))
        'gain of TIC_101 from 2.1 to 2.9 % per °C'
        >>> change_words(Change("setpoint of T", "°C", 120.4, 120.4 + 1e-9))
        'setpoint of T stays at 120.4 °C'
    """
    before, after = number(change.before), number(change.after)
    for digits in (5, 6):
        if before == after:
            before, after = (f"{value:.{digits}g}" for value in (change.before, change.after))
    if before == after:
        return f"{change.name} stays at {number(change.before)} {change.unit}".rstrip()
    return f"{change.name} from {before} to {after} {change.unit}".rstrip()
