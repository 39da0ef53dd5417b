"""Disturbances of the chain: seasonal and random demand, and lanes that close."""

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
        closed_for: Periods until each lane opens, shape ``(10,)``; zero for an open lane.
    """

    phase: Float[Array, ""]
    demand: Float[Array, ""]
    closed_for: Float[Array, "10"]


class MarketNoise(NamedTuple):
    """Uniform random numbers of one period.

    Attributes:
        demand: Level of the quantile of the demand.
        closes: A number for every lane, which closes if it is below the probability of a
            disruption, shape ``(10,)``.
        length: Numbers that determine the length of a disruption, shape ``(10,)``.
    """

    demand: Float[Array, ""]
    closes: Float[Array, "10"]
    length: Float[Array, "10"]


def market_at_start(c: Constants, key: PRNGKeyArray) -> Market:
    """Samples a phase of the season, with all lanes open."""
    phase = c.season_length * jax.random.uniform(key, (), c.demand.dtype)
    return Market(phase, jnp.round(c.demand), jnp.zeros(len(LANES), c.demand.dtype))


def sampled_market(c: Constants, key: PRNGKeyArray) -> MarketNoise:
    """The random numbers of one period."""
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
    """Which lanes are closed and accept no orders."""
    return market.closed_for > 0


def poisson_quantile(mean: Float[Array, ""], level: Float[Array, ""]) -> Float[Array, ""]:
    """Quantile of the Poisson distribution: smallest integer at which it reaches the level.

    The result is at most 64.
    """
    counts = jnp.arange(HIGHEST_DEMAND, dtype=mean.dtype)
    logs = counts * jnp.log(mean) - mean - jax.lax.lgamma(counts + 1)
    return jnp.sum((jnp.cumsum(jnp.exp(logs)) < level).astype(mean.dtype))
