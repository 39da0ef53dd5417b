"""Controllers of an identified linear plant, fitted on a log."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from neorl_agents.classical._design import (
    DelayedPlant,
    Limits,
    Weights,
    delayed,
    estimator,
    f32,
    plan_of,
    regulator,
    steady_target,
)
from neorl_agents.classical._identification import Method, PlantModel, identify_plant, scaled_rows
from neorl_agents.classical._pid_controllers import delay_warnings
from neorl_agents.classical._task import (
    FittedController,
    ResolvedTask,
    Task,
    checked_log,
    leading,
    resolve,
)
from neorl_agents.controllers._linear_quadratic import (
    Estimator,
    LinearQuadraticPolicy,
    SteadyTarget,
)
from neorl_agents.controllers._predictive import PredictivePolicy
from neorl_core import InputError, Spec, Transition, highs, lows
from neorl_core.infrastructure import require_settings, setting

NEVER_SETTLES = 1e10
"""Condition number of ``I - A`` above which a pole is taken as 1: an integrator."""


@dataclasses.dataclass(frozen=True)
class LQG:
    """Linear-quadratic control of a plant identified from the log, with integral action.

    Attributes:
        effort: Cost of the deviation of inputs from those that hold the target, relative to the
            square of a controlled error; both as fractions of their ranges.
        move: Cost of changes of the inputs, likewise.
        disturbance: Assumed drift rate of disturbances, relative to the error of the model; larger
            values give faster integral action.
        noise: Assumed noise of the measurements, relative to the error of the model.
        method: ``"arx"`` (least squares) or ``"subspace"``.
        orders: Largest order of the model to try.
        longest_delay: Longest dead time to try, in periods.
        rows: Number of rows of the log to use, from its start.
    """

    effort: float = setting(0.01, low=0)
    move: float = setting(0.0, low=0)
    disturbance: float = setting(0.1, above=0)
    noise: float = setting(1.0, above=0)
    method: Method = "arx"
    orders: int = setting(3, low=1)
    longest_delay: int = setting(30, low=0)
    rows: int = setting(20_000, low=1)

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        check_model_settings(self)

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        parts = fit_parts(self, log, spec, task)
        design = regulator(parts.plant, Weights(self.effort, self.move))
        policy = LinearQuadraticPolicy(
            estimator=parts.estimator,
            target=parts.target,
            gain=f32(design.gain),
            low=f32(np.asarray(lows(spec.action))),
            high=f32(np.asarray(highs(spec.action))),
            rate=f32(parts.resolved.rate),
            dt=f32(np.asarray(spec.dt)),
        )
        return FittedController(policy, model_report(parts, design.gain, spec, self.longest_delay))


@dataclasses.dataclass(frozen=True)
class MPC:
    """Linear model-predictive control of a plant identified from the log.

    Costs and settings are those of :class:`LQG`. A loop's ``low`` and ``high`` are soft limits of
    its controlled variable. Its ``rate`` is a hard limit of its manipulated variable, and so are
    the ranges of the actions.

    Attributes:
        effort: Cost of the deviation of inputs from those that hold the target, relative to the
            square of a controlled error; both as fractions of their ranges.
        move: Cost of changes of the inputs, likewise.
        price: Cost of the square of a violated output limit, relative to the square of a controlled
            error.
        horizon: Number of periods to plan beyond the longest dead time.
        steps: Steps of the solver; 25 solve to the precision of float32.
        tolerance: Error of a solution above which it is flagged as not converged.
        disturbance: Assumed drift rate of disturbances, relative to the error of the model; larger
            values give faster integral action.
        noise: Assumed noise of the measurements, relative to the error of the model.
        method: ``"arx"`` (least squares) or ``"subspace"``.
        orders: Largest order of the model to try.
        longest_delay: Longest dead time to try, in periods.
        rows: Number of rows of the log to use, from its start.
    """

    effort: float = setting(0.01, low=0)
    move: float = setting(0.0, low=0)
    price: float = setting(1000.0, above=0)
    horizon: int = setting(20, low=1)
    steps: int = setting(25, low=1)
    tolerance: float = setting(1e-4, above=0)
    disturbance: float = setting(0.1, above=0)
    noise: float = setting(1.0, above=0)
    method: Method = "arx"
    orders: int = setting(3, low=1)
    longest_delay: int = setting(30, low=0)
    rows: int = setting(20_000, low=1)

    def validate(self) -> None:
        """Raises an ``InputError`` that names the first setting with a bad value."""
        check_model_settings(self)

    def fit(self, log: Transition, spec: Spec, task: Task) -> FittedController:
        """See :class:`ClassicalController`."""
        self.validate()
        parts = fit_parts(self, log, spec, task)
        design = regulator(parts.plant, Weights(self.effort, self.move))
        horizon = self.horizon + max(parts.model.delay)
        limits = _limits(parts, spec, self.price)
        policy = PredictivePolicy(
            estimator=parts.estimator,
            target=parts.target,
            plan=plan_of(
                parts.model, parts.plant, design, limits, horizon=horizon, steps=self.steps
            ),
            low=f32(np.asarray(lows(spec.action))),
            high=f32(np.asarray(highs(spec.action))),
            rate=f32(parts.resolved.rate),
            dt=f32(np.asarray(spec.dt)),
            tolerance=f32(np.asarray(self.tolerance)),
        )
        return FittedController(
            policy,
            {"horizon": horizon, **model_report(parts, design.gain, spec, self.longest_delay)},
        )


def _limits(parts: "Parts", spec: Spec, price: float) -> Limits:
    """All limits in scaled units."""
    resolved, inputs, outputs = parts.resolved, parts.model.inputs, parts.model.outputs
    loops = len(resolved.controlled)
    centre, span = outputs.offset[:loops], outputs.scale[:loops]
    return Limits(
        (np.asarray(lows(spec.action)) - inputs.offset) / inputs.scale,
        (np.asarray(highs(spec.action)) - inputs.offset) / inputs.scale,
        resolved.rate * spec.dt / inputs.scale,
        (resolved.low - centre) / span,
        (resolved.high - centre) / span,
        price,
    )


class Parts(NamedTuple):
    """Shared parts of all controllers of an identified plant."""

    resolved: ResolvedTask
    model: PlantModel
    plant: DelayedPlant
    estimator: Estimator
    target: SteadyTarget


def fit_parts(settings: Any, log: Transition, spec: Spec, task: Task) -> Parts:
    """Identifies the plant, and designs observer and target."""
    resolved = resolve(task, spec)
    log_rows = leading(checked_log(log, spec), settings.rows)
    rows, outputs, inputs = scaled_rows(log_rows, spec, resolved)
    model = identify_plant(
        rows,
        outputs,
        inputs,
        method=settings.method,
        orders=settings.orders,
        longest_delay=settings.longest_delay,
    )
    plant = delayed(model, len(resolved.controlled))
    observer = estimator(
        model, plant, resolved, spec, disturbance=settings.disturbance, noise=settings.noise
    )
    return Parts(resolved, model, plant, observer, steady_target(model, plant, resolved, spec))


def check_model_settings(settings: Any) -> None:
    """Refuses settings from which such a controller cannot be made."""
    require_settings(settings)
    if settings.effort + settings.move <= 0:
        raise InputError(
            f"{type(settings).__name__}: effort and move are both zero, so moves of the inputs "
            "have no cost; set one of them above zero"
        )


def model_report(parts: Parts, gain: np.ndarray, spec: Spec, longest: int) -> dict[str, Any]:
    """The identified model and its properties, for a report.

    ``gain`` is the steady-state gain, with one row per measured output (the controlled ones first)
    and one column per input, in their units; ``None`` if the plant integrates.
    """
    model, plant = parts.model, parts.plant
    closed_loop_poles = np.linalg.eigvals(plant.a - plant.b @ gain)
    return {
        "order": model.order,
        "delay": list(model.delay),
        "gain": _steady_gain(model),
        "residual": [float(x) for x in model.residual * model.outputs.scale],
        "plant_radius": float(np.max(np.abs(np.linalg.eigvals(model.a)))),
        "loop_radius": float(np.max(np.abs(closed_loop_poles))),
        "warnings": delay_warnings(model.delay, [channel.name for channel in spec.action], longest),
    }


def _steady_gain(model: PlantModel) -> list[list[float]] | None:
    """Change of the outputs per change of the inputs at steady state."""
    gap = np.eye(len(model.a)) - model.a
    if np.linalg.cond(gap) > NEVER_SETTLES:
        return None
    scaled = model.c @ np.linalg.solve(gap, model.b)
    return (scaled * model.outputs.scale[:, None] / model.inputs.scale).tolist()
