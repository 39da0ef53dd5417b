"""Adapts environments to the interface of gymnax 1.0, for agents written for it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Channel, Environment, Step, highs, lows
from neorl_envs.interfaces._episode import in_physical_units, named_information
from neorl_envs.wrappers import AutoReset, AutoResetState, autoreset, randomised


class Box(NamedTuple):
    """A bounded space with the interface of gymnax.

    Attributes:
        low: Lower ends, shape ``shape``.
        high: Upper ends, shape ``shape``.
        shape: Shape of one value.
        dtype: Dtype of one value.
    """

    low: np.ndarray
    high: np.ndarray
    shape: tuple[int, ...]
    dtype: DTypeLike = jnp.float32

    def sample(self, key: PRNGKeyArray) -> Array:
        """Samples uniformly."""
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: Array) -> Bool[Array, ""]:
        """Whether every entry is within the bounds."""
        return jnp.all((x >= self.low) & (x <= self.high))


class GymnaxStep(NamedTuple):
    """The six values that ``step`` of gymnax returns.

    Attributes:
        obs: Observation for the next action; the first one of the new episode after a reset.
        state: State for the next call.
        reward: Reward of the step, scalar.
        terminated: Whether the plant ended the episode.
        truncated: Whether the episode reached its horizon.
        info: ``final_observation`` (of this transition), ``terminated``, ``truncated``, ``cost``,
            ``cost_sum``, ``applied`` and the fields of ``Step.info`` of the environment.
    """

    obs: Float[Array, " obs"]
    state: "GymnaxState"
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


class GymnaxState(NamedTuple):
    """State of the environment, and whether its episode was truncated.

    Attributes:
        inner: State of the environment with automatic resets.
        truncated: Whether the last step was truncated; gymnax reads this from the state.
    """

    inner: AutoResetState
    truncated: Bool[Array, ""]


class Gymnax(eqx.Module):
    """An environment with gymnax's conventions: key and observation first, automatic resets.

    Actions are in [-1, 1], observations in physical units. If the parameters are randomised, the
    ``params`` of all methods are ignored.

    Attributes:
        env: An environment of this package.
    """

    env: Any

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

    def observation_space(self, params: Any = None) -> Box:
        """A box with the measuring ranges."""
        return _box(self.env.spec.obs)

    def action_space(self, params: Any = None) -> Box:
        """A box with [-1, 1] for every actuator."""
        one = np.ones(self.num_actions, np.float32)
        return Box(-one, one, one.shape)

    def reset(self, key: PRNGKeyArray, params: Any = None) -> tuple[Array, GymnaxState]:
        """First observation and state."""
        return self.reset_env(key, params)

    def reset_env(self, key: PRNGKeyArray, params: Any = None) -> tuple[Array, GymnaxState]:
        """First observation and state."""
        state, obs = self._resetting.reset(self._or_default(params), key)
        return obs, GymnaxState(state, jnp.zeros((), jnp.bool_))

    def step(
        self,
        key: PRNGKeyArray,
        state: GymnaxState,
        action: Float[Array, " act"],
        params: Any = None,
    ) -> GymnaxStep:
        """Simulates one control period, followed by a reset if the episode ended."""
        new, step = self._advance(self._resetting, key, state.inner, action, params)
        # After a reset, the state belongs to a new episode, which has not been truncated.
        state = GymnaxState(new, jnp.zeros((), jnp.bool_))
        return GymnaxStep(
            step.obs, state, step.reward, step.terminated, step.truncated, _information(step)
        )

    def step_env(
        self,
        key: PRNGKeyArray,
        state: GymnaxState,
        action: Float[Array, " act"],
        params: Any = None,
    ) -> tuple[Array, GymnaxState, Array, Array, dict[str, Array]]:
        """Simulates one control period without a reset; truncation is reported in ``info``."""
        inner, step = self._advance(self.env, key, state.inner.state, action, params)
        new = GymnaxState(state.inner._replace(state=inner), step.truncated)
        return step.obs, new, step.reward, step.terminated, _information(step)

    def is_truncated(self, state: GymnaxState, params: Any = None) -> Bool[Array, ""]:
        """Whether the episode was truncated in the step that led to this state."""
        return state.truncated

    @property
    def _resetting(self) -> AutoReset:
        return autoreset(self.env)

    def _advance(
        self, env: Environment, key: PRNGKeyArray, state: Any, action: Array, params: Any
    ) -> tuple[Any, Step]:
        # `closed_loop` is not used here, because the policy runs in the caller.
        physical = in_physical_units(env.spec, action)
        return env.step(self._or_default(params), state, physical, key)

    def _or_default(self, params: Any) -> Any:
        return self.default_params if params is None else params


def gymnax(env: Environment, *, spread: float | None = None) -> Gymnax:
    """Adapts an environment to the interface of gymnax 1.0.

    Args:
        env: An environment of this package.
        spread: Relative spread with which new parameters are sampled for every episode; ``None``
            uses the parameters that are passed in.

    Returns:
        An object with ``reset(key, params)``, ``step(key, state, action, params)`` and the other
        methods that agents written for gymnax call. Apply ``jit`` and ``vmap`` yourself.

    Example:
        >>> import neorl_envs
        >>> adapted = gymnax(neorl_envs.make("ChemicalReactor-v0"), spread=0.15)
        >>> obs, state = adapted.reset(jax.random.key(0), adapted.default_params)
        >>> obs.shape, adapted.action_space(adapted.default_params).shape
        ((12,), (3,))
    """
    return Gymnax(env if spread is None else randomised(env, spread=spread))


def _box(channels: tuple[Channel, ...]) -> Box:
    low, high = (np.asarray(ends(channels), np.float32) for ends in (lows, highs))
    return Box(low, high, low.shape)


def _information(step: Step) -> dict[str, Array]:
    fields = {"terminated": step.terminated, "truncated": step.truncated}
    fields |= {"final_observation": step.final_obs, "cost": step.cost, "applied": step.applied}
    return {**named_information(step.info), **fields, "cost_sum": step.cost.sum()}
