"""Design of target, regulator and predictive program of an identified plant, in float64."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._identification import (
    PlantModel,
    observer_gain,
    stabilising_solution,
    start_maps,
)
from neorl_agents.classical._task import ResolvedTask, spans
from neorl_agents.controllers._linear_quadratic import Estimator, SteadyTarget
from neorl_agents.controllers._predictive import Plan, QuadraticProgram
from neorl_core import Affine, InputError, Spec, highs, lows

# Design of observer, target and regulator from an identified plant, in float64 on the host.


TINY = 1e-8


class DelayedPlant(NamedTuple):
    """The plant with the inputs in transit as additional states.

    Attributes:
        a: Shape ``(state, state)``: states of the model first, then every input's past, newest
            first.
        b: Shape ``(state, act)``.
        previous: Picks the last inputs from the state, shape ``(act, state)``.
        controlled: Picks the controlled outputs, shape ``(loop, state)``.
        chain: Number of states that each input takes up, newest first.
    """

    a: np.ndarray
    b: np.ndarray
    previous: np.ndarray
    controlled: np.ndarray
    chain: tuple[int, ...]


class Weights(NamedTuple):
    """Weights of a regulator, relative to ranges; a squared controlled error costs 1.

    Attributes:
        effort: Cost of the deviation of inputs from those that hold the target.
        move: Cost of changes of the inputs.
    """

    effort: float
    move: float


class RegulatorDesign(NamedTuple):
    """Gain and cost-to-go of the regulator, with the costs of one period."""

    gain: np.ndarray
    cost_to_go: np.ndarray
    q: np.ndarray
    r: np.ndarray
    cross: np.ndarray


def delayed(model: PlantModel, loops: int) -> DelayedPlant:
    """The model with its dead times; every input is remembered for at least one period."""
    states, inputs = model.b.shape
    chain = tuple(max(delay, 1) for delay in model.delay)
    total = states + sum(chain)
    a, b = np.zeros((total, total)), np.zeros((total, inputs))
    previous, row = np.zeros((inputs, total)), states
    a[:states, :states] = model.a
    for i, (delay, length) in enumerate(zip(model.delay, chain, strict=True)):
        if delay == 0:
            b[:states, i] = model.b[:, i]
        else:
            a[:states, row + delay - 1] = model.b[:, i]
        b[row, i] = 1
        previous[i, row] = 1
        for k in range(1, length):
            a[row + k, row + k - 1] = 1
        row += length
    controlled = np.zeros((loops, total))
    controlled[:, :states] = model.c[:loops]
    return DelayedPlant(a, b, previous, controlled, chain)


def regulator(plant: DelayedPlant, weights: Weights) -> RegulatorDesign:
    """The linear-quadratic regulator of the plant with its dead times.

    Raises:
        InputError: If no feedback stabilises the identified plant.
    """
    inputs = plant.b.shape[1]
    q = plant.controlled.T @ plant.controlled + weights.move * plant.previous.T @ plant.previous
    r = (weights.effort + weights.move) * np.eye(inputs)
    cross = -weights.move * plant.previous.T
    solution = stabilising_solution(plant.a, plant.b, q, r, cross)
    if solution is None:
        raise InputError(
            "no feedback stabilises the identified plant, because its inputs do not affect a mode "
            "that does not decay; check the pairing and the order, or raise effort"
        )
    cost, gain = solution
    return RegulatorDesign(gain, cost, q, r, cross)


def estimator(
    model: PlantModel,
    plant: DelayedPlant,
    resolved: ResolvedTask,
    spec: Spec,
    *,
    disturbance: float,
    noise: float,
) -> Estimator:
    """The runtime observer of states, inputs in transit and disturbances."""
    states, outputs, total = len(model.a), len(model.c), len(plant.a)
    size = total + outputs
    a, b = np.zeros((size, size)), np.zeros((size, plant.b.shape[1]))
    a[:total, :total], b[:total] = plant.a, plant.b
    a[:states, total:] = model.disturbance
    a[total:, total:] = np.eye(outputs)
    gain = np.zeros((size, outputs))
    gain[np.r_[:states, total:size]] = observer_gain(model, disturbance=disturbance, noise=noise)
    output = np.zeros((outputs, size))
    output[:, :states], output[:, total:] = model.c, model.shift
    from_output, from_input, constant = start_maps(model)
    start_output, start_input = np.zeros((size, outputs)), np.zeros_like(b)
    start, drift = np.zeros(size), np.zeros(size)
    start_output[:states], start_input[:states] = from_output, from_input
    start[:states], drift[:states] = constant, model.drift
    start_input[states:total] = np.repeat(np.eye(b.shape[1]), plant.chain, axis=0)
    low, high = np.asarray(lows(spec.action)), np.asarray(highs(spec.action))
    return Estimator(
        obs=_affine(model.outputs.offset, model.outputs.scale),
        action=_affine(model.inputs.offset, model.inputs.scale),
        transition=f32(a),
        input=f32(b),
        drift=f32(drift),
        output=f32(output),
        bias=f32(model.bias),
        gain=f32(gain),
        start_output=f32(start_output),
        start_input=f32(start_input),
        start=f32(start),
        nominal=f32(np.clip(model.inputs.offset, low, high)),
        measured=resolved.measured,
    )


def steady_target(
    model: PlantModel, plant: DelayedPlant, resolved: ResolvedTask, spec: Spec
) -> SteadyTarget:
    """The maps from setpoints and disturbances to the steady state that holds them.

    If there are several steady states, the one with controlled outputs nearest to the setpoints is
    chosen, and among those the one with inputs nearest to the mean of the log.
    """
    states, inputs = model.b.shape
    loops, outputs = len(resolved.controlled), len(model.c)
    steady_state = np.concatenate([np.eye(states) - model.a, -model.b], axis=1)
    loop_outputs = np.concatenate([model.c[:loops], np.zeros((loops, inputs))], axis=1)
    regularisation = np.zeros((states + inputs, states + inputs))
    regularisation[states:, states:] = TINY * np.eye(inputs)
    matrix = np.block(
        [
            [loop_outputs.T @ loop_outputs + regularisation, steady_state.T],
            [steady_state, np.zeros((states, states))],
        ]
    )
    right_side = np.zeros((len(matrix), loops + outputs + 1))
    right_side[: states + inputs, :loops] = loop_outputs.T
    right_side[: states + inputs, loops:-1] = -loop_outputs.T @ model.shift[:loops]
    right_side[states + inputs :, loops:-1] = model.disturbance
    right_side[: states + inputs, -1] = -loop_outputs.T @ model.bias[:loops]
    right_side[states + inputs :, -1] = model.drift
    solution = np.linalg.lstsq(matrix, right_side, rcond=1e-13)[0][: states + inputs]
    state, action = solution[:states], solution[states:]
    state = np.concatenate([state, np.repeat(action, plant.chain, axis=0)])
    low = (np.asarray(lows(spec.action)) - model.inputs.offset) / model.inputs.scale
    high = (np.asarray(highs(spec.action)) - model.inputs.offset) / model.inputs.scale
    setpoint = np.where(np.isnan(resolved.setpoint), 0.0, resolved.setpoint)
    return SteadyTarget(
        controlled=_affine(model.outputs.offset[:loops], spans(spec.obs, resolved.controlled)),
        setpoint=f32(setpoint),
        state_setpoint=f32(state[:, :loops]),
        state_disturbance=f32(state[:, loops:-1]),
        state=f32(state[:, -1]),
        input_setpoint=f32(action[:, :loops]),
        input_disturbance=f32(action[:, loops:-1]),
        input=f32(action[:, -1]),
        reach=f32(np.linalg.pinv(action[:, :loops], rcond=1e-6)),
        low=f32(low),
        high=f32(high),
        source=resolved.source,
    )


def f32(values: np.ndarray) -> jnp.ndarray:
    """A float32 array, to be a leaf of a policy."""
    return jnp.asarray(values, jnp.float32)


def _affine(offset: np.ndarray, scale: np.ndarray) -> Affine:
    return Affine(f32(offset), f32(scale))


# The condensed quadratic program of a predictive controller, in float64 on the host.


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
