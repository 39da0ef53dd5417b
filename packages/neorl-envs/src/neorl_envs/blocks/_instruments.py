"""Instruments: noise, dead time, drift, freezing and range between true values and readings."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Channel, highs, lows
from neorl_envs.blocks._constants import require_preset


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
