"""Valves that stick: models of their motion, and two indices that find them in a loop's rows."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from neorl_core._internal.checks import (
    checked_integer,
    checked_mask,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_scalar,
    require_series,
)
from neorl_core._internal.precision import checked_wide, narrow, widen
from neorl_core.loops._loop_health import cross_correlation, require_lag, zero_crossings

_PEAKS = 19
_ROWS = 6


class ValveState(NamedTuple):
    """State of a valve model; scalars.

    Attributes:
        position: Position of the valve, in the unit of its signal.
        signal: Last signal.
        held: Part of the signal that friction holds back: its way since the valve stuck.
        direction: Sign of the signal's last move, 0 before the first.
        stuck: Whether the valve is at rest.
        paused: Whether it rests only because its signal paused, so that a slip in the same
            direction needs no more than the slip-jump.
    """

    position: Float[Array, ""]
    signal: Float[Array, ""]
    held: Float[Array, ""]
    direction: Float[Array, ""]
    stuck: Bool[Array, ""]
    paused: Bool[Array, ""]


def valve_state(position: float | Float[Array, ""]) -> ValveState:
    """A valve at rest whose signal equals its position.

    Args:
        position: Position in the unit of the signal.

    Returns:
        The state for :func:`choudhury_step` or :func:`he_step`.

    Raises:
        ValueError: If ``position`` is not one number.

    Example:
        >>> float(valve_state(50.0).position)
        50.0
    """
    require_scalar("position", position)
    position = floats(position)
    zero = jnp.zeros_like(position)
    return ValveState(position, position, zero, zero, jnp.asarray(True), jnp.asarray(False))


def choudhury_step(
    state: ValveState,
    signal: float | Float[Array, ""],
    *,
    stickband: float | Float[Array, ""],
    slip_jump: float | Float[Array, ""],
) -> tuple[ValveState, Float[Array, ""]]:
    """One sample of the two-parameter valve model of Choudhury, Thornhill and Shah.

    Moving, the valve follows ``signal - sign(move) (S - J) / 2``. When the signal turns round, it
    sticks until the signal has moved by more than ``S``, the deadband plus stickband; then it jumps
    by ``J``. When the signal pauses while it moves, it sticks until the signal has moved by more
    than ``J``. So ``J = 0`` is pure deadband, ``J < S`` undershoot, ``J = S`` stick and slip
    without offset, ``J > S`` overshoot, and ``S = J = 0`` a perfect valve. Noise turns a signal
    round at every sample, and each turn begins the band anew, so that a noisy signal leaves the
    valve at rest: filter it, as positioners do, or use :func:`he_step`.

    Args:
        state: From :func:`valve_state` or the last step.
        signal: Signal to the valve; one that is not finite counts as a pause.
        stickband: ``S``, in the unit of the signal, not negative.
        slip_jump: ``J``, likewise.

    Returns:
        The new state and the position. A pause before the valve has moved keeps the way that the
        signal has gone. NaN under ``jit`` if a parameter is negative.

    Raises:
        ValueError: If ``signal`` is not one number, or a concrete parameter is negative.

    Example:
        >>> state, _ = choudhury_step(valve_state(50.0), 51.0, stickband=3.0, slip_jump=1.0)
        >>> state, position = choudhury_step(state, 54.0, stickband=3.0, slip_jump=1.0)
        >>> float(position)
        53.0

    Source: Choudhury, Thornhill and Shah, Modelling valve stiction, Control Eng. Practice 13 (2005)
    641.
    Not compared with the authors' programs or figures, which could not be had; tested on cases that
    follow from the description.
    """
    require_scalar("signal", signal)
    stickband = checked_positive("stickband", stickband, or_zero=True)
    slip_jump = checked_positive("slip_jump", slip_jump, or_zero=True)
    state, signal, dtype = _wide_state(state, signal)
    stickband, slip_jump = like(stickband, signal), like(slip_jump, signal)
    move = signal - state.signal
    sign = jnp.sign(move)
    turns, pauses, moving = sign * state.direction < 0, sign == 0, ~state.stuck
    stuck = state.stuck | turns | pauses
    paused = (state.paused | (pauses & moving)) & ~turns
    held = jnp.where(turns | moving, move, state.held + move)
    slips = ~pauses & (jnp.abs(held) > jnp.where(paused, slip_jump, stickband))
    moves = ~stuck | slips
    target = signal - sign * (stickband - slip_jump) / 2
    # The parameters reach the result also while the valve rests, so that a wrong one shows.
    rest = state.position + 0 * (stickband + slip_jump)
    position = jnp.where(moves, target, rest)
    direction = jnp.where(pauses, state.direction, sign)
    new = ValveState(position, signal, held, direction, ~moves, paused & ~moves)
    return narrow((new, position), dtype)


def he_step(
    state: ValveState,
    signal: float | Float[Array, ""],
    *,
    static: float | Float[Array, ""],
    dynamic: float | Float[Array, ""],
) -> tuple[ValveState, Float[Array, ""]]:
    """One sample of the two-parameter valve model of He, Wang, Pottmann and Qin.

    The valve moves when the held part of the signal exceeds the static friction, by that part less
    the dynamic friction, which stays held. So it always jumps: by about ``static - dynamic`` while
    the signal goes on, and only after ``static + dynamic`` when it turns round. In the terms of
    :func:`choudhury_step`, ``S = static + dynamic`` and ``J = static - dynamic``.

    Args:
        state: From :func:`valve_state` or the last step.
        signal: Signal to the valve; one that is not finite counts as a pause.
        static: Static friction, in the unit of the signal, not negative.
        dynamic: Dynamic friction, not negative and not above ``static``.

    Returns:
        The new state and the position. NaN under ``jit`` if a parameter is out of its range.

    Raises:
        ValueError: If ``signal`` is not one number, or a concrete parameter is out of its range.

    Example:
        >>> state, _ = he_step(valve_state(50.0), 51.0, static=2.0, dynamic=1.0)
        >>> state, position = he_step(state, 53.0, static=2.0, dynamic=1.0)
        >>> float(position)
        52.0

    Source: He, Wang, Pottmann and Qin, A curve fitting method for detecting valve stiction in
    oscillating control loops, Ind. Eng. Chem. Res. 46 (2007) 4549.
    Not compared with the authors' programs or figures, which could not be had; tested on cases that
    follow from the description.
    """
    require_scalar("signal", signal)
    static = checked_positive("static", static, or_zero=True)
    dynamic = _not_above(checked_positive("dynamic", dynamic, or_zero=True), static)
    state, signal, dtype = _wide_state(state, signal)
    static, dynamic = like(static, signal), like(dynamic, signal)
    move = signal - state.signal
    force = state.held + move
    slips = jnp.abs(force) > static
    kept = jnp.sign(force) * dynamic
    rest = state.position + 0 * (static + dynamic)
    position = jnp.where(slips, state.position + force - kept, rest)
    held = jnp.where(slips, kept, force)
    direction = jnp.where(move == 0, state.direction, jnp.sign(move))
    new = ValveState(position, signal, held, direction, ~slips, jnp.zeros_like(state.paused))
    return narrow((new, position), dtype)


def _not_above(dynamic: Any, static: Any) -> Any:
    """The dynamic friction; an error if it is concrete and too large, NaN if it is traced."""
    if not is_concrete((static, dynamic)):
        return nan_unless(jnp.asarray(dynamic) <= jnp.asarray(static), dynamic)
    if dynamic > static:
        raise ValueError(
            f"dynamic must not be above static, got {dynamic} and {static}; friction at rest is "
            "the larger one"
        )
    return dynamic


def _wide_state(state: ValveState, signal: Any) -> tuple[ValveState, Array, Any]:
    """State and signal in one dtype of at least float32, and the dtype to return."""
    dtype = jnp.result_type(floats(signal), *(floats(number) for number in state[:4]))
    one = widen(jnp.zeros((), dtype))
    numbers = [like(widen(floats(number)), one) for number in state[:4]]
    signal = like(widen(floats(signal)), one)
    signal = jnp.where(jnp.isfinite(signal), signal, numbers[1])
    return ValveState(*numbers, *(jnp.asarray(flag, bool) for flag in state[4:])), signal, dtype


class StictionFit(NamedTuple):
    """Whether the half periods of an oscillation are triangles or sines.

    Attributes:
        index: From 0 to 1: above 0.6 the valve sticks, below 0.4 it does not; between them the
            index does not tell. NaN without a whole half period.
        half_periods: Number of half periods used, int32.
    """

    index: Float[Array, ""]
    half_periods: Int[Array, ""]


def stiction_curve_fit(
    signal: Float[ArrayLike, " time"],
    valid: Bool[ArrayLike, " time"],
    *,
    half_periods: int = 64,
    hysteresis: float | Float[Array, ""] = 0.25,
) -> StictionFit:
    """The stiction index of He and others, which compares a triangle and a sine.

    A valve that sticks sends a rectangular wave into the process; the first integrator after it,
    the controller's or the process's, makes a triangle of it. Each half period between zero
    crossings is fitted by a half sine and by a triangle whose peak may stand anywhere, and the
    index is ``E_sine / (E_sine + E_triangle)`` of the mean squared errors. Half periods of fewer
    than six rows are left out.

    Args:
        signal: For a self-regulating process the output of the controller, for an integrating one
            the measurement; at equal times, without a slow trend.
        valid: Rows to use; half periods with another row are left out.
        half_periods: Largest number of half periods to fit, 1 or more; the first ones count.
        hysteresis: Noise in standard deviations of the signal, in (0, 1): smaller swings about the
            mean do not begin a half period.

    Returns:
        The index. Not differentiable.

    Raises:
        ValueError: If lengths differ, ``half_periods`` is below 1, ``hysteresis`` is outside
            (0, 1), or the signal has half precision.

    Example:
        >>> import jax.numpy as jnp
        >>> time = jnp.arange(400.0)
        >>> triangle = jnp.abs(jnp.mod(time / 40, 1) - 0.5) - 0.25
        >>> fit = stiction_curve_fit(triangle, jnp.ones(400, bool))
        >>> bool(fit.index > 0.9)
        True

    Source: He, Wang, Pottmann and Qin, A curve fitting method for detecting valve stiction in
    oscillating control loops, Ind. Eng. Chem. Res. 46 (2007) 4549.
    Not compared with the authors' programs or figures, which could not be had; tested on cases that
    follow from the description.
    """
    require_series(signal=signal, valid=valid)
    valid = checked_mask("valid", valid)
    count = checked_integer("half_periods", half_periods, 1, "give the number of half periods")
    hysteresis = checked_probability("hysteresis", hysteresis)
    signal = checked_wide("signal", floats(signal))
    return _curve_fit(signal, valid, like(hysteresis, signal), count=count)


@functools.partial(jax.jit, static_argnames="count")
def _curve_fit(signal: Array, valid: Array, hysteresis: Array, *, count: int) -> StictionFit:
    valid = valid & jnp.isfinite(signal)
    time = jnp.arange(signal.shape[0], dtype=jnp.int32)
    rows = jnp.sum(valid).astype(signal.dtype)
    known = jnp.where(valid, signal, 0)
    mean = jnp.sum(known) / jnp.maximum(rows, 1)
    signal = jnp.where(valid, signal - mean, 0)
    deviation = jnp.sqrt(jnp.sum(signal**2) / jnp.maximum(rows, 1))
    # A gap keeps the last value, so that it makes no crossings of its own.
    before = jax.lax.cummax(jnp.where(valid, time, 0))
    signal = signal[before] / jnp.where(deviation > 0, deviation, 1)
    begins = _half_period_begins(signal, hysteresis)
    place = zero_crossings(signal)[1]
    # A half period begins on the row after its crossing; number 0 is what stands before the first.
    number = jnp.cumsum(jnp.concatenate([jnp.zeros(1, jnp.int32), begins.astype(jnp.int32)]))
    total = jnp.max(number)
    segments = count + 2
    number = jnp.minimum(number, count + 1)
    nowhere = jnp.full(segments, jnp.inf, signal.dtype)
    start = nowhere.at[number[1:]].min(jnp.where(begins, place, jnp.inf))
    end = jnp.append(start[1:], start[-1])
    # A crossing beside a gap may have been anywhere in it.
    vague = begins & ~(valid[1:] & valid[:-1])
    broken = jnp.zeros(segments, bool).at[number].max(~valid)
    whole = ~broken.at[number[1:]].max(vague).at[number[:-1]].max(vague)
    order = jnp.arange(segments, dtype=jnp.int32)
    # What follows the last crossing is not whole. A triangle fits few rows better than a sine does.
    used = (order >= 1) & (order <= count) & (order < total) & whole & (end - start >= _ROWS)
    inside = used[number]
    length = jnp.where(used, end - start, 1)
    phase = jnp.clip((time.astype(signal.dtype) - start[number]) / length[number], 0, 1)
    signal = jnp.where(inside, signal, 0)

    def errors(shape: Array) -> Array:
        """Squared error of every half period after the amplitude has been fitted."""
        shape = jnp.where(inside, shape, 0)
        power, match = (
            _by_segment(shape**2, number, segments),
            _by_segment(shape * signal, number, segments),
        )
        fitted = match / jnp.where(power > 0, power, 1)
        return _by_segment((signal - fitted[number] * shape) ** 2, number, segments)

    sine = jnp.sum(jnp.where(used, errors(jnp.sin(jnp.pi * phase)), 0))
    peaks = jnp.arange(1, _PEAKS + 1).astype(signal.dtype) / (_PEAKS + 1)
    triangles = jnp.minimum(
        phase[None, :] / peaks[:, None], (1 - phase[None, :]) / (1 - peaks[:, None])
    )
    triangle = jnp.min(jax.vmap(errors)(triangles), axis=0)
    triangle = jnp.sum(jnp.where(used, triangle, 0))
    fitted = jnp.sum(used).astype(jnp.int32)
    both = sine + triangle
    known = (fitted > 0) & (both > 0) & jnp.isfinite(hysteresis)
    index = jnp.where(known, sine / jnp.where(both > 0, both, 1), jnp.nan)
    return StictionFit(index, fitted)


def _by_segment(values: Array, number: Array, segments: int) -> Array:
    return jnp.zeros(segments, values.dtype).at[number].add(values)


def _half_period_begins(signal: Array, hysteresis: Array) -> Array:
    """Whether a half period begins between a row and the next: a crossing that leads to a swing."""
    time = jnp.arange(signal.shape[0], dtype=jnp.int32)
    far = jnp.abs(signal) > hysteresis
    last = jax.lax.cummax(jnp.where(far, time, -1))
    before = jnp.concatenate([jnp.full((1,), -1, jnp.int32), last[:-1]])
    turned = far & (before >= 0) & (signal * signal[jnp.maximum(before, 0)] < 0)
    crosses = zero_crossings(signal)[0]
    # The last crossing before the row in which the swing is certain.
    crossing = jax.lax.cummax(jnp.where(crosses, time[:-1], -1))
    found = jnp.concatenate([jnp.full((1,), -1, jnp.int32), crossing])
    spare = signal.shape[0]
    begins = (
        jnp.zeros(spare, bool)
        .at[jnp.where(turned & (found >= 0), found, spare)]
        .set(True, mode="drop")
    )
    return begins[:-1]


class StictionCorrelation(NamedTuple):
    """Whether output and measurement swing a quarter of a period apart.

    Attributes:
        shift: ``|tau_l - tau_r| / (tau_l + tau_r)`` of the distances of the zero crossings beside
            lag 0: at least 2/3 if the valve sticks, at most 1/3 if it does not. NaN if there is
            none within ``max_lag``.
        drop: ``|r_0 - r_opt| / |r_0 + r_opt|`` of the correlation at lag 0 and its extreme between
            those crossings: at least 1/3 if the valve sticks, at most 0.072 if it does not.
    """

    shift: Float[Array, ""]
    drop: Float[Array, ""]


def stiction_correlation(
    output: Float[ArrayLike, " time"],
    measurement: Float[ArrayLike, " time"],
    valid: Bool[ArrayLike, " time"],
    *,
    max_lag: int,
) -> StictionCorrelation:
    """The cross-correlation test of Horch for the loop of a self-regulating process.

    The correlation of output and measurement in an oscillating loop is odd if the valve sticks (a
    quarter of a period apart) and even if the oscillation comes from outside or from a tight tuning
    (half a period). It does not apply to integrating processes and not to controllers without an
    integral.

    Args:
        output: Output of the controller, at equal times, without a slow trend.
        measurement: Measurement, likewise.
        valid: Rows to use; a row that is not finite counts as invalid.
        max_lag: Largest lag in rows, 2 or more and below the number of rows; a period or more.

    Returns:
        The two measures. Not differentiable.

    Raises:
        ValueError: If lengths differ, ``max_lag`` is out of its range, or a signal has half
            precision.

    Example:
        >>> import jax.numpy as jnp
        >>> angle = 2 * jnp.pi * jnp.arange(600.0) / 60
        >>> u, y, valid = jnp.sin(angle), -jnp.cos(angle), jnp.ones(600, bool)
        >>> odd = stiction_correlation(u, y, valid, max_lag=60)
        >>> bool(odd.shift > 2 / 3)
        True

    Source: Horch, A simple method for detection of stiction in control valves, Control Eng.
    Practice 7 (1999) 1221. For sines, the limits are those of 30 and 60 degrees from the even case.
    Not compared with the authors' programs or figures, which could not be had; tested on cases that
    follow from the description.
    """
    require_series(output=output, measurement=measurement, valid=valid)
    valid = checked_mask("valid", valid)
    max_lag = checked_integer("max_lag", max_lag, 2, "give the number of rows")
    output = checked_wide("output", floats(output))
    measurement = checked_wide("measurement", floats(measurement))
    require_lag(max_lag, output)
    one = jnp.result_type(output, measurement)
    return _correlation(output.astype(one), measurement.astype(one), valid, max_lag=max_lag)


@functools.partial(jax.jit, static_argnames="max_lag")
def _correlation(
    output: Array, measurement: Array, valid: Array, *, max_lag: int
) -> StictionCorrelation:
    correlation = cross_correlation(output, measurement, valid, max_lag)
    crosses, places = zero_crossings(correlation)
    places = places - max_lag
    right = jnp.min(jnp.where(crosses & (places > 0), places, jnp.inf))
    left = jnp.min(jnp.where(crosses & (places <= 0), -places, jnp.inf))
    found = jnp.isfinite(left) & jnp.isfinite(right) & jnp.all(jnp.isfinite(correlation))
    width = jnp.where(found & (left + right > 0), left + right, jnp.nan)
    lags = jnp.arange(-max_lag, max_lag + 1, dtype=jnp.int32).astype(output.dtype)
    between = (lags >= -left) & (lags <= right)
    middle = correlation[max_lag]
    extreme = jnp.max(jnp.where(between, jnp.abs(correlation), 0)) * jnp.sign(middle)
    total = jnp.abs(middle + extreme)
    drop = jnp.abs(middle - extreme) / jnp.where(found & (total > 0), total, jnp.nan)
    return StictionCorrelation(jnp.abs(left - right) / width, drop)
