"""Actuators: range, rate limit, dead time and lag between a demand and the input of the plant."""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from neorl_core import Channel, highs, lows
from neorl_core.projections import limit_rate, project_box
from neorl_envs.blocks._constants import require_preset


@dataclasses.dataclass(frozen=True)
class Actuator:
    """One manipulated variable.

    Attributes:
        channel: Name, unit and range.
        start: Position at the start of an episode.
        speed: Largest change in units per second; infinite for no limit.
        lag: Time constant in seconds of the first-order lag after the command; 0 for none.
        dead_time: Whole control periods between command and effect. A parameter set may shorten it
            but not lengthen it.
    """

    channel: Channel
    start: float
    speed: float = math.inf
    lag: float = 0.0
    dead_time: int = 0


class ActuatorParameters(NamedTuple):
    """Numeric parameters of the actuators; the preset ``"clean"`` has neither lag nor dead time.

    Attributes:
        speed: Largest change in units per second, shape ``(act,)``.
        lag: Time constants in seconds, shape ``(act,)``.
        dead_time: Dead times in control periods, shape ``(act,)``.
    """

    speed: Float[Array, " act"]
    lag: Float[Array, " act"]
    dead_time: Int[Array, " act"]


class ActuatorState(NamedTuple):
    """State of the actuators.

    Attributes:
        command: The last command, within range and rate limit, shape ``(act,)``.
        pending: Commands that have not taken effect yet, newest first, shape ``(longest, act)``.
        position: The position that acts on the plant, shape ``(act,)``.
    """

    command: Float[Array, " act"]
    pending: Float[Array, "longest act"]
    position: Float[Array, " act"]


Actuators = tuple[Actuator, ...]


def actuator_parameters(
    actuators: Actuators, preset: str = "plant", *, dtype: DTypeLike
) -> ActuatorParameters:
    """The declared parameters as arrays."""
    require_preset(preset)
    on = float(preset == "plant")
    return ActuatorParameters(
        speed=jnp.asarray([a.speed for a in actuators], dtype),
        lag=jnp.asarray([on * a.lag for a in actuators], dtype),
        dead_time=jnp.asarray([int(on) * a.dead_time for a in actuators], jnp.int32),
    )


def actuators_at_start(actuators: Actuators, dtype: DTypeLike) -> ActuatorState:
    """All actuators at rest at their start positions."""
    start = jnp.asarray([a.start for a in actuators], dtype)
    longest = max(a.dead_time for a in actuators)
    return ActuatorState(start, jnp.broadcast_to(start, (longest, start.size)), start)


def limited_command(
    actuators: Actuators,
    parameters: ActuatorParameters,
    state: ActuatorState,
    action: Float[Array, " act"],
    *,
    dt: float,
) -> Float[Array, " act"]:
    """Limits the demand to range and rate; a NaN channel keeps its last command.

    The demand is in the channels' units, ``dt`` in seconds. Raises a ``ValueError`` if the shape of
    the action is not ``(act,)``.
    """
    last = state.command
    if jnp.shape(action) != last.shape:
        raise ValueError(f"an action has shape {last.shape}, got {jnp.shape(action)}")
    channels = tuple(actuator.channel for actuator in actuators)
    low, high = (jnp.asarray(ends(channels), last.dtype) for ends in (lows, highs))
    # NaN means "leave it": the channel is in manual and its position is unknown.
    demand = jnp.where(jnp.isnan(action), last, jnp.asarray(action, last.dtype))
    return limit_rate(project_box(demand, low, high), last, parameters.speed, dt=dt)


def delivered(
    actuators: Actuators,
    parameters: ActuatorParameters,
    state: ActuatorState,
    command: Float[Array, " act"],
    *,
    dt: float,
) -> ActuatorState:
    """The actuators one period later; their ``position`` acts on the plant during the period.

    The command takes effect after the dead time. The position then follows the exact solution of
    ``lag dx/dt = command - x`` over one period.
    """
    pending, arrived = state.pending, command
    if pending.shape[0]:
        line = jnp.concatenate([command[None], pending])
        arrived = jnp.take_along_axis(line, parameters.dead_time[None], axis=0)[0]
        pending = line[:-1]
    position = arrived
    if any(actuator.lag for actuator in actuators):
        lag = parameters.lag
        share = jnp.where(lag > 0, -jnp.expm1(-dt / jnp.where(lag > 0, lag, 1)), 1)
        position = state.position + share * (arrived - state.position)
    return ActuatorState(command, pending, position)
