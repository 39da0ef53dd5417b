"""Controllers of the furnace: zone PI loops trimmed by the exit, and PI with feed-forward."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Policy
from neorl_core.control import ConstantPolicy
from neorl_envs.blocks import FeedforwardPID, constant_values, handle, no_feedforward, pid_bank
from neorl_envs.plants.steel_annealing._physics import (
    PERIOD,
    SETPOINT,
    ZONES,
    Constants,
    wanted_speed,
)

NAME = "SteelAnnealing-v0"
ORDINARY, REFERENCE = "zone PI with exit trim", "PI feed-forward"
HANDLES = (
    handle("zone temperature for nominal strip", "needed", "degC", shift=2.0),
    handle("its change with the strip's mass flow", "by_flow", "K per kg/(s m)", factor=0.1),
    handle("its change with the setpoint", "by_setpoint", factor=0.05),
    handle("gain of the zones", "zone_gain", "1/K", factor=0.3),
    handle("look-ahead to a weld", "look_ahead", "s", factor=0.3),
)
TRIM_HANDLES = (
    handle("temperatures of the zones", "zones", "degC", shift=2.0, count=ZONES),
    handle("their change with the setpoint", "by_setpoint", factor=0.05),
    handle("their change with the exit's error", "by_exit", factor=0.3),
)
PATTERN = (-43.0, -35.0, -18.0, 6.0, 34.0, 56.0)  # K, zones relative to their mean
NEEDED = 908.0  # degC, mean of the zones for 750 degC at 12.92 kg/(s m)


class Numbers(NamedTuple):
    """Parameters of the furnace that the feed-forward uses.

    Attributes:
        constants: Nominal physics.
        pattern: Zone temperatures relative to their mean, K, shape ``(6,)``.
        needed: Mean zone temperature for nominal strip, degC.
        by_flow: Change of ``needed`` with the mass flow of strip per width, K per kg/(s m).
        by_setpoint: Change of ``needed`` with the setpoint, 1.
        heat: Heat that strip absorbs up to 750 degC, J/kg.
        heat_slope: Change of ``heat`` with the setpoint, J/(kg K).
        zone_gain: Additional fuel per kelvin by which a zone is too cold, 1/K.
        look_ahead: Time before a weld leaves at which the furnace begins to change over, s.
    """

    constants: Constants
    pattern: Float[Array, " zone"]
    needed: Array
    by_flow: Array
    by_setpoint: Array
    heat: Array
    heat_slope: Array
    zone_gain: Array
    look_ahead: Array


def exit_errors(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """The error of the exit temperature, repeated for every loop, K."""
    return jnp.broadcast_to(obs[2 * ZONES - 1] - obs[2 * ZONES], (ZONES,))


def static_inverse(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """Fuel that brings the zones to the temperatures that the current and next coil need."""
    n, c = numbers, numbers.constants
    setpoint, thickness, width, speed, following, coming, weld = obs[2 * ZONES : -1]
    share = jnp.clip(1 - weld / (jnp.maximum(speed, c.slowest) * n.look_ahead), 0, 1)
    setpoint = setpoint + share * (coming - setpoint)
    flows = [c.density * d * 1e-3 * wanted_speed(c, d, width) for d in (thickness, following)]
    flow = flows[0] + share * (flows[1] - flows[0])
    mean = n.needed + n.by_flow * (flow - 12.92) + n.by_setpoint * (setpoint - SETPOINT)
    target = mean + n.pattern
    heat = (n.heat + n.heat_slope * (setpoint - SETPOINT)) * flow * width / ZONES
    useful = c.efficiency * (1 - c.efficiency_drop * (target - 900)) * c.burner
    steady = (heat + c.losses * (mean - c.ambient)) / useful
    return steady + n.zone_gain * (target - obs[:ZONES])


def feedforward_pi(
    *, zone_gain: float = 0.0155, look_ahead: float = 240.0, kp: float = 0.0055, ti: float = 160.0
) -> FeedforwardPID:
    """PI on the exit temperature for all zones, added to a static inverse of the furnace.

    Args:
        zone_gain: Additional fuel per kelvin by which a zone is too cold, 1/K.
        look_ahead: Time before a weld leaves at which the furnace begins to change over, s.
        kp: Fuel per kelvin at the exit, 1/K.
        ti: Integral time, s.
    """
    each = (1.0,) * ZONES
    wide = tuple(3.0 * one for one in each)
    real = jnp.asarray
    return FeedforwardPID(
        feedback=pid_bank(
            kp=tuple(kp * one for one in each),
            ti=tuple(ti * one for one in each),
            setpoint=(0.0,) * ZONES,
            bias=(0.0,) * ZONES,
            low=tuple(-one for one in wide),
            high=wide,
            measured=tuple(range(ZONES)),
            dt=PERIOD,
            tracking_time=(100.0,) * ZONES,
        ),
        numbers=Numbers(
            constant_values(Constants(), dtype=jnp.float32),
            real(PATTERN),
            *map(real, (NEEDED, 17.5, 0.92, 4.83e5, 1310.0, zone_gain, look_ahead)),
        ),
        low=jnp.zeros(ZONES),
        high=jnp.ones(ZONES),
        measure=exit_errors,
        feedforward=static_inverse,
        origin=(NAME, REFERENCE),
        handles=HANDLES,
    )


class Trim(NamedTuple):
    """Setpoints of the zones.

    Attributes:
        zones: Zone temperatures that nominal strip needs, degC, shape ``(6,)``.
        by_setpoint: Change of the setpoints with the setpoint of the exit, 1.
        by_exit: Change of the setpoints with the error of the exit, 1.
    """

    zones: Float[Array, " zone"]
    by_setpoint: Array
    by_exit: Array


def zone_errors(trim: Trim, obs: Float[Array, " obs"]) -> Float[Array, " zone"]:
    """Temperatures of the zones above their setpoints, K."""
    exit_now, setpoint = obs[2 * ZONES - 1], obs[2 * ZONES]
    target_exit = trim.by_setpoint * (setpoint - SETPOINT) - trim.by_exit * (exit_now - setpoint)
    return obs[:ZONES] - trim.zones - target_exit


def zone_pi() -> FeedforwardPID:
    """PI of each zone (0.02/K, 300 s) to the recipe temperature, trimmed by the exit error."""
    return FeedforwardPID(
        feedback=pid_bank(
            kp=(0.02,) * ZONES,
            ti=(300.0,) * ZONES,
            setpoint=(0.0,) * ZONES,
            bias=(0.8,) * ZONES,
            low=(0.0,) * ZONES,
            high=(1.0,) * ZONES,
            measured=tuple(range(ZONES)),
            dt=PERIOD,
            tracking_time=(100.0,) * ZONES,
        ),
        numbers=Trim(NEEDED + jnp.asarray(PATTERN), jnp.asarray(0.92), jnp.asarray(1.2)),
        low=jnp.zeros(ZONES),
        high=jnp.ones(ZONES),
        measure=zone_errors,
        feedforward=no_feedforward,
        origin=(NAME, ORDINARY),
        handles=TRIM_HANDLES,
    )


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {ORDINARY: zone_pi(), REFERENCE: feedforward_pi()}


def bad_policy() -> ConstantPolicy:
    """All burners at 60 %, with which the strip stays far too cold."""
    return ConstantPolicy(jnp.full(ZONES, 0.6))
