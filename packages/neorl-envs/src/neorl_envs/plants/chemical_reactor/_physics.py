"""Constants, balances and algebraic quantities of the semi-batch polymerisation."""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_envs.blocks import Relation, constant

Scalar: TypeAlias = Float[Array, ""]
DT = 50.0  # s, the control period
HOURS = DT / 3600

LUCIA = "Lucia et al. 2014, as in do-mpc industrial_poly"
OWN = "own choice"


class Constants(NamedTuple):
    """Constants of the balances (hours, kg, K, kJ), of the soft sensor and of the disturbances."""

    gas_constant: Scalar = constant(8.314, "kJ/(kmol K)", LUCIA)
    feed_temperature: Scalar = constant(298.15, "K", LUCIA)
    activation_energy: Scalar = constant(8500.0, "kJ/kmol", LUCIA)
    rate_constant: Scalar = constant(7.0, "1/h", LUCIA, spread=1.0)
    gel_monomer: Scalar = constant(4.0, "1", LUCIA)
    gel_polymer: Scalar = constant(32.0, "1", LUCIA)
    reaction_heat: Scalar = constant(950.0, "kJ/kg", LUCIA, spread=1.0)
    feed_water: Scalar = constant(0.333, "1", LUCIA, domain="fraction")
    feed_monomer: Scalar = constant(0.667, "1", LUCIA, domain="fraction")
    wall_area: Scalar = constant(65.0, "m2", LUCIA)
    wall_water: Scalar = constant(17_280.0, "kJ/(h m2 K)", LUCIA)
    wall_monomer: Scalar = constant(3600.0, "kJ/(h m2 K)", LUCIA)
    wall_polymer: Scalar = constant(360.0, "kJ/(h m2 K)", LUCIA)
    steel_mass: Scalar = constant(39_000.0, "kg", LUCIA)
    jacket_mass: Scalar = constant(5000.0, "kg", LUCIA)
    jacket_flow: Scalar = constant(300_000.0, "kg/h", LUCIA)
    loop_mass: Scalar = constant(200.0, "kg", LUCIA)
    loop_flow: Scalar = constant(20_000.0, "kg/h", LUCIA)
    exchanger_mass: Scalar = constant(1000.0, "kg", LUCIA)
    exchanger_flow: Scalar = constant(100_000.0, "kg/h", LUCIA)
    exchanger_transfer: Scalar = constant(3_600_000.0, "kJ/(h K)", LUCIA)
    heat_water: Scalar = constant(4.2, "kJ/(kg K)", LUCIA)
    heat_steel: Scalar = constant(0.47, "kJ/(kg K)", LUCIA)
    heat_feed: Scalar = constant(3.0, "kJ/(kg K)", LUCIA)
    heat_reactor: Scalar = constant(5.0, "kJ/(kg K)", LUCIA)
    sensor_heat: Scalar = constant(950.0, "kJ/kg", OWN)
    feed_temperature_sd: Scalar = constant(1.0, "K", OWN, clean=0.0, domain="not negative")
    coolant_sd: Scalar = constant(0.2, "K", OWN, clean=0.0, domain="not negative")
    disturbance_memory: Scalar = constant(1800.0, "s", OWN)


# A tuple of scalars compiles to a faster loop than an array of nine elements.
class Balances(NamedTuple):
    """The nine balanced quantities: masses in kg, temperatures in K."""

    m_W: Scalar  # noqa: N815
    m_A: Scalar  # noqa: N815
    m_P: Scalar  # noqa: N815
    T_R: Scalar
    T_S: Scalar
    T_M: Scalar
    T_EK: Scalar
    T_AWT: Scalar
    m_acc: Scalar


class Supply(NamedTuple):
    """Deviations of the inlet temperatures from their set values.

    Attributes:
        feed: Deviation of the feed temperature from its nominal value, K.
        jacket: Deviation of the jacket's inlet temperature from its set value, K.
        exchanger: Deviation of the inlet temperature of the exchanger's coolant from its set
            value, K.
    """

    feed: Scalar
    jacket: Scalar
    exchanger: Scalar


INITIAL = Balances(10_000.0, 853.0, 26.5, 363.15, 363.15, 363.15, 308.15, 308.15, 300.0)  # type: ignore[arg-type]
"""The published charge at the start of a batch."""

INITIAL_SPREAD = Balances(200.0, 0.0, 20.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0)  # type: ignore[arg-type]
"""Largest deviation from it at the start: 2 % of the water, 20 kg of polymer, 1 or 2 K."""

FEED_LOCK = 30_000.0  # kg of accumulated feed in the recipe
RELATIONS = (
    Relation("feed_water + feed_monomer", "<=", 1.0, "they are parts of the feed"),
    Relation("initial.m_acc", "<=", FEED_LOCK, "the recipe has no more"),
    Relation(0.0, "<", "initial.m_A + initial.m_P", "their ratio is the conversion"),
    Relation(0.0, "<=", "initial.m_A"),
    Relation(0.0, "<=", "initial.m_P"),
    Relation(0.0, "<=", "initial.m_W"),
    Relation("initial.m_W + initial.m_A + initial.m_P", "<", 42_500.0, "it must fit 50 m3"),
)
LAST_DOSE, LAST_RATE = 3000.0, 4000.0  # kg left, below which the feed is at least this many kg/h

VESSEL_VOLUME = 50.0  # m3
DENSITY_WATER, DENSITY_MONOMER, DENSITY_POLYMER = 965.0, 850.0, 1150.0  # kg/m3
INERT_PRESSURE, INERT_VOLUME, INERT_TEMPERATURE = 0.25, 38.7, 363.15  # bar, m3, K
BAR_PER_MMHG = 1.01325 / 760
INTERACTION = 0.4  # Flory-Huggins parameter of monomer and polymer


def rates(x: Balances, c: Constants, inputs: Float[Array, "3"], supply: Supply) -> Balances:
    """Time derivatives of the nine states, per hour.

    Mass balances of water, monomer and polymer with reaction in the reactor and in the external
    loop, energy balances of reactor, steel wall, jacket, external loop and its coolant.

    ``inputs`` are the feed in kg/h and the inlet temperatures of jacket and exchanger in K.

    Source: Lucia, Andersson, Brandt, Diehl and Engell, "Handling uncertainty in economic
    nonlinear model predictive control: A comparative case study", J. Process Control 24 (2014)
    1247; as implemented in do-mpc, ``examples/industrial_poly``.
    """
    feed, jacket, exchanger = inputs
    converted = x.m_P / (x.m_A + x.m_P)
    mass = x.m_W + x.m_A + x.m_P
    gel = c.gel_monomer * (1 - converted) + c.gel_polymer * converted
    k_R = c.rate_constant * jnp.exp(-c.activation_energy / (c.gas_constant * x.T_R)) * gel
    k_loop = c.rate_constant * jnp.exp(-c.activation_energy / (c.gas_constant * x.T_EK)) * gel
    wall = c.wall_water * x.m_W + c.wall_monomer * x.m_A + c.wall_polymer * x.m_P
    wall = c.wall_area * wall / mass
    in_loop = x.m_A * c.loop_mass / mass
    reacted = k_R * (x.m_A - in_loop)
    reacted_loop = k_loop * in_loop
    to_steel = wall * (x.T_R - x.T_S)
    to_jacket = wall * (x.T_S - x.T_M)
    to_loop = c.loop_flow * c.heat_reactor * (x.T_R - x.T_EK)
    to_coolant = c.exchanger_transfer * (x.T_EK - x.T_AWT)
    heating = feed * c.heat_feed * (c.feed_temperature + supply.feed - x.T_R)
    from_jacket = c.jacket_flow * c.heat_water * (jacket + supply.jacket - x.T_M)
    from_supply = c.exchanger_flow * c.heat_water * (exchanger + supply.exchanger - x.T_AWT)
    return Balances(
        m_W=c.feed_water * feed,
        m_A=c.feed_monomer * feed - reacted - reacted_loop,
        m_P=reacted + reacted_loop,
        T_R=(heating - to_steel - to_loop + c.reaction_heat * reacted) / (c.heat_reactor * mass),
        T_S=(to_steel - to_jacket) / (c.heat_steel * c.steel_mass),
        T_M=(from_jacket + to_jacket) / (c.heat_water * c.jacket_mass),
        T_EK=(to_loop - to_coolant + c.reaction_heat * reacted_loop)
        / (c.heat_reactor * c.loop_mass),
        T_AWT=(from_supply + to_coolant) / (c.heat_water * c.exchanger_mass),
        m_acc=feed,
    )


def adiabatic_temperature(plant: Balances, reaction_heat: Scalar, heat_reactor: Scalar) -> Scalar:
    """Temperature in K after a total loss of cooling, when all monomer reacts adiabatically."""
    mass = plant.m_W + plant.m_A + plant.m_P
    return plant.T_R + plant.m_A * reaction_heat / (mass * heat_reactor)


def pressure(plant: Balances) -> Scalar:
    """Pressure of the vapour space in bar: inert gas, water, and monomer over its polymer.

    The rising level compresses the inert gas. Water contributes its vapour pressure, and the
    activity of the monomer follows Flory and Huggins. Vapour pressures follow Antoine (mmHg,
    degC). The monomer is modelled as vinyl acetate, whose heat of polymerisation is close to that
    of the model.
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
