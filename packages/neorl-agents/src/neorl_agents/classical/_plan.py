"""The condensed quadratic program of a predictive controller, in float64 on the host."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._design import DelayedPlant, RegulatorDesign, f32
from neorl_agents.classical._plant_model import PlantModel
from neorl_agents.controllers._predictive import Plan
from neorl_agents.controllers._quadratic_program import QuadraticProgram


class Limits(NamedTuple):
    """Limits in scaled units; infinite where there is no limit.

    Attributes:
        low: Smallest inputs, shape ``(act,)``.
        high: Largest inputs.
        rate: Largest changes of the inputs in a period.
        output_low: Smallest controlled outputs, shape ``(loop,)``.
        output_high: Largest controlled outputs.
        price: Cost of the square of an output's violation.
    """

    low: np.ndarray
    high: np.ndarray
    rate: np.ndarray
    output_low: np.ndarray
    output_high: np.ndarray
    price: float


class _Rows(NamedTuple):
    """Limits ``g w <= base - error e - state s - disturbance d - action u + previous p``."""

    g: np.ndarray
    base: np.ndarray
    error: np.ndarray
    state: np.ndarray
    disturbance: np.ndarray
    action: np.ndarray
    previous: np.ndarray
    softness: np.ndarray


def plan_of(
    model: PlantModel,
    plant: DelayedPlant,
    design: RegulatorDesign,
    limits: Limits,
    *,
    horizon: int,
    steps: int,
) -> Plan:
    """The program over ``horizon`` periods, with the regulator's cost-to-go for its last state."""
    free, forced = predictions(plant, horizon)
    h, gradient = _costs(design, free, forced, horizon)
    parts = [
        _input_rows(limits, model, plant, horizon),
        _rate_rows(limits, model, plant, horizon),
        _output_rows(limits, model, plant, free, forced, horizon),
    ]
    stacked = _Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    keep = np.isfinite(stacked.base)
    rows = _Rows(*(column[keep] for column in stacked))
    return Plan(
        program=QuadraticProgram(f32(h), f32(rows.g), f32(rows.softness), steps),
        gradient=f32(gradient),
        base=f32(rows.base),
        error=f32(rows.error),
        state=f32(rows.state),
        disturbance=f32(rows.disturbance),
        action=f32(rows.action),
        previous=f32(rows.previous),
    )


def predictions(plant: DelayedPlant, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """States of periods 0 to ``horizon``: as maps of the first state, and of all inputs."""
    states, inputs = plant.b.shape
    free = np.zeros((horizon + 1, states, states))
    forced = np.zeros((horizon + 1, states, horizon * inputs))
    free[0] = np.eye(states)
    for k in range(horizon):
        free[k + 1] = plant.a @ free[k]
        forced[k + 1] = plant.a @ forced[k]
        forced[k + 1][:, k * inputs : (k + 1) * inputs] = plant.b
    return free, forced


def _costs(
    design: RegulatorDesign, free: np.ndarray, forced: np.ndarray, horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    inputs = len(design.r)
    h = np.kron(np.eye(horizon), design.r)
    gradient = np.zeros((horizon * inputs, free.shape[1]))
    for k in range(horizon + 1):
        q = design.cost_to_go if k == horizon else design.q
        h += forced[k].T @ q @ forced[k]
        gradient += forced[k].T @ q @ free[k]
        if k < horizon:
            block = slice(k * inputs, (k + 1) * inputs)
            h[block] += design.cross.T @ forced[k]
            h[:, block] += forced[k].T @ design.cross
            gradient[block] += design.cross.T @ free[k]
    return (h + h.T) / 2, gradient


def _input_rows(limits: Limits, model: PlantModel, plant: DelayedPlant, horizon: int) -> _Rows:
    (states, inputs), outputs = plant.b.shape, len(model.c)
    eye, ones = np.eye(horizon * inputs), np.ones(horizon)
    action = np.tile(np.eye(inputs), (horizon, 1))
    return _pair(
        eye,
        np.kron(ones, limits.high),
        np.kron(ones, limits.low),
        error=np.zeros((len(eye), states)),
        state=np.zeros((len(eye), states)),
        disturbance=np.zeros((len(eye), outputs)),
        action=action,
        previous=np.zeros_like(action),
        softness=0.0,
    )


def _rate_rows(limits: Limits, model: PlantModel, plant: DelayedPlant, horizon: int) -> _Rows:
    (states, inputs), outputs = plant.b.shape, len(model.c)
    size = horizon * inputs
    first = np.zeros((size, inputs))
    first[:inputs] = np.eye(inputs)
    change = np.tile(limits.rate, horizon)
    return _pair(
        np.eye(size) - np.eye(size, k=-inputs),
        change,
        -change,
        error=np.zeros((size, states)),
        state=np.zeros((size, states)),
        disturbance=np.zeros((size, outputs)),
        action=first,
        previous=first,
        softness=0.0,
    )


def _output_rows(
    limits: Limits,
    model: PlantModel,
    plant: DelayedPlant,
    free: np.ndarray,
    forced: np.ndarray,
    horizon: int,
) -> _Rows:
    loops, inputs = len(plant.controlled), plant.b.shape[1]
    error = np.concatenate([plant.controlled @ free[k] for k in range(1, horizon + 1)])
    bias = np.tile(model.bias[:loops], horizon)
    return _pair(
        np.concatenate([plant.controlled @ forced[k] for k in range(1, horizon + 1)]),
        np.tile(limits.output_high, horizon) - bias,
        np.tile(limits.output_low, horizon) - bias,
        error=error,
        state=np.tile(plant.controlled, (horizon, 1)),
        disturbance=np.tile(model.shift[:loops], (horizon, 1)),
        action=np.zeros((len(error), inputs)),
        previous=np.zeros((len(error), inputs)),
        softness=1 / limits.price,
    )


def _pair(
    g: np.ndarray, high: np.ndarray, low: np.ndarray, *, softness: float, **maps: np.ndarray
) -> _Rows:
    """Upper limits and, with the opposite sign, lower ones."""
    stacked = {name: np.concatenate([part, -part]) for name, part in maps.items()}
    return _Rows(
        np.concatenate([g, -g]),
        np.concatenate([high, -low]),
        softness=np.full(2 * len(g), softness),
        **stacked,
    )
