"""The box and rate filter: total, closed form, in physical units."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from neorl_safety.constraints._action_limits import ActionConstraints
from neorl_safety.filters._report import Flag, Limit, SafetyReport


class Context(NamedTuple):
    """What a filter knows besides the request.

    Attributes:
        obs: The observation, shape ``(obs,)``, physical units.
        previous: The action that the plant received last, shape ``(act,)``; NaN where unknown
            (first step, restart).
        dt: Seconds that one step lasts, scalar: the period of the Spec. A late call buys no
            larger step.
        fallback_action: What the declared fallback proposes now, shape ``(act,)``.
    """

    obs: Float[Array, " obs"]
    previous: Float[Array, " act"]
    dt: Float[Array, ""]
    fallback_action: Float[Array, " act"]


class _Limits(NamedTuple):
    """Limits with every malformed entry replaced by "none", and where that happened."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    actuator_low: Float[Array, " act"]
    actuator_high: Float[Array, " act"]
    rise: Float[Array, " act"]
    fall: Float[Array, " act"]
    bad: Bool[Array, " act"]
    bad_period: Bool[Array, ""]


def filter_action(
    constraints: ActionConstraints, context: Context, action: Float[Array, " act"]
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

    Decisions, each with its :class:`Flag`: if request or observation is not finite, or a limit
    is malformed, the whole fallback action takes the place of the request. A fallback channel that
    is not finite holds the previous action, or takes mid-range when that is unknown. An unknown
    previous action is replaced by the clipped fallback action. A period that is not a positive
    number allows no movement. Malformed limits are left out, the others of the channel hold.
    Subnormal numbers count as zero.

    Nothing is claimed about the state of the plant.

    Args:
        constraints: Limits in physical units.
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
    _check_arguments(constraints, context, action)
    dtype = action.dtype
    limits = _usable_limits(constraints, context.dt.astype(dtype), dtype)
    previous = context.previous.astype(dtype)
    fallback = context.fallback_action.astype(dtype)

    start, backup = _start_and_backup(limits, previous, fallback)
    faults = _request_flags(limits, context.obs, action)
    accepted = faults == 0
    request = jnp.where(accepted, _flush(_finite_or_zero(action)), backup)
    boxed = _clip(request, limits.low, limits.high)
    lowest, highest = start - limits.fall, start + limits.rise
    applied = _clip(boxed, lowest, highest)

    active = (
        _bit(request < limits.low, Limit.LOW)
        | _bit(request > limits.high, Limit.HIGH)
        | _bit(boxed < lowest, Limit.RATE_DOWN)
        | _bit(boxed > highest, Limit.RATE_UP)
    )
    flags = (
        faults
        | _bit(~accepted, Flag.FALLBACK_USED)
        | _bit(limits.bad_period, Flag.BAD_PERIOD)
        | _history_flags(limits, previous, start)
        | _fallback_flags(limits, fallback)
        | _bit(jnp.any((active & (Limit.LOW | Limit.HIGH)) != 0), Flag.BOX_ACTIVE)
        | _bit(jnp.any((active & (Limit.RATE_DOWN | Limit.RATE_UP)) != 0), Flag.RATE_ACTIVE)
    )
    return applied, SafetyReport(flags, active, _distance(applied, action))


def _check_arguments(constraints: ActionConstraints, context: Context, action: Array) -> None:
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


def _usable_limits(constraints: ActionConstraints, dt: Array, dtype: jnp.dtype) -> _Limits:
    c = constraints
    actuator_low, actuator_high, bad_actuator = _usable_ends(
        c.actuator_low.astype(dtype), c.actuator_high.astype(dtype)
    )
    box_low, box_high, bad_box = _usable_ends(c.low.astype(dtype), c.high.astype(dtype))
    low, high = jnp.maximum(box_low, actuator_low), jnp.minimum(box_high, actuator_high)
    apart = low > high
    sticks_out = (box_low < actuator_low) | (box_high > actuator_high)
    period = _flush(_finite_or_zero(dt))
    bad_period = ~jnp.isfinite(dt) | (period <= 0)
    period = jnp.maximum(period, 0)
    rise, bad_up = _usable_step(c.rate_up.astype(dtype), period)
    fall, bad_down = _usable_step(c.rate_down.astype(dtype), period)
    return _Limits(
        low=jnp.where(apart, actuator_low, low),
        high=jnp.where(apart, actuator_high, high),
        actuator_low=actuator_low,
        actuator_high=actuator_high,
        rise=rise,
        fall=fall,
        bad=bad_actuator | bad_box | sticks_out | bad_up | bad_down,
        bad_period=bad_period,
    )


def _usable_ends(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """An interval with finite ends: the largest number for a malformed end, or two inverted."""
    largest = jnp.finfo(low.dtype).max
    usable_low = jnp.where(jnp.isfinite(low), _flush(low), -largest)
    usable_high = jnp.where(jnp.isfinite(high), _flush(high), largest)
    inverted = usable_low > usable_high
    bad = ~(jnp.isfinite(low) & jnp.isfinite(high)) | inverted
    return (
        jnp.where(inverted, -largest, usable_low),
        jnp.where(inverted, largest, usable_high),
        bad,
    )


def _usable_step(rate: Array, period: Array) -> tuple[Array, Array]:
    """Largest change in one period; infinite where there is no limit or a malformed one."""
    per_second = _flush(rate)
    bad = ~(per_second >= 0)
    unlimited = bad | jnp.isinf(rate)
    step = _flush(jnp.where(unlimited, 0, per_second) * period)
    return jnp.where(unlimited, jnp.inf, step), bad


def _start_and_backup(limits: _Limits, previous: Array, fallback: Array) -> tuple[Array, Array]:
    """The action that the rate counts from, and the fallback action made admissible."""
    known = jnp.isfinite(previous)
    reachable = _clip(_flush(_finite_or_zero(previous)), limits.actuator_low, limits.actuator_high)
    largest = jnp.finfo(previous.dtype).max
    bounded = (limits.low > -largest) & (limits.high < largest)
    middle = jnp.where(bounded, limits.low / 2 + limits.high / 2, 0)
    last_resort = jnp.where(known, reachable, middle)
    wanted = jnp.where(jnp.isfinite(fallback), _flush(_finite_or_zero(fallback)), last_resort)
    backup = _clip(wanted, limits.low, limits.high)
    return jnp.where(known, reachable, backup), backup


def _request_flags(limits: _Limits, obs: Array, action: Array) -> UInt32[Array, ""]:
    return (
        _bit(~jnp.all(jnp.isfinite(action)), Flag.REQUEST_NONFINITE)
        | _bit(~jnp.all(jnp.isfinite(obs)), Flag.OBSERVATION_NONFINITE)
        | _bit(jnp.any(limits.bad), Flag.BAD_CONSTRAINT)
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
    apart = jnp.abs(applied - _finite_or_zero(action))
    largest = jnp.finfo(applied.dtype).max
    return jnp.where(jnp.isfinite(action), jnp.minimum(apart, largest), 0)


def _finite_or_zero(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x))


def _flush(x: Array) -> Array:
    """Subnormal numbers to zero of the same sign, as some processors compare them anyway."""
    return jnp.where(jnp.abs(x) < jnp.finfo(x.dtype).tiny, jnp.copysign(jnp.zeros_like(x), x), x)


def _clip(x: Array, low: Array, high: Array) -> Array:
    """``x`` itself inside the interval, to the bit and the sign of zero; else the nearer end."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def _bit(condition: Array, flag: Flag | Limit) -> UInt32[Array, "..."]:
    return jnp.where(condition, jnp.uint32(flag), jnp.uint32(0))
