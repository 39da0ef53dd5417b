"""Objective of the office: comfort, demand and the electricity bill."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import CostChannel
from neorl_envs.blocks import Limit, Term
from neorl_envs.plants.hvac_control._physics import DT_HOURS
from neorl_envs.plants.hvac_control._weather import is_open

OPEN_BAND = (21.0, 24.0)  # degC
CLOSED_BAND = (15.0, 30.0)  # degC
DEMAND_LIMIT = 12.0  # kW
COMFORT_PRICE = 0.5  # $ per K h

COSTS = (
    CostChannel("energy", "kWh", 1.0, "episode"),
    CostChannel("comfort", "K h", 5.0, "episode"),
)
LIMITS = (
    Limit("power", high=DEMAND_LIMIT, cost="energy", factor=DT_HOURS, unit="kW"),
    Limit("discomfort", high=0.0, cost="comfort", factor=DT_HOURS, unit="K"),
)
TERMS = (
    Term("electricity", "kWh", 0.0),  # no fixed worth, since the price varies; the bill includes it
    Term("bill", "$", -1.0),
    Term("discomfort", "K h", -COMFORT_PRICE),
)
PENALTIES = {"energy": 1.0, "comfort": 1.0}


def band(time: Array, dtype: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Lower and upper end of the comfort band, degC."""
    low, high = jnp.where(is_open(time), *jnp.asarray((OPEN_BAND, CLOSED_BAND), dtype))
    return low, high


def discomfort(air: Float[Array, "5"], time: Array) -> Float[Array, ""]:
    """Mean distance of the zones from the comfort band, K."""
    return _distance(air, *band(time, air.dtype))


def measured_outcome(
    power: Float[Array, ""],
    price: Float[Array, ""],
    air: Float[Array, "5"],
    occupancy: Float[Array, ""],
) -> Float[Array, "3"]:
    """Reward and costs of a period from measurements; the office is open if anyone is there.

    Power is the mean in kW, the price in $/kWh, temperatures of the zones are those at the end in
    degC, and the occupancy is a fraction of all people.
    """
    low, high = jnp.where(occupancy > 0, *jnp.asarray((OPEN_BAND, CLOSED_BAND), air.dtype))
    distance = _distance(air, low, high)
    reward = -(price * power + jnp.asarray(COMFORT_PRICE, air.dtype) * distance)
    excess = jnp.maximum(power - DEMAND_LIMIT, 0)
    return jnp.stack([reward, excess, distance]) * DT_HOURS


def _distance(air: Float[Array, "5"], low: Array, high: Array) -> Float[Array, ""]:
    return jnp.mean(jnp.maximum(jnp.maximum(low - air, air - high), 0))
