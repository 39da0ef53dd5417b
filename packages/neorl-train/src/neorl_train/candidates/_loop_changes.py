"""Changes of loops with their sheets: of a log that is looked at, and of a run's candidate."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from neorl_agents.loops import (
    FaceplateChange,
    LoggedController,
    LoopRecord,
    LoopReport,
    faceplate_rows,
    loop_reports,
    propose,
)
from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import PlantFacts, model_settings
from neorl_core import InputError, Policy
from neorl_core.loops import Faceplate, PIDForm, PIDGains, faceplate, pid_gains
from neorl_envs import Dataset
from neorl_envs.datasets import TodaysFaceplate, todays_controller
from neorl_envs.inspection import log_zone, moment
from neorl_train.candidates._enough_log import too_short
from neorl_train.candidates._retuned import gains_of_loop
from neorl_train.data._loop_records import loop_records
from neorl_train.judging._loop_change import LogFacts, LoopChange, write_changes
from neorl_train.judging._loop_evidence import loop_change
from neorl_train.judging._loop_trial import one_at_a_time, touched_by_loop
from neorl_train.runs._directory import LOOPS

RETUNE = "retune"
MEND = "mend the valve or sensor"
STICKS = "stiction"
"""Kind of the cause of a loop whose valve sticks."""
OUTSIDE = "outside"
"""Kind of the cause of an oscillation that no tuning cures."""
NEAR, FAR = 1.2, 2.0
"""Factors between declared numbers and those of the rows: what is said, and what is refused."""
SURE = 0.98
"""Share of the moves that the PI of the rows must explain before declared numbers are refused."""
PERCENT = 100.0
"""Factor between the two if one of them is in percent and the other a fraction."""


class TodaysLoop(NamedTuple):
    """The numbers of a loop today.

    Attributes:
        form: What they mean.
        shown: The numbers.
        declared: Whether the log declares them; otherwise its rows show them.
    """

    form: PIDForm
    shown: Faceplate
    declared: bool


def todays_loop(report: LoopReport, declared: TodaysFaceplate | None) -> TodaysLoop | None:
    """The numbers of a loop today: declared, else those that its rows show, in standard form.

    Returns:
        The loop; ``None`` if neither says them.
    """
    if declared is not None:
        return TodaysLoop(declared.form, declared.shown, True)
    controller = report.figures.controller
    if not controller.known:
        return None
    ends = report.record.measurement_range, report.record.output_range
    spans = [high - low for low, high in ends]
    form = PIDForm(
        integral="minutes",
        units="percent" if report.record.ranges_known else "engineering",
        measurement_span=spans[0],
        output_span=spans[1],
        direction="reverse" if controller.kp > 0 else "direct",
    )
    exact = faceplate(PIDGains(controller.kp, controller.ki, 0.0, 0.0), form=form)
    numbers = [float(f"{float(number):.4g}") for number in exact]
    return TodaysLoop(form, Faceplate(*numbers), False)


def proposed_change(
    report: LoopReport,
    declared: TodaysFaceplate | None,
    facts: LogFacts,
    *,
    band: float | None = None,
    episode: int = 0,
) -> LoopChange | str:
    """The change that a log asks for, or why there is none.

    Only a loop that is to be retuned, with a usable model, gets gains. If the log is one of
    episodes of so many rows, the change says whether a run on it would be refused.
    """
    record, model, cause = report.record, report.model, report.cause
    apart, difference = 1.0, ""
    if declared is not None:
        controller = report.figures.controller
        apart, difference = beside_the_rows(record, controller, declared.form, declared.shown)
    beside = f"; {difference}" if apart > NEAR else ""
    if cause.answer != RETUNE:
        return f"no gains are proposed, because the answer is {cause.answer!r}{beside}"
    if not model.usable:
        return f"no gains are proposed: {model.why_not}{beside}"
    today = todays_loop(report, declared)
    if today is None:
        return (
            "no gains are proposed, because the log does not show those of today; declare them as "
            "[[loop]] in plant.toml"
        )
    gains = PIDGains(*map(float, pid_gains(today.shown, form=today.form)))
    if apart > FAR:
        return f"no gains are proposed: {difference}"
    span = record.output_range[1] - record.output_range[0]
    noise = float(report.figures.figures.noise)
    found = propose(
        model, gains, period=record.period, output_span=span,
        noise=noise if math.isfinite(noise) else 0.0,
    )  # fmt: skip
    if found.kept:
        return f"today's gains are kept: {found.reason}{beside}"
    change = loop_change(
        record, model, today.shown, today.form, found.chosen.gains, facts, proposal=found, band=band
    )
    note = "today's values are read from the rows of the log; compare them with the faceplate first"
    if today.declared:
        note = difference if apart > NEAR else ""
    short = []
    if episode:
        most = max(model_settings(HistoryModelSettings(), PlantFacts(running=True)).history)
        short = too_short(record.name, model, gains, episode, record.period, most)
    refused = [f"neorl-train run would refuse this log: {why}" for why in short]
    conditions = (*([note] if note else []), *change.conditions, *refused)
    return dataclasses.replace(change, conditions=conditions)


def beside_the_rows(
    record: LoopRecord, read: LoggedController, form: PIDForm, shown: Faceplate
) -> tuple[float, str]:
    """By which factor a faceplate differs from the PI that the rows show, and both in words.

    Nothing is said of a loop with a derivative, or one whose rows show no PI. Rows that a PI
    explains less well, as those of a controller that acts several times between them, refuse none.
    """
    gains, nothing = PIDGains(*map(float, pid_gains(shown, form=form))), (1.0, "")
    if not read.known or gains.kd:
        return nothing
    factors = [_beyond(float(gains.kp), *read.kp_span), _beyond(float(gains.ki), *read.ki_span)]
    apart = max(factors) if read.share >= SURE else min(max(factors), FAR)
    percent = all(PERCENT / NEAR < one < PERCENT * NEAR for one in factors)
    scale = ", a hundredfold apart, as percent and a fraction of 1 are" if percent else ""
    size = PIDGains(abs(read.kp), abs(read.ki), 0.0, 0.0)
    form, acts = dataclasses.replace(form, direction="reverse"), form.direction
    seen = Faceplate(*(float(f"{float(number):.3g}") for number in faceplate(size, form=form)))
    units = record.measurement_unit, record.output_unit
    both = [_shown_words(form, one, units) for one in (shown, seen)]
    return apart, (
        f"the faceplate says {both[0]}, {acts} acting, and the rows of the log show {both[1]}, "
        f"{'reverse' if read.kp > 0 else 'direct'} acting{scale}; check units, form, direction and "
        "the range of the instrument, or use a log since the last change of the numbers"
    )


def _beyond(number: float, low: float, high: float) -> float:
    """The factor by which a number lies beyond a range; infinite with another sign."""
    if low <= number <= high:
        return 1.0
    return min(
        max(number / end, end / number) if number * end > 0 else math.inf for end in (low, high)
    )


def roll_back_words(shown: TodaysFaceplate) -> str:
    """The numbers of a faceplate as they are typed to go back to them."""
    return _shown_words(shown.form, shown.shown, shown.units)


def _shown_words(form: PIDForm, shown: Faceplate, units: tuple[str, str]) -> str:
    nothing = PIDGains(0.0, 0.0, 0.0, 0.0)
    change = FaceplateChange(form, shown, shown, nothing, nothing)
    rows = faceplate_rows(change, measurement_unit=units[0], output_unit=units[1])
    return ", ".join(f"{row.name} {row.text[0]} {row.unit}".rstrip() for row in rows)


def declared_faceplates(dataset: Dataset) -> dict[str, TodaysFaceplate]:
    """The declared faceplates of a log by the channel that they move."""
    return {one.manipulated: one for one in todays_controller(dataset).faceplates}


def declared_reports(source: Path, dataset: Dataset, policy: Policy) -> tuple[LoopReport, ...]:
    """The declared loops of a log that a policy holds, judged from its rows.

    Args:
        source: File of the log.
        dataset: Its content.
        policy: The policy; of one that is no bank of PIDs there are none.

    Raises:
        InputError: If the log is too short to judge its loops.
    """
    declared = declared_faceplates(dataset)
    held = {name for name in declared if gains_of_loop(policy, dataset.spec, name) is not None}
    if not held:
        return ()
    records = [one for one in loop_records(source) if one.tags["output"] in held]
    return tuple(loop_reports(records))


def require_declared(
    reports: Sequence[LoopReport], declared: Mapping[str, TodaysFaceplate]
) -> list[str]:
    """Refuses a log whose rows another controller wrote than the declared one.

    Args:
        reports: The declared loops, judged from the rows.
        declared: Their faceplates by the channel that they move.

    Returns:
        Sentences on loops whose numbers differ a little, or that no tuning mends.

    Raises:
        InputError: Names every loop whose gain or integral is more than twice or less than half
            that of the rows.
    """
    far, notes = list[str](), list[str]()
    for report in reports:
        shown = declared[report.record.tags["output"]]
        apart, difference = beside_the_rows(
            report.record, report.figures.controller, shown.form, shown.shown
        )
        if apart > NEAR:
            (far if apart > FAR else notes).append(f"{shown.name}: {difference}")
        if report.cause.answer == MEND:
            notes.append(f"{shown.name}: {report.cause.reason} {report.cause.needed}")
    if far:
        raise InputError("; ".join(far))
    return notes


def loop_objections(reports: Sequence[LoopReport]) -> list[str]:
    """Why no tuning may be judged on a log, for each loop with a reason.

    Its valve sticks, or a PI of its measurement explains its moves and nobody moved anything else.
    Values that a log lacks look to a plant model as if the output had moved by itself, so that its
    own measure of excitation misses the second.
    """
    sentences = []
    for report in reports:
        name, reason = report.record.name, report.cause.reason
        if report.cause.kind == STICKS:
            sentences.append(f"{name}: {reason[0].lower()}{reason[1:-1]}")
        if report.figures.controller.known and not report.model.moved:
            sentences.append(f"{name}: {report.model.why_not}")
    return sentences


def write_loop_changes(
    folder: Path,
    source: Path,
    dataset: Dataset,
    policy: Policy,
    reports: Sequence[LoopReport] = (),
) -> list[str]:
    """Writes ``loops.json`` of a candidate into a run, from which its report makes the sheets.

    Args:
        folder: Directory of the run.
        source: File of the log.
        dataset: Its content.
        policy: The candidate.
        reports: Its declared loops, if they were judged already.

    Returns:
        Sentences on the loops that get no sheet, and why.
    """
    changes, notes = [], []
    declared = declared_faceplates(dataset)
    try:
        reports = reports or declared_reports(source, dataset, policy)
    except InputError as error:  # A log that is too short to judge its loops is no reason to fail.
        return [f"no change sheet: {error}"]
    for report in reports:
        shown = declared[report.record.tags["output"]]
        gains = gains_of_loop(policy, dataset.spec, shown.manipulated)
        if gains is None:
            continue
        why = _why_not(report)
        if why:
            sentence = f"{why[0].lower()}{why[1:].rstrip('.')}"
            notes.append(f"{shown.name}: no change sheet, because {sentence}")
            continue
        facts = log_facts(source, dataset, shown.controlled, shown.manipulated)
        reason = "retuned in a plant model that was learned from the log"
        try:
            change = loop_change(
                report.record, report.model, shown.shown, shown.form, gains, facts, reason=reason
            )
        except InputError as error:
            notes.append(f"{shown.name}: no change sheet, because {error}")
            continue
        if any(row.old != row.new for row in change.typed):
            changes.append(change)
    if changes:
        write_changes(folder / LOOPS, one_at_a_time(changes))
    return notes


def _why_not(report: LoopReport) -> str:
    if report.cause.answer == MEND or report.cause.kind == OUTSIDE:
        return report.cause.reason
    return "" if report.model.usable else report.model.why_not


def log_facts(source: Path, dataset: Dataset, controlled: str, manipulated: str) -> LogFacts:
    """Where the rows of a loop come from, and what the log declares on it."""
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    declared = isinstance(configuration, Mapping) and bool(configuration)
    touched = touched_by_loop(configuration, controlled, manipulated) if declared else ()
    return LogFacts(source.name, dataset.content_hash, _period(dataset), touched, declared)


def _period(dataset: Dataset) -> str:
    """First and last time of a log; empty if it has no times of the clock."""
    origin = dataset.attributes.get("time_origin")
    if dataset.time is None or not origin:
        return ""
    zone = log_zone(dataset.attributes)
    first, last = (
        moment(float(dataset.time[row]), str(origin), zone, "%Y-%m-%d %H:%M") for row in (0, -1)
    )
    return f"{first} to {last}"
