"""Every constraint lowers itself, and the results meet: one interval a channel, and rows."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_safety.constraints._by_channel import Rate, RateKind
from neorl_safety.constraints._constraints import Constraints
from neorl_safety.constraints._kinds import KINDS, rank_of
from neorl_safety.constraints._numbers import finite_or_zero, flush, usable_ends
from neorl_safety.constraints._protocol import Interval, Rank, Rows, Situation


class Limits(NamedTuple):
    """Box and actuator with every malformed end replaced by "none", and where that happened."""

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    actuator_low: Float[Array, " act"]
    actuator_high: Float[Array, " act"]
    bad: Bool[Array, " act"]


class Meet(NamedTuple):
    """What all limits admit together.

    Attributes:
        inner_low: Lower ends of the box narrowed by further kinds, shape ``(act,)``.
        inner_high: Upper ends.
        reach: What the rate admits.
        low: Lower ends of what remains, shape ``(act,)``: finite, in the actuator range.
        high: Upper ends, never below ``low``.
        rows: Linear inequalities, shape ``(row, act)``; a malformed one is left out.
        bounds: Their right sides, shape ``(row,)``.
        bad: Flag of a malformed constraint anywhere, scalar.
        empty: Where further kinds left nothing in the box, shape ``(act,)``.
    """

    inner_low: Float[Array, " act"]
    inner_high: Float[Array, " act"]
    reach: Interval
    low: Float[Array, " act"]
    high: Float[Array, " act"]
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
    apart = low > high
    sticks_out = (box_low < actuator_low) | (box_high > actuator_high)
    return Limits(
        low=jnp.where(apart, actuator_low, low),
        high=jnp.where(apart, actuator_high, high),
        actuator_low=actuator_low,
        actuator_high=actuator_high,
        bad=bad_actuator | bad_box | sticks_out,
    )


def usable_period(dt: Array) -> tuple[Array, Array]:
    """The period, zero where it is malformed, and whether it is."""
    period = flush(finite_or_zero(dt))
    bad = ~jnp.isfinite(dt) | (period <= 0)
    return jnp.maximum(period, 0), bad


def meet(constraints: Constraints, limits: Limits, situation: Situation) -> Meet:
    """Lowers every limit and intersects: actuator before rate before box before further kinds.

    Whatever the kinds answer, ``low`` and ``high`` are finite, in order and in the actuator range.
    The start lies in that range. So an end of the narrowed box that the rate cannot reach is
    replaced by the reachable value between it and the start, which is in the range as well.

    Args:
        constraints: All constraints.
        limits: The box and the actuator range of the constraints.
        situation: What the constraints depend on, with a finite start.

    Returns:
        The meet. Wear is not part of it.
    """
    dtype, n_action = limits.low.dtype, constraints.n_action
    c = constraints.action
    rate = Rate(c.rate_up.astype(dtype), c.rate_down.astype(dtype))
    reach = RateKind().lower(rate, situation)
    low, high = limits.low, limits.high
    empty = jnp.zeros((n_action,), jnp.bool_)
    bad = jnp.any(limits.bad) | jnp.any(reach.bad)
    rows, bounds = [jnp.zeros((0, n_action), dtype)], [jnp.zeros((0,), dtype)]
    for lowered in _lowered(constraints, situation, Rank.LIMIT):
        if isinstance(lowered, Rows):
            kept, right, malformed = _usable_rows(lowered, dtype)
            rows.append(kept)
            bounds.append(right)
        else:
            low, high, apart, malformed = _narrowed(low, high, lowered)
            empty = empty | apart
        bad = bad | jnp.any(malformed)
    for lowered in _lowered(constraints, situation, Rank.WEAR):
        bad = bad | jnp.any(lowered.bad)
    return Meet(
        inner_low=low,
        inner_high=high,
        reach=reach,
        low=clip(low, reach.low, reach.high),
        high=clip(high, reach.low, reach.high),
        rows=jnp.concatenate(rows),
        bounds=jnp.concatenate(bounds),
        bad=bad,
        empty=empty,
    )


def spared(constraints: Constraints, situation: Situation) -> Float[Array, " act"]:
    """The request as wear asks for it: nearest to it in the intervals of kinds of that rank."""
    request = situation.request
    for lowered in _lowered(constraints, situation, Rank.WEAR):
        if isinstance(lowered, Interval):
            usable = ~(lowered.bad | jnp.isnan(lowered.low) | jnp.isnan(lowered.high))
            wished = clip(
                request, lowered.low.astype(request.dtype), lowered.high.astype(request.dtype)
            )
            request = jnp.where(usable & jnp.isfinite(wished), wished, request)
    return request


def clip(x: Array, low: Array, high: Array) -> Array:
    """``x`` itself inside the interval, to the bit and the sign of zero; else the nearer end."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def _lowered(constraints: Constraints, situation: Situation, rank: Rank) -> list[Interval | Rows]:
    return [
        KINDS.find(name).lower(constraint, situation)
        for name, constraint in constraints.further.items()
        if rank_of(name) == rank
    ]


def _narrowed(low: Array, high: Array, interval: Interval) -> tuple[Array, Array, Array, Array]:
    # An end that is NaN compares as no limit below, so it must be counted here.
    malformed = interval.bad | jnp.isnan(interval.low) | jnp.isnan(interval.high)
    ends = flush(interval.low.astype(low.dtype)), flush(interval.high.astype(low.dtype))
    lowest = jnp.maximum(low, jnp.where(malformed, -jnp.inf, ends[0]))
    highest = jnp.minimum(high, jnp.where(malformed, jnp.inf, ends[1]))
    apart = lowest > highest
    return jnp.where(apart, low, lowest), jnp.where(apart, high, highest), apart, malformed


def _usable_rows(lowered: Rows, dtype: jnp.dtype) -> tuple[Array, Array, Array]:
    """Rows with finite numbers; ``0 u <= 0`` for one that is malformed or without limit."""
    rows, bounds = lowered.rows.astype(dtype), lowered.bounds.astype(dtype)
    unlimited = jnp.isposinf(bounds)
    malformed = lowered.bad | ~jnp.all(jnp.isfinite(rows), axis=-1)
    malformed = malformed | ~(jnp.isfinite(bounds) | unlimited)
    left_out = malformed | unlimited
    return (
        jnp.where(left_out[:, None], 0, flush(rows)),
        jnp.where(left_out, 0, flush(bounds)),
        malformed,
    )
