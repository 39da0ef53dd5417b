"""A safety critic and an ensemble of one log, tried on episodes that neither saw."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.critics import (
    Ensemble,
    EnsembleSettings,
    NothingToLearnError,
    SafetyCritic,
    SafetyCriticSettings,
    assess_ensemble,
    assess_safety_critic,
    disagreement,
    fit_ensemble,
    fit_safety_critic,
    largest_risk,
)
from neorl_core import InputError
from neorl_core.statistics import clopper_pearson_interval, conformal_sample_size
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics, split_episodes
from neorl_safety.monitoring import CriticMonitor, calibrated, episode_scores
from neorl_train.evaluation._episodes import recorded_episodes
from neorl_train.experience._hindrances import still_actions
from neorl_train.experience._padded import padded_episodes


@dataclasses.dataclass(frozen=True)
class CriticOptions:
    """What the critics of a log are fitted with; the rest are the defaults of their settings.

    Attributes:
        horizon: Steps ahead that the safety critic looks.
        updates: Gradient steps of the safety critic.
        ensemble_updates: Gradient steps of the ensemble.
        members: Members of the ensemble.
        hidden: Widths of the hidden layers of both.
        coverage: Stated coverage of the ensemble's intervals.
        false_alarms: Promised part of the episodes that keep their limits and raise an alarm.
        seed: Decides splits, weights and draws.
    """

    horizon: int = 20
    updates: int = 10_000
    ensemble_updates: int = 3_000
    members: int = 10
    hidden: tuple[int, ...] = (64, 64)
    coverage: float = 0.9
    false_alarms: float = 0.1
    seed: int = 0

    def validate(self) -> None:
        """Refuses bad values.

        Raises:
            InputError: Naming the first.
        """
        if not 0 < self.false_alarms < 1:
            raise InputError(f"false_alarms must lie in (0, 1), got {self.false_alarms}")
        try:
            self.safety_settings().validate()
            self.ensemble_settings().validate()
        except ValueError as error:
            raise InputError(str(error).partition(".")[2]) from error

    def safety_settings(self) -> SafetyCriticSettings:
        """The settings of the safety critic."""
        return SafetyCriticSettings(
            horizon=self.horizon, updates=self.updates, hidden=tuple(self.hidden)
        )

    def ensemble_settings(self) -> EnsembleSettings:
        """The settings of the ensemble."""
        return EnsembleSettings(
            updates=self.ensemble_updates,
            members=self.members,
            hidden=tuple(self.hidden),
            coverage=self.coverage,
        )


class Critics(NamedTuple):
    """What was fitted on a log.

    Attributes:
        safety_critic: ``None`` where the log has no costs, or nothing varies in any of them.
        ensemble: Of the plant's dynamics.
        monitors: A monitor of each by name, with its threshold, for a guard.
        report: Fits, assessments and monitors, ready for JSON.
    """

    safety_critic: SafetyCritic | None
    ensemble: Ensemble
    monitors: dict[str, CriticMonitor]
    report: dict[str, Any]


def fit_critics(
    training: Dataset, held_out: Dataset, *, options: CriticOptions | None = None
) -> Critics:
    """Fits both on one part of a log and tries them on the other.

    Half of the held-out episodes set the thresholds of the monitors, the other half count alarms,
    risks and coverage. A threshold is set on episodes that keep their limits: an alarm in one that
    breaks a limit is no false one.

    Args:
        training: Episodes to fit on; calibration holds out some of them again.
        held_out: Episodes that training does not see.
        options: Sizes and promises; the default ones by default.

    Returns:
        The critics, their monitors and what was measured.

    Raises:
        InputError: If an option is out of range, or there are too few episodes to calibrate or to
            promise so few false alarms.
    """
    options = CriticOptions() if options is None else options
    options.validate()
    key = jax.random.key(options.seed)
    keys = jax.random.split(key, 3)
    if held_out.n_episodes < 4:
        raise InputError(
            f"{held_out.n_episodes} held-out episodes are too few to set thresholds and to count "
            "alarms, expected 4 or more; start a run with a larger data.held_out, or cut the log "
            "into more episodes"
        )
    for_thresholds, fresh = split_episodes(held_out, 0.5, keys[2])
    _require_enough(for_thresholds, held_out.n_episodes, options.false_alarms)
    fitted, spec = _fit_ensemble(training, keys[0], options), training.spec
    report: dict[str, Any] = {
        "still_actions": still_actions(data_statistics(training), spec),
        "ensemble": fitted.report
        | {"coverage_measured": assess_ensemble(fitted.ensemble, fresh.transitions, spec)},
    }
    found: dict[str, Any] = {"ensemble": (fitted.ensemble, disagreement)}
    safety, report["safety_critic"] = _fit_safety(training, fresh, keys[1], options)
    if safety is not None:
        found["safety_critic"] = (safety, largest_risk)
    monitors = {}
    for name, (critic, score) in found.items():
        endless = CriticMonitor(critic, jnp.asarray(jnp.inf, jnp.float32), score)
        monitors[name], report[name]["monitor"] = _monitored(
            endless, for_thresholds, fresh, options.false_alarms
        )
    return Critics(safety, fitted.ensemble, monitors, report)


def _fit_ensemble(training: Dataset, key: PRNGKeyArray, options: CriticOptions) -> Any:
    settings = options.ensemble_settings()
    return fit_ensemble(training.transitions, training.spec, key, settings=settings)


def _fit_safety(
    training: Dataset, fresh: Dataset, key: PRNGKeyArray, options: CriticOptions
) -> tuple[SafetyCritic | None, dict[str, Any]]:
    """The critic and what was measured, or why there is none."""
    spec = training.spec
    settings = options.safety_settings()
    try:
        fitted = fit_safety_critic(training.transitions, spec, key, settings=settings)
    except NothingToLearnError as error:
        return None, {"none": str(error)}
    measured = assess_safety_critic(fitted.critic, fresh.transitions, spec)
    return fitted.critic, fitted.report | {"assessment": measured}


def _require_enough(for_threshold: Dataset, held_out: int, false_alarms: float) -> None:
    """Before anything is fitted: can a threshold promise so few false alarms?"""
    quiet = int((~broken(for_threshold)).sum())
    needed = conformal_sample_size(false_alarms)
    if quiet < needed:
        least = math.ceil(1000 / (quiet + 1)) / 1000
        admit = f"admit more, --false-alarms {least:g} or above, or " if least < 1 else ""
        raise InputError(
            f"{quiet} of {held_out} held-out episodes can set the thresholds (those that keep "
            f"their limits in one half), and at most {false_alarms:g} false alarms an episode need "
            f"{needed}; {admit}hold out a larger part, data.held_out of a new run"
        )


def _monitored(
    monitor: CriticMonitor, for_threshold: Dataset, fresh: Dataset, false_alarms: float
) -> tuple[CriticMonitor, dict[str, Any]]:
    quiet = ~broken(for_threshold)
    obs, action, mask = padded_episodes(for_threshold.select_episodes(quiet))
    monitor = calibrated(monitor, obs, action, mask, false_alarms=false_alarms)
    scores = np.asarray(episode_scores(monitor, *padded_episodes(fresh)))
    alarmed = scores > float(monitor.threshold)
    violated, n = broken(fresh), int(quiet.sum())
    # Episodes above the threshold by design; the rate of the next ones is then a Beta variate.
    above = int(false_alarms * (n + 1) + 1e-9)
    worst = clopper_pearson_interval(above - 1, n, level=0.9).high
    return monitor, {
        "threshold": float(monitor.threshold),
        "promised_false_alarms": false_alarms,
        "threshold_episodes": n,
        "rate_of_19_in_20_thresholds": float(worst),
        "false_alarms": _share(alarmed & ~violated, ~violated),
        "alarmed_over_limit": _share(alarmed & violated, violated),
    }


def broken(dataset: Dataset) -> np.ndarray:
    """Whether each episode breaks a limit."""
    return np.any(recorded_episodes(dataset).violated, axis=1)


def _share(found: np.ndarray, of: np.ndarray) -> list[float] | None:
    """Count, total and the 95 % interval of the share; ``None`` of nothing."""
    if not of.any():
        return None
    interval = clopper_pearson_interval(int(found.sum()), int(of.sum()))
    return [int(found.sum()), int(of.sum()), float(interval.low), float(interval.high)]
