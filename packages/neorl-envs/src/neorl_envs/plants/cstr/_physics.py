"""Constants, channels and balances of the stirred tank; minutes, litres, moles, kelvin."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Channel
from neorl_envs.blocks import Actuator, Instrument, Relation, constant

DT = 15.0  # s, the control period
MINUTES = DT / 60
SEBORG = "Seborg et al., as in pcgym cstr"
OWN = "own choice"
HOTTEST = 420.0  # K, above the trip; the rate saturates here, as substeps of 0.6 s require


class Constants(NamedTuple):
    """The reaction, the tank, its jacket, and how its feed and its setpoint move."""

    flow: Array = constant(100.0, "L/min", SEBORG)
    volume: Array = constant(100.0, "L", SEBORG)
    density: Array = constant(1000.0, "g/L", SEBORG)
    heat_capacity: Array = constant(0.239, "J/(g K)", SEBORG)
    reaction_heat: Array = constant(5e4, "J/mol", SEBORG)
    activation: Array = constant(8750.0, "K", SEBORG)
    rate_constant: Array = constant(7.2e10, "1/min", SEBORG, spread=0.2)
    transfer: Array = constant(5e4, "J/(min K)", SEBORG, spread=0.2)
    feed_concentration: Array = constant(1.0, "mol/L", SEBORG)
    feed_temperature: Array = constant(350.0, "K", SEBORG)
    feed_concentration_sd: Array = constant(0.005, "mol/L", OWN, clean=0.0, domain="not negative")
    feed_temperature_sd: Array = constant(0.5, "K", OWN, clean=0.0, domain="not negative")
    feed_memory: Array = constant(300.0, "s", OWN)
    setpoint_every: Array = constant(480.0, "s", OWN)
    setpoint_low: Array = constant(0.82, "mol/L", OWN)
    setpoint_high: Array = constant(0.94, "mol/L", OWN)


RELATIONS = (
    Relation("setpoint_low", "<", "setpoint_high"),
    Relation("setpoint_high", "<", "feed_concentration", "the reaction only takes away"),
    Relation("feed_concentration_sd", "<", "feed_concentration"),
    Relation("initial.concentration", "<=", "feed_concentration", "the reaction only takes away"),
    Relation(0.0, "<=", "initial.concentration"),
    Relation(0.0, "<", "initial.temperature"),
)


class Tank(NamedTuple):
    """Concentration of the reactant in mol/L and temperature in K."""

    concentration: Float[Array, ""]
    temperature: Float[Array, ""]


class Feed(NamedTuple):
    """Deviations of the feed from its nominal values, and the active setpoint (mol/L)."""

    concentration: Float[Array, ""]
    temperature: Float[Array, ""]
    setpoint: Float[Array, ""]


ACTUATORS = (Actuator(Channel("T_c", "K", 285.0, 310.0), start=300.0, speed=2.0 / DT, lag=5.0),)
INSTRUMENTS = (
    Instrument(Channel("C_A", "mol/L", 0.0, 1.2), sd=0.003, dead_time=1),
    Instrument(Channel("T", "K", 280.0, 520.0), sd=0.2),
    Instrument(Channel("C_A_SP", "mol/L", 0.0, 1.2)),
)


def rates(x: Tank, c: Constants, coolant: Array, feed: Feed) -> Tank:
    """Time derivatives per minute, for a coolant temperature in K."""
    hot = jnp.minimum(x.temperature, HOTTEST)
    reaction = c.rate_constant * jnp.exp(-c.activation / hot) * x.concentration
    through = c.flow / c.volume
    heat = c.density * c.heat_capacity
    return Tank(
        through * (c.feed_concentration + feed.concentration - x.concentration) - reaction,
        through * (c.feed_temperature + feed.temperature - x.temperature)
        + c.reaction_heat / heat * reaction
        + c.transfer / (heat * c.volume) * (coolant - x.temperature),
    )


def temperature_at(c: Constants, concentration: Array) -> Array:
    """Temperature in K of the nominal tank in the steady state with a concentration in mol/L."""
    reaction = c.flow / c.volume * (c.feed_concentration - concentration)
    return c.activation / jnp.log(c.rate_constant * concentration / reaction)


def coolant_that_holds(c: Constants, concentration: Array) -> Array:
    """Coolant temperature in K that holds the nominal tank at a concentration in mol/L."""
    reaction = c.flow / c.volume * (c.feed_concentration - concentration)
    temperature = temperature_at(c, concentration)
    heat = c.density * c.heat_capacity
    flow = c.flow * heat * (c.feed_temperature - temperature)
    released = c.reaction_heat * c.volume * reaction
    return temperature - (flow + released) / c.transfer
