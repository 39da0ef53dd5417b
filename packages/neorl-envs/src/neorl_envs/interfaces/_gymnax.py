"""The signature of gymnax 1.0 over an environment, for agents written against it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import unit_interval
from neorl_envs.interfaces._autoreset import AutoReset, AutoResetState
from neorl_envs.interfaces._information import named_information
from neorl_envs.plants._protocol import Plant


class GymnaxStep(NamedTuple):
    """What gymnax's ``step`` returns, as a tuple of six.

    Attributes:
        obs: Observation to act on next; of the new episode where the old one ended.
        state: State for the next call.
        reward: Reward of the step, scalar.
        terminated: The plant ended the episode.
        truncated: The clock ended the episode.
        info: ``final_observation`` (of this transition), ``cost``, ``applied`` and the
            environment's own information.
    """

    obs: Float[Array, " obs"]
    state: AutoResetState
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


class Gymnax(eqx.Module):
    """Key first, observation first, automatic reset always: the habits of gymnax.

    Actions are in [-1, 1], observations in physical units.

    Attributes:
        env: An environment of this package, not transformed.
    """

    env: Plant

    @property
    def name(self) -> str:
        """Name of the environment."""
        return self.env.name

    @property
    def num_actions(self) -> int:
        """Number of action channels."""
        return self.env.spec.n_action

    @property
    def default_params(self) -> Any:
        """Parameters without randomisation."""
        return self.env.default_params()

    def reset(self, key: PRNGKeyArray, params: Any = None) -> tuple[Array, AutoResetState]:
        """First observation and state."""
        state, obs = AutoReset(self.env).reset(self._or_default(params), key)
        return obs, state

    def step(
        self,
        key: PRNGKeyArray,
        state: AutoResetState,
        action: Float[Array, " act"],
        params: Any = None,
    ) -> GymnaxStep:
        """One control period, and a reset after it where the episode ended."""
        params = self._or_default(params)
        physical = unit_interval(self.env.spec.action).to_physical(jax.numpy.clip(action, -1, 1))
        plant = AutoResetState(params, state.state)
        state, step = AutoReset(self.env).step(params, plant, physical, key)
        info = {"final_observation": step.final_obs, "cost": step.cost, "applied": step.applied}
        info |= named_information(step.info)
        return GymnaxStep(step.obs, state, step.reward, step.terminated, step.truncated, info)

    def _or_default(self, params: Any) -> Any:
        return self.default_params if params is None else params


def gymnax(env: Plant) -> Gymnax:
    """Adapts an environment to the signature of gymnax 1.0.

    Args:
        env: An environment of this package.

    Returns:
        An object with ``reset(key, params)`` and ``step(key, state, action, params)``; jit and
        vmap are the caller's.

    Example:
        >>> import neorl_envs
        >>> adapted = gymnax(neorl_envs.make("ChemicalReactor-v0"))
        >>> obs, state = adapted.reset(jax.random.key(0))
        >>> obs.shape, adapted.num_actions
        ((12,), 3)
    """
    return Gymnax(env)
