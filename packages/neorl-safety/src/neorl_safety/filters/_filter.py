"""The filter: lower, intersect, decide, propose, certify."""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from neorl_safety.constraints._constraints import AnyConstraints, Constraints, as_constraints
from neorl_safety.constraints._numbers import finite_or_zero, flush, subnormal
from neorl_safety.constraints._protocol import Interval, Situation
from neorl_safety.filters._candidates import Candidate, nearest
from neorl_safety.filters._certify import Admissible, certify, passes
from neorl_safety.filters._lowering import (
    Intersection,
    Limits,
    clip,
    intersect,
    limit_wear,
    reach,
    usable_limits,
    usable_period,
)

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


ROUNDINGS = 4
"""Units in the last place by which a fallback may pass a limit that it was clipped to itself."""

# Decides whether the request stands or the whole fallback action replaces it.


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


def filter_action(
    constraints: AnyConstraints,
    context: Context,
    action: Float[Array, " act"],
    *,
    candidate: Candidate = nearest,
) -> tuple[Float[Array, " act"], SafetyReport]:
    """The admissible action nearest to the requested one, for every input.

    Every constraint is lowered to an interval for each channel or to linear rows, and these are
    intersected. The filter then decides between request and fallback, proposes a candidate close to
    the request, and checks it in the last step. With only box and rate, and with ``v`` the previous
    action clipped to the actuator range,

    ``applied = clip(clip(action, low, high), v - rate_down dt, v + rate_up dt)``.

    The result is finite for every input, including NaN, infinities, huge and subnormal numbers in
    any argument. If the limits are well formed, as all limits of :func:`action_constraints` are,
    the result lies in the actuator range and differs from ``v`` by at most ``rate dt``. It lies in
    the box if ``v`` does or is unknown, and no tripped interlock lies outside the box. From a ``v``
    outside the box (take-over from manual), it moves towards the box at the allowed rate. Linear
    rows hold, or the step is flagged and the fallback acts (:func:`certify`). A request that
    satisfies all this passes unchanged, bit for bit. If a row binds, *nearest* means nearest over
    all channels together, measured in spans of the actuators.

    Ranks, highest first: actuator, rate, tripped interlock, box, intervals of other kinds, rows,
    wear. Interlocks that exclude one another, and intervals of other kinds that leave nothing in
    the box, are ignored on that channel and flagged. Wear limits apply to the policy's moves, never
    to the fallback's.

    Decisions, each with its :class:`Flag`: if request or observation is not finite, or a constraint
    is malformed, the whole fallback action replaces the request. A fallback channel that is not
    finite holds the previous action, or takes mid-range if that is unknown. An unknown previous
    action is replaced by the fallback action, clipped to the box and to the tripped interlocks. If
    a channel has a rate limit, a period that is not a positive number, or a malformed rate, allows
    no movement. Other malformed limits are ignored, and the remaining limits of the channel hold.
    Subnormal numbers count as zero.

    There is no guarantee about the state of the plant.

    Args:
        constraints: Constraints in physical units; box and rate only, or with other kinds.
        context: Observation, previous action, period and fallback action.
        action: The request in physical units, float32 or float64. The final comparison with the
            limits uses this dtype.
        candidate: Function that proposes a point that satisfies the rows; static.

    Returns:
        The action to send, and the report.

    Raises:
        ValueError: If a shape differs from that of the constraints or is not one-dimensional.
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
    return filter_request(constraints, context, action, jnp.uint32(0), candidate)


def filter_request(
    constraints: AnyConstraints,
    context: Context,
    action: Float[Array, " act"],
    refused: UInt32[Array, ""],
    candidate: Candidate = nearest,
) -> tuple[Float[Array, " act"], SafetyReport]:
    """Like :func:`filter_action`, with additional reasons to let the fallback act."""
    full = as_constraints(constraints)
    _check_arguments(full, context, action)
    dtype, limits = action.dtype, usable_limits(full, action.dtype)
    period, bad_period = usable_period(context.dt.astype(dtype))
    previous, fallback = context.previous.astype(dtype), context.fallback_action.astype(dtype)
    stand_in = substitute(limits, previous, fallback)
    situation, intersection = _intersect(full, limits, stand_in, context, period)
    start, reachable = situation.start, reach(full, situation)
    backup = clip(stand_in.fallback, intersection.low, intersection.high)

    faults = decide(intersection.bad | jnp.any(reachable.bad), context.obs, action) | refused
    request_accepted = faults == 0
    request = jnp.where(request_accepted, flush(finite_or_zero(action)), backup)
    # Wear limits spare the actuator from the policy; the fallback acts without delay.
    desired = jnp.where(
        request_accepted, limit_wear(full, situation._replace(request=request)), request
    )
    inside = clip(desired, intersection.low, intersection.high)
    # The start lies in the actuator range, so clipping these ends to the rate stays in it too.
    low, high = (
        clip(intersection.low, reachable.low, reachable.high),
        clip(intersection.high, reachable.low, reachable.high),
    )
    within = clip(inside, low, high)
    if context.band is not None:
        ends = [clip(end, low, high) for end in context.band.astype(dtype)]
        low = jnp.where(request_accepted & ~jnp.isnan(ends[0]), ends[0], low)
        high = jnp.where(request_accepted & ~jnp.isnan(ends[1]), jnp.maximum(low, ends[1]), high)
    target = clip(within, low, high)
    applied, certified = target, jnp.ones((), jnp.bool_)
    if intersection.rows.shape[0]:
        admissible = Admissible(low, high, intersection.rows, intersection.bounds)

        def search() -> tuple[Array, Array]:
            proposal = candidate(admissible, desired, _sizes(limits))
            return certify(admissible, proposal, (start, backup), backup)

        # An action that already passes the check needs neither a candidate nor the last step.
        applied, certified = jax.lax.cond(
            passes(admissible, target), lambda: (target, certified), search
        )
    flags = (
        faults
        | bit(~request_accepted | ~certified, Flag.FALLBACK_USED)
        | bit(~certified, Flag.ROWS_INFEASIBLE)
        | bit(bad_period, Flag.BAD_PERIOD)
        | _history_flags(limits, intersection, previous, start)
        | _proposal_flags(limits, fallback, action)
    )
    stages = request, desired, inside, target, applied
    active, changed = _active(full, intersection, limits, reachable, stages)
    active |= bit(target != within, Limit.AUTHORITY)
    changed |= bit(jnp.any(target != within), Flag.AUTHORITY_ACTIVE)
    report = SafetyReport(flags | changed, active, distance(applied, action), jnp.uint32(0))
    return applied, report


def _intersect(
    full: Constraints, limits: Limits, stand_in: Substitute, context: Context, period: Array
) -> tuple[Situation, Intersection]:
    """The intersection of the limits, and the situation with the resulting start.

    Interlocks are applied first; an unknown last action becomes the fallback within their limits.
    """
    start = stand_in.start(limits.low, limits.high)
    held = jnp.full_like(start, jnp.inf) if context.held is None else context.held
    situation = Situation(context.obs, start, period, start, held.astype(start.dtype), start)
    intersection = intersect(full, limits, situation)
    start = stand_in.start(intersection.low, intersection.high)
    return situation._replace(start=start, position=_position(context, start)), intersection


def distance(applied: Float[Array, " act"], action: Float[Array, " act"]) -> Float[Array, " act"]:
    """``|applied - action|``, always finite: zero where the request was not finite."""
    difference = jnp.abs(applied - finite_or_zero(action))
    largest = jnp.finfo(applied.dtype).max
    # Two finite numbers of opposite sign may differ by more than the largest number.
    return jnp.where(jnp.isfinite(action), jnp.minimum(difference, largest), 0)


def bit(condition: Array, flag: Flag | Limit) -> UInt32[Array, "..."]:
    """The flag where a condition holds, zero elsewhere."""
    return jnp.where(condition, jnp.uint32(flag), jnp.uint32(0))


def _position(context: Context, start: Array) -> Float[Array, " act"]:
    """Position of each channel for wear limits: the last command, or the start if unknown."""
    if context.command is None:
        return start
    command = context.command.astype(start.dtype)
    return jnp.where(jnp.isfinite(command), command, start)


def _check_arguments(constraints: Constraints, context: Context, action: Array) -> None:
    expected = (constraints.n_action,)
    arrays = {
        "action": action,
        "context.previous": context.previous,
        "context.fallback_action": context.fallback_action,
    }
    for name, value in arrays.items():
        if value.shape != expected:
            raise ValueError(
                f"{name} has shape {value.shape}; expected {expected} for the channels "
                f"{', '.join(constraints.names)}; for a batch, use jax.vmap"
            )
    if context.obs.ndim != 1:
        raise ValueError(f"context.obs must be of rank one, got shape {context.obs.shape}")
    observed = [channel.name for channel in constraints.obs]
    if observed and context.obs.shape != (len(observed),):
        raise ValueError(
            f"context.obs has shape {context.obs.shape}; expected {(len(observed),)} for the "
            f"observations {', '.join(observed)} of the constraints"
        )
    if action.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"an action must be float32 or float64, got {action.dtype}")


def _history_flags(
    limits: Limits, intersection: Intersection, previous: Array, start: Array
) -> UInt32[Array, ""]:
    unknown = ~jnp.isfinite(previous)
    out_of_range = (previous < limits.actuator_low) | (previous > limits.actuator_high)
    # A tripped interlock outside the box requires a position outside it.
    outside = (start < jnp.minimum(limits.low, intersection.low)) | (
        start > jnp.maximum(limits.high, intersection.high)
    )
    return (
        bit(jnp.any(unknown), Flag.PREVIOUS_UNKNOWN)
        | bit(jnp.any(~unknown & out_of_range), Flag.PREVIOUS_OUT_OF_RANGE)
        | bit(jnp.any(outside), Flag.PREVIOUS_OUTSIDE_BOX)
    )


def _proposal_flags(limits: Limits, fallback: Array, action: Array) -> UInt32[Array, ""]:
    finite = jnp.isfinite(fallback)
    # A controller that clips its action to the same limit may round that limit in another way, and
    # differently in each compiled program.
    error = ROUNDINGS * jnp.finfo(fallback.dtype).eps * jnp.abs(fallback)
    outside = finite & ((fallback + error < limits.low) | (fallback - error > limits.high))
    return (
        bit(~jnp.all(finite), Flag.FALLBACK_NONFINITE)
        | bit(jnp.any(outside), Flag.FALLBACK_CLIPPED)
        | bit(jnp.any(subnormal(action)), Flag.REQUEST_SUBNORMAL)
    )


def _active(
    full: Constraints,
    intersection: Intersection,
    limits: Limits,
    reachable: Interval,
    stages: tuple[Array, ...],
) -> tuple[UInt32[Array, " act"], UInt32[Array, ""]]:
    """Limits that changed each channel, and the flags that summarise them."""
    request, desired, inside, target, applied = stages
    in_box = jnp.where(intersection.outranked, desired, clip(desired, limits.low, limits.high))
    active = (
        bit(in_box > desired, Limit.LOW)
        | bit(in_box < desired, Limit.HIGH)
        | bit(inside < reachable.low, Limit.RATE_DOWN)
        | bit(inside > reachable.high, Limit.RATE_UP)
    )
    flags = bit(jnp.any((active & (Limit.LOW | Limit.HIGH)) != 0), Flag.BOX_ACTIVE)
    rates = Limit.RATE_DOWN | Limit.RATE_UP
    flags |= bit(jnp.any((active & rates) != 0), Flag.RATE_ACTIVE)
    if full.further:
        active |= bit(inside > in_box, Limit.INTERVAL_LOW) | bit(
            inside < in_box, Limit.INTERVAL_HIGH
        )
        active |= bit(desired != request, Limit.WEAR) | bit(applied != target, Limit.ROWS)
        flags |= bit(jnp.any(inside != in_box), Flag.INTERVAL_ACTIVE)
        flags |= bit(jnp.any(intersection.empty), Flag.INTERVAL_EMPTY)
        flags |= bit(jnp.any(desired != request), Flag.WEAR_ACTIVE)
        flags |= bit(jnp.any(applied != target), Flag.ROWS_ACTIVE)
    return active, flags


def _sizes(limits: Limits) -> Float[Array, " act"]:
    """The span of every actuator; one if the actuator has no usable range."""
    span = limits.actuator_high - limits.actuator_low
    return jnp.where(jnp.isfinite(span) & (span > 0), span, 1)
