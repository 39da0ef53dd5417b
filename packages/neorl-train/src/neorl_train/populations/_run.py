"""Trains a population in a world, with checkpoints from which it continues bit-identically."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.populations import (
    IQN,
    Agent,
    Episode,
    OverAgents,
    act,
    begin_episode,
    end_episode,
    first_frames,
    init_population,
)
from neorl_core import InputError, as_arrays
from neorl_core.infrastructure import Binder
from neorl_envs.worlds import Turn, World, simultaneous_turn, strict_turn
from neorl_train.runs import Checkpoints

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


Watch = Callable[[int, Epochs], None]
"""Called with the number of a chunk's first epoch and the chunk's results, on the host."""


@dataclasses.dataclass(frozen=True)
class TrainedPopulation:
    """State at which a training stopped.

    Attributes:
        population: Agents along a leading axis, on the host.
        epoch: Number of completed epochs.
        epochs: Results of the epochs in this call, on the host.
        finished: Whether all epochs were completed; false after a request to stop.
    """

    population: Agent
    epoch: int
    epochs: Epochs
    finished: bool


def never() -> bool:
    """Never requests a stop."""
    return False


def ignore(first: int, epochs: Epochs) -> None:
    """Ignores all events."""


def train_population(
    world: World,
    learner: IQN,
    *,
    seed: int = 0,
    epochs: int = 1000,
    chunk: int = 20,
    order: Order = "strict",
    over_agents: OverAgents | None = None,
    checkpoints: Checkpoints | None = None,
    watch: Watch = ignore,
    stop: Callable[[], bool] = never,
) -> TrainedPopulation:
    """Trains independent agents in one world, from the newest checkpoint if there is one.

    The result depends on world, learner, seed and number of epochs, but not on the chunk or on
    where the training was interrupted.

    Args:
        world: Rules.
        learner: Hyperparameters of every agent.
        seed: Seed of all random numbers.
        epochs: Number of episodes, each followed by one gradient step of every agent.
        chunk: Number of epochs in one call of the compiled program, and between two checkpoints.
        order: Whether agents act one after another or simultaneously.
        over_agents: How to loop over the agents in training; by default one after another on a CPU
            and as a batch elsewhere.
        checkpoints: Result of :func:`population_checkpoints`; closed before this returns.
        watch: Called with the results after every chunk.
        stop: Called once per chunk; true ends the training.

    Raises:
        InputError: Names an invalid number, observations whose shape differs from the world's
            declaration, or a checkpoint of another population.
    """
    for name, value in (("epochs", epochs), ("chunk", chunk)):
        if value < 1:
            raise InputError(f"{name} must be an integer of at least 1, got {value}")
    key, for_agents = jax.random.split(jax.random.key(seed))
    sizes = (world.n_agents, world.n_obs, world.n_actions, world.horizon)
    population, done = init_population(learner, *sizes, for_agents), 0
    _require_observations(world)
    if over_agents is None:
        over_agents = "map" if jax.default_backend() == "cpu" else "vmap"
    pieces, arrays = [], (as_arrays(world), as_arrays(learner))
    try:
        restored = checkpoints and checkpoints.restore(population)
        if restored:
            done, population = restored.step, jax.tree.map(jnp.asarray, restored.tree)
        while done < epochs and not stop():
            count = min(chunk, epochs - done)
            population, rows = run_epochs(
                *arrays, population, jnp.asarray(done, jnp.int32), key,
                n_epochs=count, order=order, over_agents=over_agents,
            )  # fmt: skip
            rows = jax.tree.map(np.asarray, rows)
            _require_finite(rows, done, checkpoints)
            watch(done, rows)
            pieces.append(rows)
            done += count
            if checkpoints is not None:
                checkpoints.save(done, population, force=True)
    finally:
        if checkpoints is not None:
            checkpoints.close()
    joined = (
        jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
        if pieces
        else _no_epochs(sizes[0])
    )
    return TrainedPopulation(jax.tree.map(np.asarray, population), done, joined, done >= epochs)


def population_checkpoints(
    folder: Path,
    world: World,
    learner: IQN,
    *,
    seed: int,
    keep: int = 2,
    print_line: Callable[[str], None] = print,
) -> Checkpoints:
    """Checkpoints of one training; another world, learner or seed cannot continue from them.

    Args:
        folder: Folder of the checkpoints.
        world: Rules.
        learner: Hyperparameters.
        seed: Seed of the training.
        keep: Number of checkpoints that are kept.
        print_line: Called with a message about each damaged one.
    """
    identity: dict[str, Any] = {
        "number of agents": world.n_agents,
        "length of observations": world.n_obs,
        "number of actions": world.n_actions,
        "number of turns": world.horizon,
        "world": Binder().plain(world),
        "learner": Binder().plain(learner),
        "seed": seed,
    }
    return Checkpoints(folder, identity=identity, interval=1, keep=keep, print_line=print_line)


def random_rewards(
    world: World, *, seed: int = 0, episodes: int = 100, order: Order = "strict"
) -> Float[np.ndarray, "episode agent"]:
    """Rewards of agents that act at random, which a trained agent should exceed.

    Args:
        world: Rules.
        seed: Seed of all random numbers.
        episodes: Number of episodes.
        order: Order of the agents in a turn.
    """
    learner = IQN(frames=1, hidden=1, quantiles=1, acting_quantiles=1, batch_size=1, epsilon=1.0)
    sizes = (world.n_agents, world.n_obs, world.n_actions, world.horizon)
    learner = dataclasses.replace(learner, capacity=world.horizon)
    population = init_population(learner, *sizes, jax.random.key(0))
    rewards = _play(
        as_arrays(world), as_arrays(learner), population, jax.random.key(seed), episodes, order
    )
    return np.asarray(rewards)


@eqx.filter_jit
def _play(
    world: World, learner: IQN, population: Agent, key: PRNGKeyArray, episodes: int, order: Order
) -> Any:
    shape = learner.shape(world.horizon)
    frames = jax.vmap(lambda memory: first_frames(shape, memory))(population.memory)

    def one(episode_key: PRNGKeyArray) -> Any:
        keys = jax.random.split(episode_key)
        episode = play_episode(world, learner, population, frames, keys[0], keys[1], order=order)
        turn = jnp.arange(world.horizon)[None, :]
        return jnp.sum(jnp.where(turn < episode.length[:, None], episode.reward, 0), axis=1)

    return jax.lax.map(one, jax.random.split(key, episodes))


def _require_observations(world: World) -> None:
    """Refuses a world whose observations do not have the declared shape."""

    def first(key: PRNGKeyArray) -> Any:
        return world.observe(world.reset(key), jnp.zeros((), jnp.int32))

    shape = jax.eval_shape(first, jax.random.key(0)).shape
    if shape != (world.n_obs,):
        raise InputError(
            f"the observation of an agent has the shape {shape}, expected ({world.n_obs},) because "
            f"the world's n_obs is {world.n_obs}; correct n_obs, or flatten the observation"
        )


def _require_finite(epochs: Epochs, first: int, checkpoints: Checkpoints | None) -> None:
    bad = np.argwhere(~np.isfinite(epochs.loss))
    if len(bad):
        saved = checkpoints.steps() if checkpoints is not None else []
        before = f"; the last checkpoint is that of epoch {saved[-1]}" if saved else ""
        raise InputError(
            f"the loss of agent {bad[0, 1]} is not finite in epoch {first + bad[0, 0]}{before}; "
            "choose a smaller learning_rate"
        )


def _no_epochs(agents: int) -> Epochs:
    empty = np.zeros((0, agents), np.float32)
    return Epochs(empty, empty, empty, empty.astype(np.int32))  # pyright: ignore[reportArgumentType]
