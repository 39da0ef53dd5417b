"""Figures of a running loop from its rows: use, variability, valve work, benchmark, oscillation."""

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
    like,
    nan_unless,
    require_order,
    require_scalar,
    require_series,
)
from neorl_core._internal.precision import checked_wide, narrow, widen
from neorl_core.statistics import student_interval

_DAY = 86_400.0
_INTERVALS = 10


class LoopHealth(NamedTuple):
    """How a loop is used and how it works. A figure without rows to judge is NaN.

    Attributes:
        automatic: Fraction of the valid rows in which the controller acts.
        saturation: Fraction of the valid rows in automatic with the output at one of its limits.
        service_factor: Fraction of all rows, invalid ones included, in which the controller acts
            inside its limits.
        mean_error: Mean of setpoint minus measurement in automatic, in measured units.
        error_deviation: Its standard deviation.
        absolute_error: Mean of its absolute value.
        variability: Twice the standard deviation of the measurement over its mean, in automatic.
        noise: Standard deviation of the measurement's noise.
        resolution: Smallest difference between two measurements that differ: the quantum of a
            rounded signal, and tiny for any other.
        crossings: How often the measurement crosses its setpoint, per day of automatic.
        travel: Way of the output in automatic, in output units per day.
        reversals: Changes of the output's direction, per day of automatic.
        rows: Number of valid rows in automatic, int32.
    """

    automatic: Float[Array, ""]
    saturation: Float[Array, ""]
    service_factor: Float[Array, ""]
    mean_error: Float[Array, ""]
    error_deviation: Float[Array, ""]
    absolute_error: Float[Array, ""]
    variability: Float[Array, ""]
    noise: Float[Array, ""]
    resolution: Float[Array, ""]
    crossings: Float[Array, ""]
    travel: Float[Array, ""]
    reversals: Float[Array, ""]
    rows: Int[Array, ""]


def loop_health(
    setpoint: Float[ArrayLike, " time"],
    measurement: Float[ArrayLike, " time"],
    output: Float[ArrayLike, " time"],
    automatic: Bool[ArrayLike, " time"],
    valid: Bool[ArrayLike, " time"],
    *,
    dt: float | Float[Array, ""],
    low: float | Float[Array, ""],
    high: float | Float[Array, ""],
    tolerance: float | Float[Array, ""] = 1e-3,
) -> LoopHealth:
    """Simple figures of one loop from equidistant rows.

    A row that holds a number that is not finite counts as invalid. What compares two rows, such as
    travel, counts neighbours that are both valid and in automatic, over the time that these pairs
    cover. The noise is ``sqrt(mean((y_{t-1} - 2 y_t + y_{t+1})^2) / 6)``, for a signal that is
    nearly straight over three rows.

    Args:
        setpoint: Setpoint in measured units.
        measurement: Measurement.
        output: Output of the controller.
        automatic: Whether the controller acted.
        valid: Rows to use.
        dt: Time between rows in seconds, positive.
        low: Lower limit of the output.
        high: Upper limit of the output, not below ``low``.
        tolerance: Fraction of the output's range within which it counts as at its limit, in (0, 1).

    Returns:
        The figures. Not differentiable.

    Raises:
        ValueError: If lengths differ, a mask is not boolean, ``dt`` is not positive, ``low`` is
            above ``high``, or ``tolerance`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> y, u = jnp.array([1.0, 3.0, 1.0, 3.0]), jnp.array([0.0, 5.0, 2.0, 2.0])
        >>> on = jnp.ones(4, bool)
        >>> health = loop_health(jnp.full(4, 2.0), y, u, on, on, dt=86400.0, low=0.0, high=100.0)
        >>> float(health.saturation), float(health.travel), float(health.crossings)
        (0.25, 2.6666667461395264, 1.0)

    Source: Shinskey, Process control systems, 1996; the noise: Gasser, Sroka and Jennen-Steinmetz,
    Residual variance and residual pattern in nonlinear regression, Biometrika 73 (1986) 625.
    """
    require_series(
        setpoint=setpoint, measurement=measurement, output=output, automatic=automatic, valid=valid
    )
    automatic, valid = checked_mask("automatic", automatic), checked_mask("valid", valid)
    dt, tolerance = checked_positive("dt", dt), checked_probability("tolerance", tolerance)
    require_scalar("low", low)
    require_scalar("high", high)
    require_order(low, high)
    series = tuple(floats(one) for one in (setpoint, measurement, output))
    dtype = jnp.result_type(*series)
    wide = jnp.result_type(*(widen(one) for one in series))
    series = tuple(one.astype(wide) for one in series)
    numbers = tuple(like(number, series[0]) for number in (dt, low, high, tolerance))
    return narrow(_health(*series, automatic, valid, *numbers), dtype)


@jax.jit
def _health(
    setpoint: Array,
    measurement: Array,
    output: Array,
    automatic: Array,
    valid: Array,
    dt: Array,
    low: Array,
    high: Array,
    tolerance: Array,
) -> LoopHealth:
    valid = valid & jnp.isfinite(setpoint) & jnp.isfinite(measurement) & jnp.isfinite(output)
    on = valid & automatic
    setpoint, measurement, output = (
        jnp.where(valid, one, 0) for one in (setpoint, measurement, output)
    )
    slack = tolerance * (high - low)
    limited = on & ((output <= low + slack) | (output >= high - slack))
    limits_known = jnp.isfinite(slack) & (low <= high)
    error = setpoint - measurement
    mean_error, error_deviation = _moments(error, on)
    mean, deviation = _moments(measurement, on)
    pairs = on[1:] & on[:-1]
    days = _count(pairs, dt) * dt / _DAY
    moves = jnp.where(pairs, output[1:] - output[:-1], 0)
    bends = measurement[2:] - 2 * measurement[1:-1] + measurement[:-2]
    whole = valid[2:] & valid[1:-1] & valid[:-2]
    saturation = nan_unless(limits_known, _share(limited, on, dt))
    in_service = _count(on & ~limited, dt) / measurement.shape[0]
    return LoopHealth(
        _share(on, valid, dt),
        saturation,
        nan_unless(limits_known, in_service),
        mean_error,
        error_deviation,
        _mean(jnp.abs(error), on),
        2 * deviation / jnp.abs(jnp.where(mean == 0, jnp.nan, mean)),
        jnp.sqrt(_mean(bends**2, whole) / 6),
        _resolution(measurement, valid),
        _per(_sign_changes(error, on), days),
        _per(jnp.sum(jnp.abs(moves)), days),
        _per(_sign_changes(moves, pairs), days),
        jnp.sum(on).astype(jnp.int32),
    )


def _count(mask: Array, like_this: Array) -> Array:
    return jnp.sum(mask).astype(like_this.dtype)


def _share(some: Array, of: Array, like_this: Array) -> Array:
    whole = _count(of, like_this)
    return _count(some, like_this) / jnp.where(whole > 0, whole, jnp.nan)


def _per(total: Array, time: Array) -> Array:
    return total.astype(time.dtype) / jnp.where(time > 0, time, jnp.nan)


def _mean(values: Array, mask: Array) -> Array:
    count = _count(mask, values)
    return jnp.sum(jnp.where(mask, values, 0)) / jnp.where(count > 0, count, jnp.nan)


def _moments(values: Array, mask: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the masked values."""
    mean = _mean(values, mask)
    return mean, jnp.sqrt(_mean((values - mean) ** 2, mask))


def _resolution(values: Array, valid: Array) -> Array:
    """The smallest gap between different values; NaN if all are equal."""
    ordered = jnp.sort(jnp.where(valid, values, jnp.inf))
    gaps = ordered[1:] - ordered[:-1]
    largest = jnp.max(jnp.where(valid, jnp.abs(values), 0))
    # Equal readings of a rounded signal may differ by the rounding of the float.
    real = jnp.isfinite(ordered[1:]) & (gaps > 8 * jnp.finfo(values.dtype).eps * largest)
    least = jnp.min(jnp.where(real, gaps, jnp.inf), initial=jnp.inf)
    return jnp.where(jnp.isfinite(least), least, jnp.nan)


def _sign_changes(values: Array, mask: Array) -> Array:
    """How often the sign changes from one nonzero value to the next without leaving the mask."""
    time = jnp.arange(values.shape[0], dtype=jnp.int32)
    some = mask & (values != 0)
    last = jax.lax.cummax(jnp.where(some, time, -1))
    gap = jax.lax.cummax(jnp.where(mask, -1, time))
    before = jnp.concatenate([jnp.full((1,), -1, jnp.int32), last[:-1]])[: values.shape[0]]
    previous = values[jnp.maximum(before, 0)]
    return jnp.sum(some & (before > gap) & (values * previous < 0))


class HarrisIndex(NamedTuple):
    """The variance of a loop beside the least that any controller could reach.

    Attributes:
        index: Minimum variance over variance, from 0 to 1, which is as good as possible; scalar.
        low: Lower end of its interval.
        high: Upper end of its interval.
        least_deviation: Standard deviation under minimum variance, in measured units.
        rows: Number of rows used, int32.
    """

    index: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    least_deviation: Float[Array, ""]
    rows: Int[Array, ""]


def harris_index(
    error: Float[ArrayLike, " time"],
    valid: Bool[ArrayLike, " time"],
    *,
    delay: int,
    order: int = 20,
    blocks: int = 16,
    level: float | Float[Array, ""] = 0.95,
) -> HarrisIndex:
    """The share of a loop's variance that no feedback could remove.

    ``e_t = sum_i alpha_i e_{t-delay-i} + f_t``, fitted by least squares, splits the error into what
    its past predicts across the dead time and ``f_t``, which no controller can change. The index is
    ``var(f) / var(e)``, with the degrees of freedom of the fit. For white noise through an
    autoregression of order one with the coefficient ``a`` it is ``1 - a^(2 delay)``.

    The interval is a jackknife over contiguous blocks on the scale of ``log(index / (1 - index))``;
    neighbouring rows may depend on each other, only blocks must be long beside the memory of the
    loop. It says nothing about a wrong delay: a delay that is too long makes a loop look better.

    Args:
        error: Setpoint minus measurement, at equal times, in automatic.
        valid: Rows to use; a row that is not finite counts as invalid.
        delay: Dead time in rows, that of the hold included, so 1 or more.
        order: Number of past rows in the fit, 1 or more.
        blocks: Number of blocks, 2 or more.
        level: Probability of the interval, in (0, 1).

    Returns:
        The index. Not differentiable. NaN with fewer than ``2 order + 2`` usable rows or a constant
        error; the interval is NaN if a block holds all of them.

    Raises:
        ValueError: If lengths differ, a count is below its minimum, the error has half precision,
            or ``level`` is outside (0, 1).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> noise = jax.random.normal(jax.random.key(0), (2000,))
        >>> result = harris_index(noise, jnp.ones(2000, bool), delay=3)
        >>> bool(result.index > 0.97)
        True

    Source: Harris, Assessment of control loop performance, Can. J. Chem. Eng. 67 (1989) 856;
    Desborough and Harris, Performance assessment measures for univariate feedback control, Can. J.
    Chem. Eng. 70 (1992) 1186; the interval: Kunsch, The jackknife and the bootstrap for general
    stationary observations, Ann. Statist. 17 (1989) 1217.
    """
    require_series(error=error, valid=valid)
    valid = checked_mask("valid", valid)
    delay = checked_integer("delay", delay, 1, "count the period of the hold")
    order = checked_integer("order", order, 1, "give the number of past rows")
    blocks = checked_integer("blocks", blocks, 2, "give the number of blocks")
    level = checked_probability("level", level)
    error = checked_wide("error", floats(error))
    level = like(level, error)
    # The delay is data, so that loops of any dead time share one compiled program.
    late = jnp.asarray(min(delay, error.shape[0]), jnp.int32)
    return _harris(error, valid, level, late, order=order, blocks=blocks)


@functools.partial(jax.jit, static_argnames=("order", "blocks"))
def _harris(
    error: Array, valid: Array, level: Any, delay: Array, *, order: int, blocks: int
) -> HarrisIndex:
    length = error.shape[0]
    valid = valid & jnp.isfinite(error)
    mean, deviation = _moments(jnp.where(valid, error, 0), valid)
    scale = jnp.where(deviation > 0, deviation, 1)
    error = jnp.where(valid, (error - mean) / scale, 0)
    lags = jnp.append(jnp.zeros_like(delay), delay + jnp.arange(order, dtype=jnp.int32))
    past = jnp.arange(length, dtype=jnp.int32)[:, None] - lags[None, :]
    inside, past = past >= 0, jnp.maximum(past, 0)
    usable = jnp.all(inside & valid[past], axis=1)
    columns = jnp.where(usable[:, None], error[past], 0)
    size = -(-length // blocks)
    filled = blocks * size - length
    columns = jnp.pad(columns, ((0, filled), (0, 0))).reshape(blocks, size, order + 1)
    counts = jnp.sum(jnp.pad(usable, (0, filled)).reshape(blocks, size), axis=1)
    moments = jnp.einsum("bti,btj->bij", columns, columns, precision=jax.lax.Precision.HIGHEST)
    counts = counts.astype(error.dtype)
    every, rows = jnp.sum(moments, axis=0), jnp.sum(counts)
    index, least = _unpredicted(every, rows)
    without = jax.vmap(_unpredicted)(every[None] - moments, rows - counts)[0]
    odds = jnp.log(without) - jnp.log1p(-without)
    # The mean of these is zero, and its standard error is that of the jackknife.
    reach = student_interval((blocks - 1) * (jnp.mean(odds) - odds), level=level).high
    middle = jnp.log(index) - jnp.log1p(-index)
    # At an index of one the odds are infinite: there is no interval but the point.
    ends = [jnp.where(index < 1, jax.nn.sigmoid(middle + side * reach), index) for side in (-1, 1)]
    known = (rows >= 2 * order + 2) & (deviation > 0)
    numbers = jnp.where(known, jnp.stack([index, *ends, least * scale]), jnp.nan)
    return HarrisIndex(numbers[0], numbers[1], numbers[2], numbers[3], rows.astype(jnp.int32))


def _unpredicted(moments: Array, rows: Array) -> tuple[Array, Array]:
    """Share of the variance that the past does not predict, and its standard deviation."""
    order = moments.shape[0] - 1
    past, cross, total = moments[1:, 1:], moments[1:, 0], moments[0, 0]
    # Rounding alone may make the moments of a very smooth error indefinite.
    ridge = 4 * order * jnp.finfo(moments.dtype).eps * jnp.trace(past) / order
    weights = jax.scipy.linalg.solve(
        past + ridge * jnp.eye(order, dtype=moments.dtype), cross, assume_a="pos"
    )
    residual = total - 2 * jnp.sum(weights * cross)
    residual = residual + jnp.sum(weights * jnp.sum(past * weights[None, :], axis=1))
    residual = jnp.maximum(residual, 0) / jnp.maximum(rows - order, 1)
    variance = total / jnp.maximum(rows, 1)
    share = jnp.clip(residual / jnp.where(variance > 0, variance, jnp.nan), 0, 1)
    return share, jnp.sqrt(residual)


class Oscillation(NamedTuple):
    """The oscillation of a signal by its autocorrelation.

    Attributes:
        period: Mean period in seconds; NaN with fewer than three crossings.
        regularity: A third of the mean over the standard deviation of the periods; above 1 the
            oscillation counts as regular.
        crossings: Number of zero crossings used, up to 11, int32.
    """

    period: Float[Array, ""]
    regularity: Float[Array, ""]
    crossings: Int[Array, ""]


def oscillation(
    signal: Float[ArrayLike, " time"],
    valid: Bool[ArrayLike, " time"],
    *,
    dt: float | Float[Array, ""],
    max_lag: int,
) -> Oscillation:
    """Period and regularity of an oscillation, from the zero crossings of the autocorrelation.

    The autocorrelation of noise vanishes after a few lags and that of an oscillation swings on, so
    noise blurs its zero crossings less than those of the signal. Intervals between the first eleven
    crossings are half periods. A slow trend hides crossings: take the error, or remove the trend.

    Args:
        signal: Setpoint minus measurement, or another signal, at equal times.
        valid: Rows to use; a row that is not finite counts as invalid.
        dt: Time between rows in seconds, positive.
        max_lag: Largest lag in rows, 2 or more and below the number of rows.

    Returns:
        The oscillation. Not differentiable. NaN for a constant signal.

    Raises:
        ValueError: If lengths differ, ``dt`` is not positive, ``max_lag`` is out of its range, or
            the signal has half precision.

    Example:
        >>> import jax.numpy as jnp
        >>> wave = jnp.sin(2 * jnp.pi * jnp.arange(1000.0) / 25)
        >>> result = oscillation(wave, jnp.ones(1000, bool), dt=2.0, max_lag=300)
        >>> round(float(result.period)), bool(result.regularity > 1)
        (50, True)

    Source: Thornhill, Huang and Zhang, Detection of multiple oscillations in control loops, J.
    Process Control 13 (2003) 91.
    """
    require_series(signal=signal, valid=valid)
    valid = checked_mask("valid", valid)
    dt = checked_positive("dt", dt)
    max_lag = checked_integer("max_lag", max_lag, 2, "give the number of rows")
    signal = checked_wide("signal", floats(signal))
    require_lag(max_lag, signal)
    return _oscillation(signal, valid, like(dt, signal), max_lag=max_lag)


def require_lag(max_lag: int, signal: Array) -> None:
    """Raises an error unless the largest lag is shorter than the record."""
    if max_lag >= signal.shape[0]:
        raise ValueError(
            f"max_lag must be below the number of rows, {signal.shape[0]}, got {max_lag}; give a "
            "shorter lag or a longer record"
        )


@functools.partial(jax.jit, static_argnames="max_lag")
def _oscillation(signal: Array, valid: Array, dt: Array, *, max_lag: int) -> Oscillation:
    correlation = cross_correlation(signal, signal, valid, max_lag)[max_lag:]
    crosses, places = zero_crossings(correlation)
    rank = jnp.cumsum(crosses.astype(jnp.int32))
    count = jnp.minimum(rank[-1], _INTERVALS + 1)
    wanted = jnp.arange(1, _INTERVALS + 2, dtype=jnp.int32)
    chosen = crosses[None, :] & (rank[None, :] == wanted[:, None])
    when = jnp.sum(jnp.where(chosen, places[None, :], 0), axis=1)
    between = wanted[1:] <= count
    intervals = jnp.where(between, when[1:] - when[:-1], 0)
    mean = _mean(intervals, between)
    degrees = jnp.maximum(_count(between, dt) - 1, 1)
    deviation = jnp.sqrt(jnp.sum(jnp.where(between, (intervals - mean) ** 2, 0)) / degrees)
    enough = count >= 3
    regularity = jnp.where(
        deviation > 0, mean / (3 * jnp.where(deviation > 0, deviation, 1)), jnp.inf
    )
    return Oscillation(
        jnp.where(enough, 2 * mean * dt, jnp.nan),
        jnp.where(enough, regularity, jnp.nan),
        count.astype(jnp.int32),
    )


def zero_crossings(values: Array) -> tuple[Array, Array]:
    """Whether the sign changes after each value, and the interpolated place where it does."""
    crosses = (values[1:] > 0) != (values[:-1] > 0)
    change = values[1:] - values[:-1]
    share = -values[:-1] / jnp.where(change == 0, 1, change)
    return crosses, jnp.arange(values.shape[0] - 1).astype(values.dtype) + share


def cross_correlation(first: Array, second: Array, valid: Array, max_lag: int) -> Array:
    """Correlation of ``first_t`` with ``second_{t+lag}`` for lags from ``-max_lag`` to ``max_lag``.

    Sums run over pairs of valid rows, by Fourier transforms; lags without a pair are zero.
    """
    valid = valid & jnp.isfinite(first) & jnp.isfinite(second)
    centred = []
    for signal in (first, second):
        mean, deviation = _moments(jnp.where(valid, signal, 0), valid)
        standard = (signal - mean) / jnp.where(deviation > 0, deviation, jnp.nan)
        centred.append(jnp.where(valid, standard, 0))
    length = 1 << (first.shape[0] + max_lag - 1).bit_length()
    ones = valid.astype(first.dtype)

    def lagged(a: Array, b: Array) -> Array:
        a, b = jnp.fft.rfft(a, length), jnp.fft.rfft(b, length)
        whole = jnp.fft.irfft(jnp.conj(a) * b, length)
        return jnp.concatenate([whole[length - max_lag :], whole[: max_lag + 1]])

    pairs = jnp.round(lagged(ones, ones))
    constant = jnp.any(jnp.isnan(jnp.stack(centred)))
    sums = lagged(*(jnp.nan_to_num(one) for one in centred))
    correlation = jnp.where(pairs > 0, sums / jnp.where(pairs > 0, pairs, 1), 0)
    return jnp.where(constant, jnp.nan, correlation)
