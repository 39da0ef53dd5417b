"""Classical controllers that are fitted to the log, and what was identified, as text."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from neorl_agents.classical import Task
from neorl_core import InputError, Policy, Spec
from neorl_core.control import TunableController, tunable_values
from neorl_envs import Dataset
from neorl_train.candidates._family import Family, Made, Material, RunInputs
from neorl_train.configuration._classical import settings_of, task_of
from neorl_train.data._experience import training_sample
from neorl_train.judging._pool import Candidate
from neorl_train.judging._wording import number

FITTED = "fitted"
"""Family of the controllers of ``classical.controllers``."""


def fit_inputs(material: Material) -> tuple[Task, Dataset]:
    """The loops to fit, and the training episodes.

    If not all episodes fit into a twentieth of ``data.memory``, a sample of them is used.
    """
    config, environment, dataset = material.config, material.environment, material.dataset
    assert dataset is not None  # controllers are fitted on a log
    reference = None if environment is None else environment.tunings()[environment.reference]
    part = training_sample(config.data, dataset)
    return task_of(config.classical, dataset.spec, reference), part


def _names(inputs: RunInputs) -> tuple[str, ...]:
    return inputs.config.classical.controllers


def _fit(material: Material) -> Made:
    """One policy for every configured controller; the notes describe the identified models."""
    classical = material.config.classical
    candidates: list[Candidate] = []
    notes: list[str] = []
    if not classical.controllers or material.dataset is None:
        return Made(candidates, notes)
    task, part = fit_inputs(material)
    spec, seed = part.spec, material.seed
    for name in classical.controllers:
        try:
            policy, report = settings_of(classical, name).fit(part.transitions, spec, task)
        except InputError as error:
            raise InputError(f"classical controller {name}: {error}") from error
        metadata = {"controller": name, "seed": seed}
        candidates.append(Candidate(name, FITTED, policy, (seed,), metadata=metadata))
        notes += identification_lines(name, report, task, spec)
    return Made(candidates, notes)


IDENTIFIED = Family(_names, _fit)


WARNINGS = "warnings"


def tuning_text(policy: Policy, spec: Spec) -> str:
    """The tuning parameters of a controller as its change list names them; empty if it has none."""
    declared = policy.tunables(spec) if isinstance(policy, TunableController) else ()
    values = tunable_values(policy, declared)
    return ", ".join(
        f"{parameter.name} {number(value)} {parameter.unit}".rstrip()
        for parameter, value in zip(declared, values, strict=True)
    )


def identification_lines(
    name: str, report: dict[str, Any], task: Task, spec: Spec
) -> Iterator[str]:
    """One line per loop for a fit of loops, otherwise one line; then the warnings.

    A report with other keys, from another package's controller, is described key by key. Warnings
    begin with ``"warning: "``.
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
    return _format(identified, formatters, known)


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
    return _format(identified, formatters, set())


def _mode(radius: float, dt: float) -> str:
    if radius >= 1:
        return f"integrating or growing ({radius:.4g} a period)"
    return f"{dt / -math.log(max(radius, 1e-12)):.3g} s"


def _format(
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
