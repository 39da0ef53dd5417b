"""Implicit quantile networks with parts of Rainbow, for one agent of a population."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import QuantileNetwork, init_quantile_network
from neorl_agents.optimisers import descend, init_optimiser
from neorl_agents.populations._memory import (
    Episode,
    Memory,
    Shape,
    Windows,
    draw_windows,
    empty_memory,
    episode_windows,
    remember,
    windows_known,
)
from neorl_core.infrastructure import require_settings, setting
from neorl_core.losses import quantile_huber_loss
from neorl_core.replay import (
    PriorityTree,
    priority_tree,
    priority_weights,
    sample_priorities,
    set_priorities,
)
from neorl_core.targets import polyak

LEAST_PRIORITY = 1e-6

Semantics = Literal["mended", "2a24efc", "head"]


class Agent(NamedTuple):
    """One agent; a population is the same with a leading axis on every leaf.

    Attributes:
        network: Parameters that are trained and that act.
        target: Parameters of the target network.
        optimiser: State of the optimiser.
        memory: Memory of past episodes.
        epsilon: Probability of a random action.
        updates: Gradient steps so far.
        priorities: Priorities of the turns in memory if sampling is prioritised; else ``None``.
    """

    network: QuantileNetwork
    target: QuantileNetwork
    optimiser: Any
    memory: Memory
    epsilon: Float[Array, ""]
    updates: Int[Array, ""]
    priorities: PriorityTree | None = None


class UpdateDraws(NamedTuple):
    """The random numbers of one gradient step, except for the choice of rows.

    Attributes:
        next_levels: Levels at which the network chooses the best next action.
        target_levels: Levels at which the target is evaluated.
        levels: Levels of the quantiles that are trained.
        noise: Noise of the network at the next input, of the target, and of the network; ``None``
            for networks without noise.
    """

    next_levels: Float[Array, "batch quantile"]
    target_levels: Float[Array, "batch quantile"]
    levels: Float[Array, "batch quantile"]
    noise: tuple[Array | None, Array | None, Array | None]


class IQN(eqx.Module):
    """Double implicit quantile networks with noisy and duelling layers and n-step targets.

    One gradient step, with ``Z`` the quantiles of the network, ``Z'`` those of the target, and
    ``i``, ``j`` indices of sampled levels ``tau``:

    ``a* = argmax_a mean Z(s_n, a)``,
    ``d_ij = R + discount^n (1 - terminated) Z'_j(s_n, a*) - Z_i(s, a)``,
    ``loss = mean |tau_i - 1[d_ij < 0]| huber(d_ij)``, over batch and both levels;

    by Adam with gradients clipped to a global norm of 1; then the target moves by ``tau``. Every
    ``copy_every`` episodes, including the first, the target is set to the network.

    ``semantics="mended"`` samples windows of frames inside one episode, marks its end, sums ``n``
    rewards and bootstraps past a time limit. The others reproduce the source at commit 2a24efc or
    in release 1.4.0: windows cross from one episode into rows of an older one, no end is ever
    marked, and a single reward is combined with ``discount^n``.

    Attributes:
        hidden: Width of the hidden layers; static.
        frames: Number of observations in one input; static.
        n_step: Steps of a target; static.
        quantiles: Number of levels in a gradient step; static.
        acting_quantiles: Number of levels whose mean is the value for acting; static.
        batch_size: Rows of one gradient step; static.
        capacity: Turns that an agent remembers; static.
        copy_every: Episodes between two copies to the target; 0 for none; static.
        noisy: Whether the last layers have noise during training; static.
        dueling: Whether advantages and value are separate outputs; static.
        prioritised: Whether turns are sampled in proportion to ``(their last loss)^priority``, new
            ones with the largest so far, with the weights of prioritised replay; static.
        semantics: ``"mended"`` or a version of the source, as above; static.
        learning_rate: Learning rate of Adam.
        discount: Discount of the reward per step.
        tau: Fraction by which the target moves after every gradient step.
        epsilon: Probability of a random action in the first episode.
        epsilon_decay: Fraction by which it falls after every episode.
        epsilon_floor: Smallest probability of a random action.
        priority: Exponent of the priorities.
        importance: Exponent of the weights; 1 undoes the priorities.

    The default target is that of the source, one reward with a discount of ``0.99**3``. A sum of
    three rewards at 0.99 each was not better than random play on the treasure hunt
    (``tools/studies/benchmarks/results/hunt_learning.json``: 19.4 in the last tenth, random play
    23.0, the default 99.7).

    Source: Dabney et al., arXiv 1806.06923; Hessel et al., Rainbow, arXiv 1710.02298; defaults are
    those of ``sorrel/examples/treasurehunt`` in release 1.4.0.
    """

    hidden: int = setting(250, low=1, static=True)
    frames: int = setting(5, low=1, static=True)
    n_step: int = setting(1, low=1, static=True)
    quantiles: int = setting(12, low=1, static=True)
    acting_quantiles: int = setting(12, low=1, static=True)
    batch_size: int = setting(64, low=1, static=True)
    capacity: int = setting(1024, low=1, static=True)
    copy_every: int = setting(200, low=0, static=True)
    noisy: bool = eqx.field(static=True, default=True)
    dueling: bool = eqx.field(static=True, default=True)
    prioritised: bool = eqx.field(static=True, default=False)
    semantics: Semantics = eqx.field(static=True, default="mended")
    learning_rate: float = setting(2.5e-4, above=0)
    discount: float = setting(0.99**3, low=0, high=1)
    tau: float = setting(0.001, low=0, high=1)
    epsilon: float = setting(0.6, low=0, high=1)
    epsilon_decay: float = setting(0.0005, low=0, high=1)
    epsilon_floor: float = setting(0.0, low=0, high=1)
    priority: float = setting(0.5, low=0, high=1)
    importance: float = setting(0.4, low=0, high=1)

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_settings(self)
        if self.prioritised and self.semantics != "mended":
            raise ValueError(
                f"IQN.prioritised needs semantics 'mended', got {self.semantics!r}: the original "
                "implementation samples all rows with equal probability"
            )
        if self.capacity < self.batch_size:
            raise ValueError(
                f"IQN.capacity must be at least batch_size = {self.batch_size}, got {self.capacity}"
            )

    def shape(self, turns: int) -> Shape:
        """Lengths of the memory for episodes of ``turns`` turns.

        Raises:
            ValueError: If an episode has no limit, or the memory holds too few turns for a batch.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise ValueError(
                "a population learns from whole episodes: the world's horizon must be a whole "
                f"number of turns of at least 1, got {turns!r}; give the world a limit on its "
                "episodes"
            )
        ring = {"mended": None, "2a24efc": 0, "head": 1}[self.semantics]
        shape = Shape(self.frames, turns, self.capacity, self.n_step, ring)
        usable_turns = self.capacity - self.frames - 1 if ring is not None else shape.slots * turns
        if usable_turns < self.batch_size:
            raise ValueError(
                f"with episodes of {turns} turns, a memory of {self.capacity} turns offers "
                f"{max(usable_turns, 0)} of them to sample from, fewer than batch_size "
                f"({self.batch_size}); set a larger capacity or a smaller batch_size"
            )
        return shape

    def init(self, n_obs: int, n_actions: int, turns: int, key: PRNGKeyArray) -> Agent:
        """One fresh agent.

        Args:
            n_obs: Length of one observation.
            n_actions: Number of actions.
            turns: Turns of one episode.
            key: Random key; consumed.
        """
        network_key, target_key = jax.random.split(key)

        def network(key: PRNGKeyArray) -> QuantileNetwork:
            return init_quantile_network(
                self.frames * n_obs, n_actions, key,
                hidden=self.hidden, noisy=self.noisy, dueling=self.dueling,
            )  # fmt: skip

        fresh = network(network_key)
        return Agent(
            fresh,
            network(target_key),
            init_optimiser("iqn", fresh, self.learning_rate),
            empty_memory(self.shape(turns), n_obs),
            jnp.asarray(self.epsilon, jnp.float32),
            jnp.zeros((), jnp.int32),
            priority_tree(self.shape(turns).turns_held) if self.prioritised else None,
        )

    def values(
        self,
        network: QuantileNetwork,
        inputs: Float[Array, " in"],
        levels: Float[Array, " quantile"],
    ) -> Float[Array, " action"]:
        """Mean of the quantiles of every action, without noise."""
        return jnp.mean(network(inputs[None], levels[None])[0], axis=0)

    def ready(self, shape: Shape, agent: Agent) -> Array:
        """Whether the agent remembers enough for a gradient step.

        The source only checks for a full batch of rows, and fails if the frames need a few more;
        here the agent waits.
        """
        known = windows_known(shape, agent.memory) >= self.batch_size
        if shape.ring is None:
            return known
        return known & (agent.memory.size > self.batch_size)

    def draws(self, network: QuantileNetwork, key: PRNGKeyArray) -> UpdateDraws:
        """The random numbers of one gradient step."""
        levels_key, noise_key = jax.random.split(key)
        size = (3, self.batch_size, self.quantiles)
        # A level of exactly zero is the minimum of all returns, which no network can learn.
        levels = jax.random.uniform(levels_key, size, minval=1e-7)
        count = network.noise_size
        noise: Any = (None, None, None)
        if count:
            noise = tuple(jax.random.normal(noise_key, (3, count)))
        return UpdateDraws(levels[0], levels[1], levels[2], noise)

    def update(self, shape: Shape, agent: Agent, key: PRNGKeyArray) -> tuple[Agent, Array]:
        """Takes one gradient step on the agent's own memory; returns the agent and its loss."""
        rows_key, draws_key = jax.random.split(key)
        discount = jnp.asarray(self.discount, jnp.float32)
        draws = self.draws(agent.network, draws_key)
        if agent.priorities is None:
            rows = draw_windows(
                shape, agent.memory, rows_key, batch=self.batch_size, discount=discount
            )
            agent, loss, _ = self.learn_from(agent, rows, draws)
            return agent, loss
        sample = sample_priorities(agent.priorities, rows_key, batch=self.batch_size)
        rows = episode_windows(shape, agent.memory, sample.items, discount)
        weights = priority_weights(
            sample.probabilities,
            size=windows_known(shape, agent.memory),
            exponent=self.importance,
        )
        agent, loss, by_row = self.learn_from(agent, rows._replace(valid=weights), draws)
        priorities = (by_row + LEAST_PRIORITY) ** self.priority
        tree = set_priorities(agent.priorities, sample.items, priorities)  # pyright: ignore[reportArgumentType]
        return agent._replace(priorities=tree), loss

    def with_episode(self, shape: Shape, agent: Agent, episode: Episode) -> Agent:
        """The agent with one more episode in memory, whose turns have the largest priority."""
        slot = agent.memory.next_row // shape.slot
        agent = agent._replace(memory=remember(shape, agent.memory, episode))
        if agent.priorities is None:
            return agent
        turn = jnp.arange(shape.turns, dtype=jnp.int32)
        sums = agent.priorities.sums
        usable_turns = jnp.max(sums[sums.shape[0] // 2 :])
        new = jnp.where(turn < episode.length, jnp.where(usable_turns > 0, usable_turns, 1), 0)
        tree = set_priorities(agent.priorities, slot * shape.turns + turn, new)
        return agent._replace(priorities=tree)

    def learn(self, agent: Agent, rows: Windows, draws: UpdateDraws) -> tuple[Agent, Array]:
        """Takes one gradient step on the given rows; returns the agent and its loss."""
        agent, loss, _ = self.learn_from(agent, rows, draws)
        return agent, loss

    def learn_from(
        self, agent: Agent, rows: Windows, draws: UpdateDraws
    ) -> tuple[Agent, Array, Float[Array, " batch"]]:
        """Takes one gradient step; also returns the loss of each row before weighting."""
        target = quantile_targets(agent.network, agent.target, rows, draws)
        value_and_gradient = jax.value_and_grad(_weighted_loss, has_aux=True)
        (loss, by_row), gradient = value_and_gradient(agent.network, target, rows, draws)
        network, optimiser = descend(
            "iqn", agent.network, agent.optimiser, gradient, self.learning_rate
        )
        return (
            agent._replace(
                network=network,
                target=polyak(agent.target, network, tau=self.tau),
                optimiser=optimiser,
                updates=agent.updates + 1,
            ),
            loss,
            by_row,
        )

    def begin_episode(self, agent: Agent, number: Int[Array, ""]) -> Agent:
        """Prepares episode ``number``; every ``copy_every`` episodes, copies to the target."""
        if self.copy_every == 0:
            return agent
        is_copied = number % self.copy_every == 0
        target = jax.tree.map(
            lambda new, old: jnp.where(is_copied, new, old), agent.network, agent.target
        )
        return agent._replace(target=target)

    def end_episode(self, agent: Agent) -> Agent:
        """The agent after an episode, with a smaller probability of random actions."""
        decayed = agent.epsilon * (1 - self.epsilon_decay)
        return agent._replace(epsilon=jnp.maximum(decayed, self.epsilon_floor).astype(jnp.float32))


def quantile_targets(
    network: QuantileNetwork, target: QuantileNetwork, rows: Windows, draws: UpdateDraws
) -> Float[Array, "batch quantile"]:
    """``R + discount^n (1 - terminated) Z'(s_n, a*)``, without gradient."""
    next_values = network(rows.next_inputs, draws.next_levels, draws.noise[0])
    best = jnp.argmax(jnp.mean(next_values, axis=1), axis=1)
    target_values = target(rows.next_inputs, draws.target_levels, draws.noise[1])
    following = jnp.take_along_axis(target_values, best[:, None, None], axis=2)[..., 0]
    return jax.lax.stop_gradient(rows.reward[:, None] + rows.discount[:, None] * following)


def quantile_loss(
    network: QuantileNetwork,
    target: Float[Array, "batch sample"],
    rows: Windows,
    draws: UpdateDraws,
) -> Float[Array, ""]:
    """Mean quantile Huber loss over batch, levels and samples, weighted by row."""
    return _weighted_loss(network, target, rows, draws)[0]


def _weighted_loss(
    network: QuantileNetwork,
    target: Float[Array, "batch sample"],
    rows: Windows,
    draws: UpdateDraws,
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    quantiles = network(rows.inputs, draws.levels, draws.noise[2])
    action_quantiles = jnp.take_along_axis(quantiles, rows.action[:, None, None], axis=2)[..., 0]
    losses = jax.vmap(quantile_huber_loss)(action_quantiles, target, draws.levels)
    levels = draws.levels.shape[1]
    return jnp.mean(losses * rows.valid) / levels, losses / levels
