"""What a log shows of the process of a loop, and whether that suffices to retune it."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from neorl_agents.loops import _identification as identification
from neorl_agents.loops._controller import logged_controller
from neorl_agents.loops._gain_by_level import MOST, GainByLevel, gain_by_level
from neorl_agents.loops._health import setpoint_moves
from neorl_agents.loops._plausible import plausible
from neorl_agents.loops._record import LoopRecord
from neorl_core.loops import SampledModel, TransferFunction


class Interval(NamedTuple):
    """A number with its interval.

    Of a :class:`LoopModel` the ends are the 5 % and 95 % quantiles over the processes that the rows
    leave plausible, with one lag and with two. Of 100 simulated loops with random tunings and loads
    they held the gain in 94, the longest lag in 92 and the dead time in 97.

    Attributes:
        value: The number, fitted on all rows.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


class LoopModel(NamedTuple):
    """A model of a loop's process from output to measurement, and how sure it is.

    Attributes:
        members: Models of the same form: the first has the least error, the others are drawn by
            how well they predict the rows. Empty if no model could be fitted.
        gain: Measured units per output unit; of an integrating process the slope of the step
            response, measured units per output unit and second.
        dead_time: Seconds, without the hold of the output.
        time_constants: Seconds, the longest first, of an integrating process the lag beside; the
            second is zero where one suffices.
        integrating: Whether the process integrates.
        held_out: Share of the variance of the measurement's changes that the model predicts on rows
            that it was not fitted on, over ``horizon`` seconds; 1 at best, negative if it is worse
            than predicting no change.
        horizon: Time ahead of ``held_out`` in seconds.
        conditions: Sentences on what the identification rests on: moves of the setpoint, rows in
            manual, changes of the controller.
        usable: Whether the model may be used to retune the loop.
        why_not: If not, what is missing and what would bring it; empty if it is usable.
        curve: How the gain depends on the operating point, if it does; the members hold its ends.
        moved: Whether anything but the measurement moved the output, as far as the rows show.
    """

    members: tuple[SampledModel | TransferFunction, ...]
    gain: Interval
    dead_time: Interval
    time_constants: tuple[Interval, ...]
    integrating: bool
    held_out: float
    horizon: float
    conditions: tuple[str, ...]
    usable: bool
    why_not: str
    curve: GainByLevel | None = None
    moved: bool = True


MEMBERS = 16
FOLDS = 4
MOST_THINNING = 64
LEAST_ROWS = 600
"""Rows with a whole history behind them without which nothing is fitted."""
LEAST_MOVES = 3
"""Moves of the setpoint or of the operator that a model must rest on."""
DITHER = 0.02
"""Share of the output's moves that may come from outside in place of these moves."""
AGREE = 2.0
"""Largest ratio between step responses of members that may be used."""
STRETCHES = 8
"""Stretches between gaps from which it is asked whether the process is another late in them."""
LEAST_SEEN = 0.55
"""Share of the rows of such stretches that a model must see the whole history of."""
UNEQUAL = 0.5
"""Standard deviation of their lengths, as a share of the mean, above which they are no batches;
gaps at random times leave 1."""
ANOTHER = 15.0
"""Logarithm of the likelihood by which two processes must predict better than one."""


def loop_model(record: LoopRecord) -> LoopModel:
    """Identifies the process of a loop, in closed loop or in manual.

    A lag, or two, behind a dead time, with a long autoregression for what comes from elsewhere: a
    grid of lags and dead times is searched for the smallest error one row ahead, in turn with the
    autoregression, and both are then refined together. Because the noise has a model of its own,
    the feedback of the controller biases nothing as long as that model is rich enough. Errors
    several rows ahead would not serve: in a closed loop the outputs to come know the noise, and the
    inverse of the controller would win. Members are drawn from all lags, orders and dead times by
    their likelihood with the best noise of each. Fits on blocks of rows that are drawn again would
    be too alike: sixteen of them cover too little, and less if each keeps the noise of the first.

    A record whose process answers more slowly than the fit reaches is thinned. If the gain depends
    on the operating point, half of the members take its largest value at the levels of the log, and
    a quarter its smallest one.

    Args:
        record: Rows of the loop, those in manual included.

    Returns:
        The model, which says whether it may be used.

    Source: Ljung, System identification: theory for the user, 1999, sections 10.2, 13.4 and 16.5;
    Wahlberg, Model reductions of high-order estimated models, Int. J. Control 49 (1989).
    """
    conditions = _conditions(record)
    nothing = Interval(np.nan, np.nan, np.nan)
    none = LoopModel((), nothing, nothing, (), False, np.nan, np.nan, conditions[0], False, "")
    if conditions[1]:
        # A fit would look sure of itself: its members agree on what the feedback imitates.
        return none._replace(why_not=conditions[1], moved=False)
    tried, delays = identification.grid(ratios=(0.0,)), np.arange(identification.MOST_DELAY + 1)
    factor, thin = 1, record
    while True:
        data = identification.moments(thin.measurement, thin.output, thin.segment)
        if data.rows.sum() < LEAST_ROWS or min(data.scale) <= 1e-9:
            break
        covariance, _ = identification.centred(data, np.ones(len(data.rows)))
        found = identification.best_fit(
            covariance, tried, delays, identification.starts(covariance)
        )
        slow = found.delay + 2 * (found.lag + found.second) > 0.7 * identification.REACH
        enough = data.rows.sum() >= 3 * LEAST_ROWS and factor < MOST_THINNING
        if not (slow and enough):
            return _model(thin, data, found, conditions[0])
        factor *= 3
        thin = thinned(record, factor)
    need = (identification.REACH + identification.MEMORY + LEAST_ROWS) * record.period
    why = (
        f"no stretch of rows without a gap is long enough; give {need / 3600:.1f} h or more in one"
    )
    if len(record.output) and np.nanstd(record.output) <= 1e-9:
        why = "the output never moved; give a log in which it does, such as a step test"
    return none._replace(why_not=why)


def thinned(record: LoopRecord, factor: int) -> LoopRecord:
    """Every so many rows as one: the measurement at its start, the mean output until the next."""
    parts = []
    for number in np.unique(record.segment):
        inside = np.flatnonzero(record.segment == number)
        parts.append(inside[: len(inside) // factor * factor].reshape(-1, factor))
    rows = np.concatenate(parts) if parts else np.zeros((0, factor), int)
    return dataclasses.replace(
        record,
        measurement=record.measurement[rows[:, 0]],
        output=record.output[rows].mean(axis=1),
        setpoint=record.setpoint[rows[:, 0]],
        automatic=record.automatic[rows].all(axis=1),
        segment=record.segment[rows[:, 0]],
        period=record.period * factor,
    )


def _model(
    thin: LoopRecord,
    data: identification.Moments,
    found: identification.Lags,
    conditions: tuple[str, ...],
) -> LoopModel:
    fitted = plausible(data, found)
    first = fitted.first
    of_first = np.array(first[:4])
    every = np.concatenate([of_first[None], fitted.numbers])
    members = np.concatenate([of_first[None], fitted.members(MEMBERS)])
    # A second lag too short to be seen gives every member the same form.
    members[:, 2] = np.maximum(members[:, 2], 1 / 20)
    integrating = float(fitted.weights @ (fitted.numbers[:, 1] >= identification.REACH)) > 0.5
    unit = data.scale[0] / data.scale[1]
    period = thin.period

    def numbers(rows: np.ndarray) -> list[np.ndarray]:
        """Gains, dead times and time constants; of an integrating process slopes are the gains."""
        gain, lag, second, delay = rows.T
        if integrating:
            # What a slow lag and an integrator have in common is the slope.
            return [unit * gain / (lag * period), delay * period, second * period]
        return [unit * gain, delay * period, lag * period, second * period]

    gain, dead_time, *constants = (_interval(one, fitted.weights) for one in numbers(every))
    share, horizon = _held_out(data, thin, first)
    why = _why_not(members, unit, thin, integrating)
    why = why or _unseen(data, thin) or _changes_along(thin, first)
    curve = None if why else gain_by_level(thin, data, first)
    if curve is not None and curve.ratio > MOST:
        why = _too_curved(curve, thin)
    elif curve is not None:
        conditions = (*conditions, _curve_sentence(curve, thin, gain.value))
        ends = max(curve.high), min(curve.low)
        # The first member stays the linear model, from which the rule of a proposal starts.
        members[1:, 0] *= np.resize([ends[0], ends[1], ends[0], 1.0], len(members) - 1)
    processes = tuple(
        _process(gain, dead_time, times, integrating)
        for gain, dead_time, *times in zip(*numbers(members), strict=True)
    )
    return LoopModel(
        processes, gain, dead_time, tuple(constants), integrating, share, horizon, conditions,
        not why, why, curve,
    )  # fmt: skip


def _curve_sentence(curve: GainByLevel, thin: LoopRecord, gain: float) -> str:
    """The gains at the levels, and what they mean for a proposal."""
    unit = thin.measurement_unit if curve.of == "measurement" else thin.output_unit
    gains = [
        f"{share * gain:.3g} at {level:.4g} {unit}".rstrip()
        for share, level in zip(curve.gains, curve.levels, strict=True)
    ]
    return (
        f"the gain of the process depends on its {curve.of}: {gains[0]}, {gains[1]} and "
        f"{gains[2]}; a proposal keeps its margins at the largest of them and is slower at the "
        f"others, where a characteriser on the {curve.of} would be as fast at each"
    )


def _too_curved(curve: GainByLevel, thin: LoopRecord) -> str:
    """Why one set of gains cannot cover the levels, and what can be done."""
    unit = thin.measurement_unit if curve.of == "measurement" else thin.output_unit
    small, large = (
        f"{curve.levels[int(place(curve.gains))]:.4g} {unit}".rstrip()
        for place in (np.argmin, np.argmax)
    )
    times = f"may be {curve.ratio:.0f} times as large at {large} as at {small}"
    if not np.isfinite(curve.ratio):
        times = f"is large at {large} and may vanish or turn its direction at {small}"
    return (
        f"the gain of the process depends on its {curve.of}: it {times}, and one set of gains "
        f"covers at most {MOST:g} times; put a characteriser on the {curve.of}, schedule the gains "
        "by it, or make moves of the setpoint at each of these levels for a model of each"
    )


def _process(
    gain: float, dead_time: float, times: list[float], integrating: bool
) -> TransferFunction:
    denominator = np.ones(1)
    for time in times:
        denominator = np.convolve(denominator, [time, 1.0])
    if integrating:
        denominator = np.append(denominator, 0.0)
    leaves: Any = [np.asarray(x, np.float64) for x in ([gain], denominator, dead_time)]
    return TransferFunction(*leaves)


def _interval(values: np.ndarray, weights: np.ndarray) -> Interval:
    """The first number with the quantiles of the others."""
    first, rest = float(values[0]), values[1:]
    order = np.argsort(rest)
    below = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp([0.05, 0.95], below, rest[order])
    return Interval(first, min(float(low), first), max(float(high), first))


def _held_out(
    data: identification.Moments,
    thin: LoopRecord,
    first: identification.Lags,
) -> tuple[float, float]:
    """How much of the changes a model of the first rows predicts in the last quarter."""
    blocks = len(data.rows)
    early = (np.arange(blocks) < blocks - blocks // FOLDS).astype(float)
    train, _ = identification.centred(data, early)
    model, _ = identification.refined(train, first)
    horizon = max(2, round(min(first.delay + first.lag + first.second, identification.REACH / 2)))
    reach, memory = identification.REACH, identification.MEMORY
    y = (thin.measurement - np.nanmean(thin.measurement)) / data.scale[0]
    u = (thin.output - np.nanmean(thin.output)) / data.scale[1]
    answer = np.convolve(np.nan_to_num(u), model.gain * identification.delayed(model))[: len(u)]
    rest = y - np.append(0.0, answer[:-1])
    now = np.arange(max(len(y) * 3 // 4, reach + memory), len(y) - horizon)
    inside = thin.segment[now + horizon] == thin.segment[now - memory - reach]
    past = rest[now[inside, None] - np.arange(memory)]
    now, past = now[inside][np.all(np.isfinite(past), axis=1)], past[np.isfinite(past).all(axis=1)]
    if len(now) < 2 * memory:
        return np.nan, horizon * thin.period
    for _ in range(horizon):
        past = np.concatenate([(past @ model.noise)[:, None], past[:, :-1]], axis=1)
    error = y[now + horizon] - answer[now + horizon - 1] - past[:, 0]
    change = y[now + horizon] - y[now]
    share = 1 - np.nanmean(error**2) / max(float(np.nanmean(change**2)), 1e-30)
    return float(share), horizon * thin.period


def _conditions(record: LoopRecord) -> tuple[tuple[str, ...], str]:
    """What the identification rests on, and why that does not suffice, or nothing."""
    controller, moves = logged_controller(record), setpoint_moves(record)
    manual = record.valid & ~record.automatic
    steps = manual[1:] & manual[:-1] & (np.diff(record.segment) == 0)
    span = record.output_range[1] - record.output_range[0]
    by_hand = int(np.sum(steps & (np.abs(np.diff(record.output)) > 2e-3 * span)))
    often = {1: "once", 2: "twice"}.get(moves, f"{moves} times")
    sentences = [f"the setpoint moved {often}"] if record.has_setpoint else []
    if not record.has_setpoint:
        sentences.append("no setpoint was given, and it is taken for constant")
    if manual.any():
        share = float(manual.mean())
        sentences.append(f"{share:.0%} of the rows are in manual, with {by_hand} moves by hand")
    if controller.known:
        sentences.append(
            f"a PI explains {controller.share:.1%} of the output's moves in automatic, so that "
            f"at most {1 - controller.share:.1%} of them came from elsewhere"
        )
    if controller.changes:
        sentences.append("the controller was changed during the log, which helps")
    dither = 1 - controller.share if controller.known else 0.0
    enough = moves + by_hand + 2 * controller.changes >= LEAST_MOVES
    if enough or (dither > DITHER and record.has_setpoint):
        return tuple(sentences), ""
    if not record.has_setpoint:
        return tuple(sentences), (
            "without its setpoint the loop's own moves cannot be told from those that came from "
            "elsewhere; give the setpoint's column, or its value if it never moved"
        )
    return tuple(sentences), (
        "almost every move of the output follows from the measurement, so that the process cannot "
        f"be told from its controller; make {2 * LEAST_MOVES} moves of the setpoint, or steps of "
        "the output in manual, each several times as large as the noise and held until the loop "
        "rests"
    )


def _why_not(
    members: np.ndarray,
    unit: float,
    thin: LoopRecord,
    integrating: bool,
) -> str:
    _, lag, second, delay = members[0]
    rise = lag + second
    if not integrating and delay + rise < 2:
        return (
            f"the process answers within two rows of {thin.period:g} s, so that its speed cannot "
            f"be seen; log it every {thin.period / 10:g} s or faster"
        )
    # Which part of the answer is dead time and which is lag, the margins of the members judge.
    time = np.array([1.5, 2.5, 4.0]) * (delay + rise)
    if integrating:
        time = delay + np.array([0.1, 0.2, 0.4]) * identification.REACH
    gains, lags, seconds, delays = members.T[:, :, None]
    steps = unit * gains * identification.step_answers(lags, seconds, time - delays)
    sure = np.sign(steps[0]) * steps
    if np.any(sure <= 0):
        return (
            "processes that the rows leave plausible disagree about the direction in which the "
            "measurement answers; make more or larger moves of the setpoint"
        )
    # Of nine in ten, as in the intervals; a proposal has to do for every member all the same.
    low, high = np.quantile(sure, (0.05, 0.95), axis=0)
    spread = float(np.max(high / low))
    if spread > AGREE:
        return (
            "step responses of processes that the rows leave plausible differ by a factor of "
            f"{spread:.1f}, and at most {AGREE:g} may be used; make more or larger moves of the "
            "setpoint"
        )
    return ""


def _unseen(data: identification.Moments, thin: LoopRecord) -> str:
    """Says that a model sees too little of many stretches between gaps; nothing if it does not.

    A row counts only with its whole history, so the first rows of every stretch do not. If
    stretches are batches, what happens early in them is in no model. Gaps that cut running
    operation leave stretches of all lengths, and a model of those is one of the same process.
    """
    lengths = np.unique(thin.segment, return_counts=True)[1]
    stretches, share = len(lengths), float(data.rows.sum()) / len(thin.segment)
    if stretches < STRETCHES or share >= LEAST_SEEN or lengths.std() > UNEQUAL * lengths.mean():
        return ""
    past = identification.REACH + identification.MEMORY
    need = math.ceil(past / (1 - LEAST_SEEN))
    return (
        f"only {share:.0%} of the rows have the {past} rows before them that a model of this "
        f"process needs, because gaps cut the log into {stretches} stretches; if these are "
        "batches, it knows nothing of how they begin; give stretches of "
        f"{need * thin.period / 3600:.2g} h or more, or find the gains by a step test"
    )


def _changes_along(thin: LoopRecord, first: identification.Lags) -> str:
    """Says that the process is another late in the stretches between gaps; nothing if it is not.

    Stretches may be batches. One model of a process that changes along a batch is right at no time
    of it, and its members agree on it all the same.
    """
    if len(np.unique(thin.segment)) < STRETCHES:
        return ""
    data = identification.moments(thin.measurement, thin.output, thin.segment, halves=True)
    if data.rows.min() < LEAST_ROWS:
        return ""
    gain, steps = 0.0, []
    one = np.array([first[:4]])
    time = np.array([1.5, 2.5, 4.0]) * (first.delay + first.lag + first.second)
    for half in np.eye(2):
        covariance, rows = identification.centred(data, half)
        own, _ = identification.refined(covariance, first)
        common = float(identification.profiled_errors(covariance, one)[0])
        gain += rows / 2 * float(np.log(max(common, 1e-12) / max(own.error, 1e-12)))
        answers = identification.step_answers(own.lag, max(own.second, 1 / 20), time - own.delay)
        steps.append(own.gain * answers)
    early, late = steps
    ratio = np.abs(early) / np.maximum(np.abs(late), 1e-12)
    apart = bool(np.any(early * late <= 0) or np.max(np.maximum(ratio, 1 / ratio)) > AGREE)
    if gain < ANOTHER or not apart:
        return ""
    return (
        "the process answers differently early and late in the stretches between gaps, as in "
        "batches, and one model is right for neither; use rows of one phase alone"
    )
