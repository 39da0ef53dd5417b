"""The recent past as part of the observation."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Channel, Environment, InputError, Spec, Step
from neorl_envs.wrappers._base import Wrapper
from neorl_envs.wrappers._commands import held_command
from neorl_envs.wrappers._policies import AdaptedPolicy


class HistoryState(NamedTuple):
    """State of the environment and what was seen and sent, newest first.

    Attributes:
        state: State of the environment inside.
        seen: Shape ``(length, obs)``.
        sent: Shape ``(actions, act)``.
    """

    state: Any
    seen: Float[Array, "length obs"]
    sent: Float[Array, "actions act"]


class History(Wrapper):
    """A plant whose observation has the last readings and the last actions, newest first.

    At the start of an episode every reading is the first one, and every action the one that the
    actuators hold.

    Attributes:
        env: The environment that is transformed.
        length: Number of readings, the present one included.
        actions: Number of actions that were applied.
    """

    length: int = eqx.field(static=True, default=2)
    actions: int = eqx.field(static=True, default=0)

    @property
    def spec(self) -> Spec:
        """The inner specification with ``name[t-1]`` added for the reading one period ago."""
        return _spec(self.env.spec, self.length, self.actions)

    def tunings(self) -> dict[str, AdaptedPolicy]:
        """The plant's controllers, which look at the present reading."""
        n_obs = self.env.spec.n_obs
        return {
            name: AdaptedPolicy(policy, None, None, n_obs)
            for name, policy in self.env.tunings().items()
        }

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[HistoryState, Float[Array, " obs"]]:
        """A new episode, in which nothing has happened yet."""
        state, obs = self.env.reset(params, key)
        command = held_command(self.env, params, state, obs, key)
        seen = jnp.broadcast_to(obs, (self.length, *obs.shape))
        sent = jnp.broadcast_to(command, (self.actions, *command.shape))
        new = HistoryState(state, seen, sent)
        return new, _flat(new)

    def step(
        self, params: Any, state: HistoryState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[HistoryState, Step]:
        """One control period."""
        inner, step = self.env.step(params, state.state, action, key)
        seen = jnp.concatenate([step.final_obs[None], state.seen])[: self.length]
        sent = jnp.concatenate([step.applied[None], state.sent])[: self.actions]
        new = HistoryState(inner, seen, sent)
        obs = _flat(new)
        return new, step._replace(obs=obs, final_obs=obs)


def history(env: Environment, *, length: int = 2, actions: int = 0) -> History:
    """Transforms an environment so that policies see the recent past.

    Args:
        env: An environment.
        length: Number of readings of every channel, the present one included.
        actions: Number of past actions of every actuator.

    Returns:
        An environment of the same contract with longer observations.

    Raises:
        InputError: If a number is no whole one, ``length`` is below one or ``actions`` below zero.

    Example:
        >>> import neorl_envs
        >>> history(neorl_envs.make("ChemicalReactor-v0"), length=3, actions=2).spec.n_obs
        42
    """
    for name, value, least in (("length", length, 1), ("actions", actions, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return History(env, length, actions)


def _flat(state: HistoryState) -> Float[Array, " obs"]:
    return jnp.concatenate([state.seen.ravel(), state.sent.ravel()])


@functools.cache
def _spec(spec: Spec, length: int, actions: int) -> Spec:
    old = [_aged(spec.obs, age) for age in range(1, length)]
    sent = [_aged(spec.action, age) for age in range(1, actions + 1)]
    obs = (*spec.obs, *(channel for channels in (*old, *sent) for channel in channels))
    return Spec(obs, spec.action, spec.cost, spec.dt, spec.horizon)


def _aged(channels: tuple[Channel, ...], age: int) -> list[Channel]:
    return [Channel(f"{c.name}[t-{age}]", c.unit, c.low, c.high) for c in channels]
