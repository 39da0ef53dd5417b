"""What goes into a filter besides the request, and its report as data: what it changed and why."""

import enum
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

# Inputs of a filter besides the request.


class Context(NamedTuple):
    """Inputs of a filter besides the request.

    Attributes:
        obs: The observation, shape ``(obs,)``, physical units.
        previous: Action that the plant last received, shape ``(act,)``; NaN if unknown (first step,
            restart).
        dt: Length of one step in seconds, scalar: the period of the Spec. A late call does not
            allow a larger step.
        fallback_action: Action that the declared fallback currently proposes, shape ``(act,)``.
        held: Seconds since each channel was last commanded to move, shape ``(act,)``; ``None``,
            which means infinite, if no constraint uses it.
        command: Last commanded action, shape ``(act,)``, to which deadband and resting time refer;
            ``None`` means ``previous``. NaN if another controller moved the channel.
        band: Lowest and highest action that the policy is authorised to send, shape ``(2, act)``;
            ``None`` means no further limit. It binds the request alone, never the fallback, and
            yields to every limit: where they leave nothing of it, its nearest end is meant.
    """

    obs: Float[Array, " obs"]
    previous: Float[Array, " act"]
    dt: Float[Array, ""]
    fallback_action: Float[Array, " act"]
    held: Float[Array, " act"] | None = None
    command: Float[Array, " act"] | None = None
    band: Float[Array, "2 act"] | None = None


# The report of a filter as data: what it changed and why.


class Flag(enum.IntFlag):
    """Decisions in one filtered step; the bits of :attr:`SafetyReport.flags`."""

    REQUEST_NONFINITE = 1 << 0
    """The requested action holds a NaN or an infinity."""
    OBSERVATION_NONFINITE = 1 << 1
    """The observation holds a NaN or an infinity."""
    BAD_CONSTRAINT = 1 << 2
    """A limit is NaN, infinite where that is not allowed, negative, subnormal or inverted."""
    BAD_PERIOD = 1 << 3
    """The period is NaN, infinite or not positive: no channel with a rate limit may move."""
    PREVIOUS_UNKNOWN = 1 << 4
    """The action that the plant received is unknown, for longer than it may be assumed."""
    PREVIOUS_ASSUMED = 1 << 5
    """The action that the plant received was not reported: the last own action is assumed."""
    PREVIOUS_OUT_OF_RANGE = 1 << 6
    """A previous action was outside the actuator range and was clipped to it."""
    PREVIOUS_OUTSIDE_BOX = 1 << 7
    """A previous action is outside the box: the action returns to it at the allowed rate."""
    FALLBACK_NONFINITE = 1 << 8
    """The fallback action holds a NaN or an infinity: such a channel holds, or takes mid-range."""
    FALLBACK_CLIPPED = 1 << 9
    """The fallback action was outside the box by more than rounding, and was clipped to it."""
    FALLBACK_USED = 1 << 10
    """The fallback replaced the request, on every channel."""
    BOX_ACTIVE = 1 << 11
    """The box changed at least one channel."""
    RATE_ACTIVE = 1 << 12
    """The rate limit changed at least one channel."""
    INTERVAL_ACTIVE = 1 << 13
    """Intervals of other kinds changed at least one channel."""
    INTERVAL_EMPTY = 1 << 14
    """Intervals of other kinds exclude one another or, if they are not interlocks, the box; they
    were ignored on that channel."""
    ROWS_ACTIVE = 1 << 15
    """Linear or barrier rows changed at least one channel."""
    ROWS_INFEASIBLE = 1 << 16
    """No action was found that satisfies all rows: the fallback acts without them."""
    WEAR_ACTIVE = 1 << 17
    """A deadband or a resting time changed at least one channel."""
    REQUEST_SUBNORMAL = 1 << 18
    """A requested channel is subnormal and counts as zero."""
    MONITOR_ALARM = 1 << 19
    """A monitor judges the situation unsuitable for the policy."""
    FALLBACK_HELD = 1 << 20
    """The fallback stays in charge, waiting for clean steps, time or a release."""
    LATCHED = 1 << 21
    """The fallback stays in charge until an operator releases it."""
    HAND_OVER = 1 << 22
    """A hand-over is in progress: a decaying offset is added to the active proposal."""
    EMERGENCY_STOP = 1 << 23
    """The emergency stop was pressed: the fallback acts until an operator releases it."""
    AUTHORITY_ACTIVE = 1 << 24
    """The policy is not authorised to move at least one channel further."""


class Limit(enum.IntFlag):
    """Active limits of one channel; the bits of :attr:`SafetyReport.limits`."""

    LOW = 1 << 0
    """The limit prevented a value below the box."""
    HIGH = 1 << 1
    """The limit prevented a value above the box."""
    RATE_DOWN = 1 << 2
    """The limit prevented a faster fall."""
    RATE_UP = 1 << 3
    """The limit prevented a faster rise."""
    INTERVAL_LOW = 1 << 4
    """The limit prevented a value below those that other kinds admit."""
    INTERVAL_HIGH = 1 << 5
    """The limit prevented a value above those that other kinds admit."""
    ROWS = 1 << 6
    """The limit prevented a value that would have violated a linear or barrier row."""
    WEAR = 1 << 7
    """A deadband or a resting time held the channel."""
    AUTHORITY = 1 << 8
    """The policy is not authorised to move the channel further."""


class SafetyReport(NamedTuple):
    """Report of one filtered step.

    Attributes:
        flags: Bits of :class:`Flag`, scalar.
        limits: Bits of :class:`Limit`, shape ``(act,)``.
        intervention: ``|applied - requested|`` in the unit of each channel, shape ``(act,)``;
            always finite, zero where the request was not finite (see ``flags``).
        alarms: Bits of the monitors that alarm, with the guard's first monitor in the lowest bit,
            scalar; zero for a filter without a guard.
    """

    flags: UInt32[Array, ""]
    limits: UInt32[Array, " act"]
    intervention: Float[Array, " act"]
    alarms: UInt32[Array, ""]


def empty_report(n_action: int, dtype: jnp.dtype | type = jnp.float32) -> SafetyReport:
    """The report before the first step: no flags, no changes."""
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
