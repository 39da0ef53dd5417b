"""Controllers of the stirred tank: PI on the concentration, with and without model feed-forward."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core.control import ConstantPolicy
from neorl_envs.blocks import FeedforwardPID, constant_values, handle, no_feedforward, pid_bank
from neorl_envs.plants.cstr._physics import (
    ACTUATORS,
    DT,
    Constants,
    coolant_that_holds,
    temperature_at,
)

NAME = "CSTR-v0"
PI = (-12.0, 150.0)  # K L/mol, s: slow but safe for all sampled parameters
FEEDFORWARD_PI = (-55.0, 36.0)
BY_TEMPERATURE = 0.6  # K of coolant per kelvin in the tank
BIAS = 298.0  # K
HANDLES = (handle("coolant for a kelvin in the tank", "by_temperature", factor=0.3),)


class Numbers(NamedTuple):
    """Parameters of the model-based feed-forward.

    Attributes:
        constants: Constants of the nominal tank.
        by_temperature: Decrease of the coolant temperature per kelvin by which the tank is above
            its nominal temperature, dimensionless.
    """

    constants: Constants
    by_temperature: Array


def deviation(numbers: Numbers, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """Measured concentration above its setpoint, mol/L."""
    return obs[:1] - obs[2:]


def model_coolant(numbers: Numbers, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """The coolant temperature that holds the nominal tank at the setpoint, K above the bias.

    It is reduced in proportion to the tank's temperature above that steady state. The temperature
    shows immediately where the concentration is going, whereas the analyser is late.
    """
    c, setpoint = numbers.constants, obs[2:]
    hotter = obs[1:2] - temperature_at(c, setpoint)
    return coolant_that_holds(c, setpoint) - BIAS - numbers.by_temperature * hotter


def tunings() -> dict[str, FeedforwardPID]:
    """``PI`` and ``PI feed-forward``."""
    settings = {"PI": PI, "PI feed-forward": FEEDFORWARD_PI}
    return {name: _loop(name, *setting) for name, setting in settings.items()}


def bad_policy() -> ConstantPolicy:
    """The hottest possible coolant, with which the reaction ignites."""
    return ConstantPolicy(jnp.asarray([ACTUATORS[0].channel.high]))


def _loop(name: str, gain: float, integral_time: float) -> FeedforwardPID:
    channel = ACTUATORS[0].channel
    bank = pid_bank(
        kp=(gain,),
        ti=(integral_time,),
        setpoint=(0.0,),
        bias=(BIAS,),
        low=(channel.low - 100,),
        high=(channel.high + 100,),
        measured=(0,),
        dt=DT,
        tracking_time=(DT,),
    )
    ahead = name == "PI feed-forward"
    return FeedforwardPID(
        feedback=bank,
        numbers=Numbers(
            constant_values(Constants(), "clean", dtype=jnp.float32), jnp.asarray(BY_TEMPERATURE)
        ),
        low=jnp.asarray([channel.low]),
        high=jnp.asarray([channel.high]),
        measure=deviation,
        feedforward=model_coolant if ahead else no_feedforward,
        origin=(NAME, name),
        handles=HANDLES if ahead else (),
    )
