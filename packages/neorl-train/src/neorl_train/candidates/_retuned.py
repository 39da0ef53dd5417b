"""The controller of a run, retuned in a plant model that was learned from its log."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from neorl_agents.controllers import TrackingPID
from neorl_agents.loops import faceplate_change, faceplate_rows, faceplate_sentence
from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    Change,
    ChoiceRule,
    LearnedPlants,
    Prediction,
    RetuneResult,
    RetuneSettings,
    SearchSettings,
    retune,
    select,
)
from neorl_core import InputError, Policy, Spec
from neorl_core.control import PID, TunableController
from neorl_core.loops import PIDGains
from neorl_envs.datasets import todays_controller
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.configuration._classical import RetuningConfig
from neorl_train.configuration._sections import CandidateConfig
from neorl_train.judging._pool import RETUNED, Candidate
from neorl_train.judging._wording import number, with_ends

RULE = ChoiceRule()
"""When a policy may be preferred to today's controller."""


def retune_settings(retuning: RetuningConfig) -> RetuneSettings:
    """Settings of the plant model, of the search in it, and of the choice by it."""
    return RetuneSettings(
        model=HistoryModelSettings(updates=retuning.updates),
        search=SearchSettings(generations=retuning.generations),
        rule=RULE,
    )


def _names(inputs: RunInputs) -> list[str]:
    return [RETUNED] if inputs.config.retuning.controller else []


def _reason(inputs: RunInputs, name: str) -> str:
    if name != RETUNED or inputs.config.retuning.controller:
        return ""
    return (
        "but no controller is retuned; name one with --retuning.controller, a tuning of the plant "
        "or one of classical.controllers or classical.declared"
    )


def _retune(material: Material) -> Made:
    """The incumbent with other tuning parameters; the incumbent itself if none are better."""
    config, plants, controller = material.config, material.plants, material.incumbent
    name = config.retuning.controller
    if not name or plants is None or controller is None:
        return Made([], [])
    try:
        result = _result(plants, controller, config, material.proposed)
    except InputError as error:
        raise InputError(f"retuning {name}: {error}") from error
    changes = [change_text(change) for change in result.changes if change.before != change.after]
    changes = [*faceplate_texts(material, result.policy), *changes]
    metadata: dict[str, Any] = {"controller": name, "seed": material.seed, "changes": changes}
    retuned = Candidate(RETUNED, RETUNED, result.policy, (material.seed,), metadata=metadata)
    return Made([retuned], _sentences(name, result, plants, changes))


def _result(
    plants: LearnedPlants,
    controller: Policy,
    config: CandidateConfig,
    proposed: Mapping[str, Float[np.ndarray, " tunable"]] | None,
) -> RetuneResult:
    """The result of the search; a policy in a file that declares no parameter stays as it is."""
    seed, settings, today = (
        config.retuning.seed,
        retune_settings(config.retuning),
        config.evaluation,
    )
    given = bool(today.incumbent_file) and config.retuning.controller == today.runs_today
    tunable = isinstance(controller, TunableController) and controller.tunables(plants.model.spec)
    if not given or tunable:
        return retune(plants, controller, seed, settings, proposed=proposed)
    _, table = select(plants, {TODAY: controller}, TODAY, settings.rule)
    return RetuneResult(controller, TODAY, (), table)


def _sentences(
    name: str, result: RetuneResult, plants: LearnedPlants, changes: list[str]
) -> list[str]:
    """Describes in sentences what was changed and what the model predicts."""
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
    if not result.table[1:]:
        return [f"{name} is kept as it is; no other tuning was proposed for it"]
    if result.chosen == result.table[0].name:
        best = max(result.table[1:], key=lambda prediction: prediction.low)
        why = "; ".join(best.refusals)
        return [*lines, f"{name} is kept as it is; its best other tuning was refused: {why}"]
    return [
        *lines,
        *changes,
        f"predicted gain in return over {name}: {gain_text(chosen)}; the linear part of the model "
        f"alone predicts {number(chosen.by_member[-1])}",
    ]


def gain_text(prediction: Prediction) -> str:
    """A predicted gain with its interval, and with the wider one of the true gain."""
    text = with_ends(prediction.gain, prediction.low, prediction.high)
    if not prediction.error:
        return text
    low, high = map(number, prediction.true_gain)
    return f"{text}, with the model's error on logged episodes {low} to {high}"


def faceplate_texts(material: Material, policy: Policy) -> list[str]:
    """What to type for each changed loop, if the log declares the faceplate of this controller."""
    dataset, controller = material.dataset, material.config.retuning.controller
    if dataset is None:
        return []
    today = todays_controller(dataset)
    if today.name != controller:
        return []
    texts = []
    for faceplate in today.faceplates:
        gains = gains_of_loop(policy, dataset.spec, faceplate.manipulated)
        if gains is None:
            continue
        change = faceplate_change(faceplate.shown, gains, faceplate.form)
        measured, output = faceplate.units
        shown = faceplate_rows(change, measurement_unit=measured, output_unit=output)
        if any(typed[0] != typed[1] for typed in (row.text for row in shown)):
            texts.append(faceplate_sentence(faceplate.name, shown, faceplate.form.direction))
    return texts


def gains_of_loop(policy: Policy, spec: Spec, manipulated: str) -> PIDGains | None:
    """The gains of the loop that moves a channel; none if the policy is no bank of PIDs."""
    loops = policy.loops if isinstance(policy, TrackingPID) else policy
    if not isinstance(loops, PID):
        return None
    index = [channel.name for channel in spec.action].index(manipulated)
    return PIDGains(*(float(leaf[index]) for leaf in (loops.kp, loops.ki, loops.kd, loops.tau)))


def change_text(change: Change) -> str:
    """A controller parameter before and after, with enough digits to show the difference.

    Example:
        >>> from neorl_agents.retuning import Change
        >>> change_text(Change("gain of TIC_101", "% per °C", 2.1, 2.9))
        'gain of TIC_101 from 2.1 to 2.9 % per °C'
        >>> change_text(Change("setpoint of T", "°C", 120.4, 120.4 + 1e-9))
        'setpoint of T stays at 120.4 °C'
    """
    before, after = number(change.before), number(change.after)
    for digits in (5, 6):
        if before == after:
            before, after = (f"{value:.{digits}g}" for value in (change.before, change.after))
    if before == after:
        return f"{change.name} stays at {number(change.before)} {change.unit}".rstrip()
    return f"{change.name} from {before} to {after} {change.unit}".rstrip()


SEARCHED = Family(_names, _retune, _reason, always_judged=True)
