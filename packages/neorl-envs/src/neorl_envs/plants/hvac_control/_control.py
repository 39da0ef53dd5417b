"""Thermostats of the office: one setpoint, or two with load compensation and preheating."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core.control import PID, ConstantPolicy
from neorl_envs.blocks import FeedforwardPID, constant_values, handle, no_feedforward, pid_bank
from neorl_envs.plants.hvac_control._physics import DT, Constants

ZONES = 5
GAIN = 2.0  # kW/K
SCHEDULED_GAIN = (4.0, 3.0, 3.0, 2.0, 2.0)  # kW/K, in proportion to the size of the zones
HEAT_TO, COOL_TO = (21.7, 18.0), (23.5, 27.0)  # degC, open and closed
RAMP = (4.5, 7.5)  # h
LARGEST_HEAT = 4.8  # kW
HANDLES = (
    handle("setpoints of heating", "heat_to", "degC", shift=0.2, count=2),
    handle("setpoints of cooling", "cool_to", "degC", shift=0.2, count=2),
    handle("hours of the morning's ramp", "ramp", "h", shift=0.25, count=2),
    handle("steady loss of the zones", "loss", "kW/K", factor=0.1, count=ZONES),
    handle("heat of a full office", "use", "kW", factor=0.1, count=ZONES),
    handle("heat of the sun", "sun", "kW m2/W", factor=0.2, count=ZONES),
)


def thermostats() -> PID:
    """One PI loop per zone (2 kW/K, integral time one hour) at 22.5 degC day and night."""
    return pid_bank(
        kp=(GAIN,) * ZONES,
        ti=(3600.0,) * ZONES,
        setpoint=(22.5,) * ZONES,
        bias=(0.0,) * ZONES,
        low=(-8.0,) * ZONES,
        high=(8.0,) * ZONES,
        measured=tuple(range(ZONES)),
        dt=DT,
    )


class Schedule(NamedTuple):
    """Parameters of the reference controller.

    Attributes:
        gain: Gain of every loop, kW/K, shape ``(5,)``.
        heat_to: Heating setpoints when open and when closed, degC.
        cool_to: Cooling setpoints when open and when closed, degC.
        ramp: Begin and end of the morning ramp from the closed to the open setpoints, h.
        loss: Steady heat loss of every zone, kW/K.
        use: Heat of a fully occupied office, kW, shape ``(5,)``.
        sun: Heat per unit of radiation, kW m2/W, shape ``(5,)``.
    """

    gain: Float[Array, "5"]
    heat_to: Float[Array, "2"]
    cool_to: Float[Array, "2"]
    ramp: Float[Array, "2"]
    loss: Float[Array, "5"]
    use: Float[Array, "5"]
    sun: Float[Array, "5"]


def demand(schedule: Schedule, obs: Float[Array, " obs"]) -> Float[Array, "5"]:
    """Minus the missing heat, in kelvin for a loop with the schedule's gain and setpoint zero.

    The result is ``max(0, T_heat - T + load(T_heat) / K) + min(0, T_cool - T + load(T_cool) / K)``
    with the opposite sign, where ``load`` is the steady heat that holds a setpoint.
    """
    air, outdoor, radiation, people = obs[:ZONES], obs[10], obs[11], obs[12]
    hour = jnp.arctan2(obs[16], obs[17]) * (12 / jnp.pi) % 24
    begin, end = schedule.ramp
    morning = jnp.where(hour < 12, jnp.clip((hour - begin) / (end - begin), 0, 1), 0)
    opened = jnp.maximum(morning, jnp.where(people > 0.05, 1, 0).astype(obs.dtype))
    free = schedule.use * people + schedule.sun * radiation

    def missing(ends: Float[Array, "2"]) -> Float[Array, "5"]:
        wanted = ends[1] + opened * (ends[0] - ends[1])
        load = schedule.loss * (wanted - outdoor) - free
        return wanted - air + load / schedule.gain

    heat = jnp.maximum(missing(schedule.heat_to), 0)
    cool = jnp.minimum(missing(schedule.cool_to), 0)
    return -(heat + cool)


def scheduled_control(name: str) -> FeedforwardPID:
    """Two setpoints, compensation of the load of weather, sun and people, and preheating.

    The setpoints are 21.7 and 23.5 degC when open and 18 and 27 degC when closed, with a ramp
    from 4.5 to 7.5 h. Each zone gets at most 4.8 kW, so that five zones keep the demand limit in
    frost. These numbers are the best of 80 random candidates by score; the best ten are within 3 %
    of each other.
    """
    c = constant_values(Constants(), dtype=jnp.float32)
    loops = pid_bank(
        kp=SCHEDULED_GAIN,
        ti=(math.inf,) * ZONES,
        setpoint=(0.0,) * ZONES,
        bias=(0.0,) * ZONES,
        low=(-8.0,) * ZONES,
        high=(8.0,) * ZONES,
        measured=tuple(range(ZONES)),
        dt=DT,
    )
    each = 1e-3 * (c.person / c.area_a_person + c.equipment)
    limit = jnp.full(ZONES, LARGEST_HEAT)
    return FeedforwardPID(
        feedback=loops,
        numbers=Schedule(
            gain=jnp.asarray(SCHEDULED_GAIN),
            heat_to=jnp.asarray(HEAT_TO),
            cool_to=jnp.asarray(COOL_TO),
            ramp=jnp.asarray(RAMP),
            loss=1e-3 * c.outdoor,
            use=each * c.floor,
            sun=1e-3 * c.solar_gain * 0.5 * c.window,
        ),
        low=-limit,
        high=limit,
        measure=demand,
        feedforward=no_feedforward,
        origin=(name, "preheating and load compensation"),
        handles=HANDLES,
    )


def bad_policy() -> ConstantPolicy:
    """Constant full heating in all zones, which is too warm and exceeds the demand limit."""
    return ConstantPolicy(jnp.full(ZONES, 8.0))
