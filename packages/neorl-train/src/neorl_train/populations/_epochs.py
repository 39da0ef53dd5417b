"""Epochs of a population in a world: acting and learning as one compiled program."""

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.populations import (
    IQN,
    Agent,
    Episode,
    OverAgents,
    act,
    begin_episode,
    end_episode,
)
from neorl_envs.worlds import Turn, World, simultaneous_turn, strict_turn

Order = Literal["strict", "simultaneous"]
"""Whether agents act one after another, as in the source of the hunt, or simultaneously."""

UNROLLED = 10
"""Loops over up to this many agents are unrolled, which saves copies of their parameters."""


class Epochs(NamedTuple):
    """Results of several epochs.

    Attributes:
        reward: Reward of each agent in each epoch.
        loss: Loss of each agent's gradient step; zero if there was none.
        epsilon: Probability of a random action in each epoch, by agent.
        updates: Gradient steps of each agent since the beginning.
    """

    reward: Float[Array, "epoch agent"]
    loss: Float[Array, "epoch agent"]
    epsilon: Float[Array, "epoch agent"]
    updates: Int[Array, "epoch agent"]


class _TurnDraws(NamedTuple):
    world: Any
    exploration: Float[Array, " agent"]
    random_action: Int[Array, " agent"]
    levels: Float[Array, "agent quantile"]


@partial(jax.jit, static_argnames=("n_epochs", "order", "over_agents"), donate_argnums=2)
def run_epochs(
    world: World,
    learner: IQN,
    population: Agent,
    first: Int[Array, ""],
    key: PRNGKeyArray,
    *,
    n_epochs: int,
    order: Order = "strict",
    over_agents: OverAgents = "map",
) -> tuple[Agent, Epochs]:
    """Runs epochs from ``first`` on: an episode of all agents, then a gradient step for each.

    Random numbers are a function of ``(key, number of the epoch)``, so the result does not depend
    on how many epochs one call runs.

    Args:
        world: Rules, with array leaves (``neorl_core.as_arrays``).
        learner: Hyperparameters, with array leaves.
        population: Agents along a leading axis; the buffers are donated.
        first: Number of the first epoch.
        key: Key of the run.
        n_epochs: Number of epochs; static.
        order: Order of the agents in a turn; static.
        over_agents: How to loop over the agents in training; static.

    Returns:
        The population, and the results of the epochs.
    """

    def epoch(population: Agent, number: Int[Array, ""]) -> tuple[Agent, Epochs]:
        return _epoch(
            world, learner, population, number, jax.random.fold_in(key, number), order, over_agents
        )

    return jax.lax.scan(epoch, population, first + jnp.arange(n_epochs, dtype=jnp.int32))


def _epoch(
    world: World,
    learner: IQN,
    population: Agent,
    number: Int[Array, ""],
    key: PRNGKeyArray,
    order: Order,
    over_agents: OverAgents,
) -> tuple[Agent, Epochs]:
    world_key, action_key, update_key = jax.random.split(key, 3)
    population, frames = begin_episode(learner, population, number, world.horizon)
    episodes = play_episode(world, learner, population, frames, world_key, action_key, order=order)
    epsilon = population.epsilon
    population, loss = end_episode(
        learner, population, episodes, update_key, turns=world.horizon, over_agents=over_agents
    )
    turn = jnp.arange(world.horizon)[None, :]
    counted = jnp.where(turn < episodes.length[:, None], episodes.reward, 0)
    return population, Epochs(jnp.sum(counted, axis=1), loss, epsilon, population.updates)


def play_episode(
    world: World,
    learner: IQN,
    population: Agent,
    frames: Float[Array, "agent frame obs"],
    world_key: PRNGKeyArray,
    action_key: PRNGKeyArray,
    *,
    order: Order = "strict",
) -> Episode:
    """Plays one episode of all agents, each with its own network, without learning.

    Args:
        world: Rules.
        learner: Hyperparameters.
        population: Agents along a leading axis.
        frames: Frames that precede the first observation of each agent.
        world_key: Random key of the world.
        action_key: Random key of the agents.
        order: Order of the agents in a turn.

    Returns:
        The episode of each agent along a leading axis.
    """
    draws = _draws(world, learner, world_key, action_key)
    start = world.reset(jax.random.fold_in(world_key, world.horizon))
    networks = jax.vmap(lambda network: network.without_noise())(population.network)
    take_turn = strict_turn if order == "strict" else simultaneous_turn
    unrolled = world.n_agents <= UNROLLED
    network_of_agent = [_network_of(networks, i) for i in range(world.n_agents)] if unrolled else []

    def turn(carry: tuple[Any, Array, Array], drawn: _TurnDraws) -> tuple[Any, tuple[Turn, Array]]:
        state, frames, alive = carry

        def choose(frames: Array, agent: Any, obs: Array) -> tuple[Array, Array]:
            stacked_frames = jnp.concatenate([frames[agent], obs[None]])
            network = network_of_agent[agent] if unrolled else networks
            chosen = act(
                learner, network, stacked_frames.reshape(-1), population.epsilon[agent],
                drawn.exploration[agent],
                drawn.random_action[agent], drawn.levels[agent], None if unrolled else agent,
            )  # fmt: skip
            return frames.at[agent].set(stacked_frames[1:]), chosen

        state, frames, rows = take_turn(world, state, drawn.world, choose, frames, unroll=unrolled)
        return (state, frames, alive & ~world.terminated(state)), (rows, alive)

    carry = (start, frames, jnp.ones((), jnp.bool_))
    (state, _, alive), (rows, was_alive) = jax.lax.scan(turn, carry, draws)
    length = jnp.sum(was_alive, dtype=jnp.int32)
    agents = jnp.arange(world.n_agents, dtype=jnp.int32)
    return Episode(
        obs=jnp.swapaxes(rows.obs, 0, 1),
        action=jnp.swapaxes(rows.action, 0, 1),
        reward=jnp.swapaxes(rows.reward, 0, 1),
        last_obs=jax.vmap(lambda agent: world.observe(state, agent))(agents),
        length=jnp.broadcast_to(length, agents.shape),
        terminated=jnp.broadcast_to(~alive, agents.shape),
    )


def _draws(
    world: World, learner: IQN, world_key: PRNGKeyArray, action_key: PRNGKeyArray
) -> _TurnDraws:
    """Generates the random numbers of all turns in one call, because many small calls cost more."""
    turns, agents = world.horizon, world.n_agents
    numbers = jnp.arange(turns)
    exploration_key, random_action_key, level_key = jax.random.split(action_key, 3)
    return _TurnDraws(
        jax.vmap(lambda turn: world.draw(jax.random.fold_in(world_key, turn)))(numbers),
        jax.random.uniform(exploration_key, (turns, agents)),
        jax.random.randint(random_action_key, (turns, agents), 0, world.n_actions, jnp.int32),
        jax.random.uniform(level_key, (turns, agents, learner.acting_quantiles)),
    )


def _network_of(networks: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], networks)
