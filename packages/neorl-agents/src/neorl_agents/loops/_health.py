"""The figures of a loop's health, each with the word that an engineer would say of it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.signal import fftconvolve

from neorl_agents.loops._controller import LoggedController, logged_controller
from neorl_agents.loops._record import LEAST_ROWS, LoopRecord
from neorl_core import InputError
from neorl_core.loops import (
    HarrisIndex,
    LoopHealth,
    harris_index,
    loop_health,
    oscillation,
    stiction_correlation,
    stiction_curve_fit,
)

REGULAR = 1.0
"""Regularity above which an oscillation counts (Thornhill and others)."""
PERIODS = (1, 6)
"""After how many periods the autocorrelation says whether an oscillation lasts."""
LASTS = 0.3
"""Autocorrelation after six periods above which an oscillation lasts."""
KEEPS = 0.65
"""Share of the autocorrelation after one period that a driven oscillation keeps after six. A loop
that rings by itself keeps ``exp(-10 pi zeta)``, so it would have a damping ``zeta`` of 0.014 and a
peak sensitivity near 36, and no tuning is so tight for long."""
DETREND = 16
"""A mean over this many quarter periods is taken for the slow trend."""
ALIKE = 0.1
"""Periods of two loops that differ by less may be one oscillation."""
TOGETHER = 0.5
"""Correlation of two loops, at the best shift within a period, from which they share it."""

STILL = 10
"""Rows without a move of the setpoint after which another one begins, so that a ramp is one."""
FEW_MOVES = 3
"""Moves of the setpoint below which none of the error is put down to them."""
PLACES = 40
"""Places at which the answer to a move of the setpoint is fitted."""
NOTHING = 1e-3
"""Share of the error's variance below which what its answers to the setpoint leave is nothing."""


class Swing(NamedTuple):
    """An oscillation of a loop.

    Attributes:
        period: Seconds; NaN if there is none.
        regularity: Above 1 it is regular.
        once: Autocorrelation after one period.
        often: Autocorrelation after six periods: well above 0 for an oscillation that is driven for
            ever, near 0 for one that the loop damps; NaN if the rows are too few.
        shared: Names of the loops that oscillate with it.
        quarter: A quarter of the period in rows, also of an irregular one.
    """

    period: float
    regularity: float
    once: float
    often: float
    shared: tuple[str, ...] = ()
    quarter: int = 0

    @property
    def regular(self) -> bool:
        """Whether there is an oscillation."""
        return self.regularity > REGULAR

    @property
    def lasts(self) -> bool:
        """Whether something drives it for ever: a valve, or another loop."""
        return self.often > max(LASTS, LASTS * self.once)

    @property
    def driven(self) -> bool:
        """Whether it dies away so little that even a tight loop does not ring so by itself."""
        return self.lasts and self.often > KEEPS * self.once


class Stiction(NamedTuple):
    """What two published indices say of the valve.

    Attributes:
        fit: Index of He and others from 0 to 1: 0.6 and more if the valve sticks.
        shift: Measure of Horch from 0 to 1: 2/3 and more if it does.
    """

    fit: float
    shift: float

    @property
    def agree(self) -> bool:
        """Whether both say that the valve sticks."""
        return self.fit >= 0.6 and self.shift >= 2 / 3


class LoopFigures(NamedTuple):
    """The health of one loop.

    Attributes:
        figures: Use, variability and valve work.
        harris: Variance beside the least possible; its delay is ``harris_delay``.
        harris_delay: Dead time in rows that the index assumes.
        swing: Oscillation of the measurement about its setpoint, less the loop's answers to moves
            of the setpoint, which come at one interval where an operator makes them by the clock.
        stiction: The two indices of the valve, of the output and the measurement without a trend.
        controller: The PI that the rows show.
        moves: Number of moves of the setpoint.
        frozen: Longest time in seconds for which the measurement stood still while the output moved
            by more than a hundredth of its range.
    """

    figures: LoopHealth
    harris: HarrisIndex
    harris_delay: int
    swing: Swing
    stiction: Stiction
    controller: LoggedController
    moves: int
    frozen: float


def loop_figures(
    record: LoopRecord, *, dead_time: float | None = None, swing: Swing | None = None
) -> LoopFigures:
    """The health of one loop.

    Args:
        record: Its rows.
        dead_time: Dead time of the process in seconds for the Harris index, such as that of
            :func:`loop_model`; without one the index takes two rows.
        swing: Its oscillation where :func:`shared_swings` has found it.

    Raises:
        InputError: If it has fewer than 200 rows with a measurement and an output.
    """
    record = _spaced(record)
    valid, setpoint, judged = _judged(record)
    low, high = record.output_range
    # The middle is taken off, because JAX rounds to seven digits.
    middle = float(np.mean(record.measurement[valid]))
    error = setpoint - record.measurement
    figures = loop_health(
        setpoint, record.measurement, record.output, record.automatic, valid,
        dt=record.period, low=low, high=high,
    )  # fmt: skip
    delay = 2 if dead_time is None else 1 + max(0, round(dead_time / record.period))
    harris = harris_index(np.where(judged, error, 0.0), judged, delay=delay)
    if swing is None:
        swing = _swing(error, setpoint, judged, record.period)
    return LoopFigures(
        figures=figures,
        harris=harris,
        harris_delay=delay,
        swing=swing,
        stiction=_stiction(record, middle, judged, swing.quarter),
        controller=logged_controller(record),
        moves=setpoint_moves(record),
        frozen=_frozen(record),
    )


def _judged(record: LoopRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Valid rows, the setpoint or the mean in its place, and the rows to judge: in automatic."""
    valid = record.valid
    if valid.sum() < LEAST_ROWS:
        raise InputError(
            f"{record.name}: {int(valid.sum())} rows have a measurement and an output, and "
            f"{LEAST_ROWS} are needed; give a longer log"
        )
    setpoint = record.setpoint
    if not record.has_setpoint:
        setpoint = np.full(len(valid), np.mean(record.measurement[valid]))
    on = valid & record.automatic
    return valid, setpoint, on if on.sum() >= LEAST_ROWS else valid


def setpoint_moves(record: LoopRecord) -> int:
    """How often the setpoint moved by more than the noise of the measurement."""
    if not record.has_setpoint:
        return 0
    y = record.measurement
    bends = np.diff(y, n=2)
    noise = float(np.sqrt(np.nanmean(bends**2) / 6))
    span = record.measurement_range[1] - record.measurement_range[0]
    least = max(noise, 1e-3 * span)
    # A ramp counts once for every step of this size.
    levels = record.setpoint[np.isfinite(record.setpoint)]
    levels = levels[np.append(True, np.diff(levels) != 0)]
    moves, level = 0, levels[0]
    for one in levels[1:]:
        if abs(one - level) > least:
            moves, level = moves + 1, one
    return moves


def shared_swings(records: Sequence[LoopRecord]) -> list[Swing]:
    """The oscillations of the loops of one log, each with the loops that oscillate with it.

    Two loops share an oscillation if both are regular, their periods differ by less than a tenth,
    and their measurements follow each other at some shift within a period.

    Args:
        records: Loops of one log, row by row at the same times.

    Raises:
        InputError: If one has fewer than 200 rows with a measurement and an output.
    """
    swings = []
    for record in map(_spaced, records):
        _, setpoint, judged = _judged(record)
        swings.append(_swing(setpoint - record.measurement, setpoint, judged, record.period))
    return [
        own._replace(
            shared=tuple(
                other.name
                for j, (other, theirs) in enumerate(zip(records, swings, strict=True))
                if i != j and _together(record, own, other, theirs)
            )
        )
        for i, (record, own) in enumerate(zip(records, swings, strict=True))
    ]


def _together(one: LoopRecord, own: Swing, other: LoopRecord, theirs: Swing) -> bool:
    if not (own.regular and theirs.regular) or len(one.measurement) != len(other.measurement):
        return False
    if abs(own.period - theirs.period) > ALIKE * own.period:
        return False
    lag = min(int(own.period / one.period) + 1, len(one.measurement) // 2)
    first, second = (np.nan_to_num(_standard(x.measurement)) for x in (one, other))
    both = np.correlate(first, second[lag : len(second) - lag], "valid") / (len(first) - 2 * lag)
    return bool(np.max(np.abs(both)) > TOGETHER)


def _standard(values: np.ndarray) -> np.ndarray:
    deviation = np.nanstd(values)
    return (values - np.nanmean(values)) / (deviation if deviation > 0 else 1)


def _spaced(record: LoopRecord) -> LoopRecord:
    """The record with an invalid row in every gap, so that nothing compares across it."""
    ends = np.flatnonzero(np.diff(record.segment))
    if not len(ends):
        return record

    def spaced(column: np.ndarray, value: float | bool) -> np.ndarray:
        return np.insert(column, ends + 1, value)

    return dataclasses.replace(
        record,
        measurement=spaced(record.measurement, np.nan),
        output=spaced(record.output, np.nan),
        setpoint=spaced(record.setpoint, np.nan),
        automatic=spaced(record.automatic, False),
        segment=np.insert(record.segment, ends + 1, record.segment[ends]),
    )


def smooth(values: np.ndarray, rows: int) -> np.ndarray:
    """Mean over a window of rows, shorter at the ends."""
    half = max(1, rows // 2)
    total = np.concatenate([[0.0], np.cumsum(values)])
    time = np.arange(len(values))
    first, last = np.maximum(time - half, 0), np.minimum(time + half + 1, len(values))
    return (total[last] - total[first]) / (last - first)


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """Autocorrelation of a series at lags from 0."""
    centred = values - values.mean()
    size = 1 << (2 * len(centred) - 1).bit_length()
    transform = np.fft.rfft(centred, size)
    sums = np.fft.irfft(np.abs(transform) ** 2, size)[: len(centred)]
    return sums / sums[0] if sums[0] > 0 else sums


def _beyond_setpoint(error: np.ndarray, setpoint: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """What moves of the setpoint do not explain of the error.

    The answer of the error to a step is fitted by least squares over the usual time between two
    moves, straight between places that lie closer the younger the step is. A setpoint that hardly
    ever moves, or with almost every row as that of a cascade, explains nothing here.
    """
    moves = np.nan_to_num(np.diff(setpoint, prepend=setpoint[:1]))
    at = np.flatnonzero(moves)
    begins = at[np.diff(at, prepend=-STILL) >= STILL]
    if len(begins) < FEW_MOVES or len(at) > len(moves) / 4:
        return error
    reach = int(np.clip(np.median(np.diff(begins)), STILL, len(error) // FEW_MOVES))
    places = np.unique(np.round(np.geomspace(1, reach + 1, PLACES)).astype(int)) - 1
    answers = np.stack([np.interp(np.arange(reach), places, one) for one in np.eye(len(places))], 1)
    columns = fftconvolve(moves[:, None], answers, axes=0)[: len(error)]
    centred = columns[judged] - columns[judged].mean(axis=0)
    onto = centred.T @ (error[judged] - error[judged].mean())
    weights = np.linalg.lstsq(centred.T @ centred, onto, rcond=1e-10)[0]
    rest = error - columns @ weights
    # What the places cannot follow of the answer comes as regularly as the moves.
    return rest if np.var(rest[judged]) > NOTHING * np.var(error[judged]) else np.zeros_like(error)


def _swing(error: np.ndarray, setpoint: np.ndarray, valid: np.ndarray, period: float) -> Swing:
    """The oscillation of what moves of the setpoint do not explain of the error."""
    error, rows = _beyond_setpoint(error, setpoint, valid), len(error)
    known = np.where(valid, error, np.mean(error[valid]))
    correlation = autocorrelation(known - smooth(known, rows // 5))
    below = np.flatnonzero(correlation < 0)
    quarter = int(below[0]) if len(below) else rows // 16
    # A quarter period of two rows would take the oscillation itself for the trend.
    level = known - smooth(known, DETREND * max(quarter, 4))
    found = oscillation(jnp.asarray(level), valid, dt=period, max_lag=rows // 4)
    long, regularity = float(found.period), float(found.regularity)
    if not np.isfinite(long):
        return Swing(np.nan, 0.0, np.nan, np.nan, quarter=quarter)
    correlation = autocorrelation(level)

    def peak(number: int) -> float:
        first, last = ((number + side) * long / period for side in (-0.3, 0.3))
        if last > rows / 2:
            return np.nan
        return float(np.max(correlation[int(first) : int(last) + 2]))

    once, often = (peak(number) for number in PERIODS)
    # Too few periods, or none to compare with: nothing regular can be claimed.
    return Swing(long, regularity if once > 0.1 else 0.0, once, often, quarter=quarter)


def _stiction(record: LoopRecord, middle: float, valid: np.ndarray, quarter: int) -> Stiction:
    window = 6 * max(quarter, 2)
    series = []
    for column in (record.output, record.measurement - middle):
        known = np.where(valid, column, np.mean(column[valid]))
        series.append(jnp.asarray(known - smooth(known, window)))
    # A half period with a move of the setpoint is neither a sine nor a triangle.
    moved = np.append(False, np.abs(np.diff(np.nan_to_num(record.setpoint))) > 0)
    still = valid & ~moved
    fit = float(
        stiction_curve_fit(series[0], still if 2 * still.sum() > valid.sum() else valid).index
    )
    if not np.isfinite(fit):
        fit = float(stiction_curve_fit(series[0], valid).index)
    # What lies beyond the crossings beside lag 0 does not count, so one reach does for every loop.
    shift = stiction_correlation(series[0], series[1], valid, max_lag=len(valid) // 4).shift
    return Stiction(fit, float(shift))


def _frozen(record: LoopRecord) -> float:
    """Longest time in seconds without a change of the measurement while the output moved."""
    low, high = record.output_range
    same = np.append(np.diff(record.measurement) == 0, False)
    starts = np.flatnonzero(same & ~np.append(False, same[:-1]))
    ends = np.flatnonzero(same & ~np.append(same[1:], False)) + 1
    longest = 0
    for first, last in zip(starts, ends, strict=True):
        if last - first > longest:
            moved = record.output[first : last + 1]
            if np.nanmax(moved) - np.nanmin(moved) > 0.01 * (high - low):
                longest = last - first
    return float(longest * record.period)
