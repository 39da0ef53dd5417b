"""The evidence for a change of a loop: margins, steps and the log replayed, today and proposed."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neorl_agents.loops import (
    FaceplateChange,
    Interval,
    LoopJudgement,
    LoopModel,
    LoopRecord,
    MarginTable,
    Proposal,
    Replay,
    ReplayFigures,
    faceplate_change,
    faceplate_rows,
    faceplate_sentence,
    halfway,
    judged_loops,
    margin_table,
    replay,
    step_grid,
)
from neorl_core import InputError
from neorl_core.loops import VENDOR_FORMS, Faceplate, PIDForm, PIDGains
from neorl_train.judging._loop_change import (
    PROPOSED,
    TODAY,
    Compared,
    Curve,
    LogFacts,
    LoopChange,
    ProfilePoint,
    Range,
    Typed,
)
from neorl_train.judging._loop_trial import stop_rules, trial_steps

_POINTS = 240
"""Points of a curve in a figure."""
_TREND = 1200
NO_LAG = 0.1
"""Part of a period below which a lag is none."""
LARGE = 2.0
"""A gain or a time that changes by a larger factor is changed in two moves."""


def loop_change(
    record: LoopRecord,
    model: LoopModel,
    shown: Faceplate,
    form: PIDForm,
    gains: PIDGains,
    facts: LogFacts,
    *,
    proposal: Proposal | None = None,
    reason: str = "",
    band: float | None = None,
) -> LoopChange:
    """The change of a loop to given gains, with the evidence for it.

    What is judged is the loop that the typed, rounded numbers make.

    Args:
        record: Rows of the loop under today's numbers.
        model: Model of its process, with at least one member.
        shown: Today's numbers as the faceplate shows them.
        form: What they mean.
        gains: The proposed loop, in engineering units and parallel form.
        facts: Where the rows come from.
        proposal: The search that found it, if it was one.
        reason: Why the change is made; by default what the search says.
        band: Size of the error up to which a row counts as inside, in measured units; by default
            the standard deviation of the logged error, with two digits.

    Raises:
        InputError: If the faceplate cannot show the gains, or the model has no member.
    """
    change = faceplate_change(shown, gains, form)
    today, new = change.gains_before, change.gains_after
    between = _between(change)
    loops = [today, new, *([between.gains_after] if between else [])]
    grid = step_grid(model, record.period, [today, new])
    judged = judged_loops(model, loops, period=record.period, grid=grid)
    tables = [margin_table(judged.of(number)) for number in range(len(loops))]
    if band is None:
        band = _usual_band(record)
    replayed = _replayed(record, model, [today, new], band)
    rows = faceplate_rows(change, **_units(record))
    settling = [_longest_settling(judged.of(number), grid.dt * grid.steps) for number in (0, 1)]
    every = max(1, grid.steps // _POINTS)
    return LoopChange(
        loop=record.name,
        tags=dict(record.tags),
        measurement_unit=record.measurement_unit,
        output_unit=record.output_unit,
        form=form_words(form),
        vendors=same_form(form, derivative=bool(today.kd or new.kd)),
        direction=form.direction,
        sentence=faceplate_sentence(record.name, rows, form.direction),
        typed=_typed(change, between, record),
        engineering=_engineering(today, new, between, record),
        accepted=all(table.accepted for table in tables[1:]),
        reason=reason or (proposal.reason if proposal else ""),
        stopped=proposal.stopped if proposal else "",
        profile=_profile(proposal, change, record) if proposal else (),
        margins=_margins(tables),
        figures=_figures(judged, record),
        expected=_expected(replayed, record, band),
        logged=_logged(replayed),
        band=band,
        time=tuple(float(grid.dt * step) for step in range(0, grid.steps, every)),
        curves=_curves(judged, every),
        trend=thinned_rows(record),
        members=len(model.members),
        conditions=tuple(model.conditions),
        touched=facts.touched,
        declared=facts.declared,
        plan=trial_steps(record, settling, replayed, judged.of(1), in_two_moves=bool(between)),
        stop=stop_rules(record, settling[1], facts),
        source=facts.source,
        digest=facts.digest,
        period_of_log=facts.period,
        model=tuple(model_lines(record, model)),
    )


def model_lines(record: LoopRecord, model: LoopModel) -> list[str]:
    """What the log shows of the process, with intervals."""
    lines = [f"{sentence[0].upper()}{sentence[1:]}." for sentence in model.conditions]
    if model.members:
        per = (
            f"{record.measurement_unit or 'measured units'} per "
            f"{record.output_unit or 'unit of the output'}"
        )
        low, high = sorted((model.gain.low, model.gain.high))
        kind = f"slope, {per} and second" if model.integrating else f"gain, {per}"
        lines.append(f"{kind}: {model.gain.value:.3g} [{low:.3g}, {high:.3g}]")
        # A second lag of nothing is none.
        lags = [lag for lag in model.time_constants if lag.high >= NO_LAG * record.period]
        times = [("dead time", model.dead_time), *(("lag", lag) for lag in lags)]
        lines += [f"{name}: {t.value:.3g} s [{t.low:.3g}, {t.high:.3g}]" for name, t in times]
        if math.isfinite(model.held_out):
            lines.append(
                f"on rows that it was not fitted on it predicts {model.held_out:.0%} of the "
                f"changes over {model.horizon:.3g} s"
            )
    if model.usable:
        return [*lines, "It may be used to retune the loop."]
    return [*lines, f"It may not be used to retune the loop: {model.why_not}."]


def form_words(form: PIDForm) -> str:
    """The form of a controller in words.

    Example:
        >>> form_words(PIDForm("standard", "gain", "minutes", measurement_span=30.0))
        'standard form; gain in percent of the output (range 100) per percent of the measurement \
(range 30); reset in minutes'
    """
    measured, moved = f"{form.measurement_span:g}", f"{form.output_span:g}"
    part, size = "gain", "engineering units"
    if form.proportional == "band":
        part = "proportional band"
        if form.units == "percent":
            size = f"percent of the measurement's range of {measured}"
        size = f"{size} for the whole output (range {moved})"
    elif form.units == "percent":
        size = (
            f"percent of the output (range {moved}) per percent of the measurement (range "
            f"{measured})"
        )
    integral = form.integral.replace("per_", "repeats per ")
    return f"{form.structure} form; {part} in {size}; reset in {integral}"


def same_form(form: PIDForm, *, derivative: bool) -> tuple[str, ...]:
    """Controllers on the market whose numbers mean the same, each with its manual.

    Args:
        form: Form of the loop; its spans and direction do not count.
        derivative: Whether the loop has a derivative; otherwise the unit of its filter does not
            count.
    """

    def alike(one: PIDForm) -> PIDForm:
        one = dataclasses.replace(
            one, measurement_span=100.0, output_span=100.0, direction="reverse"
        )
        if derivative:
            return one
        return dataclasses.replace(one, derivative="seconds", derivative_filter="divisor")

    return tuple(
        f"{name} ({entry.manual})"
        for name, entry in VENDOR_FORMS.items()
        if alike(entry.form) == alike(form)
    )


def _units(record: LoopRecord) -> dict[str, str]:
    return {"measurement_unit": record.measurement_unit, "output_unit": record.output_unit}


def _between(change: FaceplateChange) -> FaceplateChange | None:
    """The loop on the way, if gain or integral change by more than a factor of two."""
    old, new = change.gains_before, change.gains_after
    pairs = [(abs(float(a)), abs(float(b))) for a, b in zip(old[:2], new[:2], strict=True)]
    if all(not (a and b) or max(a, b) <= LARGE * min(a, b) for a, b in pairs):
        return None
    return faceplate_change(change.before, halfway(old, new), change.form)


def _typed(
    change: FaceplateChange, between: FaceplateChange | None, record: LoopRecord
) -> tuple[Typed, ...]:
    rows = faceplate_rows(change, **_units(record))
    middle = faceplate_rows(between, **_units(record)) if between else ()
    halves = [row.text[1] for row in middle] or [""] * len(rows)
    return tuple(
        Typed(row.name, row.unit, row.text[0], half, row.text[1])
        for row, half in zip(rows, halves, strict=True)
    )


def _engineering(
    today: PIDGains, new: PIDGains, between: FaceplateChange | None, record: LoopRecord
) -> tuple[Typed, ...]:
    loops = [today, between.gains_after if between else None, new]
    known = record.output_unit and record.measurement_unit
    unit = f"{record.output_unit} per {record.measurement_unit}" if known else ""
    numbers = [("gain", unit, lambda g: float(g.kp))]
    numbers.append(("integral time", "s", lambda g: float(g.kp / g.ki) if g.ki else math.inf))
    if today.kd or new.kd:
        numbers.append(("derivative time", "s", lambda g: float(g.kd / g.kp) if g.kp else 0.0))
    rows = []
    for name, unit, of in numbers:
        old, middle, proposed = ("" if loop is None else f"{of(loop):.4g}" for loop in loops)
        rows.append(Typed(name, unit, old, middle, proposed))
    return tuple(rows)


def _margins(tables: Sequence[MarginTable]) -> tuple[Compared, ...]:
    rows = (
        ("gain margin", "", "gain_margin", "at least 1.7"),
        ("phase margin", "°", "phase_margin", ""),
        ("delay margin", "s", "delay_margin", ""),
        ("peak sensitivity Ms", "", "peak_sensitivity", "at most 2"),
    )
    return tuple(
        Compared(
            name,
            unit,
            _range(getattr(tables[0], field)),
            _range(getattr(tables[1], field)),
            demand,
        )
        for name, unit, field, demand in rows
    )


def _range(interval: Interval) -> Range:
    return Range(interval.value, interval.low, interval.high)


def _over(numbers: Any, scale: float = 1.0) -> Range:
    """A number of every member; NaN counts as infinite."""
    known = np.asarray(numbers, np.float64) * scale
    known = np.where(np.isnan(known), np.inf, known)
    return Range(float(known[0]), float(known.min()), float(known.max()))


def _figures(judged: LoopJudgement, record: LoopRecord) -> tuple[Compared, ...]:
    measured, output = record.measurement_unit, record.output_unit
    rows = (
        ("setpoint step: overshoot", "%", "setpoint_figures", "overshoot", 100.0),
        ("setpoint step: settled to 5 % of it", "s", "setpoint_figures", "settling_time", 1.0),
        (f"travel of the output after 1 {measured}", output, "setpoint_figures", "travel", 1.0),
        (f"load step of 1 {output}: largest error", measured, "load_figures", "peak", 1.0),
        ("load step: settled to 5 % of that", "s", "load_figures", "settling_time", 1.0),
        ("load step: integrated error", f"{measured} s", "load_figures", "absolute_error", 1.0),
    )
    return tuple(
        Compared(
            name,
            unit,
            _over(getattr(getattr(judged, part), field)[0], scale),
            _over(getattr(getattr(judged, part), field)[1], scale),
        )
        for name, unit, part, field, scale in rows
    )


def _longest_settling(judged: LoopJudgement, horizon: float) -> float:
    """The longest settling time of a loop that settles; the length of the record if none does."""
    times = np.stack([judged.setpoint_figures.settling_time, judged.load_figures.settling_time])
    times = times[np.isfinite(times)]
    return float(times.max()) if len(times) else horizon


def _usual_band(record: LoopRecord) -> float:
    on = record.valid & record.automatic
    deviation = float(np.std((record.setpoint - record.measurement)[on])) if on.any() else 0.0
    if not (math.isfinite(deviation) and deviation > 0):
        low, high = record.measurement_range
        return (high - low) / 100
    return float(f"{deviation:.2g}")


def _replayed(
    record: LoopRecord, model: LoopModel, gains: Sequence[PIDGains], band: float
) -> Replay | None:
    """The log under both loops; none without a setpoint or a stretch in automatic."""
    try:
        return replay(record, model, gains, band=band)
    except InputError:
        return None


_EXPECTED = ("error_deviation", "absolute_error", "outside", "travel")


def _expected(replayed: Replay | None, record: LoopRecord, band: float) -> tuple[Compared, ...]:
    if replayed is None:
        return ()
    measured, output = record.measurement_unit, record.output_unit
    named = (
        ("standard deviation of setpoint minus measurement", measured),
        ("mean size of setpoint minus measurement", measured),
        (f"time with more than {band:g} {measured}", "%"),
        ("travel of the output per hour", output),
    )
    return tuple(
        Compared(
            name,
            unit,
            _range(_in_percent(replayed.loops[0], field)),
            _range(_in_percent(replayed.loops[1], field)),
        )
        for (name, unit), field in zip(named, _EXPECTED, strict=True)
    )


def _logged(replayed: Replay | None) -> tuple[float, ...]:
    if replayed is None:
        return ()
    return tuple(_in_percent(replayed.logged, field).value for field in _EXPECTED)


def _in_percent(figures: ReplayFigures, field: str) -> Interval:
    """A figure; the share of the rows outside the band in percent."""
    scale = 100.0 if field == "outside" else 1.0
    return Interval(*(scale * number for number in getattr(figures, field)))


def _curves(judged: LoopJudgement, every: int) -> tuple[Curve, ...]:
    curves = []
    for step in ("setpoint", "load"):
        for signal in ("measurement", "output"):
            values = np.asarray(getattr(getattr(judged, step), signal), np.float64)[:, :, ::every]
            for number, loop in enumerate((TODAY, PROPOSED)):
                one = np.clip(np.nan_to_num(values[number], nan=1e6), -1e6, 1e6)
                bands = (one[0], one.min(axis=0), one.max(axis=0))
                curves.append(
                    Curve(f"{step} {signal}", loop, *(tuple(_short(band)) for band in bands))
                )
    return tuple(curves)


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def thinned_rows(record: LoopRecord) -> dict[str, tuple[float, ...]]:
    """Rows of the log, thinned so that the extremes of every piece are kept."""
    n = len(record.measurement)
    size = max(1, math.ceil(2 * n / _TREND))
    chosen: list[int] = []
    for start in range(0, n, size):
        piece = record.measurement[start : start + size]
        if size == 1 or not np.isfinite(piece).any():
            chosen.append(start)
            continue
        chosen += sorted({start + int(np.nanargmin(piece)), start + int(np.nanargmax(piece))})
    rows = np.asarray(chosen)
    columns = {"measurement": record.measurement, "output": record.output}
    if record.has_setpoint:
        columns["setpoint"] = record.setpoint
    return {
        "time": tuple(_short(rows * record.period)),
        **{name: tuple(_short(column[rows])) for name, column in columns.items()},
    }


def _profile(
    proposal: Proposal, change: FaceplateChange, record: LoopRecord
) -> tuple[ProfilePoint, ...]:
    points = []
    today = proposal.today
    for point in proposal.profile:
        rows = faceplate_rows(
            faceplate_change(change.before, point.gains, change.form), **_units(record)
        )
        shown = ", ".join(f"{row.name} {row.text[1]}" for row in rows if row.unit or row.after)
        points.append(
            ProfilePoint(
                shown,
                float(point.gains.kp / today.gains.kp) if today.gains.kp else math.inf,
                point.load_error / today.load_error,
                point.margins.peak_sensitivity.high,
                point.margins.gain_margin.low,
                "; ".join(point.refusals),
            )
        )
    return tuple(points)
