"""The pages of ``neorl-train open``: drop a log, confirm its loops, read the answers."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from neorl_agents.loops import LoopReport, health_figures
from neorl_train.pages._compared_logs import ComparedLoop
from neorl_train.pages._html import (
    Column,
    Group,
    Html,
    Section,
    bullets,
    document,
    fold,
    join,
    paragraph,
    table,
    tag,
)
from neorl_train.pages.sections._loop_change import file_part, trend_picture

STYLE = """
form { margin: 0; }
.drop {
  display: block; border: 2px dashed var(--muted); border-radius: 10px; padding: 2.2rem 1.2rem;
  text-align: center; background: var(--raised); margin: 0.8rem 0;
}
.drop input { display: block; margin: 0.8rem auto 0; max-width: 100%; padding: 1.2rem; }
fieldset {
  border: 1px solid var(--grid); border-radius: 8px; margin: 0 0 1.2rem; padding: 1rem;
  min-width: 0;
}
legend { font-weight: 600; padding: 0 0.4rem; }
.fields {
  display: grid; gap: 0.7rem 1.2rem; margin: 0.6rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(230px, 100%), 1fr));
}
.fields label { display: block; font-size: 0.9rem; color: var(--muted); min-width: 0; }
.fields input, .fields select {
  display: block; width: 100%; font: inherit; color: var(--ink); background: var(--surface);
  border: 1px solid var(--muted); border-radius: 5px; padding: 0.35rem 0.5rem;
}
.fields label.asked { color: var(--no); font-weight: 600; }
.fields label.asked select { border: 2px solid var(--no); }
button {
  font: inherit; font-weight: 600; color: var(--surface); background: var(--yes); border: 0;
  border-radius: 6px; padding: 0.55rem 1.4rem; cursor: pointer;
}
button[name] { color: var(--ink); background: var(--raised); border: 1px solid var(--muted); }
.buttons { display: flex; flex-wrap: wrap; gap: 0.8rem; }
.wrong { border-left: 6px solid var(--no); padding: 0.6rem 1rem; background: var(--raised); }
.steps { color: var(--muted); font-size: 0.9rem; }
fieldset figure svg { max-height: 260px; }
nav { display: none; }
"""
FIELDS = ("pv", "sp", "op", "mode")
TITLES = {
    "pv": "Measurement (PV)", "sp": "Set point (SP)", "op": "Output (OP)", "mode": "Mode",
}  # fmt: skip
FACTORS = (
    ("1", "the unit of the measurement"),
    ("0.01", "percent, the measurement is a fraction"),
    ("100", "a fraction, the measurement is in percent"),
)
RANGES = (
    ("0 100", "percent, 0 to 100"),
    ("0 1", "a fraction, 0 to 1"),
    ("", "another unit, range as logged"),
)
KINDS = (
    ("", "choose"),
    ("percent", "a gain, percent per percent"),
    ("engineering", "a gain, in units"),
    ("band", "a proportional band, percent"),
)
RESETS = (
    ("", "choose"),
    ("minutes", "minutes per repeat"),
    ("seconds", "seconds per repeat"),
    ("per_minute", "repeats per minute"),
    ("per_second", "repeats per second"),
)
TIMES = (("", "choose"), ("minutes", "minutes"), ("seconds", "seconds"))
STRUCTURES = (
    ("standard", "standard (ideal, dependent)"),
    ("parallel", "parallel (independent)"),
    ("series", "series (interacting)"),
)
DIRECTIONS = (
    ("", "choose"),
    ("reverse", "reverse: falls when PV rises"),
    ("direct", "direct: rises when PV rises"),
)
MARKS = {
    "retune": ("yes", "\N{CHECK MARK}"),
    "leave it": ("yes", "\N{CHECK MARK}"),
    "mend the valve or sensor": ("no", "\N{MULTIPLICATION X}"),
}


class Choice(NamedTuple):
    """A column that may take a role.

    Attributes:
        name: Its name in the file.
        words: What is said of it: unit and extremes.
    """

    name: str
    words: str


@dataclasses.dataclass(frozen=True)
class LoopForm:
    """What is asked of one loop, with what the file shows of it filled in.

    Attributes:
        loop: Tag of the loop.
        columns: Column of each role, by ``"pv"``, ``"sp"``, ``"op"`` and ``"mode"``.
        factor: By what the setpoint is multiplied; empty if that must be chosen.
        output_range: Range of the output, two numbers in one text; empty if it must be chosen.
        doubts: Fields that must be chosen, each with the sentence that says why.
        notes: What was found while reading.
        measurement_unit: Unit of measurement and setpoint, for the picture.
        output_unit: Unit of the output.
        trend: Rows of the loop; none if they cannot be read as they are.
        given: What was answered before, by field.
        faceplate: Which loop the numbers of its faceplate make; empty if none were given.
    """

    loop: str
    columns: dict[str, str]
    factor: str
    output_range: str
    doubts: dict[str, str]
    notes: tuple[str, ...]
    measurement_unit: str
    output_unit: str
    trend: dict[str, tuple[float, ...]]
    given: dict[str, str] = dataclasses.field(default_factory=dict)
    faceplate: str = ""


def start_page(wrong: str = "") -> str:
    """The page on which a log is dropped; ``wrong`` says what was wrong with the last one."""
    form = tag(
        "form",
        _drop("log", "Drop the export of your historian here, as CSV or Parquet"),
        tag("button", "Look at its loops"),
        method="post",
        action="log",
        enctype="multipart/form-data",
    )
    sections = [
        ("drop", "1. The log", form),
        (
            "means",
            "What happens to it",
            bullets(
                [
                    "It stays on this machine. This page is served to this machine alone and loads "
                    "nothing from elsewhere.",
                    "Columns such as TIC-201.PV, .SP, .OP and .MODE are found by their names; "
                    "others you choose on the next page.",
                    "You get, for each loop: retune, mend the valve or sensor, leave it, or cannot "
                    "tell, and a sheet to sign where numbers are proposed.",
                ]
            ),
        ),
    ]
    return _page("Which of my loops should be retuned?", [], sections, wrong)


def confirm_page(
    log: str, facts: Sequence[str], choices: Sequence[Choice], loops: Sequence[LoopForm],
    wrong: str = "",
) -> str:  # fmt: skip
    """The page on which roles and units are confirmed on trends.

    Args:
        log: Name of the file.
        facts: Sentences on how it was read.
        choices: Columns that may take a role.
        loops: The loops found, or one without columns.
        wrong: What was wrong with the last answers.
    """
    forms = [
        tag("input", type="hidden", name_="loops", value=str(len(loops))),
        *(_fieldset(number, one, choices) for number, one in enumerate(loops)),
    ]
    # The first button is the one that the return key presses.
    form = tag(
        "form",
        *forms,
        tag(
            "div",
            tag("button", "Yes, look at these loops"),
            tag("button", "Only show the trends and faceplates again", name_="show", value="yes"),
            class_="buttons",
        ),
        method="post",
        action="confirm",
    )
    sections = [
        ("read", "How it was read", bullets(facts)),
        ("loops", "2. Are these the loops?", form),
    ]
    return _page(f"The loops of {log}", [_again()], sections, wrong)


def answers_page(log: str, folder: str) -> tuple[str, str]:
    """The page of the answers in two parts, between which each loop is written as it is done."""
    end = tag(
        "section",
        tag("h2", "After the change"),
        paragraph(
            "Come back with a log of the days since then: it is compared with this one on the same "
            "indices, and the answer is better, no difference shown, or worse: roll back."
        ),
        tag(
            "form",
            _drop("log", f"Drop the later export here, with the same columns as {log}"),
            tag("button", "Compare"),
            method="post",
            action="after",
            enctype="multipart/form-data",
        ),
        paragraph(f"Change sheets and pages are also in {folder}.", class_="note"),
    )
    soon = paragraph("Each loop appears as soon as it is done.", class_="steps")
    page = _page(f"The loops of {log}", [_again(), soon], [], "")
    head, _, tail = page.partition("<main>")
    return f"{head}<main>\n", f"{end.text}\n</main>{tail.partition('</main>')[2]}"


def answer_section(
    report: LoopReport, model: Sequence[str], *, sheet: str, change: str, today: str, command: str
) -> Html:
    """One loop: the answer first, then the change, the health and the model.

    Args:
        report: The loop.
        model: What the log shows of the process, in lines.
        sheet: Address of its change sheet; empty if there is none.
        change: The change in a sentence, or why there is none.
        today: What its faceplate shows, and which loop that is; empty if it was not given.
        command: The command that says the same on a command line.
    """
    cause = report.cause
    kind, mark = MARKS.get(cause.answer, ("unknown", "?"))
    banner = tag(
        "div",
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("div", paragraph(cause.answer, class_="answer"), paragraph(cause.reason)),
        class_=f"verdict {kind}",
    )
    rows: list[Sequence[str | Html] | Group] = [list(one) for one in health_figures(report)]
    columns = [Column("Figure", align="left"), Column("", align="left"), Column("", align="left")]
    link = (
        paragraph(tag("strong", tag("a", "Change sheet", href=sheet, target="_blank")))
        if sheet
        else Html("")
    )
    name = file_part(report.record.name)
    return tag(
        "section",
        tag("h2", report.record.name, id=f"loop-{name}"),
        banner,
        paragraph(cause.needed) if cause.needed else Html(""),
        bullets([f"{one[0].upper()}{one[1:]}." for one in cause.evidence])
        if cause.evidence
        else Html(""),
        tag("h3", "The change"),
        paragraph(f"Today's faceplate: {today}.") if today else Html(""),
        paragraph(f"{change[0].upper()}{change[1:].rstrip('.')}."),
        link,
        table("Health of the loop.", columns, rows),
        tag("h3", "What the log shows of the process"),
        bullets(model),
        fold("The same as a command", tag("pre", command)),
    )


def compared_page(log: str, before: str, compared: Sequence[tuple[ComparedLoop, str]]) -> str:
    """The answers of the comparison of two logs, each with the address of its page."""
    sections = [
        (
            f"loop{number}",
            one.loop,
            join(
                [
                    paragraph(tag("strong", one.words.upper())),
                    paragraph(one.sentence),
                    paragraph(tag("a", "What it rests on", href=page, target="_blank")),
                ]
            ),
        )
        for number, (one, page) in enumerate(compared)
    ]
    back = paragraph(tag("a", "Back to the answers", href="answers"))
    return _page(f"{log} beside {before}", [back], sections, "")


def wrong_page(wrong: str) -> str:
    """A page that says what went wrong, and leads back."""
    return _page("That did not work", [_again()], [], wrong)


def wrong_words(sentence: str) -> Html:
    """A line on what is wrong."""
    return tag("p", sentence, class_="wrong", role="alert")


def _page(question: str, header: Sequence[Html], sections: Sequence[Section], wrong: str) -> str:
    top = [
        tag("p", "neorl \N{MIDDLE DOT} loops of a log", class_="over"),
        tag("h1", question),
        *([wrong_words(wrong)] if wrong else []),
        *header,
    ]
    return document(question, top, sections, style=STYLE)


def _again() -> Html:
    return paragraph(tag("a", "Another log", href="./"), class_="steps")


def _drop(name: str, words: str) -> Html:
    return tag(
        "label", words, tag("input", type="file", name_=name, required="required"), class_="drop"
    )


def _fieldset(number: int, one: LoopForm, choices: Sequence[Choice]) -> Html:
    fields = [_field(number, "name", "Tag of the loop", _text(f"{number}.name", one.loop), one)]
    for role in FIELDS:
        options = [Choice("", "none" if role in ("sp", "mode") else "choose"), *choices]
        fields.append(
            _field(number, role, TITLES[role], _select(
                f"{number}.{role}", [(c.name, f"{c.name} {c.words}".strip()) for c in options],
                one.columns.get(role, ""),
            ), one)
        )  # fmt: skip
    fields += [
        _field(number, "factor", "The set point is in", _select(
            f"{number}.factor", [*([("", "choose")] * ("factor" in one.doubts)), *FACTORS],
            one.factor,
        ), one),
        _field(number, "op_range", "The output is in", _select(
            f"{number}.op_range", [*([("?", "choose")] * ("op_range" in one.doubts)), *RANGES],
            "?" if "op_range" in one.doubts else one.output_range,
        ), one),
        _field(number, "low", "Instrument from (if you know it)",
               _text(f"{number}.low", one.given.get("low", ""), "as logged"), one),
        _field(number, "high", "to",
               _text(f"{number}.high", one.given.get("high", ""), "as logged"), one),
    ]  # fmt: skip
    shown = (
        trend_picture(one, f"trend{number}")
        if one.trend
        else paragraph("No picture: choose the columns first.", class_="note")
    )
    remarks = [*one.notes, *one.doubts.values()]
    used = "" if one.given and one.given.get("use") != "yes" else " checked"
    ticked = tag(
        "label",
        Html(f'<input type="checkbox" name="{number}.use" value="yes"{used}>'),
        f" Look at {one.loop}",
    )
    return tag(
        "fieldset",
        tag("legend", ticked),
        *(wrong_words(sentence) for sentence in remarks),
        shown,
        tag("div", *fields, class_="fields"),
        _faceplate_fields(number, one),
    )


def _faceplate_fields(number: int, one: LoopForm) -> Html:
    """What the faceplate of a loop shows; nobody must answer this."""
    choices = (
        ("kind", "It shows", KINDS),
        ("proportional", "Gain or proportional band", ()),
        ("integral", "Reset (empty: no integral)", ()),
        ("integral_unit", "Reset in", RESETS),
        ("derivative", "Derivative (empty: none)", ()),
        ("derivative_unit", "Derivative in", TIMES),
        ("structure", "Form", STRUCTURES),
        ("direction", "The output", DIRECTIONS),
    )
    fields = []
    for key, title, options in choices:
        name, value = f"{number}.{key}", one.given.get(key, "")
        control = _select(name, options, value) if options else _text(name, value)
        fields.append(_field(number, key, title, control, one))
    typed = any(one.given.get(key) for key, _, options in choices if not options)
    found = paragraph(tag("strong", f"{one.faceplate[0].upper()}{one.faceplate[1:]}"),
                      class_="made") if one.faceplate else Html("")  # fmt: skip
    return tag(
        "details",
        tag("summary", "What its faceplate shows today (otherwise the rows say it)"),
        tag("div", *fields, class_="fields"),
        found,
        **({"open": "open"} if typed else {}),
    )


def _field(number: int, key: str, title: str, control: Html, one: LoopForm) -> Html:
    asked = "asked" if key in one.doubts else ""
    return tag("label", title, control, class_=asked)


def _text(name: str, value: str, placeholder: str = "") -> Html:
    return tag("input", name_=name, value=value, placeholder=placeholder)


def _select(name: str, options: Sequence[tuple[str, str]], chosen: str) -> Html:
    shown = [
        tag("option", words, value=value, **({"selected": "selected"} if value == chosen else {}))
        for value, words in options
    ]
    return tag("select", *shown, name_=name)


def column_words(unit: str, low: float, high: float) -> str:
    """Unit and extremes of a column."""
    if math.isnan(low):
        return "(words)"
    return f"({low:.4g} to {high:.4g}{f' {unit}' if unit else ''})"
