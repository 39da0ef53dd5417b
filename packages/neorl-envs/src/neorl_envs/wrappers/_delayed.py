"""Adds dead time between the controller and any plant."""

from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Environment, Step
from neorl_core.control import DelayLine, delay_line, delay_step
from neorl_envs.wrappers._base import Wrapper
from neorl_envs.wrappers._commands import held_command, limit_command


class DelayedState(NamedTuple):
    """State of the environment, and the delayed commands and observations.

    Attributes:
        state: State of the wrapped environment.
        command: The last command sent, shape ``(act,)``.
        commands: Commands that have not reached the plant yet.
        readings: Observations that have not reached the controller yet.
    """

    state: Any
    command: Float[Array, " act"]
    commands: DelayLine
    readings: DelayLine


class Delayed(Wrapper):
    """A plant whose commands and readings are delayed by whole control periods.

    As for the dead time of a plant's own actuators, ``Step.applied`` is the command that was sent,
    within range and rate limit. Until the first command arrives, the actuators keep their initial
    positions. Rewards, costs and ends of episodes are not delayed.

    Attributes:
        env: The wrapped environment.
        action: Number of periods between a command and its effect.
        obs: Number of periods between a measurement and its arrival.
    """

    action: int = eqx.field(static=True, default=0)
    obs: int = eqx.field(static=True, default=0)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[DelayedState, Float[Array, " obs"]]:
        """Starts an episode, in which nothing has been sent yet."""
        state, obs = self.env.reset(params, key)
        command = held_command(self.env, params, state, obs, key)
        commands = delay_line(command, delay=self.action)
        return DelayedState(state, command, commands, delay_line(obs, delay=self.obs)), obs

    def step(
        self, params: Any, state: DelayedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[DelayedState, Step]:
        """Simulates one control period."""
        command = limit_command(self.env, state.command, action)
        commands, arrived = delay_step(state.commands, command, first=False)
        inner, step = self.env.step(params, state.state, arrived, key)
        readings, obs = delay_step(state.readings, step.final_obs, first=False)
        new = DelayedState(inner, command, commands, readings)
        return new, step._replace(obs=obs, final_obs=obs, applied=command)


def delayed(env: Environment, *, action: int = 0, obs: int = 0) -> Delayed:
    """Adds dead time before the actuators and after the instruments of any plant.

    Args:
        env: A plant.
        action: Number of control periods between a command and its effect.
        obs: Number of control periods between a measurement and its arrival.

    Returns:
        An environment with the same interface.

    Raises:
        ValueError: If a delay is not a non-negative integer.

    Example:
        >>> import neorl_envs
        >>> delayed(neorl_envs.make("ChemicalReactor-v0"), action=2).spec.n_action
        3
    """
    for delay in (action, obs):
        delay_line(0.0, delay=delay)  # rejects an invalid delay here, not when it is traced
    return Delayed(env, action, obs)
