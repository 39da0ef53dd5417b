"""Reward, costs and the end of a batch; all from the true state."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core import CostChannel
from neorl_envs.plants.chemical_reactor._instruments import adiabatic_temperature, pressure
from neorl_envs.plants.chemical_reactor._parameters import DT, Balances, Parameters, Scalar

SETPOINT = 363.15  # K
BAND = 2.0  # K, to each side of the set point
ADIABATIC_LIMIT = 382.15  # K
PRESSURE_LIMIT = 3.5  # bar, soft
RELIEF_PRESSURE = 5.0  # bar, trip
TRIP_TEMPERATURE = 403.15  # K, trip
PRODUCT_TARGET = 20_680.0  # kg of polymer
POINTS_PER_KG = 1 / 206.8
STEP_PENALTY = 0.1
TRIP_PENALTY = 100.0

COSTS = (
    CostChannel("temperature", "K min", 20.0, "episode"),
    CostChannel("pressure", "bar", 0.0, "step"),
)


class Info(NamedTuple):
    """How the step ended and how far it stayed from every limit (negative: beyond it).

    Attributes:
        success: The batch reached its amount of polymer.
        trip: The relief valve or the temperature trip acted.
        band_margin: Distance inside the soft band of the reactor temperature, K.
        adiabatic_margin: Distance below the limit of the adiabatic temperature, K.
        pressure_margin: Distance below the soft limit of the pressure, bar.
        relief_margin: Distance below the relief pressure, bar.
        trip_margin: Distance below the temperature trip, K.
        adiabatic_temperature: True adiabatic temperature, K.
    """

    success: Bool[Array, ""]
    trip: Bool[Array, ""]
    band_margin: Scalar
    adiabatic_margin: Scalar
    pressure_margin: Scalar
    relief_margin: Scalar
    trip_margin: Scalar
    adiabatic_temperature: Scalar


def step_info(parameters: Parameters, plant: Balances) -> Info:
    """Margins and trips of one state, terminal states included."""
    adiabatic = adiabatic_temperature(plant, parameters.reaction_heat, parameters.heat_reactor)
    P = pressure(plant)
    return Info(
        success=plant.m_P >= PRODUCT_TARGET,
        trip=(P > RELIEF_PRESSURE) | (plant.T_R > TRIP_TEMPERATURE),
        band_margin=BAND - jnp.abs(plant.T_R - SETPOINT),
        adiabatic_margin=ADIABATIC_LIMIT - adiabatic,
        pressure_margin=PRESSURE_LIMIT - P,
        relief_margin=RELIEF_PRESSURE - P,
        trip_margin=TRIP_TEMPERATURE - plant.T_R,
        adiabatic_temperature=adiabatic,
    )


def costs(info: Info) -> Float[Array, " cost"]:
    """Violations of the soft limits in one step: temperature in K min, pressure in bar.

    ``c_T = max(|T_R - 363.15 K| - 2 K, T_adiab - 382.15 K, 0) dt`` and
    ``c_P = max(P - 3.5 bar, 0)``.
    """
    temperature = jnp.maximum(-info.band_margin, -info.adiabatic_margin) * (DT / 60)
    return jnp.maximum(jnp.stack([temperature, -info.pressure_margin]), 0)


def reward(before: Balances, after: Balances, info: Info) -> Scalar:
    """Points for polymer (a batch is worth 100), less 0.1 a step, less 100 for a trip."""
    gained = POINTS_PER_KG * (after.m_P - before.m_P)
    return gained - STEP_PENALTY - jnp.where(info.trip, TRIP_PENALTY, jnp.zeros_like(gained))
