"""Many agents of one kind, each with its own parameters, optimiser and memory."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import QuantileNetwork
from neorl_agents.populations._iqn import IQN, Agent
from neorl_agents.populations._memory import Episode, first_frames
from neorl_core import InputError

OverAgents = Literal["map", "vmap"]
"""How one program trains the agents: one after another, or as one batch of networks.

On a CPU one after another is faster; on an accelerator a batch should be.
"""


def init_population(
    learner: IQN, n_agents: int, n_obs: int, n_actions: int, turns: int, key: PRNGKeyArray
) -> Agent:
    """Fresh agents along a leading axis; agent ``i`` is the same in every population of that key.

    Args:
        learner: Hyperparameters of all agents.
        n_agents: Number of agents.
        n_obs: Length of one observation.
        n_actions: Number of actions.
        turns: Turns of one episode.
        key: Random key.

    Raises:
        InputError: If a hyperparameter or length is bad; the message names it.
    """
    try:
        learner.validate()
        learner.shape(turns)
    except ValueError as error:
        raise InputError(str(error)) from error
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_agents))
    return jax.vmap(lambda end_one: learner.init(n_obs, n_actions, turns, end_one))(keys)


def act(
    learner: IQN,
    network: QuantileNetwork,
    inputs: Float[Array, " in"],
    epsilon: Float[Array, ""],
    uniform: Float[Array, ""],
    random_action: Int[Array, ""],
    levels: Float[Array, " quantile"],
    agent: Int[Array, ""] | None = None,
) -> Int[Array, ""]:
    """One agent's action: random if ``uniform`` is below or equal to ``epsilon``, else the best.

    The network is evaluated only if it decides: outside ``vmap`` the branch is a real one.

    Args:
        learner: Hyperparameters.
        network: Network of the agent, or of all agents if ``agent`` is given.
        inputs: Its frames, oldest first, flattened.
        epsilon: Probability of a random action.
        uniform: Uniform in [0, 1).
        random_action: The random action.
        levels: Levels whose mean is the value of an action.
        agent: Index of the stacked network that acts.
    """

    def best(_: None) -> Int[Array, ""]:
        agent_network = network if agent is None else jax.tree.map(lambda x: x[agent], network)
        return jnp.argmax(learner.values(agent_network, inputs, levels)).astype(jnp.int32)

    return jax.lax.cond(uniform > epsilon, best, lambda _: random_action, None)


def begin_episode(
    learner: IQN, population: Agent, number: Int[Array, ""], turns: int
) -> tuple[Agent, Float[Array, "agent frame obs"]]:
    """All agents before an episode, and the frames that precede their first observation."""
    shape = learner.shape(turns)
    population = jax.vmap(lambda end_one: learner.begin_episode(end_one, number))(population)
    return population, jax.vmap(lambda end_one: first_frames(shape, end_one))(population.memory)


def end_episode(
    learner: IQN,
    population: Agent,
    episodes: Episode,
    key: PRNGKeyArray,
    *,
    turns: int,
    over_agents: OverAgents = "map",
) -> tuple[Agent, Float[Array, " agent"]]:
    """Every agent stores its episode and takes one gradient step, once its memory is full enough.

    Args:
        learner: Hyperparameters.
        population: Agents along a leading axis.
        episodes: Their episodes along a leading axis.
        key: Random key; the part used by agent ``i`` does not depend on the others.
        turns: Turns of one episode.
        over_agents: Whether the agents are trained one after another or as a batch.

    Returns:
        The agents, and the loss of each; zero if there was no gradient step.
    """
    shape = learner.shape(turns)
    numbers = jnp.arange(population.epsilon.shape[0])
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)

    def end_one(parts: tuple[Agent, Episode, PRNGKeyArray]) -> tuple[Agent, Array]:
        agent, episode, agent_key = parts
        agent = learner.with_episode(shape, agent, episode)
        memory, without_memory = agent.memory, agent._replace(memory=None)  # pyright: ignore[reportArgumentType]

        def train(without_memory: Agent) -> tuple[Agent, Array]:
            trained, loss = learner.update(shape, without_memory._replace(memory=memory), agent_key)
            return trained._replace(memory=None), loss  # pyright: ignore[reportArgumentType]

        def skip(without_memory: Agent) -> tuple[Agent, Array]:
            return without_memory, jnp.zeros((), jnp.float32)

        without_memory, loss = jax.lax.cond(
            learner.ready(shape, agent), train, skip, without_memory
        )
        return learner.end_episode(without_memory._replace(memory=memory)), loss

    over_population = jax.lax.map if over_agents == "map" else lambda f, xs: jax.vmap(f)(xs)
    return over_population(end_one, (population, episodes, keys))
