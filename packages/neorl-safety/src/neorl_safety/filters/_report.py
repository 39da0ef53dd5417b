"""Report of a filter, as data: its changes and their reasons."""

import enum
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32


class Flag(enum.IntFlag):
    """Decisions of one filtered step; the bits of :attr:`SafetyReport.flags`."""

    REQUEST_NONFINITE = 1 << 0
    """The requested action holds a NaN or an infinity."""
    OBSERVATION_NONFINITE = 1 << 1
    """The observation holds a NaN or an infinity."""
    BAD_CONSTRAINT = 1 << 2
    """A limit is NaN, infinite where it may not be, negative, subnormal or inverted."""
    BAD_PERIOD = 1 << 3
    """The period is NaN, infinite or not positive: no channel with a rate limit may move."""
    PREVIOUS_UNKNOWN = 1 << 4
    """What the plant received last is not known, and was not for longer than may be assumed."""
    PREVIOUS_ASSUMED = 1 << 5
    """Nobody said what the plant received: the last own action is assumed."""
    PREVIOUS_OUT_OF_RANGE = 1 << 6
    """A previous action lies where the actuator cannot be: it was clipped to the actuator range."""
    PREVIOUS_OUTSIDE_BOX = 1 << 7
    """A previous action lies outside the box: it returns at the allowed rate."""
    FALLBACK_NONFINITE = 1 << 8
    """The fallback action holds a NaN or an infinity: such a channel holds, or takes mid-range."""
    FALLBACK_CLIPPED = 1 << 9
    """The fallback action lies outside the box and was clipped to it."""
    FALLBACK_USED = 1 << 10
    """The fallback took the place of the request, on every channel."""
    BOX_ACTIVE = 1 << 11
    """The box changed at least one channel."""
    RATE_ACTIVE = 1 << 12
    """The rate limit changed at least one channel."""
    FURTHER_ACTIVE = 1 << 13
    """Intervals of further kinds changed at least one channel."""
    FURTHER_EMPTY = 1 << 14
    """Intervals of further kinds exclude one another, or an interval that is no interlock excludes
    the box: left out on that channel."""
    ROWS_ACTIVE = 1 << 15
    """Linear or barrier rows changed at least one channel."""
    ROWS_INFEASIBLE = 1 << 16
    """No action was found that satisfies all rows: the fallback acts without them."""
    WEAR_ACTIVE = 1 << 17
    """A deadband or a rest changed at least one channel."""
    REQUEST_SUBNORMAL = 1 << 18
    """A requested channel is subnormal and counts as zero."""
    MONITOR_ALARM = 1 << 19
    """A monitor finds the situation unfit for the policy."""
    FALLBACK_HELD = 1 << 20
    """The fallback stays in charge: clean steps, time or a release are still missing."""
    LATCHED = 1 << 21
    """The fallback stays in charge until somebody releases it."""
    HAND_OVER = 1 << 22
    """A hand-over is under way: a decaying offset is added to whoever acts."""
    EMERGENCY_STOP = 1 << 23
    """Somebody pressed the emergency stop: the fallback acts until somebody releases it."""


class Limit(enum.IntFlag):
    """Active limits of one channel; the bits of :attr:`SafetyReport.limits`."""

    LOW = 1 << 0
    """More would have been below the box."""
    HIGH = 1 << 1
    """More would have been above the box."""
    RATE_DOWN = 1 << 2
    """A faster fall was requested."""
    RATE_UP = 1 << 3
    """A faster rise was requested."""
    FURTHER_LOW = 1 << 4
    """More would have been below what further kinds admit."""
    FURTHER_HIGH = 1 << 5
    """More would have been above what further kinds admit."""
    ROWS = 1 << 6
    """Another value would have broken a linear or barrier row."""
    WEAR = 1 << 7
    """A deadband or a rest held the channel."""


class SafetyReport(NamedTuple):
    """Report of one filtered step.

    Attributes:
        flags: Bits of :class:`Flag`, scalar.
        limits: Bits of :class:`Limit`, shape ``(act,)``.
        intervention: ``|applied - requested|`` in the unit of each channel, shape ``(act,)``;
            always finite, zero where the request was not (``flags`` says so).
        alarms: Bits of the monitors that alarm, the guard's first monitor lowest, scalar; zero
            for a filter without a guard.
    """

    flags: UInt32[Array, ""]
    limits: UInt32[Array, " act"]
    intervention: Float[Array, " act"]
    alarms: UInt32[Array, ""]


def empty_report(n_action: int, dtype: jnp.dtype | type = jnp.float32) -> SafetyReport:
    """The report before the first step: nothing decided, nothing changed."""
    return SafetyReport(
        flags=jnp.zeros((), jnp.uint32),
        limits=jnp.zeros((n_action,), jnp.uint32),
        intervention=jnp.zeros((n_action,), dtype),
        alarms=jnp.zeros((), jnp.uint32),
    )


def flag_names(bits: int, kind: type[enum.IntFlag] = Flag) -> tuple[str, ...]:
    """Names of the set bits, lowest first, in lower case; unknown bits are ignored.

    Args:
        bits: Value of a flag field, as a plain integer.
        kind: Class of the bits, :class:`Flag` or :class:`Limit`.
    """
    return tuple((flag.name or "").lower() for flag in kind if int(bits) & flag)
