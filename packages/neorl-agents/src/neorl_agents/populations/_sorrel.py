"""One agent with the methods that Sorrel's loop calls on a model."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import QuantileNetwork
from neorl_agents.populations._iqn import IQN, Agent, UpdateDraws
from neorl_agents.populations._memory import Windows
from neorl_core import InputError, as_arrays


class SorrelMemory:
    """The ring of turns of Sorrel's ``Buffer``, whose rows are never cleared.

    Attributes:
        capacity: Number of turns that it holds.
        n_frames: Number of observations in one input.
        states: Observations, shape ``(capacity, obs)``.
        actions: The actions taken.
        rewards: The rewards received.
        dones: 1 where an episode ended.
        idx: Row that is written next.
        size: Number of rows in use, as Sorrel counts them.
        extra_data: More columns by name, which :meth:`add` fills.
    """

    def __init__(self, capacity: int, n_obs: int, n_frames: int) -> None:
        self.capacity, self.n_frames = capacity, n_frames
        self.states = np.zeros((capacity, n_obs), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards, self.dones = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.idx = self.size = 0
        self.extra_data: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return self.size

    def add(self, obs: Any, action: int, reward: float, done: bool, **more: Any) -> None:
        """Stores one more turn.

        Raises:
            InputError: If the observation has another length; then nothing is stored.
        """
        row = np.asarray(obs, np.float32).reshape(-1)
        if row.size != self.states.shape[1]:
            raise InputError(
                f"an observation must have {self.states.shape[1]} numbers, the product of the "
                f"model's input_size, got {row.size}"
            )
        self.states[self.idx], self.actions[self.idx] = row, action
        self.rewards[self.idx], self.dones[self.idx] = reward, done
        for name, value in more.items():
            self.extra_data[name][self.idx] = value
        self.idx = (self.idx + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_empty(self) -> None:
        """Skips the rows of the frames before an episode."""
        self.idx = (self.idx + self.n_frames - 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def current_state(self) -> Float[np.ndarray, "frame obs"]:
        """The observations before the current one, oldest first."""
        return self.states[(self.idx + np.arange(1 - self.n_frames, 0)) % self.capacity]

    @property
    def windows(self) -> int:
        """Number of rows at which a window can begin."""
        return max(1, self.size - self.n_frames - 1)

    def at(self, starts: Int[np.ndarray, " batch"], discount: float) -> Windows:
        """The windows that begin at these rows, even if they cross episodes."""
        rows = starts[:, None] + np.arange(self.n_frames)
        last, batch = rows[:, -1], len(starts)
        valid = 1.0 - np.any(self.dones[rows[:, :-1]], axis=-1)
        columns = (
            self.states[rows].reshape(batch, -1), self.actions[last].astype(np.int32),
            self.rewards[last], self.states[rows + 1].reshape(batch, -1),
            (discount * (1.0 - self.dones[last])).astype(np.float32), valid.astype(np.float32),
        )  # fmt: skip
        return Windows(*map(jnp.asarray, columns))


class SorrelModel:
    """:class:`IQN` as a model for Sorrel, in place of its ``PyTorchIQN``.

    Arguments, methods and numbers are those of Sorrel's release 1.4.0: the ring above, one reward
    combined with ``GAMMA ** n_step``, and as many quantiles for acting as for training. One seed
    determines all random numbers of a model, where Sorrel uses the global generators. Called turn
    by turn from Python, it is far slower than ``neorl_train.populations``, whose episodes are one
    program.

    Args:
        input_size: Lengths of the axes of an observation.
        action_space: Number of actions.
        layer_size: Width of the hidden layers.
        epsilon: Probability of a random action.
        device: Ignored: JAX places the arrays.
        seed: Seed of all random numbers.
        n_frames: Number of observations in one input.
        n_step: Power of the discount.
        sync_freq: Epochs between two copies to the target.
        model_update_freq: Ignored, as by Sorrel.
        batch_size: Rows of one gradient step.
        memory_size: Turns that it remembers.
        LR: Learning rate of Adam.
        TAU: Fraction by which the target moves after every gradient step.
        GAMMA: Discount of the reward per turn.
        n_quantiles: Number of levels in a gradient step and in the choice of an action.

    Attributes:
        epsilon: Probability of a random action.
        memory: The model's ring.
        agent: Networks and optimiser.

    Raises:
        InputError: If a number is bad, such as a ring too small for a batch; the message names it.
    """

    def __init__(
        self,
        input_size: Sequence[int],
        action_space: int,
        layer_size: int,
        epsilon: float,
        device: Any,
        seed: int,
        n_frames: int,
        n_step: int = 3,
        sync_freq: int = 200,
        model_update_freq: int = 4,
        batch_size: int = 64,
        memory_size: int = 1024,
        LR: float = 0.001,
        TAU: float = 0.001,
        GAMMA: float = 0.99,
        n_quantiles: int = 12,
    ) -> None:
        self.input_size, self.action_space, self.device = input_size, action_space, device
        self.n_frames, self.sync_freq, self.batch_size = n_frames, sync_freq, batch_size
        self.epsilon, n_obs = epsilon, int(np.prod(input_size))
        settings = IQN(
            hidden=layer_size, frames=n_frames, n_step=n_step, quantiles=n_quantiles,
            acting_quantiles=n_quantiles, batch_size=batch_size, capacity=memory_size,
            copy_every=sync_freq, semantics="head", learning_rate=LR, discount=GAMMA, tau=TAU,
            epsilon=epsilon,
        )  # fmt: skip
        try:
            settings.validate()
            settings.shape(1)
        except ValueError as error:
            raise InputError(str(error)) from error
        self._discount = GAMMA**n_step
        self._learner: IQN = as_arrays(settings)
        # Sorrel's seeds have 64 bits.
        self._random = np.random.default_rng(seed)
        self._key = jax.random.key(int(self._random.integers(2**31)))
        agent = settings.init(n_obs, action_space, 1, self._next_key())
        self.agent: Agent = agent._replace(memory=None)  # pyright: ignore[reportArgumentType]
        self.memory = SorrelMemory(memory_size, n_obs, n_frames)

    @property
    def model_name(self) -> str:
        """Name of the class."""
        return type(self).__name__

    def take_action(self, state: Any) -> int:
        """A random action with probability ``epsilon``, else the one with the largest value."""
        if self._random.random() > self.epsilon:
            inputs = jnp.asarray(state, jnp.float32).reshape(-1)
            return int(_best(self._learner, self.agent.network, inputs, self._next_key()))
        return int(self._random.integers(self.action_space))

    def train_step(self) -> np.ndarray:
        """Takes one gradient step if the ring holds more than a batch; returns the loss, or zero.

        If the ring is a few rows short of its windows, Sorrel fails; this model waits.
        """
        if self.memory.size <= self.batch_size or self.memory.windows < self.batch_size:
            return np.zeros((), np.float32)
        starts = self._random.choice(self.memory.windows, self.batch_size, replace=False)
        rows = self.memory.at(starts, self._discount)
        draws = _draws(self._learner, self.agent.network, self._next_key())
        self.agent, loss = _learn(self._learner, self.agent, rows, draws)
        return np.asarray(loss)

    def start_epoch_action(self, **kwargs: Any) -> None:
        """Skips rows for the first frames; every ``sync_freq`` epochs copies to the target."""
        self.memory.add_empty()
        if self.sync_freq and kwargs["epoch"] % self.sync_freq == 0:
            self.agent = self.agent._replace(target=jax.tree.map(jnp.copy, self.agent.network))

    def end_epoch_action(self, **kwargs: Any) -> None:
        """Does nothing."""

    def reset(self) -> None:
        """Does nothing; the memory is kept."""

    def set_epsilon(self, new_epsilon: float) -> None:
        """Sets the probability of a random action."""
        self.epsilon = new_epsilon

    def epsilon_decay(self, decay_rate: float) -> None:
        """Reduces the probability of a random action by the given fraction."""
        self.epsilon *= 1 - decay_rate

    def save(self, file_path: str | os.PathLike) -> None:
        """Writes networks and optimiser as NumPy arrays to exactly this file."""
        directory = os.path.dirname(file_path)
        if directory:
            os.makedirs(directory, exist_ok=True)
        leaves, _ = jax.tree.flatten(self.agent)
        with open(file_path, "wb") as file:
            np.savez(file, *map(np.asarray, leaves))

    def load(self, file_path: str | os.PathLike) -> None:
        """Reads what :meth:`save` wrote.

        Raises:
            InputError: If the file is from a model of another size; then nothing changes.
        """
        leaves, structure = jax.tree.flatten(self.agent)
        with np.load(file_path) as stored:
            arrays: Mapping[str, np.ndarray] = dict(stored)
        loaded = [arrays.get(f"arr_{i}") for i in range(len(arrays))]
        shapes = [None if x is None else x.shape for x in loaded]
        expected = [x.shape for x in leaves]
        if shapes != expected:
            raise InputError(
                f"{file_path}: the arrays have the shapes {shapes}, expected {expected}; give a "
                "file written by a model with the same arguments"
            )
        self.agent = structure.unflatten(map(jnp.asarray, loaded))

    def _next_key(self) -> PRNGKeyArray:
        self._key, key = jax.random.split(self._key)
        return key


@jax.jit
def _best(
    learner: IQN, network: QuantileNetwork, inputs: Float[Array, " in"], key: PRNGKeyArray
) -> Int[Array, ""]:
    levels = jax.random.uniform(key, (learner.acting_quantiles,))
    return jnp.argmax(learner.values(network.without_noise(), inputs, levels))


@jax.jit
def _draws(learner: IQN, network: QuantileNetwork, key: PRNGKeyArray) -> UpdateDraws:
    return learner.draws(network, key)


@partial(jax.jit, donate_argnums=1)
def _learn(
    learner: IQN, agent: Agent, rows: Windows, draws: UpdateDraws
) -> tuple[Agent, Float[Array, ""]]:
    return learner.learn(agent, rows, draws)
