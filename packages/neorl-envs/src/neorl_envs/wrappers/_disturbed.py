"""Adds an unmeasured load disturbance at the input of any plant."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Environment, InputError, Step, highs, lows
from neorl_envs.blocks import autoregressive
from neorl_envs.wrappers._base import Wrapper
from neorl_envs.wrappers._commands import held_command, limit_command


class DisturbedState(NamedTuple):
    """State of the environment and of the disturbance.

    Attributes:
        state: State of the wrapped environment.
        command: The last command sent, shape ``(act,)``.
        load: Disturbance added to the command, in the channels' units, shape ``(act,)``.
    """

    state: Any
    command: Float[Array, " act"]
    load: Float[Array, " act"]


class Disturbed(Wrapper):
    """A plant whose actuators deviate from their commands by an unmeasured amount.

    ``load <- a load + sd range sqrt(1 - a^2) n`` with ``a = exp(-dt / memory)`` and standard normal
    ``n`` is added to every command. ``Step.applied`` is the command without the load, since a log
    can show no more.

    Attributes:
        env: The wrapped environment.
        sd: Stationary standard deviation as a fraction of every actuator's range.
        memory: Time constant, s.
    """

    sd: float = eqx.field(static=True, default=0.05)
    memory: float = eqx.field(static=True, default=600.0)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[DisturbedState, Float[Array, " obs"]]:
        """Starts an episode with the disturbance sampled from its stationary distribution."""
        for_env, for_load = jax.random.split(key)
        state, obs = self.env.reset(params, for_env)
        command = held_command(self.env, params, state, obs, for_env)
        normal = jax.random.normal(for_load, command.shape, command.dtype)
        return DisturbedState(state, command, self._sd(command) * normal), obs

    def step(
        self, params: Any, state: DisturbedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[DisturbedState, Step]:
        """Simulates one control period."""
        for_env, for_load = jax.random.split(key)
        command = limit_command(self.env, state.command, action)
        inner, step = self.env.step(params, state.state, command + state.load, for_env)
        load = autoregressive(
            state.load,
            jax.random.normal(for_load, command.shape, command.dtype),
            sd=self._sd(command),
            memory=self.memory,
            dt=self.spec.dt,
        )
        return DisturbedState(inner, command, load), step._replace(applied=command)

    def _sd(self, like: Array) -> Float[Array, " act"]:
        span = np.asarray(highs(self.spec.action)) - np.asarray(lows(self.spec.action))
        return jnp.asarray(self.sd * span, like.dtype)


def disturbed(env: Environment, *, sd: float = 0.05, memory: float = 600.0) -> Disturbed:
    """Adds an unmeasured, slowly varying load at the actuators of any plant.

    Args:
        env: A plant.
        sd: Stationary standard deviation as a fraction of every actuator's range.
        memory: Time constant, s.

    Returns:
        An environment with the same interface.

    Raises:
        InputError: If ``sd`` is negative or ``memory`` is not positive.

    Example:
        >>> import neorl_envs
        >>> disturbed(neorl_envs.make("ChemicalReactor-v0"), sd=0.1).spec.n_obs
        12
    """
    if not (np.isfinite(sd) and sd >= 0):
        raise InputError(f"sd must be a fraction of the range, 0 or more, got {sd}")
    if not (np.isfinite(memory) and memory > 0):
        raise InputError(f"memory must be a positive number of seconds, got {memory}")
    return Disturbed(env, float(sd), float(memory))
