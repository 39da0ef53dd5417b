"""Steering, fatigue, operational cost and consumption of one step."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_envs.blocks import Relation, constant
from neorl_envs.plants.industrial_benchmark._miscalibration import (
    REQUIRED_STEP,
    next_phase,
    penalty,
)

HEIN = "Hein et al. 2017"
SHIFT_BOUND, SHIFT_BY_SETPOINT = 1.5, 0.02
SHIFT_SCALE = 2 * SHIFT_BOUND + 100 * SHIFT_BY_SETPOINT
SHIFT_STEP = REQUIRED_STEP / 0.9 * 100 / SHIFT_SCALE
DELAYED = (0.11111, 0.22222, 0.33333, 0.22222, 0.11111, 0.0, 0.0, 0.0, 0.0, 0.0)


class Constants(NamedTuple):
    """Weights of the reward, and parameters of the fatigue."""

    fatigue_weight: Array = constant(3.0, "1", HEIN)
    consumption_weight: Array = constant(1.0, "1", HEIN)
    miscalibration_weight: Array = constant(25.0, "1", HEIN)
    noise_mean: Array = constant(0.1, "1", HEIN)
    tolerance: Array = constant(0.05, "1", HEIN)
    amplification: Array = constant(1.1, "1", HEIN)
    amplification_start: Array = constant(1.2, "1", HEIN)
    amplification_end: Array = constant(5.0, "1", HEIN)


RELATIONS = (
    Relation("amplification_start", "<", "amplification_end"),
    Relation(1.0, "<", "amplification", "high fatigue grows"),
    Relation("tolerance", "<", "amplification_start"),
    Relation(0.0, "<=", "initial", "a setpoint is from 0 to 100"),
    Relation("initial", "<=", 100.0, "a setpoint is from 0 to 100"),
)


class Draws(NamedTuple):
    """Random numbers of one step; pairs belong to gain and velocity.

    Attributes:
        exponential: Standard exponential numbers, shape ``(2,)``.
        uniform: Uniform numbers from [0, 1), shape ``(2,)``.
        flip: Uniform numbers from [0, 1), shape ``(2,)``; a number below the effective action
            amplifies the noise.
        burst: Standard normal number, used when a hidden state is at its maximum.
        consumption: Standard normal number for the consumption.
    """

    exponential: Float[Array, "2"]
    uniform: Float[Array, "2"]
    flip: Float[Array, "2"]
    burst: Float[Array, ""]
    consumption: Float[Array, ""]


class Machine(NamedTuple):
    """The complete state of the machine.

    Attributes:
        setpoint: Setpoint p, the load.
        velocity: Velocity v.
        gain: Gain g.
        shift: Shift h.
        costs: Operational costs of the last ten steps, oldest first, shape ``(10,)``.
        hidden: Hidden states of gain and velocity, shape ``(2,)``.
        domain: Domain of the miscalibration, -1 or 1.
        response: Response of the miscalibration, -1 or 1.
        phase: Phase index of the miscalibration, -6 to 6.
        fatigue: Fatigue f.
        consumption: Consumption c.
    """

    setpoint: Float[Array, ""]
    velocity: Float[Array, ""]
    gain: Float[Array, ""]
    shift: Float[Array, ""]
    costs: Float[Array, "10"]
    hidden: Float[Array, "2"]
    domain: Float[Array, ""]
    response: Float[Array, ""]
    phase: Float[Array, ""]
    fatigue: Float[Array, ""]
    consumption: Float[Array, ""]


def operational_cost(setpoint: Array, velocity: Array, gain: Array) -> Array:
    """``exp((2 p + 2.5 g + 4 v) / 100)``."""
    return jnp.exp((2 * setpoint + 4 * velocity + 2.5 * gain) / 100)


def effective_actions(setpoint: Array, velocity: Array, gain: Array) -> Float[Array, "2"]:
    """Effective gain and velocity, scaled to [0, 1] by their extreme values."""

    def of_gain(gain: Array | float) -> Array:
        return 1 / (gain + 1 + setpoint)

    def of_velocity(velocity: Array | float, gain: Array | float) -> Array:
        return (gain + 2 + setpoint) / (velocity + 101 - setpoint)

    least, most = of_velocity(100.0, 0.0), of_velocity(0.0, 100.0)
    effective = (of_velocity(velocity, gain) - least) / (most - least)
    return jnp.stack(
        [(of_gain(gain) - of_gain(100.0)) / (of_gain(0.0) - of_gain(100.0)), effective]
    )


def steer(x: Machine, action: Float[Array, "3"]) -> Machine:
    """The machine after its steerings have moved."""
    velocity, gain, shift = action
    return x._replace(
        velocity=jnp.clip(x.velocity + velocity, 0, 100),
        gain=jnp.clip(x.gain + 10 * gain, 0, 100),
        shift=jnp.clip(x.shift + SHIFT_STEP * shift, 0, 100),
    )


def add_fatigue(c: Constants, x: Machine, draws: Draws) -> Machine:
    """The machine with new fatigue and hidden states."""
    effective = effective_actions(x.setpoint, x.velocity, x.gain)
    flipped: Bool[Array, 2] = draws.flip < jnp.clip(effective, 0.001, 0.999)
    noise = jnp.tanh(c.noise_mean * draws.exponential / 2)
    noise = noise + (1 - noise) * draws.uniform * jnp.where(flipped, effective, 0.0)
    amplified = jnp.minimum(c.amplification_end, c.amplification * x.hidden)
    grown = jnp.where(x.hidden >= c.amplification_start, amplified, 0.9 * x.hidden + noise / 3)
    hidden = jnp.where(effective <= c.tolerance, effective, grown)
    burst = 1 / (1 + jnp.exp(-(2.4 + 0.4 * draws.burst)))
    level = jnp.where(hidden.max() == c.amplification_end, burst, noise.max())
    basic = jnp.maximum(30_000 / (5 * x.velocity + 100) - 0.01 * x.gain**2, 0)
    return x._replace(hidden=hidden, fatigue=basic * (1 + 2 * level) / 3)


def consume(c: Constants, x: Machine, draws: Draws) -> Machine:
    """The machine with the cost of this step stored, the next phase, and new consumption."""
    cost = operational_cost(x.setpoint, x.velocity, x.gain)
    costs = jnp.concatenate([x.costs[1:], cost[None]])
    # A sum of products, not a dot product, to be exact on devices with low-precision products.
    delayed = (costs * jnp.asarray(DELAYED, costs.dtype)).sum()
    effective = SHIFT_SCALE * x.shift / 100 - SHIFT_BY_SETPOINT * x.setpoint - SHIFT_BOUND
    effective = jnp.clip(effective, -SHIFT_BOUND, SHIFT_BOUND)
    domain, response, phase = next_phase(x.domain, x.response, x.phase, effective)
    miscalibration = -penalty(phase, effective)
    hidden_cost = delayed - c.miscalibration_weight * (miscalibration - 1)
    consumption = hidden_cost - draws.consumption * (1 + 0.005 * hidden_cost)
    return x._replace(
        costs=costs, domain=domain, response=response, phase=phase, consumption=consumption
    )
