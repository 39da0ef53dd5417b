"""Disturbances of the chain: seasons, chance, and lanes that close."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_envs.plants.supply_chain._physics import HIGHEST_DEMAND, LANES, Constants


class Market(NamedTuple):
    """Demand and the state of the lanes.

    Attributes:
        phase: Phase of the season, periods.
        demand: Demand of the last period.
        closed_for: Periods until a lane opens, shape ``(10,)``; zero where it is open.
    """

    phase: Float[Array, ""]
    demand: Float[Array, ""]
    closed_for: Float[Array, "10"]


class MarketNoise(NamedTuple):
    """Uniform draws of one period.

    Attributes:
        demand: Level of the demand's distribution.
        closes: A draw for every lane, which closes it below the chance, shape ``(10,)``.
        length: Length of its closing, shape ``(10,)``.
    """

    demand: Float[Array, ""]
    closes: Float[Array, "10"]
    length: Float[Array, "10"]


def market_at_start(c: Constants, key: PRNGKeyArray) -> Market:
    """All lanes open, somewhere in the season."""
    phase = c.season_length * jax.random.uniform(key, (), c.demand.dtype)
    return Market(phase, jnp.round(c.demand), jnp.zeros(len(LANES), c.demand.dtype))


def sampled_market(c: Constants, key: PRNGKeyArray) -> MarketNoise:
    """The draws of one period."""
    draws = jax.random.uniform(key, (1 + 2 * len(LANES),), c.demand.dtype)
    return MarketNoise(draws[0], draws[1 : 1 + len(LANES)], draws[1 + len(LANES) :])


def market_later(c: Constants, market: Market, noise: MarketNoise, time: Array) -> Market:
    """The market one period later."""
    angle = 2 * jnp.pi * (time.astype(c.demand.dtype) + market.phase) / c.season_length
    mean = c.demand * (1 + c.season * jnp.sin(angle))
    demand = mean + c.variability * (poisson_quantile(mean, noise.demand) - mean)
    opens = jnp.maximum(market.closed_for - 1, 0)
    length = c.shortest + jnp.floor(noise.length * (c.longest - c.shortest + 1))
    closes = (noise.closes < c.disruption) & (opens <= 0)
    return Market(market.phase, jnp.round(demand), jnp.where(closes, length, opens))


def is_closed(market: Market) -> Bool[Array, "10"]:
    """Which lanes accept no order."""
    return market.closed_for > 0


def poisson_quantile(mean: Float[Array, ""], level: Float[Array, ""]) -> Float[Array, ""]:
    """Least whole number whose distribution function reaches the level; at most 64."""
    counts = jnp.arange(HIGHEST_DEMAND, dtype=mean.dtype)
    logs = counts * jnp.log(mean) - mean - jax.lax.lgamma(counts + 1)
    return jnp.sum((jnp.cumsum(jnp.exp(logs)) < level).astype(mean.dtype))
