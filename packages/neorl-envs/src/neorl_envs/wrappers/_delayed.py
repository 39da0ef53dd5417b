"""Dead time between controller and plant, on any plant."""

from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Environment, Step
from neorl_core.control import DelayLine, delay_line, delay_step
from neorl_envs.wrappers._base import Wrapper
from neorl_envs.wrappers._commands import held_command, limited


class DelayedState(NamedTuple):
    """State of the environment, and what is on its way.

    Attributes:
        state: State of the environment inside.
        command: The last command that was sent, shape ``(act,)``.
        commands: Commands that have not arrived.
        readings: Observations that have not arrived.
    """

    state: Any
    command: Float[Array, " act"]
    commands: DelayLine
    readings: DelayLine


class Delayed(Wrapper):
    """A plant behind a slow line: commands act and readings arrive whole periods later.

    ``Step.applied`` is the command that was sent, inside range and speed, as for the dead time of
    a plant's own actuators. Until the first command arrives the actuators hold their start.
    Reward, costs and endings are those of the plant, at once.

    Attributes:
        env: The environment that is transformed.
        action: Periods between a command and its effect.
        obs: Periods between the plant and the reading.
    """

    action: int = eqx.field(static=True, default=0)
    obs: int = eqx.field(static=True, default=0)

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[DelayedState, Float[Array, " obs"]]:
        """A new episode with empty lines."""
        state, obs = self.env.reset(params, key)
        command = held_command(self.env, params, state, obs, key)
        commands = delay_line(command, delay=self.action)
        return DelayedState(state, command, commands, delay_line(obs, delay=self.obs)), obs

    def step(
        self, params: Any, state: DelayedState, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[DelayedState, Step]:
        """One control period."""
        command = limited(self.env, state.command, action)
        commands, arrived = delay_step(state.commands, command, first=False)
        inner, step = self.env.step(params, state.state, arrived, key)
        readings, obs = delay_step(state.readings, step.final_obs, first=False)
        new = DelayedState(inner, command, commands, readings)
        return new, step._replace(obs=obs, final_obs=obs, applied=command)


def delayed(env: Environment, *, action: int = 0, obs: int = 0) -> Delayed:
    """Adds dead time in front of the actuators and behind the instruments of any plant.

    Args:
        env: A plant.
        action: Whole control periods between a command and its effect.
        obs: Whole control periods between the plant and the reading.

    Returns:
        An environment of the same contract.

    Raises:
        ValueError: If a delay is not a whole number >= 0.

    Example:
        >>> import neorl_envs
        >>> delayed(neorl_envs.make("ChemicalReactor-v0"), action=2).spec.n_action
        3
    """
    for delay in (action, obs):
        delay_line(0.0, delay=delay)  # refuses what is no delay here, not when it is traced
    return Delayed(env, action, obs)
