"""Fits a plant model to a log and decides whether it may be used for choosing controllers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from neorl_agents.models import (
    ErrorsAhead,
    FreeEpisodes,
    errors_ahead,
    free_episodes,
)
from neorl_agents.retuning import (
    Excitation,
    HeldOutMode,
    LearnedPlants,
    PlantFacts,
)
from neorl_core import Policy, Spec
from neorl_envs import Dataset
from neorl_envs.inspection import interlock_report
from neorl_train.choosing._model_trust import (
    Check,
    ReplayedController,
    incumbent_replay,
    log_modes,
    mode_checks,
    own_returns,
    replay_checks,
    replayed_controllers,
    why_no_mode,
)
from neorl_train.choosing._options import ChooseOptions, learn_plants
from neorl_train.data._data_warnings import log_warnings
from neorl_train.judging._evaluate import return_unit
from neorl_train.judging._sentences import setpoint_text
from neorl_train.judging._wording import narrowly, number, percent, quantity

MAX_BIAS = 0.25
"""Largest mean error of predicted returns, relative to the spread of returns in the log."""
MAX_RELATIVE_ERROR = 0.8
"""Largest one-step error, relative to that of repeating the last value or using the mean."""

REMEDIES = {
    "model": "the channels that no controller influences, named with --exogenous, or a controller "
    "that is closer to the one that recorded the log",
    "log": "a reward that varies, and signals that are what their tags state",
    "excitation": "a test signal or manual moves on each actuator that is named, or many steps of "
    "its setpoint",
    "one step ahead": "measurements of the variables that drive these channels, or a longer "
    "period, in which they change by more than their noise",
    "held-out mode": "episodes of further controllers or setpoints between those of the log, or "
    "test signals in the episodes of each, so that the model depends less on any single mode",
    "return": "more episodes, every channel that no controller influences declared with "
    "--exogenous, and a reward that does not consist of noise alone",
}
"""What a log lacks if a check fails."""


@dataclasses.dataclass(frozen=True)
class PlantModelCheck:
    """Results of checking a plant model.

    Attributes:
        source: Name of the log.
        spec: Channels of the log.
        reward_unit: Unit of the reward.
        history: Number of past steps that the model reads.
        fitted: Number of episodes to which it was fitted.
        predicted: Names of the observations that it predicts.
        exogenous: Names of the observations that it takes from the log.
        ahead: Errors of predictions several steps ahead.
        free: Predictions of whole episodes from their logged actions.
        replayed: Controllers that generated the log, if they are known.
        checks: The checks.
        held_out: Those of them that were left out of a further fit, as it predicts them.
        interlocks: Declared interlocks of a converted log, as
            :func:`neorl_envs.inspection.interlock_report` describes them.
    """

    source: str
    spec: Spec
    reward_unit: str
    history: int
    fitted: int
    predicted: tuple[str, ...]
    exogenous: tuple[str, ...]
    ahead: ErrorsAhead
    free: FreeEpisodes
    replayed: tuple[ReplayedController, ...]
    checks: tuple[Check, ...]
    held_out: tuple[HeldOutMode, ...] = ()
    interlocks: tuple[Mapping[str, Any], ...] = ()

    @property
    def usable(self) -> bool:
        """Whether every decisive check holds."""
        return all(check.holds for check in self.checks if check.decides)

    @property
    def sentence(self) -> str:
        """The conclusion in one sentence."""
        episodes = len(self.free.lengths)
        if self.usable:
            return f"The model reproduces {episodes} episodes that it was not fitted to."
        failed = [check.name for check in self.checks if check.decides and not check.holds]
        checks = dict.fromkeys(name.partition(",")[0] for name in failed)  # "model, temperature"
        remedies = "; ".join(REMEDIES[name] for name in checks if name in REMEDIES)
        advice = f" To change that, provide {remedies}." if remedies else ""
        return f"No choice should be based on this model: {'; '.join(failed)}.{advice}"


def check_plant_model(
    dataset: Dataset,
    source: str,
    options: ChooseOptions,
    facts: PlantFacts | None = None,
    controllers: Mapping[str, Policy] | None = None,
    incumbent: str = "",
    *,
    plants: LearnedPlants | None = None,
) -> PlantModelCheck:
    """Fits a plant model to a log and checks it on held-out episodes.

    If the controller that runs today is known, the check *model* decides, as in the verdict of a
    run: the model must reproduce its return when logged episodes are replayed. The model's
    prediction from the logged actions alone, without replaying its residuals of the log, is then
    only informative. Otherwise that prediction decides.

    Args:
        dataset: Log with costs and rewards.
        source: Name of the log, for messages and the page.
        options: How the model is learned.
        facts: Declared facts about the plant; none by default.
        controllers: Controllers by the name under which they generated the log; none by default.
        incumbent: Name of the controller that runs today; unknown by default.
        plants: Result of :func:`learn_plants` for the same arguments; learned here by default.

    Returns:
        The results of the checks.

    Raises:
        InputError: If the log does not suffice, or a name is not an observation.
    """
    if plants is None:
        plants = learn_plants(dataset, options, facts, controllers, incumbent)
    spec, model, controllers = dataset.spec, plants.model, controllers or {}
    settings, facts = options.settings(), options.facts(facts, dataset)
    names = [channel.name for channel in spec.obs]
    predicted = tuple(names[i] for i in model.predicted)
    unit = str(dataset.attributes.get("reward_unit", "")) or return_unit(dataset)
    incumbent_known = incumbent in controllers
    ahead, free, from_actions = checks_from_actions(
        plants, unit, options.seed, decides=not incumbent_known
    )
    modes = log_modes(dataset, controllers)
    of_incumbent: list[Check] = []
    if incumbent_known:
        own = [mode for mode in modes if mode.name == incumbent]
        today = controllers[incumbent]
        replay = incumbent_replay(plants, today, own, options.seed, facts, settings)
        returns = own_returns(plants, today)
        of_incumbent = replay_checks(returns, replay, incumbent, plants, unit)
    interlocks = interlock_report(dataset)["entries"] if facts.interlock is not None else ()
    why_none = why_no_mode(modes, options.held_out_modes)
    return PlantModelCheck(
        source=source,
        spec=spec,
        reward_unit=unit,
        history=model.history,
        fitted=plants.n_fitted,
        predicted=predicted,
        exogenous=tuple(name for name in names if name not in predicted),
        ahead=ahead,
        free=free,
        replayed=replayed_controllers(plants, dataset, controllers),
        checks=(
            *of_incumbent,
            *mode_checks(plants.held_out, spec, unit, why_none),
            _excitation_check(plants.excitation),
            *from_actions,
            *_log_checks(dataset),
            *_interlock_checks(interlocks),
        ),
        held_out=plants.held_out,
        interlocks=tuple(interlocks),
    )


def checks_from_actions(
    plants: LearnedPlants, unit: str, seed: int, *, decides: bool = True
) -> tuple[ErrorsAhead, FreeEpisodes, tuple[Check, ...]]:
    """Checks what the model predicts from the logged actions alone, without any controller.

    With ``decides``, the checks of the steps and of the return decide; that of finite rollouts
    always does.
    """
    spec = plants.model.spec
    predicted = tuple(spec.obs[i].name for i in plants.model.predicted)
    ahead = errors_ahead(plants.model, plants.rows, plants.evaluation_starts, seed)
    free = free_episodes(plants.evaluation_plant, plants.rows, plants.evaluation_starts)
    checks = (
        _steps_check(ahead, predicted)._replace(decides=decides),
        *_outcome_checks(free, spec, unit, decides=decides),
        _finite_check(free),
    )
    return ahead, free, checks


def predicted_sums(free: FreeEpisodes) -> Float[np.ndarray, "episode outcome"]:
    """Predicted sums of reward and costs, averaged over the networks."""
    return free.outcome[:-1].mean(axis=0)


def _log_checks(dataset: Dataset) -> list[Check]:
    warnings = log_warnings(dataset)
    return [Check("log", False, "; ".join(warnings))] if warnings else []


def _interlock_checks(interlocks: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Whether the log agrees with its declared interlocks; nothing if there are none."""
    if not interlocks:
        return []
    contradicted = [
        f"{interlock['name']} in {sum(entry['rows'] for entry in interlock['contradictions'])} of "
        f"{interlock['active']} rows in which its condition holds"
        for interlock in interlocks
        if interlock["contradictions"]
    ]
    if contradicted:
        sentence = f"the log contradicts {', '.join(contradicted)}; see `neorl-envs inspect`"
        return [Check("interlocks", False, sentence, decides=False)]
    active = ", ".join(f"{interlock['name']} in {interlock['active']}" for interlock in interlocks)
    sentence = f"the log agrees with them; of {interlocks[0]['rows']} rows, active are {active}"
    return [Check("interlocks", True, sentence, decides=False)]


def _excitation_check(excitation: Excitation) -> Check:
    return Check(
        "excitation",
        excitation.suffices,
        "; ".join(excitation.warnings)
        or "every action also moved independently of the measurements, with a fraction of at least "
        f"{excitation.least:.2g} of its variance{setpoint_text(excitation)}",
    )


def _steps_check(ahead: ErrorsAhead, predicted: tuple[str, ...]) -> Check:
    # For pure noise the mean, whose error is one standard deviation, beats the last value.
    baseline = np.minimum(ahead.unchanged[0], 1.0)
    ratio = np.where(baseline > 1e-6, ahead.networks[0] / np.maximum(baseline, 1e-6), 0.0)
    bad = [name for name, value in zip(predicted, ratio, strict=True) if value > MAX_RELATIVE_ERROR]
    if not bad:
        return Check(
            "one step ahead",
            True,
            f"the error of each of {len(predicted)} channels is below "
            f"{percent(MAX_RELATIVE_ERROR)} of that of the better of two guesses, the last value "
            "or the mean",
        )
    possessive, pronoun = ("its", "it") if len(bad) == 1 else ("their", "them")
    majority = len(bad) > len(predicted) / 2
    good = len(predicted) - len(bad)
    others = "the other channel" if good == 1 else f"the other {good} channels"
    rest = "" if majority else f"; {others} can"
    return Check(
        "one step ahead",
        not majority,
        f"{', '.join(bad)} can hardly be predicted better than by {possessive} last value or "
        f"{possessive} mean: either noise dominates, or a variable that drives {pronoun} is not in "
        f"the log{rest}",
    )


def _outcome_checks(free: FreeEpisodes, spec: Spec, unit: str, *, decides: bool) -> list[Check]:
    outcomes = [("return", unit), *((c.name, c.unit) for c in spec.cost)]
    predicted, checks = predicted_sums(free), []
    for j, (name, unit_of_outcome) in enumerate(outcomes):
        spread = float(free.spread[j])
        error = float(np.mean(predicted[:, j] - free.outcome_logged[:, j]))
        holds = bool(abs(error) <= MAX_BIAS * spread + 1e-9)
        if not np.isfinite(error):
            text = "predicted episodes diverge, so it cannot be computed"
            checks.append(Check(name, False, text, decides=decides and j == 0))
            continue
        checks.append(
            Check(
                name,
                holds,
                f"the mean is {number(float(np.mean(predicted[:, j])))} as predicted and "
                f"{quantity(float(np.mean(free.outcome_logged[:, j])), unit_of_outcome)} as "
                f"logged, a difference of {number(error)} where {number(MAX_BIAS * spread)} is "
                f"allowed{narrowly(error, MAX_BIAS * spread)} ({percent(MAX_BIAS)} of the spread "
                "between episodes)",
                # A cost due only to noise is absent from a smooth prediction; a replay adds the
                # noise.
                decides=decides and j == 0,
            )
        )
    return checks


def _finite_check(free: FreeEpisodes) -> Check:
    finite = bool(np.isfinite(free.obs).all() and np.isfinite(free.outcome).all())
    return Check(
        "rollouts stay finite",
        finite,
        "every predicted episode stays finite" if finite else "predicted episodes diverge",
    )
