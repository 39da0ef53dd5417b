"""Traffic signals of a street grid, with queues that can block each other."""

import functools
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel, Policy, Spec, Step
from neorl_core.control import ConstantPolicy
from neorl_envs.graph_plants._parts import (
    NetworkPolicy,
    Pairs,
    both_ways,
    endless_step,
    grid_pairs,
    link_channels,
    noise_scale,
    random_factors,
    received_command,
    require_sizes,
)
from neorl_envs.plants._protocol import PlantDefaults

LEAST_GREEN, MOST_GREEN = 0.1, 0.9
STORAGE = 40.0  # vehicles that a road holds
CYCLE = 60.0  # s
LEAVING = 0.15
ARRIVALS = 1.6  # vehicles in a cycle
STRAIGHT = 6.0  # going straight is this many times as likely as a turn to one side


class Demand(NamedTuple):
    """Demand on the grid in one episode.

    Attributes:
        arrivals: Mean number of vehicles per cycle that want to enter each road from outside.
        saturation: Number of vehicles that would leave a road in an all-green cycle, without lost
            times.
        chance: Relative size of the random part of the arrivals, between 0 and 1.
    """

    arrivals: Float[Array, " road"]
    saturation: Float[Array, ""]
    chance: Float[Array, ""]


class TrafficState(NamedTuple):
    """The grid between two cycles.

    Attributes:
        queues: Number of vehicles on every road, in [0, 40].
        green: Last green share of the north-south direction at every junction.
        time: Number of cycles so far.
    """

    queues: Float[Array, " road"]
    green: Float[Array, " junction"]
    time: Int[Array, ""]


class Flows(NamedTuple):
    """Numbers of vehicles in one cycle, summed over all roads.

    Attributes:
        entered: Vehicles that entered from outside.
        left: Vehicles that reached their destination.
        refused: Vehicles that found the road full and went elsewhere.
    """

    entered: Float[Array, ""]
    left: Float[Array, ""]
    refused: Float[Array, ""]


class TrafficNetwork(eqx.Module, PlantDefaults):
    """Green shares at the junctions of a street grid; a full road blocks the roads leading to it.

    Neighbouring junctions are connected by a road in each direction. In a cycle of 60 s, road ``z``
    sends ``u_z = min(x_z, S g)`` vehicles, where ``x`` is its queue, ``S`` the saturation flow and
    ``g`` the green share of its direction: the action for north-south, and one minus the action for
    east-west. Of these vehicles, 15 % have reached their destination. The others continue onto the
    other roads of the junction, straight on six times as often as to one side, and never back. A
    road accepts at most the free space ``40 - x``. If more vehicles want to enter, all roads that
    send vehicles there are reduced by the same factor; vehicles leave in order, so one that cannot
    turn holds those behind it. Vehicles from outside then enter if there is still space. Queues
    therefore stay within [0, 40] for any signals, and vehicles are conserved.

    Reward: minus the mean number of vehicles per road. Channels: ``junction5.green``;
    ``junction5.north_south`` and ``junction5.east_west``, the queues that wait in each direction;
    ``road5-6.queue``.

    Attributes:
        rows: Rows of junctions; static.
        columns: Junctions per row; static.
        horizon: Cycles after which an episode is truncated; static.

    Sources: Aboudolas, Papageorgiou and Kosmatopoulos, Store-and-forward based methods for the
    signal control problem in large-scale congested urban road networks, Transportation Research C
    17 (2009), for queues and shares; Daganzo, The cell transmission model, part II, Transportation
    Research B 29 (1995), for full roads. Size, demand and turning rates are our own choice.
    """

    rows: int = eqx.field(static=True, default=3)
    columns: int = eqx.field(static=True, default=4)
    horizon: int = eqx.field(static=True, default=60)

    name: ClassVar[str] = "TrafficNetwork-v0"
    reward_unit: ClassVar[str] = "vehicles"
    reference: ClassVar[str] = "queue shares"
    glossary: ClassVar[str] = (
        "A return is minus the mean number of vehicles on a road, summed over the cycles."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: vehicles on every road, and vehicles waiting for each phase of every junction. "
        "Manipulated: the fraction of the cycle that is green for north and south."
    )

    @property
    def spec(self) -> Spec:
        """Specification: channels of the junctions, then of the roads."""
        return _spec(self)

    @property
    def n_nodes(self) -> int:
        """Number of junctions."""
        return self.rows * self.columns

    def tunings(self) -> dict[str, Policy]:
        """Equal green shares, and shares in proportion to the queues."""
        return {"equal shares": ConstantPolicy(jnp.full(self.n_nodes, 0.5)),
                self.reference: QueueShares(self)}  # fmt: skip

    def default_params(self, preset: str = "plant") -> Demand:
        """Equal mean arrivals on every road; in ``"clean"`` they are not random."""
        arrivals = jnp.full(len(_roads(self)[0]), ARRIVALS, jnp.float32)
        return Demand(arrivals, jnp.float32(27.0), jnp.float32(0.5 * noise_scale(preset)))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Demand:
        """Samples busy and quiet streets, whose arrivals differ by up to ``6 spread``, up or down.

        A street is a row or a column of the grid, in both directions.
        """
        params = self.default_params(preset)
        factor = random_factors(key, (self.rows + self.columns,), min(6 * spread, 1.0))
        senders, _, vertical = _roads(self)
        street = np.where(vertical, self.rows + senders % self.columns, senders // self.columns)
        return params._replace(arrivals=params.arrivals * factor[street])

    def sample_noise(self, params: Demand, key: PRNGKeyArray) -> Float[Array, " road"]:
        """Samples the random numbers of the arrivals of one cycle, uniform in [-1, 1)."""
        return jax.random.uniform(key, params.arrivals.shape, minval=-1.0)

    def reset(self, params: Demand, key: PRNGKeyArray) -> tuple[TrafficState, Float[Array, " obs"]]:
        """Starts an episode with queues sampled uniformly up to a quarter of the storage."""
        queues = jax.random.uniform(key, params.arrivals.shape, maxval=STORAGE / 4)
        return self.begin(queues)

    def begin(self, queues: Float[Array, " road"]) -> tuple[TrafficState, Float[Array, " obs"]]:
        """Starts an episode with given queues."""
        state = TrafficState(
            jnp.clip(queues, 0, STORAGE), jnp.full(self.n_nodes, 0.5), jnp.zeros((), jnp.int32)
        )
        return state, self._observe(state)

    def step(
        self, params: Demand, state: TrafficState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[TrafficState, Step]:
        """Simulates one cycle; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self,
        params: Demand,
        state: TrafficState,
        action: Float[Array, " act"],
        noise: Float[Array, " road"],
    ) -> tuple[TrafficState, Step]:
        """Simulates one cycle with the given result of :meth:`sample_noise`; deterministic.

        The action is the green share of north-south at every junction, shape ``(junction,)``; a
        ``ValueError`` is raised for another shape.
        """
        green = received_command(self.name, action, state.green, LEAST_GREEN, MOST_GREEN)
        _, receivers, vertical = _roads(self)
        share = jnp.where(vertical, green[receivers], 1 - green[receivers])
        sent = jnp.minimum(state.queues, params.saturation * share)
        before, after, parts = _turns(self)
        capacity = STORAGE - state.queues
        requested = jax.ops.segment_sum(sent[before] * parts, after, len(capacity))
        passes = jnp.minimum(1, capacity / jnp.maximum(requested, 1e-6))
        sent = sent * jax.ops.segment_min(passes[after], before, len(capacity))
        inflow = jax.ops.segment_sum(sent[before] * parts, after, len(capacity))
        demand = params.arrivals * (1 + params.chance * noise)
        entered = jnp.minimum(demand, jnp.maximum(capacity - inflow, 0))
        # The clip only removes float32 rounding errors.
        queues = jnp.clip(state.queues - sent + inflow + entered, 0, STORAGE)
        new = TrafficState(queues, green, state.time + 1)
        info = Flows(jnp.sum(entered), LEAVING * jnp.sum(sent), jnp.sum(demand - entered))
        return new, endless_step(
            self._observe(new), -jnp.mean(queues), green, info, time=new.time, horizon=self.horizon
        )

    def _observe(self, state: TrafficState) -> Float[Array, " obs"]:
        _, receivers, vertical = _roads(self)
        phases = [
            jax.ops.segment_sum(jnp.where(phase, state.queues, 0), receivers, self.n_nodes)
            for phase in (vertical, ~vertical)
        ]
        return jnp.concatenate([jnp.stack(phases, axis=1).reshape(-1), state.queues])


class QueueShares(NetworkPolicy):
    """Green shares in proportion to the longest queue in each direction.

    If a junction can serve both of its longest queues within a cycle, these shares do so; if not,
    the same fraction of both remains. Every junction decides on its own.
    """

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The green shares of all junctions; the key is ignored."""
        _, receivers, vertical = _roads(self.plant)
        count = self.plant.n_nodes
        vertical_queue, horizontal_queue = (
            jax.ops.segment_max(jnp.where(phase, obs[2 * count :], 0), receivers, count)
            for phase in (vertical, ~vertical)
        )
        share = (vertical_queue + 0.1) / (vertical_queue + horizontal_queue + 0.2)
        return carry, jnp.clip(share, LEAST_GREEN, MOST_GREEN)


def traffic_network(rows: int = 3, columns: int = 4, *, horizon: int = 60) -> TrafficNetwork:
    """Creates a street grid with traffic signals.

    Args:
        rows: Rows of junctions, at least two, so that no road is a dead end.
        columns: Junctions per row, at least two.
        horizon: Number of cycles in an episode.

    Raises:
        InputError: If an argument is not an integer or is too small.

    Example:
        >>> traffic_network(25, 40).n_nodes
        1000
    """
    require_sizes(2, rows=rows, columns=columns)
    require_sizes(1, horizon=horizon)
    return TrafficNetwork(rows, columns, horizon)


@functools.cache
def _pairs(plant: TrafficNetwork) -> Pairs:
    return grid_pairs(plant.rows, plant.columns)


@functools.cache
def _roads(plant: TrafficNetwork) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and end of every road, and whether it runs north-south."""
    senders, receivers = both_ways(_pairs(plant))
    return senders, receivers, np.abs(senders - receivers) == plant.columns


@functools.cache
def _turns(plant: TrafficNetwork) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Incoming road, outgoing road and fraction of vehicles of every turn at every junction."""
    senders, receivers, vertical = _roads(plant)
    leaving: dict[int, list[int]] = {}
    for road, junction in enumerate(senders.tolist()):
        leaving.setdefault(junction, []).append(road)
    turns = []
    for road, junction in enumerate(receivers.tolist()):
        exits = [one for one in leaving[junction] if receivers[one] != senders[road]]
        weights = [STRAIGHT if vertical[one] == vertical[road] else 1.0 for one in exits]
        turns += [
            (road, one, (1 - LEAVING) * weight / sum(weights))
            for one, weight in zip(exits, weights, strict=True)
        ]
    before, after, parts = zip(*turns, strict=True)
    return np.asarray(before), np.asarray(after), np.asarray(parts, np.float32)


@functools.cache
def _spec(plant: TrafficNetwork) -> Spec:
    junctions, ends = range(plant.n_nodes), both_ways(_pairs(plant))
    phases = ("north_south", "east_west")
    obs = [Channel(f"junction{i}.{p}", "1", 0, 2 * STORAGE) for i in junctions for p in phases]
    obs += link_channels("road", ends, "queue", "1", 0, STORAGE)
    action = tuple(Channel(f"junction{i}.green", "1", LEAST_GREEN, MOST_GREEN) for i in junctions)
    return Spec(tuple(obs), action, (), dt=CYCLE, horizon=plant.horizon)
