"""Two periods of a loop on the same indices, with intervals that respect autocorrelation."""

import math
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from neorl_agents.loops._controller import logged_controller
from neorl_agents.loops._model import Interval
from neorl_agents.loops._record import LoopRecord
from neorl_core import InputError
from neorl_core.loops import HarrisIndex, Oscillation, harris_index, oscillation
from neorl_core.statistics import correlated_mean

_HOUR, _DAY = 3600.0, 86_400.0
LEAST_OF_A_PERIOD, LEAST_SETTLINGS = 20.0, 10.0
"""Independent errors and settling times of a period that is compared: a short record of a slow
error looks less dependent than it is, so that its interval would be too narrow."""
SAME = 0.1
"""Largest difference of gains, as a share of the old ones, of a controller that did not change."""

Answer = Literal["better", "no difference shown", "worse"]


class PeriodMean(NamedTuple):
    """A mean over a period, as :func:`~neorl_core.statistics.correlated_mean` gives it.

    Attributes:
        mean: The mean; NaN without a value.
        error: Its standard error; NaN if too few values are effectively independent.
        degrees: Degrees of freedom of the standard error.
        independent: Effective number of independent values.
    """

    mean: float
    error: float
    degrees: float
    independent: float


class PeriodIndex(NamedTuple):
    """One index of a loop in two periods.

    Attributes:
        name: What it is.
        unit: Its unit.
        before: Before the change, with its interval.
        after: After it.
        ratio: After over before, with its interval; NaN where before is zero.
        better: Whether it is significantly less than before; ``None`` if neither is shown.
    """

    name: str
    unit: str
    before: Interval
    after: Interval
    ratio: Interval
    better: bool | None


class PeriodFigures(NamedTuple):
    """A loop in one period.

    Attributes:
        days: Length of the rows in automatic.
        absolute_error: Mean size of setpoint minus measurement.
        square_error: Mean of its square about its mean.
        mean_error: Its mean.
        outside: Share of the rows with an error above the band.
        travel: Way of the output per row.
        oscillation: Oscillation of the error.
        harris: Harris index of the error.
    """

    days: float
    absolute_error: PeriodMean
    square_error: PeriodMean
    mean_error: PeriodMean
    outside: PeriodMean
    travel: PeriodMean
    oscillation: Oscillation
    harris: HarrisIndex


class PeriodComparison(NamedTuple):
    """A loop before and after a change.

    Attributes:
        answer: ``"better"``, ``"no difference shown"`` or ``"worse"``.
        reason: Why, in sentences.
        indices: The indices by name: ``"absolute_error"``, ``"error_deviation"``, ``"outside"``,
            ``"travel"`` and ``"harris"``.
        before: Figures of the period before.
        after: Figures of the period after.
        band: Size of the error up to which a row counts as inside.
        days_needed: Days of each period after which a difference of the size that was seen would
            probably show; NaN if it is shown, or nothing can be said.
        cautions: What else may explain a difference.
    """

    answer: Answer
    reason: tuple[str, ...]
    indices: dict[str, PeriodIndex]
    before: PeriodFigures
    after: PeriodFigures
    band: float
    days_needed: float
    cautions: tuple[str, ...]


def compare_periods(
    before: LoopRecord,
    after: LoopRecord,
    *,
    band: float,
    dead_time: float = 0.0,
    settling_time: float = 0.0,
    level: float = 0.95,
) -> PeriodComparison:
    """Says whether a loop is better after a change than before it.

    The answer rests on the mean size of the error alone: *better* if the interval of its ratio lies
    below one, *worse* if it lies above one, or if the loop oscillates regularly now and did not
    before, with more error. If the rows show the same controller before and after, as of the inner
    loop of a cascade whose master was retuned, no difference is shown: there is nothing to go back
    to. With no change at all it is *better* or *worse* in about 5 % of cases.

    Args:
        before: Rows under the old gains.
        after: Rows under the new ones, in the same units.
        band: Size of the error up to which a row counts as inside, in measured units, positive.
        dead_time: Dead time of the process in seconds, for the Harris index.
        settling_time: Seconds in which the loop settles; a period shorter than ten of them, or with
            fewer than 20 independent errors, gets no answer.
        level: Probability of the intervals.

    Raises:
        InputError: If the records have other units, no setpoint, or no rows in automatic.
    """
    for name in ("measurement_unit", "output_unit"):
        units = getattr(before, name), getattr(after, name)
        if units[0] != units[1]:
            raise InputError(f"{after.name}: {name} is {units[1]!r}, and {units[0]!r} before")
    if not (math.isfinite(band) and band > 0):
        raise InputError(f"band must be positive, got {band:g}")
    old, new = (period_figures(record, band, dead_time) for record in (before, after))
    unit = before.measurement_unit
    indices = {
        "absolute_error": _by_ratio(
            "mean size of setpoint minus measurement", unit, old.absolute_error,
            new.absolute_error, level,
        ),
        "error_deviation": _by_ratio(
            "standard deviation of setpoint minus measurement", unit, old.square_error,
            new.square_error, level, root=True,
        ),
        "outside": _by_ratio(
            "share of the time outside the band", "", old.outside, new.outside, level
        ),
        "travel": _by_ratio(
            "travel of the output per hour", before.output_unit,
            _scaled(old.travel, _HOUR / before.period), _scaled(new.travel, _HOUR / after.period),
            level,
        ),
        "harris": _of_harris(old.harris, new.harris),
    }  # fmt: skip
    answer, reason = _answer(indices, old, new, settling_time)
    needed = math.nan
    if answer == "no difference shown":
        needed = _days_needed(indices["absolute_error"].ratio, min(old.days, new.days))
    elif _same_controller(before, after):
        answer = "no difference shown"
        reason = (
            "the rows show the same gains before and after, so that nothing was changed in this "
            "loop itself, and what drives it was another",
            *reason,
        )
    return PeriodComparison(
        answer, reason, indices, old, new, band, needed, _cautions(old, new, before, after)
    )


def period_figures(record: LoopRecord, band: float, dead_time: float) -> PeriodFigures:
    """The figures of one period.

    Raises:
        InputError: If it has no setpoint, or fewer than 32 rows in automatic.
    """
    if not record.has_setpoint:
        raise InputError(f"{record.name}: comparing two periods takes a logged setpoint")
    on = record.valid & record.automatic
    if on.sum() < 32:
        raise InputError(
            f"{record.name}: {int(on.sum())} rows in automatic; at least 32 are needed"
        )
    error = np.where(on, record.setpoint - record.measurement, np.nan)
    pairs = on[1:] & on[:-1] & (np.diff(record.segment) == 0)
    moves = np.where(pairs, np.abs(np.diff(record.output)), np.nan)
    mean = float(np.nanmean(error))
    rows = len(error)
    lag = int(np.clip(rows // 4, 2, 2000))
    delay = max(1, math.ceil(dead_time / record.period - 1e-9) + 1)
    filled = np.where(on, error, 0.0)
    return PeriodFigures(
        float(on.sum() * record.period / _DAY),
        _mean(np.abs(error)),
        _mean((error - mean) ** 2),
        _mean(error),
        _mean(np.where(on, np.abs(error) > band, np.nan)),
        _mean(moves),
        oscillation(filled.astype(np.float32), on, dt=record.period, max_lag=lag),
        harris_index(filled.astype(np.float32), on, delay=delay),
    )


def _mean(values: np.ndarray) -> PeriodMean:
    """The mean of the finite values as plain numbers."""
    one = correlated_mean(values, np.isfinite(values))
    return PeriodMean(float(one.mean), float(one.error), float(one.degrees), float(one.independent))


def _scaled(mean: PeriodMean, factor: float) -> PeriodMean:
    return mean._replace(mean=mean.mean * factor, error=mean.error * factor)


def _quantile(level: float, degrees: float) -> float:
    return float(stats.t.ppf((1 + level) / 2, max(degrees, 1.0)))


def _by_ratio(
    name: str,
    unit: str,
    before: PeriodMean,
    after: PeriodMean,
    level: float,
    *,
    root: bool = False,
) -> PeriodIndex:
    """An index that is a mean, or the root of one, with the interval of the ratio of both periods.

    The logarithm of a mean has its relative error; those of the periods add as in Welch's test.
    """
    power = 0.5 if root else 1.0
    ends, relative = [], []
    for one in (before, after):
        share = one.error / one.mean if one.mean > 0 else math.nan
        reach = math.exp(min(_quantile(level, one.degrees) * share, 50.0) * power)
        value = one.mean**power
        ends.append(Interval(value, value / reach, value * reach))
        relative.append(power * share)
    if not (before.mean > 0 and after.mean > 0):
        ratio = after.mean / before.mean if before.mean > 0 else math.nan
        unknown = Interval(ratio, math.nan, math.nan)
        return PeriodIndex(name, unit, ends[0], ends[1], unknown, None)
    variances = [error**2 for error in relative]
    total = sum(variances)
    shares = sum(v**2 / one.degrees for v, one in zip(variances, (before, after), strict=True))
    degrees = total**2 / shares if shares > 0 else 1e9
    reach = math.exp(min(_quantile(level, degrees) * math.sqrt(total), 50.0))
    ratio = ends[1].value / ends[0].value
    interval = Interval(ratio, ratio / reach, ratio * reach)
    return PeriodIndex(name, unit, ends[0], ends[1], interval, _less(interval))


def _less(ratio: Interval) -> bool | None:
    if ratio.high < 1:
        return True
    return False if ratio.low > 1 else None


def _of_harris(before: HarrisIndex, after: HarrisIndex) -> PeriodIndex:
    """The Harris index, of which more is better."""
    ends = [Interval(float(one.index), float(one.low), float(one.high)) for one in (before, after)]
    better = None
    if ends[1].low > ends[0].high:
        better = True
    elif ends[1].high < ends[0].low:
        better = False
    ratio = ends[1].value / ends[0].value if ends[0].value > 0 else math.nan
    unknown = Interval(ratio, math.nan, math.nan)
    return PeriodIndex("Harris index", "", ends[0], ends[1], unknown, better)


def oscillates(figures: PeriodFigures) -> bool:
    """Whether the error oscillates regularly, by six crossings or more."""
    swing = figures.oscillation
    return bool(swing.regularity > 1) and int(swing.crossings) >= 6


def _answer(
    indices: dict[str, PeriodIndex],
    before: PeriodFigures,
    after: PeriodFigures,
    settling_time: float,
) -> tuple[Answer, tuple[str, ...]]:
    error, travel = indices["absolute_error"], indices["travel"]
    for which, period in (("before", before), ("after", after)):
        short = _too_short(period, settling_time)
        if short:
            return "no difference shown", (f"the period {which} the change {short}",)
    words = _ratio_words(error)
    reason = [f"the {error.name} is {words}"]
    began = oscillates(after) and not oscillates(before) and error.ratio.value > 1
    answer: Answer = "no difference shown"
    if error.better:
        answer = "better"
    elif error.better is False or began:
        answer = "worse"
    if began:
        reason.append(
            f"the loop now oscillates with a period of {float(after.oscillation.period):.3g} s, "
            "and did not before"
        )
    if travel.better is not None:
        reason.append(f"the output moves {travel.ratio.value:.2g} times as much")
    return answer, tuple(reason)


def _too_short(period: PeriodFigures, settling_time: float) -> str:
    """Why a period cannot be judged; empty if it can be."""
    independent = period.mean_error.independent
    if period.days * _DAY < LEAST_SETTLINGS * settling_time:
        return (
            f"has {period.days * 24:.3g} h in automatic; at least {LEAST_SETTLINGS:g} settling "
            f"times are needed, {LEAST_SETTLINGS * settling_time / _HOUR:.3g} h"
        )
    if independent < LEAST_OF_A_PERIOD or math.isnan(period.absolute_error.error):
        days = period.days * LEAST_OF_A_PERIOD / max(independent, 1.0)
        return (
            f"has only {independent:.0f} independent errors in {period.days:.2g} days; "
            f"{LEAST_OF_A_PERIOD:.0f} take about {days:.2g} days"
        )
    return ""


def _ratio_words(index: PeriodIndex) -> str:
    ratio = index.ratio
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times that before"


def _days_needed(ratio: Interval, days: float) -> float:
    """Days after which a ratio of the observed size is shown with a chance of four in five."""
    if not math.isfinite(ratio.low) or ratio.value <= 0 or ratio.value == 1:
        return math.nan
    reach, size = math.log(ratio.high / ratio.low) / 2, abs(math.log(ratio.value))
    return max(days, days * (reach * (1.96 + 0.84) / 1.96 / size) ** 2)


def _cautions(
    old: PeriodFigures, new: PeriodFigures, before: LoopRecord, after: LoopRecord
) -> tuple[str, ...]:
    """What differs between the periods beside the gains."""
    cautions = []
    least = float(old.harris.least_deviation), float(new.harris.least_deviation)
    if least[0] > 0 and not 0.67 <= least[1] / least[0] <= 1.5:
        cautions.append(
            "the part of the error that no controller could remove is "
            f"{least[1] / least[0]:.2g} times that before, so the loads were not the same"
        )
    moves = [_setpoint_moves(record) for record in (before, after)]
    if max(moves) > 2 * min(moves) + 1:
        cautions.append(
            f"the setpoint moved {moves[0]:.2g} times a day before and {moves[1]:.2g} times after"
        )
    return tuple(cautions)


def _same_controller(before: LoopRecord, after: LoopRecord) -> bool:
    """Whether a PI explains both periods, with gains that hardly differ."""
    old, new = logged_controller(before), logged_controller(after)
    if not (old.known and new.known):
        return False
    pairs = (old.kp, new.kp), (old.ki, new.ki)
    return all(abs(one - other) <= SAME * abs(one) for one, other in pairs)


def _setpoint_moves(record: LoopRecord) -> float:
    setpoint = record.setpoint[record.valid & record.automatic]
    days = len(setpoint) * record.period / _DAY
    return float(np.count_nonzero(np.diff(setpoint)) / days) if days else 0.0


def days_for(record: LoopRecord, ratio: float, *, level: float = 0.95, power: float = 0.8) -> float:
    """Days of each period after which a ratio of the mean sizes of the error is probably shown.

    ``((z_level + z_power) / ln ratio)^2`` times the relative variance of the mean over both periods
    of a day, taken equal; at least twice as long as a period must be to be compared.

    Args:
        record: Rows under today's gains.
        ratio: Expected mean size of the error over today's, positive and not one.
        level: Probability of the interval.
        power: Chance of showing it.

    Returns:
        Days; NaN if the record has too few independent rows.
    """
    if not ratio > 0 or ratio == 1:
        return math.nan
    on = record.valid & record.automatic
    error = np.where(on, record.setpoint - record.measurement, np.nan)
    today = _mean(np.abs(error))
    days = float(on.sum() * record.period / _DAY)
    a_day = (today.error / today.mean) ** 2 * days if today.mean > 0 else math.nan
    reach = float(stats.norm.ppf((1 + level) / 2) + stats.norm.ppf(power))
    independent = _mean(error).independent
    # Twice as long as a period must be, because its dependence is only estimated.
    least = 2 * days * LEAST_OF_A_PERIOD / independent
    return max(2 * a_day * (reach / math.log(ratio)) ** 2, least)
