"""``neorl-train loop LOG``: what ails the control loops of a log, and what it shows of them."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neorl_core import InputError
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_train._command.shared import JsonFlag, print_json

if TYPE_CHECKING:
    from neorl_agents.loops import LoopModel, LoopRecord, LoopReport
    from neorl_envs.datasets import TodaysFaceplate
    from neorl_train.judging._loop_change import LoopChange
    from neorl_train.pages._compared_logs import ComparedLoop


@dataclasses.dataclass(frozen=True)
class LogArgument:
    """The log that a command is about.

    Attributes:
        log: A dataset file, or a table of a historian as CSV or Parquet. Loops are those that it
            declares, or that have columns such as TIC-201.PV, TIC-201.SP, TIC-201.OP, TIC-201.MODE.
    """

    log: Positional[Path]


@dataclasses.dataclass(frozen=True)
class FaceplateOptions:
    """Today's numbers as the faceplate shows them; by default those that the rows show.

    Attributes:
        gain: Size of the gain; leave it out if the faceplate shows a proportional band.
        gain_unit: Percent of the output's range per percent of the measurement's, or engineering
            units.
        proportional_band: Percent of the measurement's range that moves the output over its whole
            range.
        integral: Reset; leave it out if the loop has no integral.
        integral_unit: Time of a repeat, or repeats in a time.
        derivative: Derivative time, or gain in the parallel structure.
        derivative_unit: Its unit.
        derivative_filter: The derivative is filtered with its time divided by this.
        structure: How proportional, integral and derivative are put together.
        direction: Reverse if the output falls when the measurement rises, direct if it rises.
    """

    gain: float | None = None
    gain_unit: Literal["", "percent", "engineering"] = ""
    proportional_band: float | None = None
    integral: float | None = None
    integral_unit: Literal["", "seconds", "minutes", "per_second", "per_minute"] = ""
    derivative: float = 0.0
    derivative_unit: Literal["", "seconds", "minutes"] = ""
    derivative_filter: float = 10.0
    structure: Literal["standard", "parallel", "series"] = "standard"
    direction: Literal["", "reverse", "direct"] = ""

    @property
    def given(self) -> bool:
        """Whether any number is given."""
        return bool(self.derivative) or any(
            number is not None for number in (self.gain, self.proportional_band, self.integral)
        )

    def validate(self) -> None:
        """Refuses numbers whose meaning is not said.

        Raises:
            InputError: Says what is missing.
        """
        if not self.given:
            return
        if (self.gain is None) == (self.proportional_band is None):
            raise InputError("faceplate: give either its gain or its proportional band")
        missing = (
            (self.gain is not None and not self.gain_unit, "gain-unit",
             "whether its gain is in percent or in engineering units"),
            (self.integral is not None and not self.integral_unit, "integral-unit",
             "whether its reset is a time or repeats, and in which unit"),
            (bool(self.derivative) and not self.derivative_unit, "derivative-unit",
             "in which unit its derivative is"),
            (not self.direction, "direction",
             "whether the output falls (reverse) or rises (direct) when the measurement rises"),
        )  # fmt: skip
        for lacks, option, question in missing:
            if lacks:
                raise InputError(f"faceplate: say {question} (--faceplate.{option})")


@dataclasses.dataclass(frozen=True)
class LoopOptions(JsonFlag, LogArgument):
    """Says of each loop of a log whether to retune it, mend its valve or sensor, or leave it.

    example: neorl-train loop plant.h5
             neorl-train loop export.csv --pv FT_211 --op FV_211 --sp 100
             neorl-train loop export.csv --pv TIC.PV --op TIC.OP --sp TIC.SP --pv-range 0 150
             neorl-train loop export.csv --pv TIC.PV --op TIC.OP --sp TIC.SP --pv-range 0 150
             --faceplate.proportional-band 200 --faceplate.integral 3
             --faceplate.integral-unit minutes --faceplate.direction reverse
             neorl-train loop new.csv --before old.csv

    Attributes:
        pv: Column of the measurement of a loop.
        op: Column of its output.
        sp: Column of its setpoint, or a number.
        sp_factor: By what the setpoint is multiplied to have the unit of the measurement, such as
            0.01 for percent beside a fraction.
        mode: Column of its mode, in words such as AUTO and MAN.
        pv_range: Range of the instrument, low and high.
        op_range: Range of the output; by default 0 to 100 if the values lie within it.
        period: Seconds between the rows of a table without timestamps, or of the grid on which one
            with timestamps is put.
        name: Name of the loop that is named by columns.
        before: A log of the same loops before a change, with the same columns: says whether they
            are better since then.
        band: Size of setpoint minus measurement above which a row counts as outside; by default the
            standard deviation in the log before.
        out: Folder for change sheets and pages.
        faceplate: What the faceplate of the named loop shows today.
    """

    pv: str = ""
    op: str = ""
    sp: str = ""
    sp_factor: float | None = None
    mode: str = ""
    pv_range: tuple[float, ...] = ()
    op_range: tuple[float, ...] = ()
    period: float | None = None
    name: str = ""
    before: Path | None = None
    band: float | None = None
    out: Path = Path()
    faceplate: FaceplateOptions = FaceplateOptions()

    def validate(self) -> None:
        """Refuses what does not belong together.

        Raises:
            InputError: Names the first one.
        """
        if bool(self.pv) != bool(self.op):
            raise InputError("give both --pv and --op, the measurement and the output of a loop")
        belongs = (self.sp, self.sp_factor, self.mode, self.pv_range, self.op_range, self.name)
        if not self.pv and (any(belongs) or self.faceplate.given):
            raise InputError(
                "--sp, --sp-factor, --mode, --name, --faceplate and the ranges belong to a loop; "
                "name its columns with --pv and --op"
            )
        self.faceplate.validate()
        if self.sp_factor is not None and not self.sp_factor > 0:
            raise InputError(f"--sp-factor must be above 0, got {self.sp_factor}")
        for option, ends in (("--pv-range", self.pv_range), ("--op-range", self.op_range)):
            if ends and not (len(ends) == 2 and ends[0] < ends[1]):
                raise InputError(f"{option} must be two numbers, low and high, got {ends}")
        if self.band is not None and not self.band > 0:
            raise InputError(f"--band must be above 0, got {self.band}")
        if self.period is not None and not self.period > 0:
            raise InputError(f"--period must be above 0 s, got {self.period}")


def command(arguments: list[str]) -> None:
    """``neorl-train loop LOG``."""
    options = parse_options(LoopOptions, arguments, program="neorl-train loop")
    options.validate()
    from neorl_agents.loops import loop_reports

    if options.before is not None:
        _print_compared(options, options.before)
        return
    every = read_records(options)
    records = tuple(record for record in every if record.judgeable)
    few = [record.name for record in every if not record.judgeable]
    left_out = list(dict.fromkeys(text for record in every for text in record.left_out))
    for record in records:
        typed_faceplate(options, record)  # What is missing is said before any work.
    if options.json:
        documents = [report_document(report) for report in loop_reports(records)]
        document = {"log": str(options.log), "loops": documents, "too_few_rows": few}
        print_json("loops", document | {"left_out": left_out})
        return
    first = every[0]
    print(
        f"{options.log}: {len(first.measurement)} rows of {first.period:g} s, "
        f"{first.days:.3g} days, {len(every)} loop{'s' * (len(every) > 1)}",
        flush=True,
    )
    for text in left_out:
        print(text, flush=True)
    for name in few:
        print(f"\n{name}: CANNOT TELL\n  Too few rows have a measurement and an output.")
    for report in loop_reports(records):
        print(report_text(report), flush=True)
        print(_sheet_text(options, report), flush=True)


def _sheet_text(options: LoopOptions, report: "LoopReport") -> str:
    """Writes the change sheet of a loop that is to be retuned; says where it is, or why not."""
    found, today = written_change(options, report), typed_faceplate(options, report.record)
    lines = [f"today's faceplate: {faceplate_words(today)}"] if today else []
    if isinstance(found, str):
        lines.append(found)
    else:
        change, sheet = found
        lines += [change.sentence, f"change sheet: {sheet.absolute()}"]
    return "\n    ".join(["  change", *lines])


def faceplate_words(today: "TodaysFaceplate") -> str:
    """What a faceplate shows, and which loop that is in engineering units."""
    from neorl_train.candidates._loop_changes import roll_back_words

    return f"{roll_back_words(today)}; this is {today.words}"


def written_change(options: LoopOptions, report: "LoopReport") -> "tuple[LoopChange, Path] | str":
    """The change that a log asks for, with its sheet in the folder for them; or why there is none.

    Raises:
        OSError: If the sheet cannot be written.
    """
    import numpy as np

    from neorl_train.candidates._loop_changes import (
        declared_faceplates,
        log_facts,
        proposed_change,
    )
    from neorl_train.judging._loop_change import LogFacts
    from neorl_train.pages._change_sheet import write_change_sheet

    tags = report.record.tags
    declared = typed_faceplate(options, report.record)
    dataset, episode = _dataset(options.log), 0
    if dataset is None:
        facts = LogFacts(options.log.name, file_digest(options.log))
    else:
        episode = int(np.median(dataset.episode_lengths))
        facts = log_facts(options.log, dataset, tags["measurement"], tags["output"])
        declared = declared or declared_faceplates(dataset).get(tags["output"])
    change = proposed_change(report, declared, facts, band=options.band, episode=episode)
    if isinstance(change, str):
        return change
    options.out.mkdir(parents=True, exist_ok=True)
    return change, write_change_sheet(options.out, change)


def typed_faceplate(options: LoopOptions, record: "LoopRecord") -> "TodaysFaceplate | None":
    """The faceplate that the options show of a loop, and which loop it is; none without numbers.

    Raises:
        InputError: If a number is out of its range, or percent is meant and a range is not known.
    """
    from neorl_envs.datasets import FaceplateLoop

    shown, given = options.faceplate, dict[str, Any]()
    if not shown.given:
        return None
    percent = shown.proportional_band is not None or shown.gain_unit == "percent"
    output_known = bool(options.op_range) or record.output_range == (0.0, 100.0)
    if percent and not (record.ranges_known or (options.pv_range and output_known)):
        raise InputError(
            f"{record.name}: percent on a faceplate are percent of the ranges of instrument and "
            "output, so give both (--pv-range and --op-range)"
        )
    if shown.integral is not None:
        given = {"integral": shown.integral, "integral_unit": shown.integral_unit}
    if shown.derivative:
        given |= {"derivative": shown.derivative, "derivative_unit": shown.derivative_unit}
    loop = FaceplateLoop(
        record.tags["measurement"],
        record.tags["output"],
        shown.direction or "reverse",
        shown.structure,
        gain=shown.gain,
        gain_unit=shown.gain_unit or "percent",
        proportional_band=shown.proportional_band,
        derivative_filter=shown.derivative_filter,
        setpoint_channel=record.tags.get("setpoint", ""),
        name=record.name,
        **given,
    )
    measurement, output = (
        high - low for low, high in (record.measurement_range, record.output_range)
    )
    try:
        return loop.faceplate((measurement, output), (record.measurement_unit, record.output_unit))
    except ValueError as error:
        raise InputError(f"{record.name}, faceplate: {error}") from None


def _dataset(path: Path) -> Any:
    """The content of a dataset file; ``None`` for a table of a historian."""
    from neorl_train.data._loop_records import is_a_table

    if is_a_table(path):
        return None
    from neorl_envs import read_dataset

    return read_dataset(path)


def file_digest(path: Path) -> str:
    """Digest of a file's content."""
    import hashlib

    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def compared_loops(options: LoopOptions, before: Path) -> "list[ComparedLoop]":
    """Compares the loops of a log with those of the log before, and writes a page for each.

    Raises:
        InputError: If a log cannot be read, or no loop is in both.
        OSError: If a page cannot be written.
    """
    from neorl_agents.loops import loop_model, without_spikes
    from neorl_train.candidates._loop_changes import declared_faceplates, roll_back_words
    from neorl_train.pages._compared_logs import compared_logs

    old, new = (
        [without_spikes(record) for record in read_records(each) if record.judgeable]
        for each in (dataclasses.replace(options, log=before), options)
    )
    models = {record.name: loop_model(record) for record in old}
    dead_times = {name: m.dead_time.value for name, m in models.items() if m.members}
    dataset = _dataset(before)
    shown = [] if dataset is None else list(declared_faceplates(dataset).values())
    shown += [typed for one in old if (typed := typed_faceplate(options, one))]
    roll_back = {one.name: roll_back_words(one) for one in shown}
    options.out.mkdir(parents=True, exist_ok=True)
    files = before.name, options.log.name
    return compared_logs(
        old, new, options.out, files=files, band=options.band, dead_times=dead_times,
        roll_back=roll_back,
    )  # fmt: skip


def _print_compared(options: LoopOptions, before: Path) -> None:
    """Compares the loops of two logs, and prints the answers."""
    compared = compared_loops(options, before)
    if options.json:
        loops = [
            {"name": one.loop, "answer": one.found.answer, "reason": one.sentence,
             "page": str(one.page.absolute())}
            for one in compared
        ]  # fmt: skip
        print_json("loops", {"log": str(options.log), "before": str(before), "loops": loops})
        return
    for one in compared:
        print(f"{one.loop}: {one.words.upper()}\n  {one.sentence}\n  page: {one.page.absolute()}")


def read_records(options: LoopOptions) -> "tuple[LoopRecord, ...]":
    """The loops that the options name."""
    from neorl_envs.datasets import LoopTags
    from neorl_train.data._loop_records import loop_records

    constant = _number(options.sp)
    loop = None
    if options.pv:
        setpoint = "" if constant is not None else options.sp
        name = options.name or options.pv
        loop = LoopTags(name, options.pv, options.op, setpoint, options.mode)
    return loop_records(
        options.log,
        loop=loop,
        setpoint=constant,
        setpoint_factor=options.sp_factor,
        measurement_range=options.pv_range,
        output_range=options.op_range,
        period_s=options.period,
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def report_text(report: "LoopReport") -> str:
    """One loop as a short text: the answer first, then the health, then the model."""
    from neorl_agents.loops import health_figures
    from neorl_train.judging._loop_evidence import model_lines

    cause, record = report.cause, report.record
    lines = ["", f"{record.name}: {cause.answer.upper()}", f"  {cause.reason}"]
    lines += [f"  {cause.needed}"] if cause.needed else []
    lines += [f"  because: {sentence}" for sentence in cause.evidence]
    lines += ["  health"]
    lines += [f"    {name:<28}{value:<52} {word}".rstrip() for name, value, word in
              health_figures(report)]  # fmt: skip
    lines += [
        "  model of the process",
        *(f"    {line}" for line in model_lines(record, report.model)),
    ]
    return "\n".join(lines)


def report_document(report: "LoopReport") -> dict[str, Any]:
    """One loop as plain JSON."""
    from neorl_agents.loops import health_figures

    record, cause = report.record, report.cause
    return {
        "name": record.name,
        "tags": record.tags,
        "answer": cause.answer,
        "cause": cause.kind,
        "reason": cause.reason,
        "needed": cause.needed,
        "evidence": list(cause.evidence),
        "health": [dict(zip(("name", "value", "word"), one, strict=True))
                   for one in health_figures(report)],
        "model": model_document(report.model),
    }  # fmt: skip


def model_document(model: "LoopModel") -> dict[str, Any]:
    """A model as plain JSON; numbers that are not known are null."""
    numbers = {
        "gain": model.gain._asdict(),
        "dead_time": model.dead_time._asdict(),
        "time_constants": [one._asdict() for one in model.time_constants],
        "held_out": model.held_out if math.isfinite(model.held_out) else None,
        "horizon": model.horizon,
    }
    return {
        **(numbers if model.members else dict.fromkeys(numbers)),
        "integrating": model.integrating,
        "conditions": list(model.conditions),
        "usable": model.usable,
        "why_not": model.why_not,
    }
