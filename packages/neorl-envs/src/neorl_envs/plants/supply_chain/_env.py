"""The supply chain as a simulated plant: base-stock control and declarations."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, CostChannel, Policy
from neorl_core.control import BaseStock, ConstantPolicy
from neorl_envs.blocks import Actuator, Instrument, Limit, Term
from neorl_envs.plants._simulated import Moment, SimulatedPlant
from neorl_envs.plants.supply_chain import _physics as physics
from neorl_envs.plants.supply_chain._physics import LANES, RECEIVES, RETAILER

# Base-stock control: orders fill the inventory position to a level, shared among suppliers.


LARGEST_ORDER = 50.0


class Rule(NamedTuple):
    """Parameters of a base-stock rule.

    Attributes:
        levels: Levels of the six nodes, units.
        shares: Fraction of the receiver's order that goes to each lane.
        forecast: Multiple of yesterday's demand that is added to each level.
        downstream: Fraction of the mean inventory position of distributors and shop that is added
            to that of the factories.
    """

    levels: tuple[float, ...]
    shares: tuple[float, ...]
    forecast: tuple[float, ...] = (0.0,) * 6
    downstream: float = 0.0


ORDINARY = Rule(
    (260.0, 230.0, 200.0, 50.0, 20.0, 0.0), (0.6, 0.4, 0.3, 0.4, 0.4, 0.3, 0.6, 1.0, 1.0, 1.0)
)
STRONG = Rule(
    (250.0, 205.0, 190.0, 63.0, 70.0, 18.5),
    (0.73, 0.27, 0.36, 0.55, 0.41, 0.23, 0.45, 1.0, 1.0, 1.0),
    (2.7, 2.9, 5.0, 1.1, 1.5, 1.7),
    0.38,
)


def base_stock(rule: Rule) -> BaseStock:
    """Orders that fill the inventory positions up to the rule's levels, lane by lane."""
    receiver = np.argmax(RECEIVES, axis=0)
    lanes = len(LANES)
    # on hand, backlog, last demand, in the pipeline, arriving (already part of the pipeline)
    position = np.concatenate(
        [np.eye(6), -RETAILER[:, None], np.zeros((6, 1)), RECEIVES, np.zeros((6, lanes))], axis=1
    )
    position[3:] += rule.downstream * position[:3].mean(axis=0)
    position[:, 7] = -np.asarray(rule.forecast)
    shares = np.asarray(rule.shares)
    return BaseStock(
        level=jnp.asarray(shares * np.asarray(rule.levels)[receiver], jnp.float32),
        position=jnp.asarray(shares[:, None] * position[receiver], jnp.float32),
        low=jnp.zeros(lanes),
        high=jnp.full(lanes, LARGEST_ORDER),
    )


def bad_policy() -> ConstantPolicy:
    """Raw materials at full rate and nothing for the shop: full stores and unserved customers."""
    outside = np.array([supplier > 6 for supplier, _ in LANES])
    return ConstantPolicy(jnp.where(outside, LARGEST_ORDER, 0.0))


STORES = 900.0
REWARD_SCALE = physics.REWARD_SCALE
NAMES = tuple(f"{supplier}_to_{receiver}" for supplier, receiver in physics.LANES)


def _instruments() -> tuple[Instrument, ...]:
    full = LARGEST_ORDER
    channels = (
        *(Channel(f"stock_{n}", "1", -200.0, 5000.0) for n in physics.NODES),
        Channel("backlog", "1", 0.0, 4000.0),
        Channel("demand", "1", 0.0, 64.0),
        *(
            Channel(f"pipeline_{name}", "1", 0.0, full * max(lead, 1))
            for name, lead in zip(NAMES, physics.LEAD_TIME.tolist(), strict=True)
        ),
        *(Channel(f"arriving_{name}", "1", 0.0, full) for name in NAMES),
    )
    return tuple(Instrument(channel) for channel in channels)


class SupplyChain(SimulatedPlant):
    """Orders on ten lanes between six stock points and a market; see :mod:`.supply_chain`.

    Attributes:
        legacy_allocation: Whether to behave as or-gym, for comparison: the same stock may be
            promised to several buyers, so it can become negative, and stocks are worth nothing.

    Example:
        >>> env = SupplyChain()
        >>> env.spec.n_obs, env.spec.n_action
        (28, 10)
    """

    horizon: int = eqx.field(static=True, default=60)
    legacy_allocation: bool = eqx.field(static=True, default=False)

    name: ClassVar[str] = "SupplyChain-v0"
    dt = physics.DAY
    reward_unit: ClassVar[str] = "100 $"
    terms: ClassVar[tuple[Term, ...]] = physics.TERMS
    exogenous: ClassVar[tuple[str, ...]] = ("demand",)
    reference: ClassVar[str] = "base stock with forecast"
    graph: ClassVar[tuple[str, ...]] = physics.GRAPH
    glossary: ClassVar[str] = (
        "A return is the profit of sixty days in hundreds of dollars. The controllers order up to "
        "target levels of the inventory position."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: stocks of six nodes, backlog of the shop, demand of the day before, and for "
        "each lane the goods on the way and those that arrive tomorrow. Manipulated: the orders "
        "on the lanes."
    )
    constants = physics.Constants()
    relations = physics.RELATIONS
    initial = physics.START
    initial_spread = physics.Network._make((10.0, 0.0, 0.0, 0.0))
    instruments = _instruments()
    actuators = tuple(
        Actuator(Channel(f"order_{name}", "1", 0.0, LARGEST_ORDER), start=0.0) for name in NAMES
    )
    costs = (
        CostChannel("inventory", "100 units", 5.0, "episode"),
        CostChannel("delays", "1", 15.0, "episode"),
    )
    limits = (
        Limit("total_stock", high=STORES, cost="inventory", factor=0.01, unit="units"),
        Limit("stock", low=0.0, cost="inventory", unit="units"),
        Limit("unserved", high=0.0, cost="delays", unit="1"),
    )
    penalties: ClassVar[dict[str, float]] = {"inventory": 1.0, "delays": 2.0}

    def admit(
        self, c: physics.Constants, plant: physics.Network, command: Float[Array, "10"]
    ) -> Float[Array, "10"]:
        """Orders rounded to whole units."""
        return jnp.round(command)

    def begin(
        self, c: physics.Constants, initial: physics.Network, key: PRNGKeyArray
    ) -> physics.Network:
        """Initial stocks rounded to whole units."""
        return initial._replace(stock=jnp.round(initial.stock))

    def begin_disturbance(self, c: physics.Constants, key: PRNGKeyArray) -> physics.Market:
        """Samples a phase of the season; all lanes are open."""
        return physics.market_at_start(c, key)

    def sample_process_noise(self, c: physics.Constants, key: PRNGKeyArray) -> physics.MarketNoise:
        """Random numbers for demand and disruptions."""
        return physics.sampled_market(c, key)

    def disturb(
        self,
        c: physics.Constants,
        disturbance: physics.Market,
        noise: physics.MarketNoise,
        time: Array,
    ) -> physics.Market:
        """Demand and open lanes of the period."""
        return physics.market_later(c, disturbance, noise, time)

    def evolve(
        self,
        c: physics.Constants,
        plant: physics.Network,
        inputs: Float[Array, "10"],
        disturbance: physics.Market,
        time: Array,
    ) -> physics.Network:
        """The network one period later."""
        return physics.one_period(
            c,
            plant,
            inputs,
            disturbance.demand,
            physics.is_closed(disturbance),
            legacy=self.legacy_allocation,
        )

    def measure(self, c: physics.Constants, now: Moment) -> Float[Array, "28"]:
        """Stocks, backlog, last demand, pipelines and next arrivals."""
        shop = jnp.stack([now.plant.owed, now.disturbance.demand])
        lanes = (physics.in_pipeline(now.plant), physics.arriving(now.plant))
        return jnp.concatenate([now.plant.stock, shop, *lanes])

    def quantities(self, c: physics.Constants, now: Moment) -> dict[str, Array]:
        """Units in all stores, in each store, and the fraction of demand that was not served."""
        demand_and_backlog = now.plant.served + now.plant.owed
        return {
            "total_stock": jnp.sum(jnp.maximum(now.plant.stock, 0)),
            "stock": now.plant.stock,
            "unserved": now.plant.owed / jnp.maximum(demand_and_backlog, 1),
        }

    def reward(
        self, c: physics.Constants, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> Array:
        """Profit of the period, 100 $: cash plus the change in worth of the stocks."""
        cash = physics.profit(c, now.plant)
        if self.legacy_allocation:
            return cash / REWARD_SCALE
        increase = physics.worth(c, now.plant) - physics.worth(c, before.plant)
        return (cash + increase) / REWARD_SCALE

    def amounts(
        self, c: physics.Constants, before: Moment, now: Moment, trip: Bool[Array, ""]
    ) -> dict[str, Array]:
        """Sales, every kind of expense, and the change in worth of the stocks, $."""
        increase = physics.worth(c, now.plant) - physics.worth(c, before.plant)
        if self.legacy_allocation:
            increase = jnp.zeros_like(increase)
        return {**physics.ledger(c, now.plant), "worth of stocks": increase}

    def tunings(self) -> dict[str, Policy]:
        """The controllers by name, the ordinary one first."""
        return {
            "base stock": base_stock(ORDINARY),
            self.reference: base_stock(STRONG),
        }
