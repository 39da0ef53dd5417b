"""The filter: every kind lowers itself to an interval, and the request moves into their meet."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from neorl_safety.constraints._by_channel import Rate, RateKind
from neorl_safety.constraints._constraints import AnyConstraints, Constraints, as_constraints
from neorl_safety.constraints._kinds import KINDS
from neorl_safety.constraints._numbers import finite_or_zero, flush, usable_ends
from neorl_safety.constraints._protocol import Situation
from neorl_safety.filters._context import Context
from neorl_safety.filters._report import Flag, Limit, SafetyReport


class _Limits(NamedTuple):
    """Box and actuator with every malformed end replaced by "none", and where that happened."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    actuator_low: Float[Array, " act"]
    actuator_high: Float[Array, " act"]
    bad: Bool[Array, " act"]


def filter_action(
    constraints: AnyConstraints, context: Context, action: Float[Array, " act"]
) -> tuple[Float[Array, " act"], SafetyReport]:
    """The admissible action nearest to the requested one, channel by channel, for every input.

    With ``v`` the previous action, clipped to the actuator range,

    ``applied = clip(clip(action, low, high), v - rate_down dt, v + rate_up dt)``.

    Guaranteed for every input, NaN, infinities, huge and subnormal numbers included, in every
    argument: the result is finite. Where the limits are well formed (every limit that
    :func:`action_constraints` made), it lies in the actuator range, differs from ``v`` by at most
    ``rate dt`` up to one rounding, and lies in the box whenever ``v`` does or is unknown; from a
    ``v`` outside the box (take-over from manual) it moves towards the box at the allowed rate. A
    request that satisfies all this passes unchanged, bit for bit.

    Constraints of further kinds narrow the box: the request is clipped into the meet of their
    intervals and of the box before the rate limit. Where they leave no action inside the box they
    are left out on that channel, flagged: the ranks are actuator, rate, box, further kinds.

    Decisions, each with its :class:`Flag`: if request or observation is not finite, or a
    constraint is malformed, the whole fallback action takes the place of the request. A fallback
    channel that is not finite holds the previous action, or takes mid-range when that is unknown.
    An unknown previous action is replaced by the clipped fallback action. A period that is not a
    positive number allows no movement. Malformed limits are left out, the others of the channel
    hold. Subnormal numbers count as zero.

    Nothing is claimed about the state of the plant.

    Args:
        constraints: Constraints in physical units; box and rate alone, or with further kinds.
        context: Observation, previous action, period and fallback action.
        action: The request in physical units, float32 or float64. The limits are compared in
            this type, last.

    Returns:
        The action to send, and the report.

    Raises:
        ValueError: If a shape differs from the constraints' or is not of rank one.
        TypeError: If ``action`` is neither float32 nor float64.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import action_constraints
        >>> from neorl_safety.filters import Context, filter_action
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> limits = action_constraints(spec, [0.25])
        >>> now = Context(jnp.ones(1), jnp.array([50.0]), jnp.array(60.0), jnp.array([40.0]))
        >>> filter_action(limits, now, jnp.array([90.0]))[0].tolist()
        [65.0]
    """
    every = as_constraints(constraints)
    _check_arguments(every, context, action)
    dtype = action.dtype
    limits = _usable_limits(every, dtype)
    period, bad_period = _usable_period(context.dt.astype(dtype))
    previous = context.previous.astype(dtype)
    fallback = context.fallback_action.astype(dtype)

    start, backup = _start_and_backup(limits, previous, fallback)
    situation = Situation(context.obs, start, period)
    reach = RateKind().lower(_rate(every, dtype), situation)
    narrowed = _met(every, limits, situation)
    bad = limits.bad | reach.bad | narrowed.bad
    faults = _request_flags(bad, context.obs, action)
    accepted = faults == 0
    request = jnp.where(accepted, flush(finite_or_zero(action)), backup)
    boxed = _clip(request, limits.low, limits.high)
    inside = _clip(boxed, narrowed.low, narrowed.high) if every.further else boxed
    applied = _clip(inside, reach.low, reach.high)

    active = (
        _bit(request < limits.low, Limit.LOW)
        | _bit(request > limits.high, Limit.HIGH)
        | _bit(inside < reach.low, Limit.RATE_DOWN)
        | _bit(inside > reach.high, Limit.RATE_UP)
    )
    flags = (
        faults
        | _bit(~accepted, Flag.FALLBACK_USED)
        | _bit(bad_period, Flag.BAD_PERIOD)
        | _history_flags(limits, previous, start)
        | _fallback_flags(limits, fallback)
        | _bit(jnp.any((active & (Limit.LOW | Limit.HIGH)) != 0), Flag.BOX_ACTIVE)
        | _bit(jnp.any((active & (Limit.RATE_DOWN | Limit.RATE_UP)) != 0), Flag.RATE_ACTIVE)
    )
    if every.further:
        active |= _bit(inside > boxed, Limit.FURTHER_LOW) | _bit(inside < boxed, Limit.FURTHER_HIGH)
        flags |= _bit(jnp.any(inside != boxed), Flag.FURTHER_ACTIVE)
        flags |= _bit(jnp.any(narrowed.empty), Flag.FURTHER_EMPTY)
    return applied, SafetyReport(flags, active, _distance(applied, action))


def _check_arguments(constraints: Constraints, context: Context, action: Array) -> None:
    expected = (constraints.n_action,)
    named = {
        "action": action,
        "context.previous": context.previous,
        "context.fallback_action": context.fallback_action,
    }
    for name, value in named.items():
        if value.shape != expected:
            raise ValueError(
                f"{name} has shape {value.shape}; expected {expected} for the channels "
                f"{', '.join(constraints.names)}; batches are a vmap outside"
            )
    if context.obs.ndim != 1:
        raise ValueError(f"context.obs must be of rank one, got shape {context.obs.shape}")
    if action.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"an action is filtered in float32 or float64, got {action.dtype}")


def _usable_limits(constraints: Constraints, dtype: jnp.dtype) -> _Limits:
    c = constraints.action
    actuator_low, actuator_high, bad_actuator = usable_ends(
        c.actuator_low.astype(dtype), c.actuator_high.astype(dtype)
    )
    box_low, box_high, bad_box = usable_ends(c.low.astype(dtype), c.high.astype(dtype))
    low, high = jnp.maximum(box_low, actuator_low), jnp.minimum(box_high, actuator_high)
    apart = low > high
    sticks_out = (box_low < actuator_low) | (box_high > actuator_high)
    return _Limits(
        low=jnp.where(apart, actuator_low, low),
        high=jnp.where(apart, actuator_high, high),
        actuator_low=actuator_low,
        actuator_high=actuator_high,
        bad=bad_actuator | bad_box | sticks_out,
    )


def _usable_period(dt: Array) -> tuple[Array, Array]:
    """The period, zero where it is malformed, and whether it is."""
    period = flush(finite_or_zero(dt))
    bad = ~jnp.isfinite(dt) | (period <= 0)
    return jnp.maximum(period, 0), bad


def _rate(constraints: Constraints, dtype: jnp.dtype) -> Rate:
    c = constraints.action
    return Rate(c.rate_up.astype(dtype), c.rate_down.astype(dtype))


class _Met(NamedTuple):
    """The box narrowed by further kinds, where one is malformed, and where they left nothing."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    bad: Bool[Array, " act"]
    empty: Bool[Array, " act"]


def _met(constraints: Constraints, limits: _Limits, situation: Situation) -> _Met:
    low, high, dtype = limits.low, limits.high, limits.low.dtype
    nowhere = jnp.zeros(low.shape, jnp.bool_)
    bad = empty = nowhere
    for name, constraint in constraints.further.items():
        interval = KINDS.find(name).lower(constraint, situation)
        # An end that is NaN compares as no limit below, so it must be counted here.
        malformed = interval.bad | jnp.isnan(interval.low) | jnp.isnan(interval.high)
        lowest = jnp.maximum(low, jnp.where(malformed, -jnp.inf, interval.low).astype(dtype))
        highest = jnp.minimum(high, jnp.where(malformed, jnp.inf, interval.high).astype(dtype))
        apart = lowest > highest
        low, high = jnp.where(apart, low, lowest), jnp.where(apart, high, highest)
        bad, empty = bad | malformed, empty | apart
    return _Met(low, high, bad, empty)


def _start_and_backup(limits: _Limits, previous: Array, fallback: Array) -> tuple[Array, Array]:
    """The action that the rate counts from, and the fallback action made admissible."""
    known = jnp.isfinite(previous)
    reachable = _clip(flush(finite_or_zero(previous)), limits.actuator_low, limits.actuator_high)
    largest = jnp.finfo(previous.dtype).max
    bounded = (limits.low > -largest) & (limits.high < largest)
    middle = jnp.where(bounded, limits.low / 2 + limits.high / 2, 0)
    last_resort = jnp.where(known, reachable, middle)
    proposed = jnp.where(jnp.isfinite(fallback), flush(finite_or_zero(fallback)), last_resort)
    backup = _clip(proposed, limits.low, limits.high)
    return jnp.where(known, reachable, backup), backup


def _request_flags(bad: Array, obs: Array, action: Array) -> UInt32[Array, ""]:
    return (
        _bit(~jnp.all(jnp.isfinite(action)), Flag.REQUEST_NONFINITE)
        | _bit(~jnp.all(jnp.isfinite(obs)), Flag.OBSERVATION_NONFINITE)
        | _bit(jnp.any(bad), Flag.BAD_CONSTRAINT)
    )


def _history_flags(limits: _Limits, previous: Array, start: Array) -> UInt32[Array, ""]:
    unknown = ~jnp.isfinite(previous)
    out_of_range = (previous < limits.actuator_low) | (previous > limits.actuator_high)
    outside = (start < limits.low) | (start > limits.high)
    return (
        _bit(jnp.any(unknown), Flag.PREVIOUS_UNKNOWN)
        | _bit(jnp.any(~unknown & out_of_range), Flag.PREVIOUS_OUT_OF_RANGE)
        | _bit(jnp.any(outside), Flag.PREVIOUS_OUTSIDE_BOX)
    )


def _fallback_flags(limits: _Limits, fallback: Array) -> UInt32[Array, ""]:
    finite = jnp.isfinite(fallback)
    outside = finite & ((fallback < limits.low) | (fallback > limits.high))
    return _bit(~jnp.all(finite), Flag.FALLBACK_NONFINITE) | _bit(
        jnp.any(outside), Flag.FALLBACK_CLIPPED
    )


def _distance(applied: Array, action: Array) -> Array:
    """``|applied - action|``, finite always: zero where the request was not finite."""
    apart = jnp.abs(applied - finite_or_zero(action))
    largest = jnp.finfo(applied.dtype).max
    return jnp.where(jnp.isfinite(action), jnp.minimum(apart, largest), 0)


def _clip(x: Array, low: Array, high: Array) -> Array:
    """``x`` itself inside the interval, to the bit and the sign of zero; else the nearer end."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def _bit(condition: Array, flag: Flag | Limit) -> UInt32[Array, "..."]:
    return jnp.where(condition, jnp.uint32(flag), jnp.uint32(0))
