"""Reward of the works, and their limits."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.water_treatment._chemistry import ph_of_water
from neorl_envs.plants.water_treatment._physics import (
    PERIOD,
    Constants,
    Dosing,
    Works,
    filter_outlet,
)

LEAST_PH, GREATEST_PH = 6.5, 8.5
GREATEST_TURBIDITY = 0.3  # NTU
EMPTY = 0.3  # m
HOURS = PERIOD / 3600
COSTS = (
    CostChannel("pH", "h pH", 1.0, "episode"),
    CostChannel("turbidity", "NTU h", 8.0, "episode"),
)
LIMITS = (
    Limit("clear_pH", LEAST_PH, GREATEST_PH, cost="pH", factor=HOURS, channel="pH_clear"),
    Limit(
        "turbidity",
        high=GREATEST_TURBIDITY,
        cost="turbidity",
        factor=HOURS,
        channel="turbidity_filtered",
    ),
    Limit("level", low=EMPTY, trip=True, unit="m"),
)
PENALTIES = {"pH": 5.0, "turbidity": 5.0}
ALUM, CAUSTIC = 0.25e-3, 0.5e-3  # k$/kg
SPILL = 0.5e-3  # k$/m3: the price of the lost water
CLEAR, REBATE = 0.1, 4e-4  # NTU; k$ for a cubic metre and NTU above it
CAUSTIC_MASS = 0.04  # kg/eq
POWER = 1e-4  # k$/kWh
WASH = 0.2  # k$ for the work and the sludge of a backwash
TRIP_COST = 50.0  # k$
TERMS = (
    Term("alum", "kg", -ALUM),
    Term("caustic", "kg", -CAUSTIC),
    Term("mixing", "kWh", -POWER),
    Term("backwashes", "1", -WASH),
    Term("turbid water", "NTU m3", -REBATE),
    Term("spilled water", "m3", -SPILL),
    Term("trips", "1", -TRIP_COST),
)


def quantities(c: Constants, works: Works, flow: Array) -> dict[str, Array]:
    """The limited quantities."""
    filtered = filter_outlet(c, works, flow)
    return {
        "clear_pH": ph_of_water(works.clear_acid, works.clear_carbonate),
        # A filter in backwash delivers nothing.
        "turbidity": jnp.where(works.washing > 0, 0.0, filtered),
        "level": works.level,
    }


def amounts(
    c: Constants, before: Works, works: Works, dose: Dosing, trip: Array
) -> dict[str, Array]:
    """Amounts in a period: chemicals, mixing, backwashes, turbid and spilled water, trips."""
    water = dose.flow * PERIOD
    filtering = jnp.where(works.washing > 0, 0.0, 1.0)
    turbid = jnp.maximum(filter_outlet(c, works, dose.flow) - CLEAR, 0)
    return {
        "alum": water * dose.alum * 1e-3,
        "caustic": water * dose.caustic * CAUSTIC_MASS,
        # Velocity gradient: the power in a volume V is G^2 mu V, with mu = 1.2e-3 Pa s.
        "mixing": HOURS * dose.gradient**2 * 1.2e-6 * 3 * c.flocculator,
        "backwashes": jnp.where(works.run < before.run, 1.0, 0.0),
        "turbid water": filtering * water * turbid,
        "spilled water": works.spilled,
        "trips": trip,
    }


def reward(c: Constants, before: Works, works: Works, dose: Dosing, trip: Array) -> Array:
    """Cost of the treatment in a period, k$, as a negative number.

    The cost consists of chemicals, mixing power, backwashes, a rebate for turbid water, and spilled
    water. Water sales are left out, because no controller influences how much the town takes.
    """
    water = dose.flow * PERIOD
    alum = ALUM * water * dose.alum * 1e-3
    caustic = CAUSTIC * water * dose.caustic * CAUSTIC_MASS
    # Velocity gradient: the power in a volume V is G^2 mu V, with mu = 1.2e-3 Pa s.
    power = POWER * HOURS * dose.gradient**2 * 1.2e-6 * 3 * c.flocculator
    backwash = jnp.where(works.run < before.run, WASH, 0.0)
    filtering = jnp.where(works.washing > 0, 0.0, 1.0)
    turbid = jnp.maximum(filter_outlet(c, works, dose.flow) - CLEAR, 0)
    rebate = REBATE * filtering * water * turbid
    spilled = SPILL * works.spilled
    cost = alum + caustic + power + backwash + rebate + spilled
    return -cost - jnp.where(trip, TRIP_COST, 0.0)


def dosing(inputs: Any) -> Dosing:
    """The actuators by name."""
    return Dosing(*(inputs[i] for i in range(4)))
