"""What a person at the page of ``neorl-train open`` dropped and confirmed, and the answers."""

import contextlib
import dataclasses
import math
import re
import secrets
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neorl_core import InputError
from neorl_core.infrastructure import install_line
from neorl_train._command.subcommands.loop import (
    FaceplateOptions,
    LoopOptions,
    compared_loops,
    faceplate_words,
    read_records,
    typed_faceplate,
    written_change,
)

if TYPE_CHECKING:
    from neorl_agents.loops import LoopRecord, LoopReport
    from neorl_envs.plant_logs import LoopColumns
    from neorl_train.pages._open_pages import LoopForm

NAMES = (".csv", ".csv.gz", ".txt", ".txt.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
MISSING = f"reading a table needs more: {install_line('neorl-envs[etl]')}"


class Session:
    """What the person at the browser has dropped and confirmed; one at a time.

    Args:
        folder: Where dropped logs are held until the page is closed.
        out: Folder for change sheets and pages.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out
        self.token = secrets.token_urlsafe(16)
        self.lock = threading.Lock()
        self.log: Path | None = None
        self.found: LoopColumns | None = None
        self.forms: tuple[LoopForm, ...] = ()
        self.options: tuple[LoopOptions, ...] = ()
        self.sections: list[str] = []
        self.pending: Iterator[str] = iter(())
        self.pages: list[Path] = []
        self.compared = ""

    def drop(self, name: str, content: bytes) -> None:
        """Takes a log, and looks for its loops.

        Raises:
            InputError: If it cannot be read as a table.
        """
        path = self._store(name, content)
        try:
            from neorl_envs.plant_logs import loop_columns
        except ModuleNotFoundError:
            raise InputError(MISSING) from None
        found = loop_columns(path)
        if not found.stamped:
            raise InputError(
                f"{path.name} has no column of timestamps; export it with them, or give the "
                "seconds between its rows: neorl-train loop FILE --pv ... --op ... --period 10"
            )
        forms = tuple(_form(path, found, loop) for loop in found.loops) or (_empty_form(),)
        self.log, self.found, self.forms = path, found, forms
        self.options, self.sections, self.pages, self.compared = (), [], [], ""

    def confirm(self, answers: Mapping[str, str]) -> None:
        """Takes the roles and units of the loops.

        Raises:
            InputError: Names what is missing.
        """
        if self.log is None:
            raise InputError("drop a log first")
        chosen = [
            options_of(self.log, self.out, _answers(answers, number))
            for number in range(len(self.forms))
            if answers.get(f"{number}.use") == "yes"
        ]
        if not chosen:
            raise InputError("choose at least one loop")
        names = [options.name for options in chosen]
        if len({*names}) < len(names):
            raise InputError(f"two loops have one tag: {', '.join(names)}")
        records = []
        for options in chosen:
            (record,) = read_records(options)
            typed_faceplate(options, record)  # What is wrong with it is said before the answers.
            records.append(record)
        self.options, self.sections, self.pages, self.compared = tuple(chosen), [], [], ""
        self.pending = self._answers(records)

    def keep(self, answers: Mapping[str, str]) -> None:
        """Keeps the answers in the forms, so that nobody gives them twice."""
        self.forms = tuple(
            _filled(form, _answers(answers, number)) for number, form in enumerate(self.forms)
        )

    def show(self, answers: Mapping[str, str]) -> None:
        """Draws each loop with its columns, and says which one the numbers of its faceplate make.

        Raises:
            InputError: Names what is missing.
        """
        if self.log is None:
            raise InputError("drop a log first")
        shown = []
        for number, form in enumerate(self.forms):
            given = _answers(answers, number)
            filled = _filled(form, given)
            if given.get("use") == "yes":
                filled = _redrawn(filled, options_of(self.log, self.out, given))
            shown.append(filled)
        self.forms = tuple(shown)

    def _answers(self, records: "Sequence[LoopRecord]") -> Iterator[str]:
        """The section of each loop, as soon as it is done."""
        from neorl_agents.loops import loop_reports
        from neorl_train.pages._html import paragraph, section

        commands = {options.name: options for options in self.options}
        for record in records:
            if not record.judgeable:
                few = paragraph("Cannot tell: too few rows have a measurement and an output.")
                yield section("few", record.name, few).text
        for report in loop_reports([record for record in records if record.judgeable]):
            yield self._answer(commands[report.record.name], report)

    def _answer(self, options: LoopOptions, report: "LoopReport") -> str:
        from neorl_train.judging._loop_evidence import model_lines
        from neorl_train.pages._open_pages import answer_section

        found, sheet = written_change(options, report), ""
        if isinstance(found, str):
            sentence = found
        else:
            change, path = found
            sentence, sheet = change.sentence, self._page(path)
        typed = typed_faceplate(options, report.record)
        return answer_section(
            report,
            model_lines(report.record, report.model),
            sheet=sheet,
            change=sentence,
            today=faceplate_words(typed) if typed else "",
            command=command_of(options),
        ).text

    def compare(self, name: str, content: bytes) -> None:
        """Compares a later log with the first one, and keeps the page of the answers.

        Raises:
            InputError: If it cannot be read, or lacks the columns of the loops.
        """
        from neorl_train.pages._open_pages import compared_page

        if self.log is None or not self.options:
            raise InputError("drop a log and confirm its loops first")
        later = self._store(f"later-{name}", content)
        compared = [
            (one, self._page(one.page))
            for options in self.options
            for one in compared_loops(dataclasses.replace(options, log=later), self.log)
        ]
        self.compared = compared_page(name, self.log.name, compared)

    def _page(self, path: Path) -> str:
        """The address of a page that was written."""
        self.pages.append(path)
        return f"page{len(self.pages) - 1}"

    def _store(self, name: str, content: bytes) -> Path:
        plain = re.sub(r"[^\w.-]+", "_", Path(name.replace("\\", "/")).name).lstrip(".") or "log"
        if not plain.lower().endswith(NAMES):
            raise InputError(
                f"{plain} is no table; drop one that ends in {', '.join(NAMES[:3])} or .parquet "
                "(a spreadsheet: save it as CSV first)"
            )
        if not content.strip():
            raise InputError(f"{plain} is empty")
        path = self.folder / plain
        path.write_bytes(content)
        return path


def _answers(answers: Mapping[str, str], number: int) -> dict[str, str]:
    """The answers about one loop, by the names of the fields."""
    start = f"{number}."
    return {
        key.removeprefix(start): value.strip()
        for key, value in answers.items()
        if key.startswith(start)
    }


def options_of(log: Path, out: Path, answers: Mapping[str, str]) -> LoopOptions:
    """The options of ``neorl-train loop`` that say the same as the answers about one loop.

    Raises:
        InputError: If an answer is missing or no number.
    """
    name = answers.get("name") or answers.get("pv", "")
    if not (answers.get("pv") and answers.get("op")):
        raise InputError(f"{name or 'the loop'}: choose the columns of its measurement and output")
    if answers["pv"] == answers["op"] or answers["pv"] == answers.get("sp"):
        raise InputError(f"{name}: two of its roles have one column, {answers['pv']}")
    if answers.get("op_range", "?") == "?":
        raise InputError(f"{name}: choose whether its output is in percent or a fraction")
    if answers.get("sp") and not answers.get("factor"):
        raise InputError(f"{name}: choose the unit of its set point")
    ends = [answers.get(key, "") for key in ("low", "high")]
    if any(ends) and not all(ends):
        raise InputError(f"{name}: give both ends of the instrument's range, or none")
    factor = _number(name, answers["factor"]) if answers.get("sp") else None
    options = LoopOptions(
        log=log,
        pv=answers["pv"],
        op=answers["op"],
        sp=answers.get("sp", ""),
        sp_factor=factor,
        mode=answers.get("mode", ""),
        pv_range=tuple(_number(name, end) for end in ends if end),
        op_range=tuple(_number(name, end) for end in answers["op_range"].split()),
        name=name,
        out=out,
        faceplate=_faceplate_of(name, answers),
    )
    try:
        options.validate()
    except InputError as error:
        raise InputError(f"{name}, {error}") from None
    return options


def _faceplate_of(name: str, answers: Mapping[str, str]) -> FaceplateOptions:
    """What was typed of a faceplate; a field that was left empty has its default."""
    kind = answers.get("kind", "")
    fields: dict[str, Any] = {
        key: answers[key]
        for key in ("integral_unit", "derivative_unit", "structure", "direction")
        if answers.get(key)
    }
    numbers = {
        "proportional_band" if kind == "band" else "gain": "proportional",
        "integral": "integral",
        "derivative": "derivative",
    }
    for field, key in numbers.items():
        if answers.get(key):
            fields[field] = _number(name, answers[key])
    if kind in ("percent", "engineering"):
        fields["gain_unit"] = kind
    return FaceplateOptions(**fields)


def _redrawn(form: "LoopForm", options: LoopOptions) -> "LoopForm":
    """A form with the trend of its columns, and the loop that the numbers of a faceplate make."""
    from neorl_train.judging._loop_evidence import thinned_rows

    (record,) = read_records(options)
    return dataclasses.replace(
        form,
        trend=thinned_rows(record),
        measurement_unit=record.measurement_unit,
        output_unit=record.output_unit,
        faceplate=_faceplate_found(options, record) if options.faceplate.given else "",
    )


def _faceplate_found(options: LoopOptions, record: "LoopRecord") -> str:
    """Which loop the numbers of a faceplate make, and what the rows show in the same form."""
    from neorl_agents.loops import logged_controller, without_spikes
    from neorl_train.candidates._loop_changes import NEAR, beside_the_rows

    typed = typed_faceplate(options, record)
    assert typed is not None
    read = logged_controller(without_spikes(record))
    apart, difference = beside_the_rows(record, read, typed.form, typed.shown)
    agrees = (
        "The rows of the log agree" if difference else "The rows of the log show no PI to compare"
    )
    beside = f"But {difference}" if apart > NEAR else agrees
    return f"{faceplate_words(typed)}. {beside}."


def _number(name: str, text: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text.replace(",", "."))):
            return number
    raise InputError(f"{name}: expected a number, got {text!r}")


def command_of(options: LoopOptions) -> str:
    """A command that says what was confirmed on the page."""
    words = ["neorl-train", "loop", options.log.name]
    for key in ("pv", "op", "sp", "mode", "name"):
        words += [f"--{key}", getattr(options, key)] if getattr(options, key) else []
    if options.sp_factor not in (None, 1.0):
        words += ["--sp-factor", f"{options.sp_factor:g}"]
    for key in ("pv_range", "op_range"):
        ends = getattr(options, key)
        words += [f"--{key.replace('_', '-')}", *(f"{end:g}" for end in ends)] if ends else []
    if options.faceplate.given:
        for field in dataclasses.fields(FaceplateOptions):
            value = getattr(options.faceplate, field.name)
            if value != field.default:
                text = f"{value:.10g}" if isinstance(value, float) else value
                words += [f"--faceplate.{field.name.replace('_', '-')}", text]
    return shlex.join(words)


def _empty_form() -> "LoopForm":
    from neorl_train.pages._open_pages import LoopForm

    why = "No loop is found by names such as TIC-201.PV and TIC-201.OP: choose its columns."
    return LoopForm("", {}, "1", "?", {"pv": why, "op_range": "Is its output in percent?"}, (), "",
                    "", {})  # fmt: skip


def _form(path: Path, found: "LoopColumns", loop: Any) -> "LoopForm":
    """What the file shows of a loop; what is doubtful must be chosen."""
    from neorl_train.judging._loop_evidence import thinned_rows
    from neorl_train.pages._open_pages import LoopForm

    columns = {"pv": loop.measurement, "sp": loop.setpoint, "op": loop.output, "mode": loop.mode}
    doubts, notes = {}, []
    for first, second in found.twins:
        for role, column in columns.items():
            if column == first:
                columns[role] = ""
                doubts[role] = (
                    f"Two columns are called {first}, and their values differ: choose one (the "
                    f"second is listed as {second})."
                )
    output = {column.name: column for column in found.columns}[loop.output]
    parts = output.high <= 1 + 1e-9 and output.low >= -1e-9 and "%" not in output.unit
    if parts:
        doubts["op_range"] = (
            f"The output is between {output.low:.3g} and {output.high:.3g}: is it a fraction, or "
            "percent of a valve that is nearly shut?"
        )
    shown: dict[str, Any] = {}
    record: LoopRecord | None = None
    if not doubts.keys() & {"pv", "sp", "op"}:
        options = LoopOptions(path, pv=loop.measurement, op=loop.output, sp=loop.setpoint,
                              mode=loop.mode, name=loop.name)  # fmt: skip
        try:
            (record,) = read_records(options)
        except InputError as error:
            doubts["factor"] = str(error).partition("; ")[0] + "."
            with contextlib.suppress(InputError):
                (record,) = read_records(dataclasses.replace(options, sp_factor=1.0))
    if record is not None:
        shown = thinned_rows(record)
        empty = float(1 - record.valid.mean())
        notes = [f"{empty:.1%} of its rows lack a value, and are left out."] if empty else []
    scale = "0 100" if output.low >= -1e-9 and output.high <= 100 else ""
    units = (record.measurement_unit, record.output_unit) if record is not None else ("", "")
    factor = "" if "factor" in doubts else "1"
    return LoopForm(loop.name, columns, factor, scale, doubts, tuple(notes), *units, shown)


def _filled(form: "LoopForm", answers: Mapping[str, str]) -> "LoopForm":
    """A form with the answers that were given, so that nobody gives them twice."""
    open_ones = {key for key in form.doubts if answers.get(key, "") == ""} - {"op_range"}
    if answers.get("op_range", "?") == "?":
        open_ones.add("op_range")
    return dataclasses.replace(
        form,
        loop=answers.get("name") or form.loop,
        columns={role: answers.get(role, "") for role in ("pv", "sp", "op", "mode")},
        factor=answers.get("factor", ""),
        output_range=answers.get("op_range", "?"),
        doubts={key: why for key, why in form.doubts.items() if key in open_ones},
        given=dict(answers),
        faceplate="",
    )


def facts_of(path: Path, found: "LoopColumns") -> list[str]:
    """Sentences on how a log was read."""
    rows = f"{found.rows} rows, a row every {found.period_s:g} s, {len(found.columns)} columns."
    facts = [rows]
    if found.unreadable:
        facts.append(f"{found.unreadable} rows have a stamp that cannot be read, and are left out.")
    return facts
