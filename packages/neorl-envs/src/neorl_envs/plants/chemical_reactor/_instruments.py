"""What the instruments show: algebraic quantities, sensor noise, measuring ranges."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, highs, lows
from neorl_envs.plants.chemical_reactor._parameters import Balances, Parameters, Scalar

OBS = (
    Channel("T_R", "K", 293.15, 423.15),
    Channel("T_S", "K", 293.15, 423.15),
    Channel("T_M", "K", 293.15, 423.15),
    Channel("T_EK", "K", 293.15, 423.15),
    Channel("T_AWT", "K", 293.15, 423.15),
    Channel("m_W", "kg", 0.0, 25_000.0),
    Channel("m_A_hat", "kg", 0.0, 25_000.0),
    Channel("m_P", "kg", 0.0, 25_000.0),
    Channel("m_acc", "kg", 0.0, 32_000.0),
    Channel("T_adiab_hat", "K", 293.15, 473.15),
    Channel("P", "bar", 0.0, 10.0),
    Channel("batch_time", "h", 0.0, 5.0),
)
"""The observed channels with their measuring ranges, at which the instruments saturate."""

VESSEL_VOLUME = 50.0  # m3
DENSITY_WATER, DENSITY_MONOMER, DENSITY_POLYMER = 965.0, 850.0, 1150.0  # kg/m3
INERT_PRESSURE, INERT_VOLUME, INERT_TEMPERATURE = 0.25, 38.7, 363.15  # bar, m3, K
BAR_PER_MMHG = 1.01325 / 760
INTERACTION = 0.4  # Flory-Huggins parameter of monomer and polymer


class Noise(NamedTuple):
    """Errors of the instruments in one step.

    Attributes:
        temperature: Errors of the temperature sensors, K, shape ``(5,)``.
        mass: Relative errors of the mass sensors, shape ``(4,)``.
        pressure: Error of the pressure sensor, bar.
    """

    temperature: Float[Array, "5"]
    mass: Float[Array, "4"]
    pressure: Scalar


def sample_noise(parameters: Parameters, key: PRNGKeyArray) -> Noise:
    """Independent Gaussian errors with the standard deviations of the parameters."""
    normal = jax.random.normal(key, (10,), parameters.noise_mass.dtype)
    return Noise(
        temperature=normal[:5] * parameters.noise_temperature,
        mass=normal[5:9] * parameters.noise_mass,
        pressure=normal[9] * parameters.noise_pressure,
    )


def adiabatic_temperature(plant: Balances, reaction_heat: Scalar, heat_reactor: Scalar) -> Scalar:
    """Temperature in K after a sudden total loss of cooling: all monomer reacts, no heat leaves."""
    mass = plant.m_W + plant.m_A + plant.m_P
    return plant.T_R + plant.m_A * reaction_heat / (mass * heat_reactor)


def pressure(plant: Balances) -> Scalar:
    """Pressure of the vapour space in bar: inert gas, water, and monomer over its polymer.

    The inert gas is compressed by the rising level; water has its vapour pressure; the activity
    of the monomer follows Flory and Huggins. Vapour pressures by Antoine (mmHg, degC), the
    monomer taken as vinyl acetate, whose heat of polymerisation is close to the model's.
    """
    celsius = plant.T_R - 273.15
    free = VESSEL_VOLUME - (
        plant.m_W / DENSITY_WATER + plant.m_A / DENSITY_MONOMER + plant.m_P / DENSITY_POLYMER
    )
    inert = INERT_PRESSURE * INERT_VOLUME / free * plant.T_R / INERT_TEMPERATURE
    water = BAR_PER_MMHG * 10 ** (8.07131 - 1730.63 / (233.426 + celsius))
    monomer = BAR_PER_MMHG * 10 ** (7.2101 - 1296.13 / (226.655 + celsius))
    volume_A, volume_P = plant.m_A / DENSITY_MONOMER, plant.m_P / DENSITY_POLYMER
    fraction = volume_A / (volume_A + volume_P)
    activity = fraction * jnp.exp(1 - fraction + INTERACTION * (1 - fraction) ** 2)
    return inert + water + activity * monomer


def observe(
    parameters: Parameters, plant: Balances, hours: Scalar, noise: Noise
) -> Float[Array, " obs"]:
    """The twelve instruments, with their errors, inside their measuring ranges.

    Args:
        parameters: Physical constants; the soft sensor of the adiabatic temperature knows the
            measured masses and the nominal reaction heat, not the true one.
        plant: State.
        hours: Time since the start of the batch.
        noise: Errors of this step.

    Returns:
        The observation in physical units, in the order of ``OBS``.
    """
    T_R, T_S, T_M, T_EK, T_AWT = jnp.stack(plant[3:8]) + noise.temperature
    m_W, m_A, m_P, m_acc = jnp.stack([*plant[:3], plant.m_acc]) * (1 + noise.mass)
    measured = plant._replace(T_R=T_R, m_W=m_W, m_A=m_A, m_P=m_P)
    T_adiab = adiabatic_temperature(measured, parameters.sensor_heat, parameters.heat_reactor)
    P = pressure(plant) + noise.pressure
    shown = [T_R, T_S, T_M, T_EK, T_AWT, m_W, m_A, m_P, m_acc, T_adiab, P, hours]
    low, high = (jnp.asarray(ends(OBS), P.dtype) for ends in (lows, highs))
    return jnp.clip(jnp.stack(shown), low, high)
