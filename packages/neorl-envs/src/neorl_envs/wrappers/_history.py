"""Adds recent readings and actions to the observation."""

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
    """State of the environment, with recent readings and applied actions, newest first.

    Attributes:
        state: State of the wrapped environment.
        seen: Recent readings, shape ``(length, obs)``.
        sent: Recent actions, shape ``(actions, act)``.
    """

    state: Any
    seen: Float[Array, "length obs"]
    sent: Float[Array, "actions act"]


class History(Wrapper):
    """A plant whose observation contains the latest readings and actions, newest first.

    At the start of an episode, the first reading and the command held by the actuators stand in for
    the missing past.

    Attributes:
        env: The wrapped environment.
        length: Number of readings, including the current one.
        actions: Number of applied actions.
    """

    length: int = eqx.field(static=True, default=2)
    actions: int = eqx.field(static=True, default=0)

    @property
    def spec(self) -> Spec:
        """The specification with channels such as ``name[t-1]``, the reading one period ago."""
        return _spec(self.env.spec, self.length, self.actions)

    def tunings(self) -> dict[str, AdaptedPolicy]:
        """The plant's controllers, which use only the current reading."""
        n_obs = self.env.spec.n_obs
        return {
            name: AdaptedPolicy(policy, None, None, n_obs)
            for name, policy in self.env.tunings().items()
        }

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[HistoryState, Float[Array, " obs"]]:
        """Starts an episode and fills the history with its first reading."""
        state, obs = self.env.reset(params, key)
        command = held_command(self.env, params, state, obs, key)
        seen = jnp.broadcast_to(obs, (self.length, *obs.shape))
        sent = jnp.broadcast_to(command, (self.actions, *command.shape))
        new = HistoryState(state, seen, sent)
        return new, _flat(new)

    def step(
        self, params: Any, state: HistoryState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[HistoryState, Step]:
        """Simulates one control period."""
        inner, step = self.env.step(params, state.state, action, key)
        seen = jnp.concatenate([step.final_obs[None], state.seen])[: self.length]
        sent = jnp.concatenate([step.applied[None], state.sent])[: self.actions]
        new = HistoryState(inner, seen, sent)
        obs = _flat(new)
        return new, step._replace(obs=obs, final_obs=obs)


def history(env: Environment, *, length: int = 2, actions: int = 0) -> History:
    """Adds recent readings and actions to the observation of an environment.

    Args:
        env: An environment.
        length: Number of readings of every channel, including the current one.
        actions: Number of past actions of every actuator.

    Returns:
        An environment with the same interface and longer observations.

    Raises:
        InputError: If ``length`` is not a positive integer or ``actions`` not a non-negative one.

    Example:
        >>> import neorl_envs
        >>> history(neorl_envs.make("ChemicalReactor-v0"), length=3, actions=2).spec.n_obs
        42
    """
    for name, value, least in (("length", length, 1), ("actions", actions, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")
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
