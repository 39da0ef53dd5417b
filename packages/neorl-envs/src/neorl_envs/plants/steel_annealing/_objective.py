"""Reward of the line, and its limits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.steel_annealing._physics import FURNACE, PERIOD, Coil, Constants, Furnace

TOLERANCE = 10.0  # K
WORTHLESS = 30.0  # K
HOTTEST_ZONE, ZONE_TRIP = 1040.0, 1100.0  # degC
EXIT_TRIP = 900.0  # degC
BUDGET = 1800.0  # K min in an episode
FUEL_PRICE = 0.1  # t of strip per MWh
TRIP_COST = 100.0  # t

TERMS = (
    Term("good strip", "t", 1.0),
    Term("fuel", "MWh", -FUEL_PRICE),
    Term("trips", "1", -TRIP_COST),
)
COSTS = (CostChannel("temperature_profile", "K min", BUDGET, "episode"),)
LIMITS = (
    Limit(
        "exit_error",
        low=-TOLERANCE,
        high=TOLERANCE,
        cost="temperature_profile",
        factor=PERIOD / 60,
        unit="K",
    ),
    Limit(
        "zone_temperature",
        high=HOTTEST_ZONE,
        cost="temperature_profile",
        factor=PERIOD / 60,
        unit="degC",
    ),
    Limit("zone_temperature", high=ZONE_TRIP, trip=True, unit="degC"),
    Limit("exit_temperature", high=EXIT_TRIP, trip=True, unit="degC"),
)


class Exit(NamedTuple):
    """The strip at the furnace exit.

    Attributes:
        coil: The coil at the exit.
        following: The coil after it.
        weld: Distance of the weld between them from the exit, m.
    """

    coil: Coil
    following: Coil
    weld: Array


def at_exit(plant: Furnace) -> Exit:
    """The coil that leaves the furnace, and the coil after it."""
    out = plant.entered < FURNACE
    old = Exit(plant.leaving, plant.coil, FURNACE - plant.entered)
    new = Exit(plant.coil, plant.coming, plant.coil.length + FURNACE - plant.entered)
    return jax.tree.map(lambda a, b: jnp.where(out, a, b), old, new)


def quantities(plant: Furnace) -> dict[str, Array]:
    """The limited quantities."""
    exit_temperature = plant.strip[-1]
    return {
        "exit_error": exit_temperature - at_exit(plant).coil.setpoint,
        "exit_temperature": exit_temperature,
        "zone_temperature": jnp.max(plant.zones),
    }


def tonnes(c: Constants, plant: Furnace) -> Array:
    """Strip that leaves the furnace in a period, t."""
    coil = at_exit(plant).coil
    return c.density * coil.thickness * 1e-6 * coil.width * plant.speed * PERIOD


def amounts(c: Constants, plant: Furnace, fuel: Array, trip: Array) -> dict[str, Array]:
    """Tonnes of good strip, MWh of fuel and trips of a period.

    Strip within 10 K of the setpoint counts fully, strip that is 30 K off counts nothing, and the
    value is linear in between.
    """
    coil = at_exit(plant).coil
    error = jnp.abs(plant.strip[-1] - coil.setpoint)
    good = jnp.clip((WORTHLESS - error) / (WORTHLESS - TOLERANCE), 0, 1)
    energy = jnp.sum(fuel) * c.burner * (PERIOD / 3.6e9)
    return {"good strip": good * tonnes(c, plant), "fuel": energy, "trips": trip}


def reward(c: Constants, plant: Furnace, fuel: Array, trip: Array) -> Array:
    """Tonnes of good strip, minus the price of fuel and trips."""
    amounts_of_step = amounts(c, plant, fuel, trip)
    earnings = amounts_of_step["good strip"] - FUEL_PRICE * amounts_of_step["fuel"]
    return earnings - jnp.where(trip, TRIP_COST, 0.0)
