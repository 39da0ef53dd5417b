"""The classical controllers of a run: fitted on its training episodes, declared, or from a file."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from neorl_agents.classical import Task
from neorl_agents.controllers import TrackingPID
from neorl_core import InputError, Policy, Spec
from neorl_core.control import Tunable, TunableController, tunable_values
from neorl_envs import Dataset
from neorl_train._pipeline.artefacts import unchanged_artefact
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.configuration._declared import declared_controller, declared_loops
from neorl_train.configuration._limits import limited_spec
from neorl_train.configuration._retuning import (
    IMITATOR,
    imitated_behaviour,
    imitation_name,
    incumbent_name,
    is_artefact,
)
from neorl_train.configuration._sections import Config
from neorl_train.experience._behaviours import own_episodes
from neorl_train.experience._split import training_sample
from neorl_train.results._wording import number
from neorl_train.selection import best_behaviour
from neorl_train.selection._best_behaviour import MIN_EPISODES

WARNINGS = "warnings"


def has_controllers(config: Config) -> bool:
    """Whether a run fits a classical controller, declares one, or names the incumbent's file."""
    return bool(config.classical.names) or is_artefact(config.evaluation.incumbent)


def check_controllers(config: Config, spec: Spec, *, logged: bool) -> None:
    """Refuses declared controllers that do not fit the channels, before anything is written.

    Args:
        config: Configuration, validated.
        spec: Channels of the run.
        logged: Whether the run has a log, from which a bias can be taken.

    Raises:
        InputError: Names the controller, the channel and the fault.
    """
    for name, records in config.classical.declared.items():
        declared_controller(name, records, spec)
        without = [loop for loop in declared_loops(name, records) if loop.bias is None]
        if without and not logged:
            raise InputError(
                f"classical.declared.{name}: {without[0].name} declares no bias, and without a log "
                f"no episode shows where it starts; give bias in the unit of "
                f"{without[0].manipulated}"
            )


def run_controllers(
    config: Config,
    dataset: Dataset | None,
    environment: Any,
    spec: Spec,
    digests: Mapping[str, str],
) -> tuple[dict[str, Policy], list[str]]:
    """All controllers of a run that are not tunings of its plant.

    They are the classical controllers that it fits, those that it declares, and the incumbent if
    ``evaluation.incumbent`` names its file.

    Args:
        config: Configuration, resolved.
        dataset: Complete log; ``None`` if there is none.
        environment: The plant; ``None`` if there is only a log.
        spec: Channels of the run.
        digests: Digests of the given files when the run began, as its record holds them.

    Returns:
        The policies by name, and a description of the models and of the numbers.

    Raises:
        InputError: If a fit refuses the log, or a file was changed since the run began.
    """
    policies: dict[str, Policy] = {}
    words: list[str] = []
    if dataset is not None:
        policies, words = fitted_controllers(config, dataset, environment)
    declared = config.classical.declared
    rows = None
    if declared and dataset is not None:
        rows = training_sample(config.data, dataset).transitions
    for name, records in declared.items():
        policies[name] = declared_controller(name, records, spec, rows)
        bias = _bias_text(name, config, policies[name], spec)
        words.append(f"{name} (declared): {_tuning_text(policies[name], spec)}{bias}")
    file = config.evaluation.incumbent
    if is_artefact(file):
        artefact, name = unchanged_artefact(file, spec, digests), incumbent_name(file)
        policies[name] = artefact.policy
        tuning = _tuning_text(artefact.policy, spec)
        words.append(f"{name} (from {file}): {tuning or 'it declares no tuning parameter'}")
    return policies, words


def without_incumbent_file(controllers: Mapping[str, Policy], config: Config) -> dict[str, Policy]:
    """The controllers except the incumbent in a file, which is compared with and no candidate."""
    file = config.evaluation.incumbent
    name = incumbent_name(file) if is_artefact(file) else ""
    return {own: policy for own, policy in controllers.items() if own != name}


def _bias_text(name: str, config: Config, policy: Policy, spec: Spec) -> str:
    """The biases that a declared controller takes from the log; empty if it declares all."""
    records = config.classical.declared[name]
    without = {loop.manipulated for loop in declared_loops(name, records) if loop.bias is None}
    loops: Any = policy.loops if isinstance(policy, TrackingPID) else policy
    return "".join(
        f", bias of {channel.name} {number(float(bias))} {channel.unit} (from the first rows of "
        "the log's episodes)"
        for channel, bias in zip(spec.action, loops.bias, strict=True)
        if channel.name in without
    )


def tuning_parameters(policy: Policy, spec: Spec) -> tuple[Tunable, ...]:
    """The tuning parameters that a policy declares; empty if it declares none."""
    return policy.tunables(spec) if isinstance(policy, TunableController) else ()


def _tuning_text(policy: Policy, spec: Spec) -> str:
    """The tuning parameters of a controller as its change list names them; empty if it has none."""
    declared = tuning_parameters(policy, spec)
    values = tunable_values(policy, declared)
    return ", ".join(
        f"{parameter.name} {number(value)} {parameter.unit}".rstrip()
        for parameter, value in zip(declared, values, strict=True)
    )


def fitted_controllers(
    config: Config, dataset: Dataset, environment: Any
) -> tuple[dict[str, Policy], list[str]]:
    """Fits one policy for every configured controller and reports the identified models.

    For a log alone, this includes the imitations of behaviours of the log that the configuration
    names, and with ``retuning.modes`` that of the best one.

    If not all episodes fit into a twentieth of ``data.memory``, a sample of them is used.

    Args:
        config: Configuration, validated.
        dataset: Complete log; its held-out episodes are not used.
        environment: The plant; ``None`` if there is only a log.

    Returns:
        The policies by name, and a description of the identified models.

    Raises:
        InputError: If a fit refuses the log or the loops; the message names the controller.
    """
    classical = config.classical
    if not classical.controllers:
        return {}, []
    reference = None if environment is None else environment.tunings()[environment.reference]
    task = task_of(classical, dataset.spec, reference)
    part = training_sample(config.data, dataset)
    policies, words = {}, []
    for name in classical.controllers:
        try:
            controller = settings_of(classical, name)
            policies[name], report = controller.fit(part.transitions, dataset.spec, task)
        except InputError as error:
            raise InputError(f"classical controller {name}: {error}") from error
        words += identification_lines(name, report, task, dataset.spec)
    if environment is None:
        imitations, sentences = _imitations(config, part, task)
        policies, words = policies | imitations, words + sentences
    return policies, words


def _imitations(config: Config, part: Dataset, task: Task) -> tuple[dict[str, Policy], list[str]]:
    """The controllers that imitate behaviours of a log, fitted to the episodes of each."""
    given = (config.retuning.controller, config.evaluation.incumbent, config.evaluation.candidate)
    named = [behaviour for behaviour in map(imitated_behaviour, given) if behaviour]
    words, best = [], ""
    if config.retuning.modes and IMITATOR not in config.classical.controllers:
        words.append(
            f"no behaviour is imitated; add {IMITATOR} to classical.controllers, which imitates "
            "the best one"
        )
    elif config.retuning.modes:
        spec = limited_spec(part.spec, config.limits.cost)
        best, words = best_behaviour(part, spec, config.evaluation.level)
    policies: dict[str, Policy] = {}
    chosen = [best] if best else []
    for behaviour in dict.fromkeys([*named, *chosen]):
        own, name = own_episodes(part, behaviour), imitation_name(behaviour)
        try:
            if own.sum() < MIN_EPISODES:
                raise InputError(
                    f"{behaviour} recorded {int(own.sum())} training episodes, and an imitation "
                    f"needs at least {MIN_EPISODES}; imitate another behaviour, or cut the log "
                    "into shorter episodes (length in [episodes] of its plant.toml)"
                )
            rows = part.select_episodes(np.flatnonzero(own)).transitions
            settings = settings_of(config.classical, IMITATOR)
            policies[name], report = settings.fit(rows, part.spec, task)
        except InputError as error:
            if behaviour in named:
                raise InputError(f"classical controller {name}: {error}") from error
            words.append(f"{behaviour} is not imitated: {error}")
            continue
        words += identification_lines(name, report, task, part.spec)
    return policies, words


def identification_lines(
    name: str, report: dict[str, Any], task: Task, spec: Spec
) -> Iterator[str]:
    """One line per loop for a fit of loops, otherwise one line; then the warnings.

    Args:
        name: Name of the controller.
        report: The report in a :class:`neorl_agents.classical.FittedController`. A report with
            other keys, from another package's controller, is described key by key.
        task: The loops that were fitted.
        spec: Channels of the log.

    Returns:
        Sentences; warnings begin with ``"warning: "``.
    """
    loops = report.get("loops")
    pairs = list(zip(task.loops, loops, strict=True)) if loops else []
    if not pairs:
        yield f"{name}: {_model_text(report, task, spec)}"
        yield from (f"warning: {name}: {warning}" for warning in report.get(WARNINGS, ()))
    units = {channel.name: channel.unit for channel in (*spec.obs, *spec.action)}
    for loop, identified in pairs:
        where = f"{name}: {loop.controlled} by {loop.manipulated}"
        y_unit, u_unit = units[loop.controlled], units[loop.manipulated]
        yield f"{where}: {_loop_text(identified, y_unit, u_unit, spec.dt)}"
        yield from (f"warning: {where}: {warning}" for warning in identified.get(WARNINGS, ()))


def _loop_text(identified: dict[str, Any], y: str, u: str, dt: float) -> str:
    """Describes one PID loop; ``y`` and ``u`` are the units of its measured and moved channel."""
    # A model of the plant explains changes of the output, an imitation the action itself.
    what = f"variance of {'the output changes' if 'static_gain' in identified else 'the action'}"
    formatters: dict[str, Callable[[Any], str]] = {
        "static_gain": lambda v: f"gain {v:.4g} {y} per {u}",
        "gain_error": lambda v: f"standard error {v:.0%}",
        "time_constant": lambda v: f"time constant {v:.4g} s",
        "delay": lambda v: f"dead time {v * dt:g} s",
        "share": lambda v: f"explains {f'{v:.1%}' if v > 0 else 'none'} of the {what}",
        "kp": lambda v: f"kp {v:.4g} {u} per {y}",
        "ki": lambda v: f"ki {v:.4g} {u} per {y} and s",
        "kd": lambda v: f"kd {v:.4g} {u} s per {y}" if v else "",
        "tau": lambda v: f"tau {v:.4g} s" if v else "",
        "bias": lambda v: f"bias {v:.4g} {u}",
        "rows": lambda v: f"from {v} rows",
        "gain_margin": lambda v: f"gain margin {v:.2g}",
    }
    if identified.get("static_gain", 0.0) is None:
        formatters["slope"] = lambda v: f"integrating, {v:.4g} {y} per {u} and s"
    # A first-order model is described by its step response rather than its pole.
    known = {"gain", "pole", "slope"} if "static_gain" in identified else set()
    return _formatted(identified, formatters, known)


def _model_text(identified: dict[str, Any], task: Task, spec: Spec) -> str:
    """Describes one model of the whole plant."""
    outputs = list(dict.fromkeys([*(loop.controlled for loop in task.loops), *task.measured]))
    units = {channel.name: channel.unit for channel in spec.obs}
    inputs = spec.action

    def gains(rows: list[list[float]]) -> str:
        pairs = zip(outputs, rows, strict=True)
        gains_text = [
            f"{name} by {channel.name} {gain:.4g} {units[name]} per {channel.unit}"
            for name, row in pairs
            for channel, gain in zip(inputs, row, strict=True)
        ]
        return "gain of " + ", ".join(gains_text)

    def errors(values: list[float]) -> str:
        pairs = zip(outputs, values, strict=True)
        return "error one period ahead " + ", ".join(
            f"{name} {value:.3g} {units[name]}" for name, value in pairs
        )

    formatters: dict[str, Callable[[Any], str]] = {
        "delay": lambda v: f"dead time {', '.join(f'{steps * spec.dt:g}' for steps in v)} s",
        "gain": lambda v: "" if v is None else gains(v),
        "residual": errors,
        "plant_radius": lambda v: f"slowest mode of the plant {_mode(v, spec.dt)}",
        "loop_radius": lambda v: f"of the loop {_mode(v, spec.dt)}",
        "horizon": lambda v: f"horizon {v * spec.dt:g} s",
    }
    return _formatted(identified, formatters, set())


def _mode(radius: float, dt: float) -> str:
    if radius >= 1:
        return f"integrating or growing ({radius:.4g} a period)"
    return f"{dt / -math.log(max(radius, 1e-12)):.3g} s"


def _formatted(
    identified: dict[str, Any], formatters: dict[str, Callable[[Any], str]], hidden: set[str]
) -> str:
    parts = []
    for key, value in identified.items():
        if key == WARNINGS or (key in hidden and key not in formatters):
            continue
        if key in formatters:
            parts.append("" if value is None else formatters[key](value))
        else:
            parts.append(f"{key} {_number(value)}")
    return ", ".join(part for part in parts if part)


def _number(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
