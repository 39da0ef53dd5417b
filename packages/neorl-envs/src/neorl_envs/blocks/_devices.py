"""Actuators and instruments: what stands between a controller and the plant."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, highs, lows
from neorl_core.projections import limit_rate, project_box
from neorl_envs.blocks._constants import require_preset

# Actuators: range, rate limit, dead time and lag between a demand and the input of the plant.


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


# Instruments: noise, dead time, drift, freezing and range between true values and readings.


@dataclasses.dataclass(frozen=True)
class Instrument:
    """One measured channel.

    Attributes:
        channel: Name, unit and measuring range, at the ends of which the instrument saturates.
        sd: Standard deviation of the noise, in the channel's unit.
        relative: Standard deviation of the noise as a fraction of the value.
        dead_time: Whole control periods between the plant and the reading.
    """

    channel: Channel
    sd: float = 0.0
    relative: float = 0.0
    dead_time: int = 0


class InstrumentParameters(NamedTuple):
    """Numeric parameters of the instruments; ``"clean"`` has neither noise nor dead time.

    Attributes:
        sd: Standard deviation of the noise in the channels' units, shape ``(obs,)``.
        relative: Standard deviation of the noise as a fraction of the value, shape ``(obs,)``.
        dead_time: Dead times in control periods, shape ``(obs,)``.
        drift: Standard deviation of the drift after one hour, shape ``(obs,)``; zero by default.
        freezes: Probability that a reading freezes in a period, shape ``(obs,)``; zero by default.
        thaws: Probability that a frozen reading recovers in a period, scalar.
    """

    sd: Float[Array, " obs"]
    relative: Float[Array, " obs"]
    dead_time: Int[Array, " obs"]
    drift: Float[Array, " obs"]
    freezes: Float[Array, " obs"]
    thaws: Float[Array, ""]


class Faults(NamedTuple):
    """State of instruments that may drift and freeze.

    Attributes:
        offset: Accumulated drift, shape ``(obs,)``.
        frozen: Which readings are frozen, shape ``(obs,)``.
        last: The last readings, shape ``(obs,)``.
    """

    offset: Float[Array, " obs"]
    frozen: Bool[Array, " obs"]
    last: Float[Array, " obs"]


class InstrumentState(NamedTuple):
    """State of the instruments.

    Attributes:
        pending: True values that are not shown yet, newest first, shape ``(longest, obs)``.
        faults: Drift and frozen readings, or ``None`` in a plant created without faults.
    """

    pending: Float[Array, "longest obs"]
    faults: Faults | None


class InstrumentNoise(NamedTuple):
    """Random numbers of one step, standard normal and uniform.

    Attributes:
        normal: Normal numbers for the noise, shape ``(obs,)``.
        drift: Normal numbers for the drift, shape ``(obs,)``, or ``None`` without faults.
        freeze: Uniform numbers for freezing and recovery, shape ``(obs,)``, or ``None`` without
            faults.
    """

    normal: Float[Array, " obs"]
    drift: Float[Array, " obs"] | None
    freeze: Float[Array, " obs"] | None


Instruments = tuple[Instrument, ...]


def instrument_parameters(
    instruments: Instruments, preset: str = "plant", *, dtype: DTypeLike
) -> InstrumentParameters:
    """The declared parameters as arrays."""
    require_preset(preset)
    on = float(preset == "plant")
    nothing = jnp.zeros(len(instruments), dtype)
    return InstrumentParameters(
        sd=jnp.asarray([on * i.sd for i in instruments], dtype),
        relative=jnp.asarray([on * i.relative for i in instruments], dtype),
        dead_time=jnp.asarray([int(on) * i.dead_time for i in instruments], jnp.int32),
        drift=nothing,
        freezes=nothing,
        thaws=jnp.asarray(0.1, dtype),
    )


def instruments_at_start(
    instruments: Instruments, truth: Float[Array, " obs"], *, faults: bool
) -> InstrumentState:
    """Instruments whose true values have been constant until now."""
    longest = max(i.dead_time for i in instruments)
    pending = jnp.broadcast_to(truth, (longest, truth.size))
    if not faults:
        return InstrumentState(pending, None)
    state = Faults(jnp.zeros_like(truth), jnp.zeros(truth.shape, jnp.bool_), truth)
    return InstrumentState(pending, state)


def sample_instrument_noise(
    parameters: InstrumentParameters, key: PRNGKeyArray, *, faults: bool
) -> InstrumentNoise:
    """Samples the noise of the readings of one step."""
    shape, dtype = parameters.sd.shape, parameters.sd.dtype
    if not faults:
        return InstrumentNoise(jax.random.normal(key, shape, dtype), None, None)
    noise, drift, freeze = jax.random.split(key, 3)
    return InstrumentNoise(
        jax.random.normal(noise, shape, dtype),
        jax.random.normal(drift, shape, dtype),
        jax.random.uniform(freeze, shape, dtype),
    )


def read(
    instruments: Instruments,
    parameters: InstrumentParameters,
    state: InstrumentState,
    truth: Float[Array, " obs"],
    noise: InstrumentNoise,
    *,
    dt: float,
) -> tuple[InstrumentState, Float[Array, " obs"]]:
    """Readings of the instruments before soft sensors and ranges; see :func:`in_range`.

    A reading is ``(1 + relative n) truth + sd n``, for the true value ``dead_time`` periods ago,
    plus the drift.
    """
    pending = state.pending
    if pending.shape[0]:
        line = jnp.concatenate([truth[None], pending])
        truth = jnp.take_along_axis(line, parameters.dead_time[None], axis=0)[0]
        pending = line[:-1]
    shown = truth * (1 + parameters.relative * noise.normal) + parameters.sd * noise.normal
    if state.faults is None or noise.drift is None or noise.freeze is None:
        return InstrumentState(pending, None), shown
    offset = state.faults.offset + parameters.drift * math.sqrt(dt / 3600) * noise.drift
    frozen = jnp.where(
        state.faults.frozen, noise.freeze >= parameters.thaws, noise.freeze < parameters.freezes
    )
    shown = jnp.where(frozen, state.faults.last, shown + offset)
    return InstrumentState(pending, Faults(offset, frozen, shown)), shown


def in_range(instruments: Instruments, shown: Float[Array, " obs"]) -> Float[Array, " obs"]:
    """The readings clipped to the measuring ranges."""
    channels = tuple(instrument.channel for instrument in instruments)
    low, high = (jnp.asarray(ends(channels), shown.dtype) for ends in (lows, highs))
    return jnp.clip(shown, low, high)


# Checks that actuators, instruments and initial states are physically possible.


def check_actuators(actuators: Actuators, parameters: ActuatorParameters) -> None:
    """Raises a ``ValueError`` for rate limits, lags and dead times that are impossible."""
    for i, actuator in enumerate(actuators):
        unit, name = actuator.channel.unit, f"actuator {actuator.channel.name!r}"
        speed, lag = parameters.speed[..., i], parameters.lag[..., i]
        _require(f"speed of {name}", speed, lambda x: x > 0, f"above 0 {unit}/s")
        _require(f"lag of {name}", lag, _finite_not_negative, "finite and not negative, in s")
        _require_dead_time(name, parameters.dead_time[..., i], actuator.dead_time)


def check_instruments(instruments: Instruments, parameters: InstrumentParameters) -> None:
    """Raises a ``ValueError`` for impossible measurement errors, probabilities and dead times."""
    for i, instrument in enumerate(instruments):
        unit, name = instrument.channel.unit, f"instrument {instrument.channel.name!r}"
        for field in ("sd", "relative", "drift"):
            given = getattr(parameters, field)[..., i]
            allowed = f"finite and not negative ({unit if field != 'relative' else '1'})"
            _require(f"{field} of {name}", given, _finite_not_negative, allowed)
        freezes = parameters.freezes[..., i]
        _require(f"freezes of {name}", freezes, _is_probability, "a probability")
        _require_dead_time(name, parameters.dead_time[..., i], instrument.dead_time)
    _require("thaws of the instruments", parameters.thaws, _is_probability, "a probability")


def check_initial(declared: Any, start: Any, spread: Any) -> None:
    """Raises a ``ValueError`` for an initial state that is not finite, or a negative spread."""
    paths, structure = jax.tree_util.tree_flatten_with_path(declared)
    both = zip(paths, structure.flatten_up_to(start), structure.flatten_up_to(spread), strict=True)
    for (path, _), value, width in both:
        name = f"initial {jax.tree_util.keystr(path, simple=True, separator='.')}".rstrip()
        _require(name, value, np.isfinite, "finite")
        _require(f"spread of {name}", width, _finite_not_negative, "finite and not negative")


def _require_dead_time(name: str, given: Any, declared: int) -> None:
    _require(
        f"dead_time of {name}",
        given,
        lambda x: (x >= 0) & (x <= declared),
        f"from 0 to the declared {declared} periods",
    )


def _finite_not_negative(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (x >= 0)


def _is_probability(x: np.ndarray) -> np.ndarray:
    return (x >= 0) & (x <= 1)


def _require(name: str, given: Any, holds: Any, allowed: str) -> None:
    if isinstance(given, Tracer):
        return
    value = np.asarray(given)
    good = holds(value)
    if not good.all():
        worst = float(value[~good].ravel()[0])
        raise ValueError(f"{name} must be {allowed}, got {worst:g}")
