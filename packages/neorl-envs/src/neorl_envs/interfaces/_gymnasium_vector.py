"""Thousands of plants behind Gymnasium's vector interface, in one compiled program."""

import functools
from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Step
from neorl_envs.interfaces._autoreset import AutoReset, AutoResetState, autoreset
from neorl_envs.interfaces._gymnasium import action_space, demanded, observation_space
from neorl_envs.interfaces._information import named_information
from neorl_envs.plants._table import make


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv):
    """A batch of plants; see :func:`gymnasium.make_vec`.

    A plant whose episode ends begins the next one in the same step, with new parameters.
    ``infos["final_obs"]`` is then the last observation of the old episode, ``(plant, obs)``, valid
    where ``infos["_final_obs"]``; bootstrap from it. ``infos`` further has ``cost``, ``cost_sum``,
    ``applied`` and the environment's own information, all of the transition, never of the reset.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": [],
    }

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        *,
        physical: bool = False,
        preset: str = "plant",
        spread: float = 0.15,
    ) -> None:
        """Makes the shell.

        Args:
            name: Name of the environment, for example ``"ChemicalReactor-v0"``.
            num_envs: Number of plants.
            physical: Whether actions are in physical units instead of [-1, 1].
            preset: Preset of the parameters.
            spread: Relative width of the randomisation of every episode; 0 for none.

        Raises:
            ValueError: If the name or the preset is unknown or ``num_envs`` is below one.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        env = make(name)
        env.default_params(preset)
        self.num_envs = num_envs
        self.env = autoreset(env, preset=preset, spread=spread)
        self.physical = physical
        self.single_observation_space = observation_space(env.spec)
        self.single_action_space = action_space(env.spec, physical=physical)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._plants: tuple[AutoResetState, PRNGKeyArray] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in every plant; ``seed`` decides all of them."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._plants, obs = _start(self.env, self.num_envs, key)
        return np.array(obs), {}

    def step(
        self, actions: Float[np.ndarray, "plant act"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control period of every plant."""
        if self._plants is None:
            raise RuntimeError("call reset() before step()")
        actions = np.asarray(actions, dtype=np.float32)
        self._plants, answer = _advance(self.env, self.physical, self._plants, actions)
        step: Any = jax.tree.map(np.array, answer)  # copies: JAX's own buffers are read-only
        infos = named_information(step.info)
        infos |= {"cost": step.cost, "cost_sum": step.cost.sum(axis=-1), "applied": step.applied}
        over = step.terminated | step.truncated
        if over.any():
            infos |= {"final_obs": step.final_obs, "_final_obs": over}
        return step.obs, step.reward.astype(np.float64), step.terminated, step.truncated, infos


@functools.partial(jax.jit, static_argnums=(0, 1))
def _start(
    env: AutoReset, num_envs: int, key: PRNGKeyArray
) -> tuple[tuple[AutoResetState, PRNGKeyArray], Array]:
    key, for_plants = jax.random.split(key)
    keys = jax.random.split(for_plants, num_envs)
    state, obs = jax.vmap(lambda each: env.reset(None, each))(keys)
    return (state, key), obs


@functools.partial(jax.jit, static_argnums=(0, 1))
def _advance(
    env: AutoReset, physical: bool, plants: tuple[AutoResetState, PRNGKeyArray], actions: Array
) -> tuple[tuple[AutoResetState, PRNGKeyArray], Step]:
    state, key = plants
    key, for_plants = jax.random.split(key)
    keys = jax.random.split(for_plants, len(actions))

    def one(state: AutoResetState, action: Array, key: PRNGKeyArray) -> Any:
        return env.step(None, state, demanded(env.spec, action, physical), key)

    state, step = jax.vmap(one)(state, actions, keys)
    return (state, key), step
