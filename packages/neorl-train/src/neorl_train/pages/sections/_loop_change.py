"""A change of one loop: its figures and tables, for the change sheet and the report of a run."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from neorl_train.judging._loop_change import PROPOSED, TODAY, Compared, LoopChange, Range
from neorl_train.judging._wording import NBSP, significant
from neorl_train.pages._html import (
    Column,
    Content,
    Group,
    Html,
    bullets,
    fold,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.pages._style import (
    CLASSICAL,
    INK,
    LEARNERS,
    LIMIT,
    MUTED,
    UNITS_OF_TIME,
    new_figure,
    picture,
    window,
)
from neorl_train.pages.sections._trends import panel_title

COLOURS = {TODAY: CLASSICAL, PROPOSED: LEARNERS[0]}
LINES: dict[str, Any] = {TODAY: (0, (4, 2)), PROPOSED: "-"}
STEP_WIDTH, TREND_WIDTH = 7.2, 7.2


def range_words(numbers: Range) -> str:
    """A number with the extremes over the members.

    Example:
        >>> range_words(Range(2.3, 1.96, 2.61)).replace(NBSP, " ")
        '2.30 [1.96, 2.61]'
    """
    value, low, high = (significant(one) for one in (numbers.value, numbers.low, numbers.high))
    return value if low == value == high else f"{value}{NBSP}[{low},{NBSP}{high}]"


def typed_table(change: LoopChange) -> Html:
    """What to type, what to type to go back, and the same in engineering units."""
    moves = any(row.halfway for row in change.typed)
    columns = [
        Column("As on the faceplate", align="left"),
        Column("Unit", align="left"),
        Column("Old", "to roll back"),
        *([Column("Halfway", "first")] if moves else []),
        Column("New"),
    ]
    rows: list[Sequence[Content] | Group] = []
    for group, numbers in (("", change.typed), ("In engineering units", change.engineering)):
        rows += [Group(group)] if group else []
        for one in numbers:
            new = tag("strong", one.new) if one.new != one.old else Html(one.new)
            middle = [one.halfway] if moves else []
            rows.append([one.name, one.unit, one.old, *middle, new])
    caption = f"{change.form}; {change.direction} acting, unchanged."
    shown = table(caption, columns, rows)
    if not change.vendors:
        return shown
    same = fold("Controllers whose numbers mean the same", bullets(change.vendors))
    return join([shown, same])


def compared_table(caption: str, rows: Sequence[Compared], logged: Sequence[float] = ()) -> Html:
    """Figures of today's and of the proposed loop."""
    columns = [
        Column("", align="left"),
        Column("Unit", align="left"),
        *([Column("Logged")] if logged else []),
        Column("Today"),
        Column("Proposed"),
    ]
    body: list[Sequence[Content] | Group] = []
    for number, row in enumerate(rows):
        demand = tag("span", f"wanted: {row.demand}", class_="detail") if row.demand else ""
        before = [significant(logged[number])] if logged else []
        numbers = range_words(row.today), range_words(row.proposed)
        body.append([join([row.name, demand]), row.unit, *before, *numbers])
    return table(caption, columns, body)


def margins_table(change: LoopChange) -> Html:
    """Margins of both loops."""
    return compared_table(
        f"Margins near the operating points of the log; in brackets, the extremes over "
        f"{change.members} linear models that it allows. At levels that the log never visited the "
        "gain of the process may be another, as of a pH, and true margins far smaller.",
        change.margins,
    )


def expected_table(change: LoopChange) -> Html:
    """The log replayed under both loops; nothing if it could not be."""
    if not change.expected:
        return Html("")
    return compared_table(
        "The disturbances of the log, replayed with both loops. With today's numbers the log "
        "should come back.",
        change.expected,
        change.logged,
    )


def steps_picture(change: LoopChange, name: str) -> Html:
    """Steps of setpoint and load before and after, with bands over the members."""
    text = (
        f"{change.loop} after a step of the setpoint by {_one(change.measurement_unit)} (left) and "
        f"of the load by {_one(change.output_unit)} (right): today dashed, proposed solid; the "
        f"bands cover {change.members} models that the log allows."
    )
    return picture(draw_steps, change, name=name, caption=text)


def _one(unit: str) -> str:
    return f"1 {unit}".rstrip()


def draw_steps(change: LoopChange) -> Any:
    """Four panels: measurement above output, setpoint left of load."""
    figure = new_figure(3.3, width=STEP_WIDTH)
    panels = figure.subplots(2, 2, sharex=True)
    seconds, unit = _unit_of(change.time[-1])
    time = np.asarray(change.time) / seconds
    for column, step in enumerate(("setpoint", "load")):
        for row, (signal, units) in enumerate(
            (("measurement", change.measurement_unit), ("output", change.output_unit))
        ):
            panel = panels[row, column]
            shown = []
            for curve in change.curves:
                if curve.kind != f"{step} {signal}":
                    continue
                colour = COLOURS[curve.loop]
                middle = np.asarray(curve.middle)
                panel.fill_between(time, curve.low, curve.high, color=colour, alpha=0.16, lw=0)
                panel.plot(time, middle, color=colour, lw=1.5, ls=LINES[curve.loop])
                shown += [*middle, *curve.low, *curve.high]
            if step == "setpoint" and signal == "measurement":
                panel.axhline(1.0, color=MUTED, lw=0.8, ls=":")
            panel.set_ylim(*window(_without_runaway(shown)))
            panel_title(panel, f"{signal}, {step} step", units)
    for panel in panels[1]:
        panel.set_xlabel(f"time [{unit}]")
    handles = panels[0, 0].get_lines()[:2]
    figure.legend(handles, [TODAY, PROPOSED], loc="outside upper right", ncols=2, labelcolor=INK)
    return figure


def _without_runaway(values: Sequence[float]) -> list[float]:
    """Values of a picture; a loop that is unstable does not set its scale."""
    known = np.asarray(values)
    typical = float(np.quantile(np.abs(known), 0.9)) if len(known) else 0.0
    return [float(value) for value in known[np.abs(known) <= 4 * typical + 1e-12]]


def _unit_of(seconds: float) -> tuple[float, str]:
    return next((size, unit) for least, size, unit in UNITS_OF_TIME if seconds >= least)


class Trend(Protocol):
    """What a picture of a loop's rows needs; a :class:`LoopChange` has it."""

    @property
    def loop(self) -> str:
        """Tag of the loop."""
        ...

    @property
    def measurement_unit(self) -> str:
        """Unit of measurement and setpoint."""
        ...

    @property
    def output_unit(self) -> str:
        """Unit of the output."""
        ...

    @property
    def trend(self) -> Mapping[str, Sequence[float]]:
        """Columns ``time`` in seconds, ``measurement``, ``setpoint`` and ``output``."""
        ...


def trend_picture(change: Trend, name: str) -> Html:
    """The log: measurement under its setpoint, and the output."""
    text = f"{change.loop} in the log: measurement, its setpoint dashed above it, and output."
    return picture(draw_trend, change, name=name, caption=text)


def draw_trend(change: Trend) -> Any:
    """Measurement and setpoint above the output."""
    figure = new_figure(2.6, width=TREND_WIDTH)
    above, below = figure.subplots(2, 1, sharex=True)
    columns = {key: np.asarray(column) for key, column in change.trend.items()}
    seconds, unit = _unit_of(float(columns["time"][-1]))
    time = columns["time"] / seconds
    above.plot(time, columns["measurement"], color=CLASSICAL, lw=0.9)
    if "setpoint" in columns:
        above.plot(time, columns["setpoint"], color=LEARNERS[1], lw=1.3, ls=(0, (4, 2)))
    below.plot(time, columns["output"], color=LEARNERS[0], lw=0.9)
    panel_title(above, "measurement and setpoint", change.measurement_unit)
    panel_title(below, "output", change.output_unit)
    below.set_xlabel(f"time [{unit}]")
    return figure


def profile_picture(change: LoopChange, name: str) -> Html:
    """Error after a load from calm to tight, and where the rules stop; nothing without a search."""
    if not change.profile:
        return Html("")
    text = (
        "From calm to tight: integrated error after a load over today's, by the gain over today's. "
        "A dot may be proposed, a cross is refused by a rule."
    )
    return picture(draw_profile, change, name=name, caption=text)


def draw_profile(change: LoopChange) -> Any:
    """One panel."""
    figure = new_figure(2.4, width=STEP_WIDTH)
    panel = figure.subplots()
    for refused, mark, colour in ((False, "o", LEARNERS[0]), (True, "x", LIMIT)):
        points = [
            (point.gain, point.error)
            for point in change.profile
            if bool(point.refusal) == refused and math.isfinite(point.error)
        ]
        if points:
            panel.plot(*zip(*points, strict=True), mark, ms=4.5, color=colour)
    panel.plot([1.0], [1.0], "s", ms=6, color=CLASSICAL)
    panel.set_xscale("log")
    panel.set_xlabel("gain over today's")
    panel_title(panel, "integrated error after a load, over today's", "")
    return figure


def profile_table(change: LoopChange) -> Html:
    """The profile as numbers; nothing without a search."""
    if not change.profile:
        return Html("")
    columns = [
        Column("Numbers of the faceplate", align="left"),
        Column("Gain", "over today's"),
        Column("Error after a load", "over today's"),
        Column("Ms", "worst member"),
        Column("Gain margin", "worst member"),
        Column("Refused because", align="left"),
    ]
    rows: list[Sequence[Content] | Group] = [
        [
            point.typed,
            *(
                significant(number)
                for number in (point.gain, point.error, point.sensitivity, point.gain_margin)
            ),
            tag("span", point.refusal, class_="wraps"),
        ]
        for point in change.profile
    ]
    return table("Loops from calm to tight.", columns, rows)


def touched_list(change: LoopChange) -> Html:
    """Limits, alarms and interlocks on the loop."""
    if change.touched:
        return bullets(change.touched)
    return paragraph("Not provided." if not change.declared else "None is declared on this loop.")


def loop_change_section(change: LoopChange, number: int, sheet: str) -> Html:
    """A change in the report of a run; ``sheet`` is the file of its change sheet, if it has one."""
    verdict = (
        "Even with the worst of the models that the log allows, Ms is at most 2 and the gain "
        "margin at least 1.7."
        if change.accepted
        else "With the worst of the models that the log allows, Ms is above 2 or the gain margin "
        "below 1.7: do not type these numbers."
    )
    return join(
        [
            tag("h3", change.loop),
            paragraph(tag("strong", f"{change.sentence}.")),
            paragraph(verdict, class_="holds" if change.accepted else "fails"),
            paragraph("To try it by hand: ", tag("a", "change sheet", href=sheet), ".")
            if sheet
            else paragraph(
                "The run does not propose to try this, so there is no change sheet, and these "
                "numbers are not to be typed."
            ),
            *(
                [paragraph(f"{change.stopped[0].upper()}{change.stopped[1:].rstrip('.')}.")]
                if change.stopped
                else []
            ),
            expected_table(change),
            steps_picture(change, f"steps{number}"),
            margins_table(change),
            compared_table("Steps of setpoint and load, from rest.", change.figures),
            typed_table(change),
            *(
                [tag("h4", "What the log shows of the process"), bullets(change.model)]
                if change.model
                else []
            ),
            profile_picture(change, f"profile{number}"),
            *([fold("Why not more?", profile_table(change))] if change.profile else []),
        ]
    )


def loop_sections(changes: Sequence[LoopChange], *, tried: bool) -> Html:
    """All changed loops in the report of a run; nothing without one.

    Args:
        changes: The changed loops.
        tried: Whether the run proposes to try them, so that each has its sheet.
    """
    return join(
        [
            loop_change_section(change, number, sheet_name(change) if tried else "")
            for number, change in enumerate(changes)
        ]
    )


def loop_lines(change: LoopChange) -> list[str]:
    """What a change brings and costs, for the first lines of a page.

    The error counts as setpoint minus measurement: an offset that lasts is an error too.
    """
    rows = {row.name.partition(" of ")[0]: row for row in change.expected}
    refused = (
        f"{change.loop}: with the worst of the models that the log allows the margins are too "
        "small, so do not type these numbers"
    )
    warned = [] if change.accepted else [refused]
    if not rows:
        return warned
    deviation, size, travel = (rows[name] for name in ("standard deviation", "mean size", "travel"))
    lines = [
        *warned,
        f"{change.loop}, setpoint minus measurement: mean size "
        f"{significant(size.today.value)} to {range_words(size.proposed)} {size.unit}, standard "
        f"deviation {significant(deviation.today.value)} to {range_words(deviation.proposed)} "
        f"{deviation.unit}, predicted",
    ]
    before, after = travel.today.value, travel.proposed.value
    if before > 0 and math.isfinite(after):
        lines.append(
            f"{change.loop} moves its output {significant(after / before, 2)} times as much: "
            f"{significant(before)} to {range_words(travel.proposed)} {travel.unit} per hour"
        )
    return lines


def sheet_name(change: LoopChange) -> str:
    """File of the change sheet of a loop."""
    return f"change-{file_part(change.loop)}.html"


def file_part(name: str) -> str:
    """The tag of a loop as a part of a file's name: without slashes and the like.

    Example:
        >>> file_part("Area 1/TIC-201")
        'Area_1_TIC-201'
    """
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "loop"
