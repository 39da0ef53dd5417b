"""Monitors fitted on the log of a run, with thresholds from its held-out episodes."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from neorl_core import InputError, Spec
from neorl_core.statistics import conformal_sample_size
from neorl_envs import Dataset
from neorl_safety.guards import GuardSettings, guard_with
from neorl_safety.monitoring import (
    Monitor,
    NamedMonitor,
    calibrate,
    describe_monitor,
    drift_monitor,
    episode_alarms,
    mahalanobis_monitor,
    neighbour_monitor,
    policy_ensemble,
)
from neorl_train.candidates._family import Material
from neorl_train.candidates._learner import learner_of
from neorl_train.configuration._monitors import (
    DISAGREEMENT,
    DRIFT,
    MonitorsConfig,
    SupervisorConfig,
    declared_watches,
    supervision_of,
)
from neorl_train.configuration._sections import DataConfig
from neorl_train.data._behaviours import padded_episodes
from neorl_train.data._experience import Experience, training_and_held_out, training_sample

SHORTEST_STRETCH = 100
"""In steps: five times as many as the moving mean of a drift monitor averages."""


def fitted_watches(
    monitors: MonitorsConfig, data: DataConfig, experience: Experience | None, spec: Spec
) -> list[NamedMonitor]:
    """All monitors except those that need trained policies.

    Raises:
        InputError: If the log is too short for the promised rate; the message names the monitor.
    """
    if experience is None:
        return declared_watches(monitors, spec)
    _require_enough(monitors, experience.held_out)
    fitters: dict[str, Callable[[np.ndarray], Any]] = {
        "mahalanobis": mahalanobis_monitor,
        "neighbours": partial(
            neighbour_monitor, neighbours=monitors.neighbours, keep=monitors.rows
        ),
        DRIFT: drift_monitor,
    }
    kinds = [name for name in monitors.calibrated if name in fitters]
    rows = _rows(data, experience.dataset) if kinds else np.zeros((0, spec.n_obs))
    uncalibrated = {name: fitters[name](rows) for name in kinds}
    fitted = [
        _calibrate(name, monitor, monitors, experience.held_out)
        for name, monitor in uncalibrated.items()
    ]
    return [*declared_watches(monitors, spec), *fitted]


def disagreement_watch(
    monitors: MonitorsConfig, experience: Experience | None, material: Material
) -> list[NamedMonitor]:
    """The monitor of disagreement between the candidate's seeds, if configured.

    Raises:
        InputError: If the seeds' policies have memory.
    """
    if not monitors.disagreement or experience is None:
        return []
    config = material.config
    learners = config.training.algorithms
    named = learner_of(config.evaluation.candidate, learners) or learners[-1]
    seeds = material.pool.named(named)
    try:
        uncalibrated = policy_ensemble(
            [candidate.policy for candidate in seeds], experience.dataset.spec
        )
    except InputError as error:
        raise InputError(f"monitors.disagreement: {error}") from error
    watch = _calibrate(DISAGREEMENT, uncalibrated, monitors, experience.held_out)
    return [dataclasses.replace(watch, policies=tuple(candidate.id for candidate in seeds))]


def guard_settings(
    supervisor: SupervisorConfig,
    monitors: MonitorsConfig,
    spec: Spec,
    watches: Sequence[NamedMonitor],
    fallbacks: Sequence[str],
) -> GuardSettings:
    """Combines supervisor, monitors, ages and fallbacks of a run."""
    return GuardSettings(
        supervision=supervision_of(supervisor, spec.dt),
        monitors=tuple(watches),
        fallbacks=tuple(fallbacks),
        max_age=dict(monitors.max_age),
    )


def monitor_records(
    watches: Sequence[NamedMonitor], held_out: Dataset | None, spec: Spec
) -> list[dict[str, Any]]:
    """The monitors' entries in the record: description, promise, alarms on held-out episodes."""
    episodes = None if held_out is None else padded_episodes(held_out)
    records = []
    for watch in watches:
        alarmed = np.zeros(0, bool)
        if episodes is not None:
            alarmed = np.asarray(episode_alarms(watch.monitor, *episodes))
        records.append(
            {
                "name": watch.name,
                "words": describe_monitor(watch, spec),
                "promised": watch.false_alarms if watch.calibrated else None,
                "log_alarms": int(alarmed.sum()),
                "log_episodes": len(alarmed),
            }
        )
    return records


def _rows(data: DataConfig, dataset: Dataset) -> np.ndarray:
    """Training observations, as many as memory has room for, without lost readings."""
    part = training_sample(data, dataset)
    columns: Any = part.transitions
    obs = np.asarray(columns.obs)
    return obs[np.asarray(columns.mask) & np.isfinite(obs).all(axis=1)]


def _calibrate(
    name: str, uncalibrated: Monitor, monitors: MonitorsConfig, held_out: Dataset
) -> NamedMonitor:
    obs, action, mask = padded_episodes(held_out)
    lengths = held_out.episode_lengths
    steps = stretch_of(lengths, conformal_sample_size(monitors.false_alarms_each))
    try:
        monitor = calibrate(
            uncalibrated, obs, action, mask, false_alarms=monitors.false_alarms_each, stretch=steps
        )
    except InputError as error:
        raise InputError(f"monitor {name}: {error}") from error
    count = len(obs) if steps is None else int((lengths // steps).sum())
    seconds = held_out.spec.dt * float(lengths.mean() if steps is None else steps)
    return NamedMonitor(name, monitor, monitors.false_alarms_each, count, stretch=seconds)


def stretch_of(lengths: np.ndarray, needed: int) -> int | None:
    """Length of the longest stretches of which there are enough; ``None`` uses whole episodes.

    A long record has few episodes, so it is cut into stretches. A stretch must be longer than the
    memory of a moving mean; if that gives too few stretches, the result is ``None``.
    """
    if len(lengths) >= needed:
        return None
    short, long = SHORTEST_STRETCH, int(lengths.max()) + 1
    if (lengths // short).sum() < needed:
        return None
    while long - short > 1:
        middle = (short + long) // 2
        short, long = (middle, long) if (lengths // middle).sum() >= needed else (short, middle)
    return short


def _require_enough(monitors: MonitorsConfig, held_out: Dataset) -> None:
    """Checks, before training, that the held-out episodes suffice for the false-alarm rate."""
    if not monitors.calibrated:
        return
    needed = conformal_sample_size(monitors.false_alarms_each)
    lengths = held_out.episode_lengths
    if held_out.n_episodes < needed and stretch_of(lengths, needed) is None:
        raise InputError(
            f"monitors.false_alarms is {monitors.false_alarms:g} for "
            f"{', '.join(monitors.calibrated)} together, and {held_out.n_episodes} held-out "
            f"episodes are too few to calibrate thresholds for it: {needed} episodes are needed, "
            f"or as many stretches of {SHORTEST_STRETCH} steps in longer episodes; raise "
            "monitors.false_alarms or data.held_out"
        )


def trend_arguments(
    data: DataConfig,
    loops: Iterable[str],
    spec: Spec,
    dataset: Dataset,
    guarding: Mapping[str, Any],
) -> dict[str, Any]:
    """Inputs for drawing the trends of a log: loops, the guard, and held-out episodes.

    They are keyword arguments of :func:`~.evaluate_offline`.
    """
    settings, constraints, fallbacks = (
        guarding[name] for name in ("settings", "constraints", "fallbacks")
    )
    return {
        "held_out_episodes": training_and_held_out(data, dataset)[1].tolist(),
        "loops": tuple(loops),
        "guard": lambda policy: guard_with(settings, policy, constraints, fallbacks, spec),
    }
