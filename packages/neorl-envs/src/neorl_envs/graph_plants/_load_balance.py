"""Load balancing over a network whose topology may change, one link per step."""

import functools
import random
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, InputError, Policy, Spec, Step
from neorl_envs.graph_plants._parts import (
    NetworkPolicy,
    both_ways,
    endless_step,
    link_channels,
    noise_scale,
    require_sizes,
)
from neorl_envs.plants._protocol import PlantDefaults

# Baselines on LoadBalance: a random, a greedy and a diffusion policy.


class _OneMove(NetworkPolicy):
    """A policy of a LoadBalance that infers the possible moves from the observation."""

    def usable(self, obs: Float[Array, " obs"]) -> Bool[Array, " act"]:
        """Which moves are possible according to the observation."""
        n_action = self.plant.spec.n_action
        if self.plant.switching or self.plant.sizes_vary:
            return obs[-n_action:] > 0.5
        return jnp.ones(n_action, jnp.bool_)


class GreedyBalance(_OneMove):
    """Makes the move that lowers the spread most, over the link with the largest load difference.

    A move over a difference ``D`` lowers the sum of squares by ``0.18 D^2``, so no single move
    lowers it more; over several steps, other policies may be better.
    """

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action with one at the chosen move and zero elsewhere; the key is ignored."""
        width = 3 if self.plant.sizes_vary else 2
        loads = obs[: width * self.plant.n_nodes : width]
        senders, receivers = jnp.asarray(self.plant.senders), jnp.asarray(self.plant.receivers)
        difference = loads[senders] - loads[receivers]
        gain = jnp.where(self.usable(obs), difference, -jnp.inf)
        return carry, jax.nn.one_hot(jnp.argmax(gain), len(gain), dtype=obs.dtype)


class RandomMoves(_OneMove):
    """Chooses one of the possible moves with equal probability."""

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action with one at the chosen move and zero elsewhere.

        Raises:
            ValueError: If no key is given.
        """
        if key is None:
            raise ValueError("moves are drawn at random: give a key, policy(carry, obs, key)")
        usable = self.usable(obs)
        chosen = jax.random.categorical(key, jnp.where(usable, 0.0, -jnp.inf))
        return carry, jax.nn.one_hot(chosen, len(usable), dtype=obs.dtype)


def diffusion_rewards(plant: Any, params: Any, key: PRNGKeyArray) -> Float[Array, " time"]:
    """Rewards of one episode in which every link moves load in every step, as an upper reference.

    This is first-order diffusion, ``L_i' = L_i + rate sum_j (L_j - L_i)`` over the links of ``i``,
    clipped as in the plant. No policy of the plant can do this, because it makes only one move per
    step. The rate is limited to ``1 / (1 + most links of a node)``, above which diffusion may
    diverge.

    Args:
        plant: A LoadBalance.
        params: Topology of the episode.
        key: Random key. It is split in two: one half gives the initial loads as in ``reset``, the
            other the links of every step as in ``step``.

    Source: Cybenko, Dynamic load balancing for distributed memory multiprocessors, Journal of
    Parallel and Distributed Computing 7 (1989).
    """
    for_reset, for_steps = jax.random.split(key)
    state, _ = plant.reset(params, for_reset)
    senders, receivers = jnp.asarray(plant.senders), jnp.asarray(plant.receivers)

    def step(state: Any, step_key: PRNGKeyArray) -> tuple[Any, Array]:
        usable = plant.there(params, state.links)
        degree = jnp.zeros_like(state.loads).at[senders].add(usable.astype(state.loads.dtype))
        rate = jnp.minimum(params.rate, 1 / (1 + jnp.max(degree)))
        flow = jnp.where(usable, rate * (state.loads[senders] - state.loads[receivers]), 0)
        loads = jnp.clip(state.loads.at[receivers].add(flow), 0, 1)
        links = plant.links_after(params, state, plant.sample_noise(params, step_key))
        return type(state)(loads, links, state.time + 1), -10 * plant.spread(params, loads)

    return jax.lax.scan(step, state, jax.random.split(for_steps, plant.horizon))[1]


Pair = tuple[int, int]


class Topology(NamedTuple):
    """The parameters of one episode: existing nodes and links, and how links change.

    Attributes:
        nodes: Which of the declared nodes exist; missing nodes are the last ones.
        links: Which of the declared pairs are linked at the start of the episode.
        change: Probability per step that a link outside the chain is sampled again.
        density: Probability that a sampled link exists.
        rate: Fraction of the difference in load that one move transfers over a link.
    """

    nodes: Bool[Array, " node"]
    links: Bool[Array, " pair"]
    change: Float[Array, ""]
    density: Float[Array, ""]
    rate: Float[Array, ""]


class BalanceState(NamedTuple):
    """A network between two steps.

    Attributes:
        loads: Load of every declared node, in [0, 1]; zero where the node is missing.
        links: Which of the declared pairs are currently linked.
        time: Number of steps so far.
    """

    loads: Float[Array, " node"]
    links: Bool[Array, " pair"]
    time: Int[Array, ""]


class BalanceNoise(NamedTuple):
    """Random numbers of one step, uniform in [0, 1), one per pair.

    Attributes:
        change: A link is sampled again if this is below ``Topology.change``.
        there: A sampled link exists if this is below ``Topology.density``.
    """

    change: Float[Array, " pair"]
    there: Float[Array, " pair"]


class Balance(NamedTuple):
    """Information of a step besides the observation.

    Attributes:
        spread: Standard deviation of the loads of existing nodes (divisor ``n - 1``).
        moved: Whether the requested link exists, so that load could move.
    """

    spread: Float[Array, ""]
    moved: Bool[Array, ""]


class LoadBalance(eqx.Module, PlantDefaults):
    """Balances the loads of network nodes by one move over one link per step.

    A move from ``s`` to ``d`` transfers ``t = 0.1 (L_s - L_d)``; then all loads are clipped to
    [0, 1]. Reward: ``-10 std(L)``. Initial loads are uniform in [0, 1), and an episode has 50
    steps. Nodes ``i`` and ``i + 1`` are always linked (the chain); every other pair is linked at
    random.

    The action has one channel per directed link, and the link with the largest number is used.
    Nothing moves if no number is positive, or if that link is missing. A NaN is never the largest.
    ``Step.applied`` is 1 for the link that was used and 0 elsewhere.

    Observations are named by node or link: ``node3.load``, and ``node3.degree`` (number of links
    of the node, divided by the largest possible number). If nodes or links can be missing, there
    are also ``node3.there`` and ``link3-7.there``, which are 1 if the node or link exists. All
    observations of a missing node are zero.

    The rules are those of the source, in which both directions of a link have the same effect and
    links never change. Three options are not in the source: ``directed`` (load flows only from the
    higher to the lower node, and only if the move is requested in that direction), links that
    change, and a number of nodes that varies by episode. Create the plant with
    :func:`load_balance`, which checks the arguments.

    Attributes:
        n_nodes: Declared number of nodes, which is the largest possible; static.
        pairs: Every pair that may be linked, the smaller number first; static.
        directed: Whether direction matters; static.
        switching: Whether links can be missing; static.
        fewest: Smallest number of nodes of an episode; static.
        change: Probability per step that a link outside the chain is sampled again; static.
        density: Probability that a sampled link outside the chain exists; static.
        horizon: Steps after which an episode is truncated; static.

    Source: ``pg_neo_graph_rl/env.py`` of github.com/danieleschmidt/pg-neo-graph-rl, version 0.2.0.
    """

    n_nodes: int = eqx.field(static=True)
    pairs: tuple[Pair, ...] = eqx.field(static=True)
    directed: bool = eqx.field(static=True, default=False)
    switching: bool = eqx.field(static=True, default=False)
    fewest: int = eqx.field(static=True, default=0)
    change: float = eqx.field(static=True, default=0.0)
    density: float = eqx.field(static=True, default=1.0)
    horizon: int = eqx.field(static=True, default=50)

    name: ClassVar[str] = "LoadBalance-v0"
    reward_unit: ClassVar[str] = "points"
    reference: ClassVar[str] = "greedy"
    glossary: ClassVar[str] = (
        "A return is minus ten times the standard deviation of the loads, summed over the steps."
    )
    channel_descriptions: ClassVar[str] = (
        "Measured: the load of every node and the number of its links. Manipulated: one number "
        "for each direction of each link; load moves over the link with the largest."
    )

    @property
    def spec(self) -> Spec:
        """Channels of nodes, then of links, with both directions of a pair next to each other."""
        return _spec(self)

    @property
    def sizes_vary(self) -> bool:
        """Whether nodes can be missing."""
        return 0 < self.fewest < self.n_nodes

    @property
    def senders(self) -> Int[np.ndarray, " action"]:
        """The node that each move leaves."""
        return both_ways(self.pairs)[0]

    @property
    def receivers(self) -> Int[np.ndarray, " action"]:
        """The node that each move enters."""
        return both_ways(self.pairs)[1]

    def tunings(self) -> dict[str, Policy]:
        """A policy of random moves, and one that makes the move that lowers the spread most."""
        return {"random": RandomMoves(self), "greedy": GreedyBalance(self)}

    def default_params(self, preset: str = "plant") -> Topology:
        """A fixed topology with all declared nodes and pairs, for both presets."""
        noise_scale(preset)
        return Topology(
            nodes=jnp.ones(self.n_nodes, jnp.bool_),
            links=jnp.ones(len(self.pairs), jnp.bool_),
            change=jnp.zeros((), jnp.float32),
            density=jnp.asarray(self.density, jnp.float32),
            rate=jnp.asarray(0.1, jnp.float32),
        )

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Topology:
        """Samples the topology of an episode: number of nodes, and links outside the chain."""
        params = self.default_params(preset)
        for_nodes, for_links = jax.random.split(key)
        if self.sizes_vary:
            count = jax.random.randint(for_nodes, (), self.fewest, self.n_nodes + 1)
            params = params._replace(nodes=jnp.arange(self.n_nodes) < count)
        if self.switching:
            drawn = jax.random.uniform(for_links, (len(self.pairs),)) < self.density
            params = params._replace(
                links=drawn | _in_chain(self), change=jnp.asarray(self.change, jnp.float32)
            )
        return params

    def topology(self, pairs: Iterable[Pair], *, n_nodes: int | None = None) -> Topology:
        """The parameters of a fixed network with exactly these links.

        Topologies of the same declared size differ only in the values of the parameters, so they
        share compiled programs.

        Args:
            pairs: Linked pairs in any order and direction; may be empty.
            n_nodes: Number of nodes; all declared ones by default.

        Returns:
            The parameters.

        Raises:
            InputError: If there are no nodes or more than declared, or if a pair is not a declared
                link between existing nodes.
        """
        count = self.n_nodes if n_nodes is None else n_nodes
        if not 1 <= count <= self.n_nodes:
            raise InputError(
                f"a network of {count} nodes does not fit LoadBalance, which declares 1 to "
                f"{self.n_nodes}; make one with load_balance(n_nodes={max(count, 2)})"
            )
        if count < self.n_nodes and not self.sizes_vary:
            raise InputError(
                f"LoadBalance declares no channel for missing nodes, so all {self.n_nodes} must be "
                f"there, got {count}; make one with load_balance(fewest={count})"
            )
        requested_pairs = {(min(pair), max(pair)) for pair in pairs}
        for pair in sorted(requested_pairs - set(self.pairs)):
            raise InputError(
                f"LoadBalance declares no link between the nodes {pair[0]} and {pair[1]}; it has "
                f"{len(self.pairs)} pairs of {self.n_nodes} nodes, to which this one must belong"
            )
        for pair in sorted(requested_pairs):
            if pair[1] >= count:
                raise InputError(f"link {pair} ends at a node beyond the {count} that are there")
        if len(requested_pairs) < len(self.pairs) and not self.switching:
            raise InputError(
                f"LoadBalance declares no channel for missing links, so all {len(self.pairs)} must "
                f"be there, got {len(requested_pairs)}; make one with load_balance(change=0.0)"
            )
        return self.default_params()._replace(
            nodes=jnp.arange(self.n_nodes) < count,
            links=jnp.asarray([pair in requested_pairs for pair in self.pairs], jnp.bool_),
        )

    def sample_noise(self, params: Topology, key: PRNGKeyArray) -> BalanceNoise:
        """Samples the random numbers of one step."""
        if not self.switching:
            none = jnp.ones(len(self.pairs), jnp.float32)
            return BalanceNoise(none, none)
        return BalanceNoise(*jax.random.uniform(key, (2, len(self.pairs))))

    def reset(
        self, params: Topology, key: PRNGKeyArray
    ) -> tuple[BalanceState, Float[Array, " obs"]]:
        """Starts an episode with loads sampled uniformly from [0, 1)."""
        return self.begin(params, jax.random.uniform(key, (self.n_nodes,)))

    def begin(
        self, params: Topology, loads: Float[Array, " node"]
    ) -> tuple[BalanceState, Float[Array, " obs"]]:
        """Starts an episode with given loads."""
        loads = jnp.where(params.nodes, jnp.clip(loads, 0, 1), 0)
        state = BalanceState(loads, params.links, jnp.zeros((), jnp.int32))
        return state, self._observe(params, state)

    def step(
        self, params: Topology, state: BalanceState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[BalanceState, Step]:
        """Makes one move; see :meth:`step_with_noise`."""
        return self.step_with_noise(params, state, action, self.sample_noise(params, key))

    def step_with_noise(
        self,
        params: Topology,
        state: BalanceState,
        action: Float[Array, " act"],
        noise: BalanceNoise,
    ) -> tuple[BalanceState, Step]:
        """Makes one move and changes links by the result of :meth:`sample_noise`; deterministic.

        The action has one number for each directed link, shape ``(act,)``; if several are largest,
        the first of them counts. A ``ValueError`` is raised for another shape.
        """
        if action.shape != (self.spec.n_action,):
            raise ValueError(
                f"an action of LoadBalance has the shape ({self.spec.n_action},), one number for "
                f"each directed link, got {action.shape}"
            )
        preferences = jnp.where(jnp.isnan(action), -jnp.inf, action)
        chosen = jnp.argmax(preferences)
        moved = (preferences[chosen] > 0) & self.there(params, state.links)[chosen]
        sender, receiver = jnp.asarray(self.senders)[chosen], jnp.asarray(self.receivers)[chosen]
        difference = state.loads[sender] - state.loads[receiver]
        if self.directed:
            difference = jnp.maximum(difference, 0)
        carried = jnp.where(moved, params.rate * difference, 0)
        number = jnp.arange(self.n_nodes)
        into, out = ((number == end).astype(carried.dtype) for end in (receiver, sender))
        loads = jnp.clip(state.loads + carried * (into - out), 0, 1)
        after = BalanceState(loads, self.links_after(params, state, noise), state.time + 1)
        spread = self.spread(params, loads)
        applied = moved & (jnp.arange(self.spec.n_action) == chosen)
        return after, endless_step(
            self._observe(params, after), -10 * spread, applied.astype(loads.dtype),
            Balance(spread, moved), time=after.time, horizon=self.horizon,
        )  # fmt: skip

    def links_after(
        self, params: Topology, state: BalanceState, noise: BalanceNoise
    ) -> Bool[Array, " pair"]:
        """The links of the next step; those of the chain never change."""
        if not self.switching:
            return state.links
        anew = (noise.change < params.change) & ~jnp.asarray(_in_chain(self))
        return jnp.where(anew, noise.there < params.density, state.links)

    def there(self, params: Topology, links: Bool[Array, " pair"]) -> Bool[Array, " action"]:
        """Which directed links can be used: those of linked pairs of existing nodes."""
        ends = jnp.asarray(self.pairs, jnp.int32)
        return jnp.repeat(links & params.nodes[ends[:, 0]] & params.nodes[ends[:, 1]], 2)

    def spread(self, params: Topology, loads: Float[Array, " node"]) -> Float[Array, ""]:
        """Standard deviation of loads over existing nodes, divisor ``n - 1``; zero for one node."""
        count = jnp.sum(params.nodes).astype(loads.dtype)
        mean = jnp.sum(jnp.where(params.nodes, loads, 0)) / jnp.maximum(count, 1)
        square = jnp.sum(jnp.where(params.nodes, jnp.square(loads - mean), 0))
        return jnp.sqrt(square / jnp.maximum(count - 1, 1))

    def _observe(self, params: Topology, state: BalanceState) -> Float[Array, " obs"]:
        usable = self.there(params, state.links)
        count = usable.astype(state.loads.dtype) @ jnp.asarray(_incidence(self))
        degree = count / jnp.maximum(jnp.max(count), 1)
        columns = [state.loads, degree]
        if self.sizes_vary:
            columns.append(params.nodes.astype(degree.dtype))
        nodes = jnp.stack(columns, axis=1).reshape(-1)
        if not self.switching and not self.sizes_vary:
            return nodes
        return jnp.concatenate([nodes, usable.astype(nodes.dtype)])


def load_balance(
    n_nodes: int = 12,
    *,
    edge_prob: float = 0.3,
    seed: int = 0,
    horizon: int = 50,
    directed: bool = False,
    change: float | None = None,
    fewest: int | None = None,
) -> LoadBalance:
    """Creates a network with a fixed topology, as in the source, or a changing one.

    Args:
        n_nodes: Number of nodes; the largest number if it varies.
        edge_prob: Probability that a pair outside the chain is linked, in [0, 1].
        seed: Seed of the links of a fixed topology, which are those of the source for the same
            arguments. A changing topology is sampled in every episode instead.
        horizon: Number of steps in an episode.
        directed: Whether direction matters.
        change: Probability per step that a link outside the chain is sampled again; with 0, links
            differ between episodes but not within one. ``None`` fixes the topology of all episodes.
        fewest: Smallest number of nodes of an episode; ``None`` for always ``n_nodes``.

    Returns:
        The plant.

    Raises:
        InputError: Naming the argument that is out of range.

    Example:
        >>> load_balance(14, edge_prob=0.35, seed=7).spec.n_action
        82
    """
    require_sizes(2, n_nodes=n_nodes)
    require_sizes(1, horizon=horizon, fewest=n_nodes if fewest is None else fewest)
    for field, probability in (
        ("edge_prob", edge_prob),
        ("change", 0.0 if change is None else change),
    ):
        if not 0 <= probability <= 1:
            raise InputError(f"{field} must be a probability in [0, 1], got {probability!r}")
    if fewest is not None and fewest > n_nodes:
        raise InputError(f"fewest must be at most n_nodes = {n_nodes}, got {fewest}")
    chain = [(i, i + 1) for i in range(n_nodes - 1)]
    others = [(i, j) for i in range(n_nodes) for j in range(i + 2, n_nodes)]
    if change is None:
        draw = random.Random(seed)
        others = [pair for pair in others if draw.random() < edge_prob]
    return LoadBalance(
        n_nodes,
        (*chain, *others),
        directed,
        switching=change is not None,
        fewest=n_nodes if fewest is None else fewest,
        change=float(change or 0),
        density=float(edge_prob),
        horizon=horizon,
    )


@functools.cache
def _spec(plant: LoadBalance) -> Spec:
    kinds = ("load", "degree", "there") if plant.sizes_vary else ("load", "degree")
    obs = [Channel(f"node{i}.{kind}", "1", 0, 1) for i in range(plant.n_nodes) for kind in kinds]
    ends = both_ways(plant.pairs)
    if plant.switching or plant.sizes_vary:
        obs += link_channels("link", ends, "there", "1", 0, 1)
    action = tuple(link_channels("link", ends, "move", "1", 0, 1))
    return Spec(tuple(obs), action, (), dt=1.0, horizon=plant.horizon)


@functools.cache
def _in_chain(plant: LoadBalance) -> np.ndarray:
    return np.asarray([j == i + 1 for i, j in plant.pairs])


@functools.cache
def _incidence(plant: LoadBalance) -> np.ndarray:
    """One row per action, with 1 at the node that the move leaves."""
    matrix = np.zeros((2 * len(plant.pairs), plant.n_nodes), np.float32)
    matrix[np.arange(len(matrix)), plant.senders] = 1
    return matrix
