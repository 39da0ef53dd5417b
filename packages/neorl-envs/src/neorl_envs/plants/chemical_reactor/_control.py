"""The plant's controllers: three PID loops and an interlock, in four tunings."""

from collections.abc import Mapping

import jax.numpy as jnp

from neorl_core import highs, lows
from neorl_core.control import PID, ConstantPolicy
from neorl_envs.plants.chemical_reactor._channels import ACTUATORS, INDEX
from neorl_envs.plants.chemical_reactor._objective import SETPOINT

ACTION = tuple(actuator.channel for actuator in ACTUATORS)
INTERLOCK_TEMPERATURE = 361.15  # K; below it, the feed is limited to
INTERLOCK_FEED = 5000.0  # kg/h

SETTINGS: Mapping[str, tuple[float, float]] = {
    "PID 100/1500": (100.0, 1500.0),
    "PID 106/1500": (106.0, 1500.0),
    "PID 106/3000": (106.0, 3000.0),
    "PID 108/3000": (108.0, 3000.0),
}
"""Setpoint of the adiabatic temperature in °C, and gain of the feed in kg/h per K."""

REFERENCE = "PID 106/1500"
TRACKING_TIME = 100.0  # s


def tuning(adiabatic_celsius: float, feed_gain: float, *, dt: float) -> PID:
    """The three PID loops for one pair of settings.

    The feed is controlled by the soft sensor of the adiabatic temperature (proportional, bias 8000
    kg/h), the jacket inlet by the reactor temperature (6 K/K, 600 s), and the exchanger inlet by
    the reactor temperature (12 K/K, bias 353.15 K). While the reactor is colder than 361.15 K, the
    feed is limited to 5000 kg/h, so that monomer does not accumulate. The rate limit of the jacket
    is the same in both directions, so a tracking time of two periods is safe and unwinds the
    integral before the temperature overshoots.

    ``adiabatic_celsius`` is a setpoint in °C, ``feed_gain`` is in kg/h per K, ``dt`` in seconds.
    The three outputs are in the order of the action channels.
    """
    return PID(
        kp=jnp.asarray((feed_gain, 6.0, 12.0)),
        ki=jnp.asarray((0.0, 6.0 / 600.0, 0.0)),
        kd=jnp.zeros(3),
        tau=jnp.zeros(3),
        setpoint=jnp.asarray((adiabatic_celsius + 273.15, SETPOINT, SETPOINT)),
        bias=jnp.asarray((8000.0, SETPOINT, 353.15)),
        low=jnp.asarray(lows(ACTION)),
        high=jnp.asarray(highs(ACTION)),
        dt=jnp.asarray(dt),
        override_below=jnp.asarray((INTERLOCK_TEMPERATURE,)),
        override_cap=jnp.asarray((INTERLOCK_FEED,)),
        measured=(INDEX["T_adiab_hat"], INDEX["T_R"], INDEX["T_R"]),
        override_output=(0,),
        override_measured=(INDEX["T_R"],),
        tracking_time=jnp.full(3, TRACKING_TIME),
    )


def bad_policy() -> ConstantPolicy:
    """Full feed with both inlets at 373.15 K: violates both limits and trips in most batches."""
    return ConstantPolicy(jnp.asarray(highs(ACTION)))
