"""Choice of policy or fallback: a pure state machine of faults, alarms and operator commands."""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core import InputError


class Supervision(eqx.Module):
    """When the fallback takes over and when it hands back; see :func:`supervision`.

    Attributes:
        trip_after: Consecutive steps with an alarm after which the fallback takes over, scalar.
        reset_after: Consecutive steps without fault and alarm before the policy may act again.
        dwell: Smallest number of steps that the fallback stays in charge.
        latch_after: Number of take-overs after which the fallback stays until it is released; zero
            for never.
        assume_for: Number of steps for which the last own action is assumed to be what the plant
            received if nothing is reported.
        settle: Seconds in which the offset of a hand-over decays to 37 %.
    """

    trip_after: Int[Array, ""]
    reset_after: Int[Array, ""]
    dwell: Int[Array, ""]
    latch_after: Int[Array, ""]
    assume_for: Int[Array, ""]
    settle: Float[Array, ""]


def supervision(
    *,
    trip_after: int = 1,
    reset_after: int = 5,
    dwell: int = 5,
    latch_after: int = 0,
    assume_for: int = 3,
    settle: float,
) -> Supervision:
    """When the fallback takes over, and when it hands back.

    A step in which the policy cannot act (an input that is not finite, a malformed constraint, an
    unknown last action) hands over immediately, whatever ``trip_after`` is.

    Args:
        trip_after: Consecutive steps with an alarm of a monitor before the fallback takes over.
        reset_after: Consecutive clean steps before the policy may act again.
        dwell: Smallest number of steps that the fallback stays in charge.
        latch_after: Number of take-overs after which it stays until an operator releases it; zero
            for never.
        assume_for: Number of steps for which the last own action is assumed to be what the plant
            received.
        settle: Seconds in which the offset of a hand-over decays to 37 %; zero for no offset.

    Returns:
        The settings as arrays.

    Raises:
        InputError: If a number is out of range; the message names it.
    """
    counts = {
        "trip_after": (trip_after, 1),
        "reset_after": (reset_after, 1),
        "dwell": (dwell, 0),
        "latch_after": (latch_after, 0),
        "assume_for": (assume_for, 0),
    }
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**30:
            raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")
    if not (math.isfinite(settle) and settle >= 0):
        raise InputError(f"settle must be a finite number of seconds, zero or more, got {settle}")
    return Supervision(
        trip_after=jnp.asarray(trip_after, jnp.int32),
        reset_after=jnp.asarray(reset_after, jnp.int32),
        dwell=jnp.asarray(dwell, jnp.int32),
        latch_after=jnp.asarray(latch_after, jnp.int32),
        assume_for=jnp.asarray(assume_for, jnp.int32),
        settle=jnp.asarray(settle, jnp.float32),
    )


class SupervisorCarry(NamedTuple):
    """Carry of the supervisor.

    Attributes:
        tripped: The fallback is in charge.
        alarms: Consecutive steps with an alarm.
        clean: Consecutive steps without fault and alarm.
        steps_since_switch: Steps since the controller in charge last changed.
        trips: Take-overs since the last release.
        latched: The fallback stays until it is released.
        stopped: The emergency stop was pressed and has not been released yet.
    """

    tripped: Bool[Array, ""]
    alarms: Int[Array, ""]
    clean: Int[Array, ""]
    steps_since_switch: Int[Array, ""]
    trips: Int[Array, ""]
    latched: Bool[Array, ""]
    stopped: Bool[Array, ""]


def initial_supervisor() -> SupervisorCarry:
    """The initial state: the policy is in charge and nothing has happened."""
    no, none = jnp.zeros((), jnp.bool_), jnp.zeros((), jnp.int32)
    return SupervisorCarry(no, none, none, none, none, no, no)


def supervise(
    settings: Supervision, carry: SupervisorCarry, fault: Bool[Array, ""], alarm: Bool[Array, ""]
) -> SupervisorCarry:
    """One step: a fault trips immediately, alarms after a while; resets after enough clean steps.

    Args:
        settings: When to trip and to reset.
        carry: Carry from the last step.
        fault: The policy cannot act in this step.
        alarm: A monitor judges the situation unsuitable for the policy.

    Returns:
        The new state, whose ``tripped`` decides which controller acts in this step.
    """
    limit = 2**30  # counters stop before they wrap round to negative numbers
    alarms = jnp.where(alarm, jnp.minimum(carry.alarms + 1, limit), 0)
    clean = jnp.where(fault | alarm, 0, jnp.minimum(carry.clean + 1, limit))
    trip = fault | (alarms >= settings.trip_after)
    steps_since_switch = jnp.minimum(carry.steps_since_switch + 1, limit)
    recovered = (
        (clean >= settings.reset_after) & (steps_since_switch >= settings.dwell) & ~carry.latched
    )
    tripped = trip | (carry.tripped & ~recovered)
    trips = jnp.minimum(carry.trips + (tripped & ~carry.tripped).astype(jnp.int32), limit)
    latches = (settings.latch_after > 0) & (trips >= settings.latch_after) & tripped
    return SupervisorCarry(
        tripped=tripped,
        alarms=alarms,
        clean=clean,
        steps_since_switch=jnp.where(tripped == carry.tripped, steps_since_switch, 0),
        trips=trips,
        latched=carry.latched | latches,
        stopped=carry.stopped,
    )


def stop(carry: SupervisorCarry) -> SupervisorCarry:
    """The carry after an emergency stop: latched, whatever ``latch_after`` says."""
    yes = jnp.ones_like(carry.latched)
    return carry._replace(tripped=yes, latched=yes, stopped=yes)


def release(carry: SupervisorCarry) -> SupervisorCarry:
    """The carry after an operator released the latch or the stop, with zero take-overs counted."""
    no = jnp.zeros_like(carry.latched)
    return carry._replace(latched=no, stopped=no, trips=jnp.zeros_like(carry.trips))
