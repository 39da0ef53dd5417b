"""What a filter did and why, as data."""

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
    """A limit is NaN, infinite where it may not be, negative or inverted."""
    BAD_PERIOD = 1 << 3
    """The period is NaN, infinite or not positive: nothing may move."""
    PREVIOUS_UNKNOWN = 1 << 4
    """A previous action is NaN or infinite: the step starts from the clipped fallback action."""
    PREVIOUS_OUT_OF_RANGE = 1 << 5
    """A previous action lies where the actuator cannot be: it was clipped to the actuator range."""
    PREVIOUS_OUTSIDE_BOX = 1 << 6
    """A previous action lies outside the box: it returns at the allowed rate."""
    FALLBACK_NONFINITE = 1 << 7
    """The fallback action holds a NaN or an infinity: such a channel holds, or takes mid-range."""
    FALLBACK_CLIPPED = 1 << 8
    """The fallback action lies outside the box and was clipped to it."""
    FALLBACK_USED = 1 << 9
    """The fallback took the place of the request, on every channel."""
    BOX_ACTIVE = 1 << 10
    """The box changed at least one channel."""
    RATE_ACTIVE = 1 << 11
    """The rate limit changed at least one channel."""
    FURTHER_ACTIVE = 1 << 12
    """Constraints of further kinds changed at least one channel."""
    FURTHER_EMPTY = 1 << 13
    """Constraints of further kinds leave no action inside the box: left out on that channel."""


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


class SafetyReport(NamedTuple):
    """What one filtered step did.

    Attributes:
        flags: Bits of :class:`Flag`, scalar.
        limits: Bits of :class:`Limit`, shape ``(act,)``.
        intervention: ``|applied - requested|`` in the unit of each channel, shape ``(act,)``;
            always finite, zero where the request was not (``flags`` says so).
    """

    flags: UInt32[Array, ""]
    limits: UInt32[Array, " act"]
    intervention: Float[Array, " act"]


def empty_report(n_action: int, dtype: jnp.dtype | type = jnp.float32) -> SafetyReport:
    """The report before the first step: nothing decided, nothing changed."""
    return SafetyReport(
        flags=jnp.zeros((), jnp.uint32),
        limits=jnp.zeros((n_action,), jnp.uint32),
        intervention=jnp.zeros((n_action,), dtype),
    )


def flag_names(bits: int, kind: type[enum.IntFlag] = Flag) -> tuple[str, ...]:
    """Names of the set bits, lowest first, in lower case; unknown bits are ignored.

    Args:
        bits: Value of a flag field, as a plain integer.
        kind: Class of the bits, :class:`Flag` or :class:`Limit`.
    """
    return tuple((flag.name or "").lower() for flag in kind if int(bits) & flag)
