"""Lowers every constraint and intersects the results: one interval per channel, and rows."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_safety.constraints._by_channel import Rate, RateKind
from neorl_safety.constraints._constraints import KINDS, Constraints, rank_of
from neorl_safety.constraints._numbers import finite_or_zero, flush, usable_ends
from neorl_safety.constraints._protocol import Interval, Rank, Rows, Situation


class Limits(NamedTuple):
    """Box and actuator range with malformed ends replaced by no limit, and a flag for each."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    actuator_low: Float[Array, " act"]
    actuator_high: Float[Array, " act"]
    bad: Bool[Array, " act"]


class Intersection(NamedTuple):
    """Intersection of all limits.

    Attributes:
        low: Lower ends of the box narrowed by other kinds, or of a tripped interlock outside the
            box, shape ``(act,)``: finite, in the actuator range.
        high: Upper ends, never below ``low``.
        outranked: Whether a tripped interlock lies outside the box and replaces it, shape
            ``(act,)``.
        rows: Linear inequalities, shape ``(row, act)``; malformed ones are left out.
        bounds: Their right sides, shape ``(row,)``.
        bad: Flag of a malformed constraint anywhere, scalar.
        empty: Whether intervals of other kinds had to be ignored, shape ``(act,)``.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    outranked: Bool[Array, " act"]
    rows: Float[Array, "row act"]
    bounds: Float[Array, " row"]
    bad: Bool[Array, ""]
    empty: Bool[Array, " act"]


def usable_limits(constraints: Constraints, dtype: jnp.dtype) -> Limits:
    """The box inside the actuator range, both with finite ends."""
    c = constraints.action
    actuator_low, actuator_high, bad_actuator = usable_ends(
        c.actuator_low.astype(dtype), c.actuator_high.astype(dtype)
    )
    box_low, box_high, bad_box = usable_ends(c.low.astype(dtype), c.high.astype(dtype))
    low, high = jnp.maximum(box_low, actuator_low), jnp.minimum(box_high, actuator_high)
    conflict = low > high
    exceeds_actuator = (box_low < actuator_low) | (box_high > actuator_high)
    return Limits(
        low=jnp.where(conflict, actuator_low, low),
        high=jnp.where(conflict, actuator_high, high),
        actuator_low=actuator_low,
        actuator_high=actuator_high,
        bad=bad_actuator | bad_box | exceeds_actuator,
    )


def usable_period(dt: Array) -> tuple[Array, Array]:
    """The period, or zero if it is malformed, and whether it is malformed."""
    period = flush(finite_or_zero(dt))
    bad = ~jnp.isfinite(dt) | (period <= 0)
    return jnp.maximum(period, 0), bad


def intersect(constraints: Constraints, limits: Limits, situation: Situation) -> Intersection:
    """Lowers and intersects every limit but the rate: actuator, interlocks, box, other kinds.

    Whatever the kinds return, ``low`` and ``high`` are finite, in order and in the actuator range.
    Tripped interlocks narrow the box; an interlock outside the box replaces it.

    Args:
        constraints: All constraints.
        limits: The box and the actuator range of the constraints.
        situation: Inputs of the constraints, with a finite start.

    Returns:
        The intersection. Rate (:func:`reach`) and wear are not part of it.
    """
    dtype, n_action = limits.low.dtype, constraints.n_action
    empty = jnp.zeros((n_action,), jnp.bool_)
    bad = jnp.any(limits.bad)
    low, high = limits.actuator_low, limits.actuator_high
    for lowered in _lower(constraints, situation, Rank.INTERLOCK):
        if isinstance(lowered, Rows):
            raise TypeError("a kind of rank INTERLOCK must lower to an interval, not to rows")
        low, high, conflict, malformed = _narrow(low, high, lowered)
        empty, bad = empty | conflict, bad | jnp.any(malformed)
    outranked = (low > limits.high) | (high < limits.low)
    low = jnp.where(outranked, low, jnp.maximum(low, limits.low))
    high = jnp.where(outranked, high, jnp.minimum(high, limits.high))
    rows, bounds = [jnp.zeros((0, n_action), dtype)], [jnp.zeros((0,), dtype)]
    for lowered in _lower(constraints, situation, Rank.LIMIT):
        if isinstance(lowered, Rows):
            new_rows, new_bounds, malformed = _usable_rows(lowered, dtype)
            rows.append(new_rows)
            bounds.append(new_bounds)
        else:
            low, high, conflict, malformed = _narrow(low, high, lowered)
            empty = empty | conflict
        bad = bad | jnp.any(malformed)
    for lowered in _lower(constraints, situation, Rank.WEAR):
        bad = bad | jnp.any(lowered.bad)
    return Intersection(
        low=low,
        high=high,
        outranked=outranked,
        rows=jnp.concatenate(rows),
        bounds=jnp.concatenate(bounds),
        bad=bad,
        empty=empty,
    )


def reach(constraints: Constraints, situation: Situation) -> Interval:
    """The interval that the rate limit allows from the start, which lies between the ends."""
    c, dtype = constraints.action, situation.start.dtype
    rate = Rate(c.rate_up.astype(dtype), c.rate_down.astype(dtype))
    return RateKind().lower(rate, situation)


def limit_wear(constraints: Constraints, situation: Situation) -> Float[Array, " act"]:
    """The request after wear limits: the nearest point in the intervals of kinds of that rank."""
    request = situation.request
    for lowered in _lower(constraints, situation, Rank.WEAR):
        if isinstance(lowered, Interval):
            usable = ~(lowered.bad | jnp.isnan(lowered.low) | jnp.isnan(lowered.high))
            desired = clip(
                request, lowered.low.astype(request.dtype), lowered.high.astype(request.dtype)
            )
            # A malformed wear limit must not move the request.
            request = jnp.where(usable & jnp.isfinite(desired), desired, request)
    return request


def clip(x: Array, low: Array, high: Array) -> Array:
    """``x`` itself inside the interval, to the bit and the sign of zero; else the nearer end."""
    # Not `jnp.clip`: minimum and maximum may return either zero where the signs differ.
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def _lower(constraints: Constraints, situation: Situation, rank: Rank) -> list[Interval | Rows]:
    return [
        _checked(name, KINDS.find(name).lower(constraint, situation), constraints.n_action)
        for name, constraint in constraints.further.items()
        if rank_of(name) == rank
    ]


def _checked(name: str, lowered: Interval | Rows, n_action: int) -> Interval | Rows:
    """The answer of a kind, if its arrays have their shapes: one that broadcasts limits others."""
    if not isinstance(lowered, Interval | Rows):
        came = type(lowered).__name__
        raise TypeError(f"lower of the kind {name!r} must return an Interval or Rows, got a {came}")
    act, shapes = (n_action,), tuple(jnp.shape(part) for part in lowered)
    rows = shapes[1][:1]
    expected = (act, act, act) if isinstance(lowered, Interval) else (rows + act, rows, rows)
    if shapes != expected or jnp.result_type(lowered.bad) != jnp.bool_:
        raise ValueError(
            f"lower of the kind {name!r} must return {', '.join(lowered._fields)} of the shapes "
            f"{expected}, bad as booleans; got {shapes} and {jnp.result_type(lowered.bad)}"
        )
    return lowered


def _narrow(low: Array, high: Array, interval: Interval) -> tuple[Array, Array, Array, Array]:
    # A NaN end compares like no limit below, so it must be counted here.
    is_nan = jnp.isnan(interval.low), jnp.isnan(interval.high)
    ends = flush(interval.low.astype(low.dtype)), flush(interval.high.astype(low.dtype))
    lowest = jnp.maximum(low, jnp.where(is_nan[0], -jnp.inf, ends[0]))
    highest = jnp.minimum(high, jnp.where(is_nan[1], jnp.inf, ends[1]))
    conflict = lowest > highest
    malformed = interval.bad | is_nan[0] | is_nan[1]
    return jnp.where(conflict, low, lowest), jnp.where(conflict, high, highest), conflict, malformed


def _usable_rows(lowered: Rows, dtype: jnp.dtype) -> tuple[Array, Array, Array]:
    """Rows with finite numbers; ``0 u <= 0`` for a row that is malformed or has no limit."""
    rows, bounds = lowered.rows.astype(dtype), lowered.bounds.astype(dtype)
    unlimited = jnp.isposinf(bounds)
    malformed = lowered.bad | ~jnp.all(jnp.isfinite(rows), axis=-1)
    malformed = malformed | ~(jnp.isfinite(bounds) | unlimited)
    excluded = malformed | unlimited
    return (
        jnp.where(excluded[:, None], 0, flush(rows)),
        jnp.where(excluded, 0, flush(bounds)),
        malformed,
    )
