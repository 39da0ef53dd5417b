"""Fits a safety critic and an ensemble to a log and tests them on episodes that neither saw."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import betaincinv

from neorl_agents import Learner, LearnerState
from neorl_agents.critics import (
    Ensemble,
    EnsembleLearner,
    NothingToLearnError,
    SafetyCritic,
    SafetyCriticLearner,
    assess_ensemble,
    assess_safety_critic,
    disagreement,
    fit_ensemble,
    fit_safety_critic,
    largest_risk,
)
from neorl_agents.learning import Networks
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_core.infrastructure import require_settings, setting
from neorl_core.statistics import DEFAULT_LEVEL, conformal_sample_size
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics, split_episodes
from neorl_safety.monitoring import CriticMonitor, calibrated, episode_scores
from neorl_train.data._behaviours import padded_episodes
from neorl_train.data._data_warnings import still_actions
from neorl_train.data._training_data import TrainingData
from neorl_train.judging._rollouts import recorded_episodes
from neorl_train.judging._summary import fraction_estimates
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._loop import UNWATCHED, Watcher, train
from neorl_train.training._memory import TrainingMemory
from neorl_train.training._plan import plan_in_chunks


@dataclasses.dataclass(frozen=True)
class CriticOptions:
    """Options for fitting the critics of a log; all other settings are their learners' defaults.

    Attributes:
        horizon: Number of steps that the safety critic looks ahead.
        updates: Gradient steps of the safety critic.
        ensemble_updates: Gradient steps of the ensemble.
        members: Number of members of the ensemble.
        hidden: Widths of the hidden layers of both.
        coverage: Nominal coverage of the ensemble's intervals.
        false_alarms: Promised fraction of the episodes within limits that nevertheless raise an
            alarm.
        seed: Seed of splits, weights and random samples.
    """

    horizon: int = setting(20, low=1)
    updates: int = setting(10_000, low=1)
    ensemble_updates: int = setting(3_000, low=1)
    members: int = setting(10, low=2)
    hidden: tuple[int, ...] = setting((64, 64), low=1)
    coverage: float = setting(0.9, above=0, below=1)
    false_alarms: float = setting(0.1, above=0, below=1)
    seed: int = setting(0, low=0)

    def validate(self) -> None:
        """Refuses invalid values.

        Raises:
            InputError: Names the first one.
        """
        require_settings(self, "")

    def safety_learner(self) -> SafetyCriticLearner:
        """The learner of the safety critic."""
        return SafetyCriticLearner(horizon=self.horizon, networks=Networks(hidden=self.hidden))

    def ensemble_learner(self) -> EnsembleLearner:
        """The learner of the ensemble."""
        return EnsembleLearner(members=self.members, networks=Networks(hidden=self.hidden))


@dataclasses.dataclass(frozen=True)
class TrainingHooks:
    """Checkpoints from which the critics' trainings continue, and their observers.

    Attributes:
        checkpoints: Returns the checkpoints of the named critic, if there are any.
        watcher: Returns the observer of the named critic's training.
        last_metrics: Returns the metrics of the last chunk if an earlier process completed the
            training.
    """

    checkpoints: Callable[[str], Checkpoints | None]
    watcher: Callable[[str], Watcher]
    last_metrics: Callable[[str], dict[str, float]]


NO_HOOKS = TrainingHooks(lambda name: None, lambda name: UNWATCHED, lambda name: {})
"""Trains from beginning to end, without checkpoints."""


class _LastMetrics(Watcher):
    """Passes all events on, and stores the metrics of the last chunk."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.metrics: dict[str, float] = {}

    def begin(self, step: int) -> bool:
        return self._watcher.begin(step)

    def compiling(self) -> None:
        self._watcher.compiling()

    def takes(self, memory: TrainingMemory) -> None:
        self._watcher.takes(memory)

    def running(self) -> None:
        self._watcher.running()

    def chunk(self, step: int, metrics: list[dict[str, float]]) -> None:
        self.metrics = metrics[0]
        self._watcher.chunk(step, metrics)

    def saving(self, step: int) -> None:
        self._watcher.saving(step)


class Critics(NamedTuple):
    """Critics fitted on a log.

    Attributes:
        safety_critic: ``None`` if the log has no costs, or all of them are constant.
        ensemble: Ensemble of the plant's dynamics.
        monitors: One monitor for each critic by name, with its threshold, for a guard.
        report: Fits, assessments and monitors, ready for JSON.
    """

    safety_critic: SafetyCritic | None
    ensemble: Ensemble
    monitors: dict[str, CriticMonitor]
    report: dict[str, Any]


def fit_critics(
    training: Dataset,
    held_out: Dataset,
    *,
    options: CriticOptions | None = None,
    hooks: TrainingHooks = NO_HOOKS,
) -> Critics:
    """Fits both critics on one part of a log and tests them on the other.

    Half of the held-out episodes set the thresholds of the monitors, the other half measure alarms,
    risks and coverage. A threshold is set on episodes within limits, because an alarm in an episode
    that breaks a limit is not a false one.

    Args:
        training: Episodes to fit on; calibration holds out some of them.
        held_out: Episodes that are not used for training.
        options: Sizes and error rates.
        hooks: Checkpoints and observers of the trainings; none by default.

    Returns:
        The critics, their monitors and the measured results.

    Raises:
        InputError: If an option is out of range, or there are too few episodes for calibration or
            for the promised rate of false alarms.
    """
    options = CriticOptions() if options is None else options
    options.validate()
    key = jax.random.key(options.seed)
    keys = jax.random.split(key, 3)
    if held_out.n_episodes < 4:
        raise InputError(
            f"{held_out.n_episodes} held-out episodes are too few to calibrate thresholds and to "
            "count alarms; 4 or more are needed, so start a run with a larger data.held_out, or "
            "cut the log into more episodes"
        )
    threshold_episodes, test_episodes = split_episodes(held_out, 0.5, keys[2])
    _require_enough(threshold_episodes, held_out.n_episodes, options.false_alarms)
    fitted, spec = _fit_ensemble(training, keys[0], options, hooks), training.spec
    report: dict[str, Any] = {
        "still_actions": still_actions(data_statistics(training), spec),
        "ensemble": fitted.report
        | {"coverage_measured": assess_ensemble(fitted.ensemble, test_episodes.transitions, spec)},
    }
    critics: dict[str, Any] = {"ensemble": (fitted.ensemble, disagreement)}
    safety, report["safety_critic"] = _fit_safety(training, test_episodes, keys[1], options, hooks)
    if safety is not None:
        critics["safety_critic"] = (safety, largest_risk)
    monitors = {}
    for name, (critic, score) in critics.items():
        uncalibrated = CriticMonitor(critic, jnp.asarray(jnp.inf, jnp.float32), score)
        monitors[name], report[name]["monitor"] = _calibrate(
            uncalibrated, threshold_episodes, test_episodes, options.false_alarms
        )
    return Critics(safety, fitted.ensemble, monitors, report)


def _fit_ensemble(
    training: Dataset, key: PRNGKeyArray, options: CriticOptions, hooks: TrainingHooks
) -> Any:
    return fit_ensemble(
        training.transitions,
        training.spec,
        key,
        learner=options.ensemble_learner(),
        updates=options.ensemble_updates,
        coverage=options.coverage,
        trainer=partial(_train, "ensemble", options.seed, hooks),
    )


def _fit_safety(
    training: Dataset,
    test_episodes: Dataset,
    key: PRNGKeyArray,
    options: CriticOptions,
    hooks: TrainingHooks,
) -> tuple[SafetyCritic | None, dict[str, Any]]:
    """The critic and its measured results, or the reason why there is none."""
    spec = training.spec
    try:
        fitted = fit_safety_critic(
            training.transitions,
            spec,
            key,
            learner=options.safety_learner(),
            updates=options.updates,
            trainer=partial(_train, "safety_critic", options.seed, hooks),
        )
    except NothingToLearnError as error:
        return None, {"none": str(error)}
    assessment = assess_safety_critic(fitted.critic, test_episodes.transitions, spec)
    return fitted.critic, fitted.report | {"assessment": assessment}


def _train(
    name: str,
    seed: int,
    hooks: TrainingHooks,
    learner: Learner,
    spec: Spec,
    rows: Transition,
    statistics: DataStatistics,
    updates: int,
    key: PRNGKeyArray,
) -> tuple[LearnerState, dict[str, float]]:
    """Trains with the loop that all learners use, with keys derived from the seed."""
    del key
    last = _LastMetrics(hooks.watcher(name))
    plan = plan_in_chunks(updates, checkpoints=True)
    data = TrainingData(rows, statistics, spec)
    trained = train(learner, data, (seed,), plan, watcher=last, checkpoints=hooks.checkpoints(name))
    return trained.states()[0], last.metrics or hooks.last_metrics(name)


def _require_enough(threshold_episodes: Dataset, held_out: int, false_alarms: float) -> None:
    """Checks, before fitting, that a threshold can promise this rate of false alarms."""
    within_limits = int((~violates_limits(threshold_episodes)).sum())
    needed = conformal_sample_size(false_alarms)
    if within_limits < needed:
        minimum = math.ceil(1000 / (within_limits + 1)) / 1000
        advice = (
            f"allow more false alarms with --false-alarms {minimum:g} or above, or "
            if minimum < 1
            else ""
        )
        raise InputError(
            f"{within_limits} of {held_out} held-out episodes can calibrate the thresholds (those "
            f"that keep their limits in one half), and at most {false_alarms:g} false alarms an "
            f"episode require {needed}; {advice}hold out a larger fraction of the log with "
            "data.held_out of a new run"
        )


def _calibrate(
    monitor: CriticMonitor, threshold_episodes: Dataset, test_episodes: Dataset, false_alarms: float
) -> tuple[CriticMonitor, dict[str, Any]]:
    within_limits = ~violates_limits(threshold_episodes)
    obs, action, mask = padded_episodes(threshold_episodes.select_episodes(within_limits))
    monitor = calibrated(monitor, obs, action, mask, false_alarms=false_alarms)
    scores = np.asarray(episode_scores(monitor, *padded_episodes(test_episodes)))
    alarmed = scores > float(monitor.threshold)
    violated, n = violates_limits(test_episodes), int(within_limits.sum())
    # This many calibration episodes exceed the threshold by design; the rate is then distributed as
    # Beta(above, n + 1 - above).
    above = int(false_alarms * (n + 1) + 1e-9)
    worst = betaincinv(above, n + 1 - above, 0.95)
    return monitor, {
        "threshold": float(monitor.threshold),
        "promised_false_alarms": false_alarms,
        "threshold_episodes": n,
        "rate_of_19_in_20_thresholds": float(worst),
        "false_alarms": _fraction_with_interval(alarmed & ~violated, ~violated),
        "alarmed_over_limit": _fraction_with_interval(alarmed & violated, violated),
    }


def violates_limits(dataset: Dataset) -> np.ndarray:
    """Whether each episode breaks a limit."""
    return np.any(recorded_episodes(dataset).violated, axis=1)


def _fraction_with_interval(counted: np.ndarray, group: np.ndarray) -> list[float] | None:
    """Count, total and the 95 % interval of the fraction; ``None`` if there are no episodes."""
    if not group.any():
        return None
    (fraction,) = fraction_estimates(counted[group][:, None], level=DEFAULT_LEVEL)
    return [int(counted.sum()), int(group.sum()), fraction.low, fraction.high]


def critics_text(report: dict[str, Any]) -> str:
    """The report of :func:`fit_critics` as text.

    Args:
        report: Report of the fit, or the content of its JSON file.

    Returns:
        Lines for a terminal.
    """
    ensemble, safety = report["ensemble"], report["safety_critic"]
    lines = [
        f"ensemble of dynamics: {ensemble['members']} members on {ensemble['episodes']} episodes",
        f"  measured coverage of its {100 * ensemble['coverage']:g} % intervals on fresh episodes:",
    ]
    lines += [
        f"    {name:<24} {_percent(*measured)}"
        for name, measured in ensemble["coverage_measured"].items()
    ]
    lines += _monitor(ensemble["monitor"])
    lines = [*report["still_actions"], *lines]
    if "none" in safety:
        return "\n".join([*lines, f"no safety critic: {safety['none']}"])
    lines.append(f"safety critic: risk of a violation within {safety['horizon']} steps")
    for limit in safety["limits"]:
        assessment = safety["assessment"][limit["name"]]
        lines.append(f"  {limit['name']}: {limit['claim']}")
        lines.append(f"    windows with a violation {100 * assessment['rate']:.3g} %")
        for name in ("calibration_error", "area_under_roc", "brier_skill"):
            value, low, high = assessment[name]
            lines.append(f"    {name.replace('_', ' '):<18} {value:.3f} [{low:.3f}, {high:.3f}]")
    lines += _monitor(safety["monitor"])
    if safety["monitor"]["threshold"] >= 1:
        lines.append(
            "    it can never alarm, because episodes that keep their limits also reach a risk of "
            "1; allow more false alarms, shorten the horizon, or declare the limit per step"
        )
    return "\n".join(lines)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _monitor(monitor: dict[str, Any]) -> list[str]:
    worst = f"{100 * monitor['rate_of_19_in_20_thresholds']:.0f} %"
    lines = [
        f"  monitor: alarm above {monitor['threshold']:.3g}, calibrated on "
        f"{monitor['threshold_episodes']} episodes: 19 of 20 such thresholds raise false alarms in "
        f"at most {worst} of episodes"
    ]
    promised = f"promised {100 * monitor['promised_false_alarms']:g} %"
    counts = (
        ("false alarms", "false_alarms", f", {promised}"),
        ("alarms over a limit", "alarmed_over_limit", ""),
    )
    for text, name, more in counts:
        if monitor[name] is not None:
            alarms, of, low, high = monitor[name]
            ends = f"[{100 * low:.1f}, {100 * high:.1f}]"
            lines.append(f"    {text}: {alarms} of {of} episodes, {ends} %{more}")
    return lines
