"""Decides whether the request stands or the whole fallback action replaces it."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from neorl_safety.constraints._numbers import finite_or_zero, flush
from neorl_safety.filters._lowering import Limits, clip
from neorl_safety.filters._report import Flag


class Substitute(NamedTuple):
    """Start of a step and the action that may replace the request; both always finite.

    Attributes:
        known: Whether the previous action is known, shape ``(act,)``.
        reachable: The previous action clipped to the actuator range, shape ``(act,)``.
        fallback: The fallback action before clipping; a channel that is not finite holds the
            previous action, or takes mid-range if that is unknown too.
    """

    known: Bool[Array, " act"]
    reachable: Float[Array, " act"]
    fallback: Float[Array, " act"]

    def start(self, low: Float[Array, " act"], high: Float[Array, " act"]) -> Float[Array, " act"]:
        """The action from which the step starts; if unknown, the fallback clipped to these ends."""
        return jnp.where(self.known, self.reachable, clip(self.fallback, low, high))


def substitute(
    limits: Limits, previous: Float[Array, " act"], fallback: Float[Array, " act"]
) -> Substitute:
    """Finite replacements for a previous action and a fallback that may hold anything."""
    known = jnp.isfinite(previous)
    reachable = clip(flush(finite_or_zero(previous)), limits.actuator_low, limits.actuator_high)
    largest = jnp.finfo(previous.dtype).max
    bounded = (limits.low > -largest) & (limits.high < largest)
    # Halved before they are added, because the sum of two large ends overflows.
    middle = jnp.where(bounded, limits.low / 2 + limits.high / 2, 0)
    last_resort = jnp.where(known, reachable, middle)
    proposed = jnp.where(jnp.isfinite(fallback), flush(finite_or_zero(fallback)), last_resort)
    return Substitute(known, reachable, proposed)


def decide(
    bad: Bool[Array, ""], obs: Float[Array, " obs"], action: Float[Array, " act"]
) -> UInt32[Array, ""]:
    """The reasons for rejecting the request, as bits of :class:`Flag`; zero if it is accepted."""
    faults = {
        Flag.REQUEST_NONFINITE: ~jnp.all(jnp.isfinite(action)),
        Flag.OBSERVATION_NONFINITE: ~jnp.all(jnp.isfinite(obs)),
        Flag.BAD_CONSTRAINT: bad,
    }
    bits = jnp.uint32(0)
    for flag, fault in faults.items():
        bits = bits | jnp.where(fault, jnp.uint32(flag), jnp.uint32(0))
    return bits
