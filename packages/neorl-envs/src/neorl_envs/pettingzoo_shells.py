"""Multi-agent worlds as PettingZoo environments (AEC and parallel); needs extra ``pettingzoo``."""

from functools import cached_property
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from pettingzoo import AECEnv, ParallelEnv

from neorl_core import as_arrays
from neorl_envs.worlds import World

__all__ = ["SimultaneousShell", "StrictShell"]

# PettingZoo environments of a world: agents act in order (AEC) or simultaneously (parallel).


@jax.jit
def _reset(world: World, key: Any) -> tuple[Any, Any]:
    for_world, key = jax.random.split(key)
    return world.reset(for_world), key


@jax.jit
def _begin_turn(world: World, state: Any, key: Any) -> tuple[Any, Any, Any]:
    for_draws, key = jax.random.split(key)
    draws = world.draw(for_draws)
    return world.begin_turn(state, draws), draws, key


@jax.jit
def _act(world: World, state: Any, agent: Any, action: Any) -> tuple[Any, Any, Any]:
    state, reward = world.act(state, agent, action)
    return state, reward, world.terminated(state)


@jax.jit
def _act_together(world: World, state: Any, actions: Any, draws: Any) -> tuple[Any, Any, Any]:
    state, reward = world.act_together(state, actions, draws)
    return state, reward, world.terminated(state)


@jax.jit
def _observe(world: World, state: Any, agent: Any) -> Any:
    return world.observe(state, agent)


class _Shell:
    """Shared part of both interfaces: names, spaces, keys."""

    metadata: dict[str, Any]
    render_mode = None

    def _begin(self, world: World) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(world.n_agents)]
        self.agents: list[str] = []
        self._world, self._key = as_arrays(world), None
        self._horizon = world.horizon

    @cached_property
    def _spaces(self) -> dict[str, tuple[Any, Any]]:
        shape = (self._world.n_obs,)
        spaces = {}
        for name in self.possible_agents:
            obs = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
            spaces[name] = (obs, gymnasium.spaces.Discrete(self._world.n_actions))
        return spaces

    def observation_space(self, agent: str) -> Any:
        """Observation space of an agent."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        """Action space of an agent."""
        return self._spaces[agent][1]

    def _start(self, seed: int | None) -> None:
        if seed is not None or self._key is None:
            entropy = np.random.SeedSequence(seed).generate_state(1)[0] if seed is None else seed
            self._key = jax.random.key(int(entropy))
        self._state, self._key = _reset(self._world, self._key)
        self.agents, self._turn = list(self.possible_agents), 0
        self._next_turn()

    def _next_turn(self) -> None:
        self._state, self._draws, self._key = _begin_turn(self._world, self._state, self._key)

    def _observation(self, agent: str) -> np.ndarray:
        number = self.possible_agents.index(agent)
        return np.asarray(_observe(self._world, self._state, jnp.asarray(number, jnp.int32)))

    def close(self) -> None:
        """Does nothing, since no resources are held."""

    def render(self) -> None:
        """Does nothing; use :func:`neorl_envs.render.grid_picture` to draw a state."""


class StrictShell(_Shell, AECEnv):
    """PettingZoo's AEC interface: agents act in order, each in the world left by the previous one.

    The agent that acted gets the reward. After ``horizon`` turns every agent is truncated.

    Args:
        world: The world.
        name: Name in ``metadata``.

    Attributes:
        metadata: Name of the environment, and that it cannot be run in parallel.
    """

    def __init__(self, world: World, name: str = "neorl_world") -> None:
        super().__init__()
        self.metadata = {"name": name, "is_parallelizable": False, "render_modes": []}
        self._begin(world)

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        """A new episode; the same seed gives the same world."""
        self._start(seed)
        names = self.agents
        self.rewards = dict.fromkeys(names, 0.0)
        self._cumulative_rewards = dict.fromkeys(names, 0.0)
        self.terminations, self.truncations = (
            dict.fromkeys(names, False),
            dict.fromkeys(names, False),
        )
        self.infos = {name: {} for name in names}
        self.agent_selection = names[0]

    def observe(self, agent: str) -> np.ndarray:
        """The current observation of an agent."""
        return self._observation(agent)

    def step(self, action: int | None) -> None:
        """Executes the action of the selected agent; after the last agent the next turn begins."""
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        number = self.possible_agents.index(name)
        self._cumulative_rewards[name] = 0.0
        state, reward, terminated = _act(
            self._world, self._state, jnp.asarray(number, jnp.int32), jnp.asarray(action, jnp.int32)
        )
        self._state = state
        self._clear_rewards()
        self.rewards[name] = float(reward)
        last = number == len(self.possible_agents) - 1
        self._turn += last
        ended, stopped = bool(terminated), last and self._turn >= self._horizon
        if ended or stopped:
            for agent in self.agents:
                self.terminations[agent], self.truncations[agent] = ended, stopped and not ended
        elif last:
            self._next_turn()
        self.agent_selection = self.possible_agents[(number + 1) % len(self.possible_agents)]
        self._accumulate_rewards()


class SimultaneousShell(_Shell, ParallelEnv):
    """PettingZoo's parallel interface: all agents observe the same state and act simultaneously.

    Args:
        world: The world.
        name: Name in ``metadata``.

    Attributes:
        metadata: Name of the environment, and its render modes.
    """

    def __init__(self, world: World, name: str = "neorl_world") -> None:
        self.metadata = {"name": name, "render_modes": []}
        self._begin(world)

    def reset(
        self, seed: int | None = None, options: dict | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict]]:
        """A new episode; the same seed gives the same world."""
        self._start(seed)
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        """Executes one turn of all agents."""
        action = jnp.asarray([actions[name] for name in self.possible_agents], jnp.int32)
        state, reward, terminated = _act_together(self._world, self._state, action, self._draws)
        self._state, self._turn = state, self._turn + 1
        ended, stopped = bool(terminated), self._turn >= self._horizon
        if not (ended or stopped):
            self._next_turn()
        names, reward_of_agent = self.possible_agents, np.asarray(reward)
        answer = (
            self._observations(),
            {name: float(reward_of_agent[i]) for i, name in enumerate(names)},
            dict.fromkeys(names, ended),
            dict.fromkeys(names, stopped and not ended),
            {name: {} for name in names},
        )
        if ended or stopped:
            self.agents = []
        return answer

    def _observations(self) -> dict[str, np.ndarray]:
        return {name: self._observation(name) for name in self.possible_agents}
