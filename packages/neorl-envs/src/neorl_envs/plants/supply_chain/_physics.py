"""Six stock points and ten lanes: constants, state, disturbances, and the order of events."""

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_envs.blocks import Relation, Term, constant

DAY = 86400.0
PAPER = "NetInvMgmt of or-gym, Perez et al. 2021, Processes 9:102"
OWN = "own choice"

LANES = ((2, 1), (3, 1), (4, 2), (4, 3), (5, 2), (6, 2), (6, 3), (7, 4), (8, 5), (8, 6))
"""Supplier and receiver of every lane; 7 and 8 are raw materials without limit."""
LEAD_TIME = np.array((5, 3, 8, 10, 9, 11, 12, 0, 2, 0))
"""Periods between order and delivery."""
LONGEST = int(LEAD_TIME.max())
NODES = range(1, 7)
SUPPLIES = np.array([[supplier == n for supplier, _ in LANES] for n in NODES], np.float32)
RECEIVES = np.array([[receiver == n for _, receiver in LANES] for n in NODES], np.float32)
BOUGHT_OUTSIDE = np.array([supplier > 6 for supplier, _ in LANES], np.float32)
RETAILER = np.array([n == 1 for n in NODES], np.float32)
HIGHEST_DEMAND = 64
REWARD_SCALE = 100.0  # $
EXPENSES = ("raw materials", "operation", "holding", "pipeline", "backlog")
TERMS = (
    Term("sales", "$", 1 / REWARD_SCALE),
    *(Term(name, "$", -1 / REWARD_SCALE) for name in EXPENSES),
    Term("worth of stocks", "$", 1 / REWARD_SCALE),
)

GRAPH = (
    *(f"stock_{n} = store{n}.stock" for n in NODES),
    "backlog = store1.backlog", "demand = store1.demand", "source7", "source8",
    *(
        f"{channel}_{s}_to_{r} = lane{s}-{r}.{channel}"
        for channel in ("pipeline", "arriving", "order") for s, r in LANES
    ),
    *(f"customer{r}-{s}" for s, r in LANES),
)  # fmt: skip
"""The chain as a graph: stores and sources, lanes with their orders, and a reverse edge for each
lane, which passes information from a receiver to its supplier."""


class Constants(NamedTuple):
    """Prices in $ per unit, and further parameters of nodes, lanes and market, each in order.

    Attributes:
        price: Price of a unit on every lane.
        pipeline: Cost of holding a unit on the way for a period.
        holding: Cost of holding a unit in stock for a period.
        capacity: Largest production of a node in a period; a large number for distributors.
        operating: Operating cost of producing a unit.
        retail_price: Retail price of a unit.
        backlog: Cost of owing a unit for a period.
        demand: Mean demand in a period.
        season: Relative amplitude of the season.
        season_length: Length of the season in periods.
        variability: 1 for Poisson-distributed demand, 0 for its mean.
        disruption: Probability that a lane closes in a period.
        shortest: Smallest number of periods that a lane stays closed.
        longest: Largest number of periods that a lane stays closed.
    """

    price: Array = constant((1.5, 1.6, 1.0, 0.8, 0.7, 0.75, 0.8, 0.15, 0.07, 0.2), "$", PAPER)
    pipeline: Array = constant(
        (0.010, 0.015, 0.008, 0.006, 0.005, 0.007, 0.004, 0.0, 0.002, 0.0),
        "$",
        PAPER,
        domain="not negative",
    )
    holding: Array = constant((0.030, 0.020, 0.015, 0.012, 0.013, 0.011), "$", PAPER)
    capacity: Array = constant((1e6, 1e6, 1e6, 90.0, 90.0, 80.0), "1", PAPER)
    operating: Array = constant(
        (0.0, 0.0, 0.0, 0.010, 0.015, 0.012), "$", PAPER, domain="not negative"
    )
    retail_price: Array = constant(2.0, "$", PAPER)
    backlog: Array = constant(0.1, "$", PAPER)
    demand: Array = constant(20.0, "1", PAPER, spread=1.5)
    season: Array = constant(0.3, "1", OWN, clean=0.0, domain="fraction")
    season_length: Array = constant(30.0, "periods", OWN)
    variability: Array = constant(1.0, "1", OWN, clean=0.0, domain="not negative")
    disruption: Array = constant(0.02, "1", OWN, clean=0.0, domain="fraction")
    shortest: Array = constant(5.0, "periods", OWN)
    longest: Array = constant(10.0, "periods", OWN)


RELATIONS = (
    Relation("shortest", "<=", "longest", "periods that a lane stays closed"),
    Relation("demand", "<=", 40.0, "the market takes at most 64 units per period"),
    Relation(0.0, "<=", "initial.stock"),
    Relation(0.0, "<=", "initial.shipped"),
    Relation(0.0, "<=", "initial.owed"),
)


class Network(NamedTuple):
    """Units in stock and on the way.

    Attributes:
        stock: Stock on hand at the nodes, shape ``(6,)``.
        shipped: Units shipped on every lane in the last periods, newest first, shape ``(12, 10)``.
        owed: Backlog of the retailer.
        served: Units sold by the retailer in the last period.
    """

    stock: Float[Array, "6"]
    shipped: Float[Array, "12 10"]
    owed: Float[Array, ""]
    served: Float[Array, ""]


START = Network._make((np.array((100.0, 110, 80, 160, 140, 150)), np.zeros((12, 10)), 0.0, 0.0))


def in_pipeline(network: Network) -> Float[Array, "10"]:
    """Units on the way on every lane."""
    in_transit = np.arange(LONGEST)[:, None] < LEAD_TIME
    return jnp.sum(jnp.where(in_transit, network.shipped, 0), axis=0)


def arriving(network: Network) -> Float[Array, "10"]:
    """Units that every lane delivers in the coming period, independent of new orders."""
    due = np.arange(LONGEST)[:, None] == LEAD_TIME - 1
    return jnp.sum(jnp.where(due, network.shipped, 0), axis=0)


def allocate(
    c: Constants, stock: Float[Array, "6"], ordered: Float[Array, "10"], legacy: bool
) -> Float[Array, "10"]:
    """Shipments of the suppliers for the orders, in whole units.

    Each lane gets at most the stock and the capacity of its supplier. If the lanes of one supplier
    together order more than that, each gets the same fraction of its order. With ``legacy``, each
    gets its full order, as in or-gym, and the stock may become negative.
    """
    supplies = jnp.asarray(SUPPLIES, stock.dtype)
    available = jnp.minimum(stock, c.capacity)
    outside = jnp.asarray(BOUGHT_OUTSIDE, stock.dtype) > 0
    one = jnp.where(outside, ordered, jnp.minimum(ordered, available @ supplies))
    if legacy:
        return one
    total = supplies @ one
    part = jnp.minimum(1, jnp.maximum(available, 0) / jnp.maximum(total, 1))
    # a thousandth of a unit exceeds any rounding error of the product
    fair = jnp.floor(jnp.maximum(one, 0) * (part @ supplies) + 1e-3)
    return jnp.where(outside, ordered, fair)


def one_period(
    c: Constants,
    network: Network,
    ordered: Float[Array, "10"],
    demand: Float[Array, ""],
    closed: Array,
    *,
    legacy: bool,
) -> Network:
    """Simulates one period: orders, deliveries, shipments, then demand and backlog."""
    ordered = jnp.where(closed, 0, jnp.round(ordered))
    shipped = allocate(c, network.stock, ordered, legacy)
    at_once = jnp.asarray(LEAD_TIME == 0)
    delivered = jnp.where(at_once, shipped, arriving(network))
    receives, supplies = (jnp.asarray(m, shipped.dtype) for m in (RECEIVES, SUPPLIES))
    stock = network.stock + receives @ delivered - supplies @ shipped
    demand_and_backlog = demand + network.owed
    served = jnp.minimum(demand_and_backlog, stock[0])
    retailer = jnp.asarray(RETAILER, stock.dtype)
    return Network(
        stock=stock - served * retailer,
        shipped=jnp.concatenate([shipped[None], network.shipped[:-1]]),
        owed=demand_and_backlog - served,
        served=served,
    )


def ledger(c: Constants, network: Network) -> dict[str, Array]:
    """Cash of a period by kind, $: sales, raw materials, operation, holding, pipeline, backlog."""
    shipped = network.shipped[0]
    outside, supplies = (jnp.asarray(m, shipped.dtype) for m in (BOUGHT_OUTSIDE, SUPPLIES))
    produced = supplies @ shipped
    return {
        "sales": c.retail_price * network.served,
        "raw materials": jnp.sum(c.price * outside * shipped),
        "operation": jnp.sum(c.operating * produced),
        "holding": jnp.sum(c.holding * network.stock),
        "pipeline": jnp.sum(c.pipeline * in_pipeline(network)),
        "backlog": c.backlog * network.owed,
    }


def profit(c: Constants, network: Network) -> Float[Array, ""]:
    """Cash of a period: sales minus all expenses, $."""
    cash = ledger(c, network)
    expenses = [cash[name] for name in EXPENSES]
    return functools.reduce(operator.sub, expenses, cash["sales"])


def unit_costs(c: Constants) -> tuple[Float[Array, "6"], Float[Array, "10"]]:
    """Cost of a unit when it arrives at a node, and when it enters a lane, $.

    The cost consists of raw material, operation and holding on the way, for the cheapest route.
    """
    node: dict[int, Array] = {}
    leaving: dict[int, Array] = {}
    # The lanes are listed from the shop upstream, so raw materials come last.
    for i, (supplier, receiver) in reversed(list(enumerate(LANES))):
        unit_cost = (
            c.price[i] if supplier > len(NODES) else node[supplier] + c.operating[supplier - 1]
        )
        leaving[i] = unit_cost
        arrived = unit_cost + float(LEAD_TIME[i]) * c.pipeline[i]
        node[receiver] = jnp.minimum(node.get(receiver, arrived), arrived)
    return jnp.stack([node[n] for n in NODES]), jnp.stack([leaving[i] for i in range(len(LANES))])


def worth(c: Constants, network: Network) -> Float[Array, ""]:
    """Worth of all units in stock and on the way, valued at their cost, $."""
    node, leaving = unit_costs(c)
    age = jnp.arange(1, LONGEST + 1, dtype=node.dtype)[:, None]
    each = leaving[None] + c.pipeline[None] * age
    in_transit = np.arange(LONGEST)[:, None] < LEAD_TIME
    on_lanes = jnp.sum(jnp.where(in_transit, network.shipped, 0) * each)
    return jnp.sum(node * network.stock) + on_lanes


# Disturbances of the chain: seasonal and random demand, and lanes that close.


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
