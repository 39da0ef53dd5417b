"""Stability margins of a PID loop around a model of its process."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import checked_integer
from neorl_core._internal.precision import narrow
from neorl_core.loops._pid_forms import PIDGains
from neorl_core.loops._processes import (
    Process,
    SampledModel,
    checked_loop,
    convolve,
    corner_frequencies,
    difference_polynomials,
    gains_in_unit,
    in_unit,
    sampled_plant,
)

_HALVINGS = 48
_DECADES = 2.0
_LEAST_GAIN = 1e-5
_GOLDEN = (math.sqrt(5) - 1) / 2


class LoopMargins(NamedTuple):
    """How far a loop is from instability; every number but ``stable`` is NaN if it is unstable.

    Attributes:
        stable: Whether the closed loop is stable, scalar boolean.
        gain_margin: Factor by which the gain may grow, above 1; infinite if without bound.
        gain_reduction: Factor to which the gain may fall, below 1; zero if to nothing.
        phase_margin: Least phase, in degrees, between -180 and 180, that is missing to -1 where the
            open loop has gain 1; negative if phase lead is the danger. Infinite without such a
            frequency.
        delay_margin: Dead time in seconds by which that of the loop may grow; infinite if without
            bound. Of a sampled loop it is that of its frequency response.
        peak_sensitivity: ``Ms``, the maximum of ``|1 / (1 + L)|``; a loop is usually wanted with
            1.4 to 2.
        phase_crossover: Frequency of ``gain_margin`` in radians per second; NaN if there is none.
        gain_crossover: Frequency of ``phase_margin`` in radians per second; NaN if there is none.
        peak_frequency: Frequency of ``peak_sensitivity`` in radians per second.
    """

    stable: Bool[Array, ""]
    gain_margin: Float[Array, ""]
    gain_reduction: Float[Array, ""]
    phase_margin: Float[Array, ""]
    delay_margin: Float[Array, ""]
    peak_sensitivity: Float[Array, ""]
    phase_crossover: Float[Array, ""]
    gain_crossover: Float[Array, ""]
    peak_frequency: Float[Array, ""]


class _OpenLoop(NamedTuple):
    """``L = N C / D`` with time in units of ``unit`` seconds; polynomials highest power first."""

    numerator: Array
    late_numerator: Array
    denominator: Array
    delay: Array
    gains: PIDGains
    dt: Array
    unit: Array


def loop_margins(
    process: Process,
    gains: PIDGains,
    *,
    dt: float | Float[Array, ""] | None = None,
    points: int = 1024,
) -> LoopMargins:
    """Margins and peak sensitivity of the loop of a process and a PID.

    Without ``dt`` the controller is continuous. With it, the controller is
    :class:`neorl_core.control.PID` at that period: its integral includes the present error, its
    derivative is a filtered backward difference, and its output is held. A continuous process is
    then sampled exactly, with any dead time.

    Stability follows from the principle of the argument: along the imaginary axis, or the unit
    circle, the phase of ``D + N C`` turns by a known angle less one turn for each pair of unstable
    poles. Crossings are bracketed on a logarithmic grid from a hundredth of the lowest to a hundred
    times the highest corner frequency (at most half the sampling frequency), then halved. A
    resonance narrower than the grid may be missed; ``points`` narrows the grid.

    Args:
        process: From output to measurement.
        gains: The controller.
        dt: Period of a sampled controller in seconds; needed for a :class:`SampledModel`.
        points: Number of frequencies of the grid, 16 or more.

    Returns:
        The margins. Not differentiable. A loop whose phase turns too fast for the grid where its
        gain is near 1 or above counts as unstable.

    Raises:
        ValueError: If a shape is not as stated, a concrete ``dt`` is not positive, or a concrete
            ``tau`` or dead time is negative.
        TypeError: If ``process`` is no model of a process.

    Example:
        >>> from neorl_core.loops import PIDGains, TransferFunction, loop_margins
        >>> process = TransferFunction([1.0], [1.0, 0.0], 1.0)  # an integrator with dead time
        >>> margins = loop_margins(process, PIDGains(0.5, 0.0, 0.0, 0.0))
        >>> round(float(margins.gain_margin), 4), round(float(margins.phase_margin), 2)
        (3.1416, 61.35)

    Source: Astrom and Hagglund, Advanced PID control, 2006, section 4.6; the criterion of
    stability: Mikhailov, 1938.
    """
    process, gains, dt, dtype = checked_loop(process, gains, dt)
    points = checked_integer("points", points, 16, "give the number of frequencies")
    if dt is None:
        margins = _continuous(process, gains, points=points)
    elif isinstance(process, SampledModel):
        margins = _sampled_model(process, gains, dt, points=points)
    else:
        margins = _sampled(process, gains, dt, points=points)
    return narrow(margins, dtype)


@functools.partial(jax.jit, static_argnames="points")
def _continuous(process: Any, gains: PIDGains, *, points: int) -> LoopMargins:
    low, high = _corners(process.numerator, process.denominator, process.dead_time, gains)
    unit = jnp.exp(-(low + high) / 2)
    scaled, gains = in_unit(process, unit), gains_in_unit(gains, unit)
    # The largest coefficient becomes one, so that powers of a frequency do not overflow.
    size = jnp.max(jnp.abs(scaled.denominator))
    loop = _OpenLoop(
        scaled.numerator / size,
        jnp.zeros_like(scaled.numerator),
        scaled.denominator / size,
        scaled.dead_time,
        gains,
        jnp.zeros_like(unit),
        unit,
    )
    half = (high - low) / 2 + _DECADES * math.log(10)
    grid = jnp.exp(jnp.linspace(-half, half, points, dtype=unit.dtype))
    # With an integral and with a filter the controller has a pole each.
    poles = jnp.stack([jnp.not_equal(gains.ki, 0), jnp.greater(gains.tau, 0)]).sum()
    degree = process.denominator.shape[0] - 1 + poles.astype(unit.dtype)
    return _margins(_continuous_parts, loop, grid, degree * jnp.pi / 2, end=False)


@functools.partial(jax.jit, static_argnames="points")
def _sampled(process: Any, gains: PIDGains, dt: Array, *, points: int) -> LoopMargins:
    low, _ = _corners(process.numerator, process.denominator, process.dead_time, gains)
    unit = jnp.where(jnp.isfinite(low), jnp.sqrt(dt * jnp.exp(-low)), dt)
    scaled, period = in_unit(process, unit), dt / unit
    plant = sampled_plant(scaled, period)
    denominator, now, before = difference_polynomials(plant)
    gains = gains_in_unit(gains, unit)
    loop = _OpenLoop(now, before, denominator, plant.delay, gains, period, unit)
    degree = denominator.shape[0] - 1
    grid = _grid_to_nyquist(low + jnp.log(unit), period, points)
    return _margins(_difference_parts, loop, grid, degree * jnp.pi, end=True)


@functools.partial(jax.jit, static_argnames="points")
def _sampled_model(process: Any, gains: PIDGains, dt: Array, *, points: int) -> LoopMargins:
    one = jnp.ones_like(process.a, shape=(1,))
    denominator = _by_differences(jnp.concatenate([one, -process.a]))
    numerator = _by_differences(process.b)
    dead_time = process.delay.astype(dt.dtype)
    unit = dt
    gains = gains_in_unit(gains, unit)
    low, _ = _corners(numerator, denominator, dead_time, gains)
    loop = _OpenLoop(
        numerator, jnp.zeros_like(numerator), denominator, dead_time, gains, dt / unit, unit
    )
    grid = _grid_to_nyquist(low, dt / unit, points)
    return _margins(_shift_parts, loop, grid, jnp.zeros_like(dt), end=True)


def _by_differences(shifts: Array) -> Array:
    """``sum_i shifts_i q^i`` in powers of ``1 - q``, highest first; exact sums of binomials."""
    count = shifts.shape[0]
    binomials = np.asarray(
        [[(-1.0) ** k * math.comb(i, k) for i in range(count)] for k in range(count)]
    )
    weights = jnp.asarray(binomials[::-1].copy(), shifts.dtype)
    return jnp.sum(weights * shifts[None, :], axis=1)


def _corners(
    numerator: Array, denominator: Array, dead_time: Array, gains: PIDGains
) -> tuple[Array, Array]:
    """Logarithms of the lowest and highest corner frequency of the loop, crossover included."""
    controller = jnp.stack(
        [gains.kp * gains.tau + gains.kd, gains.kp + gains.ki * gains.tau, gains.ki]
    )
    lag = jnp.stack([gains.tau, jnp.ones_like(gains.tau), jnp.zeros_like(gains.tau)])
    above, below = convolve(numerator, controller), convolve(denominator, lag)
    pairs = [(each, jnp.arange(each.shape[0])[::-1].astype(each.dtype)) for each in (above, below)]
    low, high = corner_frequencies(pairs)
    delayed = jnp.where(dead_time > 0, -jnp.log(jnp.where(dead_time > 0, dead_time, 1)), jnp.nan)
    low, high = jnp.fmin(low, delayed), jnp.fmax(high, delayed)
    # A loop without any time scale looks the same at every frequency.
    known = jnp.isfinite(low) & jnp.isfinite(high)
    return jnp.where(known, low, 0), jnp.where(known, high, 0)


def _grid_to_nyquist(low: Array, period: Array, points: int) -> Array:
    """Frequencies up to half the sampling frequency, the last one exactly."""
    top = jnp.log(jnp.pi / period)
    bottom = jnp.minimum(low, top) - _DECADES * math.log(10)
    share = jnp.linspace(0, 1, points, dtype=period.dtype)
    grid = jnp.exp(bottom + (top - bottom) * share)
    return grid.at[-1].set(jnp.pi / period)


def _complex(real: float | Array) -> Array:
    real = jnp.asarray(real)
    return jax.lax.complex(real, jnp.zeros_like(real))


def _polynomial(coefficients: Array, at: Array) -> Array:
    """A polynomial with real coefficients, highest power first, at complex points."""
    value = jnp.zeros_like(at)
    for index in range(coefficients.shape[0]):
        value = value * at + _complex(coefficients[index])
    return value


def _turned(angle: Array) -> Array:
    """``exp(-j angle)``."""
    return jax.lax.complex(jnp.cos(angle), -jnp.sin(angle))


def _one_minus_shift(angle: Array) -> Array:
    """``1 - exp(-j angle)`` without cancellation."""
    return jax.lax.complex(2 * jnp.sin(angle / 2) ** 2, jnp.sin(angle))


def _continuous_parts(loop: _OpenLoop, frequency: Array) -> tuple[Array, Array]:
    """Denominator and numerator of the open loop, without common factors; dead time included."""
    s = jax.lax.complex(jnp.zeros_like(frequency), frequency)
    kp, ki, kd, tau = (_complex(number) for number in loop.gains)
    one = _complex(jnp.ones_like(loop.unit))
    factor = jnp.where(loop.gains.ki != 0, s, jnp.ones_like(s))
    lag = tau * s + one
    above = factor * (kp * lag + kd * s) + ki * lag
    delayed = _turned(frequency * loop.delay)
    process = _polynomial(loop.numerator, s) * delayed
    return _polynomial(loop.denominator, s) * factor * lag, process * above


def _sampled_controller(loop: _OpenLoop, angle: Array) -> tuple[Array, Array]:
    """Denominator and numerator of the sampled PID at ``z = exp(j angle)``."""
    difference = _one_minus_shift(angle)
    weight = loop.dt / (loop.gains.tau + loop.dt)
    kp, ki, kd, share = (
        _complex(number)
        for number in (
            loop.gains.kp,
            loop.gains.ki * loop.dt,
            loop.gains.kd * weight / loop.dt,
            1 - weight,
        )
    )
    factor = jnp.where(loop.gains.ki != 0, difference, jnp.ones_like(difference))
    # 1 - (1 - weight) q, written with 1 - q.
    lag = _complex(weight) + share * difference
    return factor * lag, factor * (kp * lag + kd * difference) + ki * lag


def _difference_parts(loop: _OpenLoop, frequency: Array) -> tuple[Array, Array]:
    angle = frequency * loop.dt
    below, above = _sampled_controller(loop, angle)
    shift = _turned(angle)
    # (z - 1) / dt
    difference = _one_minus_shift(angle) * jnp.conj(shift) / _complex(loop.dt)
    now = _polynomial(loop.numerator, difference)
    late = _polynomial(loop.late_numerator, difference) * shift
    process = (now + late) * _turned(angle * loop.delay)
    return _polynomial(loop.denominator, difference) * below, process * above


def _shift_parts(loop: _OpenLoop, frequency: Array) -> tuple[Array, Array]:
    angle = frequency * loop.dt
    below, above = _sampled_controller(loop, angle)
    difference = _one_minus_shift(angle)
    process = _polynomial(loop.numerator, difference) * _turned(angle * (loop.delay + 1))
    return _polynomial(loop.denominator, difference) * below, process * above


def _margins(
    parts: Any, loop: _OpenLoop, grid: Array, turn: ArrayLike, *, end: bool
) -> LoopMargins:
    """The margins from the open loop on a grid; ``turn`` is the angle of a stable loop."""
    below, above = parts(loop, jnp.concatenate([jnp.zeros_like(grid[:1]), grid]))
    response = above[1:] / below[1:]
    stable = _is_stable(loop, grid, response, below + above, turn, end=end)
    starts, found = _crossing_starts(response, grid)
    places = _refined(parts, loop, grid, response, starts)
    below_at, above_at = parts(loop, places)
    at = above_at / below_at
    factors, phases = -1 / at.real, jnp.arctan2(-at.imag, -at.real)
    # Where the open loop is real by itself: at zero, and at half the sampling frequency.
    ends = [(0, jnp.zeros_like(grid[0])), (-1, grid[-1])][: 2 if end else 1]
    real = [_factor_of_real(below[index], above[index]) for index, _ in ends]
    factor, phase_crossover = _least(
        jnp.stack([factors[0], *real]),
        jnp.stack([places[0], *(frequency for _, frequency in ends)]),
        jnp.stack([found[0], *(factor > 1 for factor in real)]),
    )
    lesser = jnp.stack([factors[1], *real])
    # Rounding alone gives a loop with two integrals a gain at rest that is not infinite.
    some = jnp.stack([found[1], *(factor < 1 for factor in real)]) & (lesser > _LEAST_GAIN)
    reduction = jnp.max(jnp.where(some, lesser, 0))
    later = jnp.mod(phases[3], 2 * jnp.pi) / places[3]
    # The golden section ends at two points; a maximum at the end of the grid lies beyond both.
    best = jnp.argmax(_sensitivity(response))
    candidates = jnp.append(places[4:], grid[best])
    sensitivity = jnp.append(_sensitivity(at[4:]), _sensitivity(response[best]))
    numbers = (
        factor,
        reduction,
        jnp.where(found[2], phases[2] * 180 / jnp.pi, jnp.inf),
        jnp.where(found[3], later, jnp.inf) * loop.unit,
        jnp.max(sensitivity),
        phase_crossover / loop.unit,
        jnp.where(found[2], places[2], jnp.nan) / loop.unit,
        candidates[jnp.argmax(sensitivity)] / loop.unit,
    )
    return LoopMargins(stable, *(jnp.where(stable, number, jnp.nan) for number in numbers))


def _is_stable(
    loop: _OpenLoop, grid: Array, response: Array, total: Array, turn: ArrayLike, *, end: bool
) -> Array:
    """Whether ``total``, denominator plus numerator, turns its phase as in a stable loop."""
    length = jnp.abs(total)
    # A pole at the origin, or a loop of NaN, is not stable.
    proper = jnp.all(length > 0) & (length[0] > 1e-4 * length[1])
    direction = total / _complex(jnp.where(length > 0, length, 1))
    steps = direction[1:] * jnp.conj(direction[:-1])
    turned = jnp.sum(jnp.arctan2(steps.imag, steps.real))
    size = jnp.abs(response)
    apart = jnp.append(jnp.diff(grid), jnp.zeros_like(grid[:1]))
    period = loop.dt if end else jnp.ones_like(loop.dt)
    resolved = jnp.all((size < 0.9) | (apart * loop.delay * period < jnp.pi / 2))
    # Dead time with a gain above 1 at every frequency has unstable poles without end.
    ends = (size[-1] < 1) | (loop.delay == 0) | end
    return proper & resolved & ends & (jnp.abs(turned - turn) < jnp.pi / 2)


def _crossing_starts(response: Array, grid: Array) -> tuple[Array, Array]:
    """Index of the grid interval of each decisive crossing, and whether there is one.

    The crossings of the gain margin, the gain reduction, the phase margin and the delay margin.
    """
    real, imaginary = response.real, response.imag
    size = jnp.log(jnp.abs(response))
    crosses = (imaginary[1:] > 0) != (imaginary[:-1] > 0)
    span = imaginary[1:] - imaginary[:-1]
    share = -imaginary[:-1] / jnp.where(span == 0, 1, span)
    across = real[:-1] + share * (real[1:] - real[:-1])
    negative = crosses & (across < 0)
    factor = -1 / jnp.where(negative, across, -1)
    unity = (size[1:] > 0) != (size[:-1] > 0)
    rise = size[1:] - size[:-1]
    share = -size[:-1] / jnp.where(rise == 0, 1, rise)
    phase = jnp.arctan2(-imaginary, -real)
    # Along an interval the phase moves by less than half a turn.
    missing = _wrapped(phase[:-1] + share * _wrapped(phase[1:] - phase[:-1]))
    where = grid[:-1] + share * (grid[1:] - grid[:-1])
    scores = jnp.stack(
        [
            jnp.where(negative & (factor >= 1), factor, jnp.inf),
            jnp.where(negative & (factor < 1), -factor, jnp.inf),
            jnp.where(unity, jnp.abs(missing), jnp.inf),
            jnp.where(unity, jnp.mod(missing, 2 * jnp.pi) / where, jnp.inf),
        ]
    )
    return jnp.argmin(scores, axis=1), jnp.any(jnp.isfinite(scores), axis=1)


def _wrapped(angle: Array) -> Array:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi


def _refined(parts: Any, loop: _OpenLoop, grid: Array, response: Array, starts: Array) -> Array:
    """The four crossings by bisection, and the ends of a golden section for the sensitivity."""
    best, last = jnp.argmax(_sensitivity(response)), grid.shape[0] - 1
    peak = (grid[jnp.maximum(best - 1, 0)], grid[jnp.minimum(best + 1, last)])
    sign = _crossing_signs(response[starts])

    def narrower(_: Any, ends: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, left, right = ends
        middle, apart = (low + high) / 2, _GOLDEN * (right - left)
        inner = jnp.stack([right - apart, left + apart])
        below, above = parts(loop, jnp.concatenate([middle, inner]))
        at = above / below
        same = _crossing_signs(at[:4]) == sign
        low, high = jnp.where(same, middle, low), jnp.where(same, high, middle)
        values = _sensitivity(at[4:])
        rises = values[1] > values[0]
        return low, high, jnp.where(rises, inner[0], left), jnp.where(rises, right, inner[1])

    bracket = (grid[starts], grid[starts + 1], *peak)
    low, high, left, right = jax.lax.fori_loop(0, _HALVINGS, narrower, bracket)
    return jnp.concatenate([(low + high) / 2, jnp.stack([left, right])])


def _crossing_signs(response: Array) -> Array:
    """Signs of the imaginary part (first two) and of the gain's logarithm (last two)."""
    by_phase = jnp.arange(4, dtype=jnp.int32) < 2
    return jnp.where(by_phase, response.imag > 0, jnp.abs(response) > 1)


def _factor_of_real(below: Array, above: Array) -> Array:
    """``-1 / L`` where ``L`` is real; NaN if it is not negative."""
    crosses = (below.real != 0) & (above.real * below.real < 0)
    return jnp.where(crosses, -below.real / jnp.where(crosses, above.real, 1), jnp.nan)


def _least(values: Array, places: Array, valid: Array) -> tuple[Array, Array]:
    score = jnp.where(valid, values, jnp.inf)
    best = jnp.argmin(score)
    return score[best], jnp.where(valid[best], places[best], jnp.nan)


def _sensitivity(response: Array) -> Array:
    return 1 / jnp.abs(_complex(jnp.ones_like(response.real)) + response)
