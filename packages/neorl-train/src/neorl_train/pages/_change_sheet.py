"""The change sheet of a loop: one printable page to try new numbers by, and to sign."""

from pathlib import Path

from neorl_core.infrastructure import write_text
from neorl_train.judging._loop_change import LoopChange
from neorl_train.pages._html import Html, bullets, document, join, paragraph, tag
from neorl_train.pages.sections._loop_change import (
    expected_table,
    margins_table,
    sheet_name,
    steps_picture,
    touched_list,
    trend_picture,
    typed_table,
)

STYLE = """
@page { size: A4 portrait; margin: 9mm; }
body.sheet { max-width: 1240px; }
body.sheet nav { display: none; }
.sheet h2 { font-size: 1.05rem; margin: 1.1rem 0 0.3rem; padding-top: 0.3rem; }
.sheet .scroll { margin: 0.3rem 0 0.6rem; }
.sheet p, .sheet ul, .sheet ol { margin: 0.3rem 0; }
.sheet .pair {
  display: grid; gap: 0 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(520px, 100%), 1fr));
}
.sheet .pair > div { min-width: 0; }
.sheet .signed { display: grid; grid-template-columns: repeat(4, 1fr); gap: 0.6rem; }
.sheet .signed div {
  border: 1px solid var(--muted); padding: 0.2rem 0.4rem 1.6rem;
  font-size: 0.8rem; color: var(--muted);
}
.sheet details { display: none; }
.sheet td, .sheet tbody th { white-space: normal; }
@media print {
  html { font-size: 7pt; }
  .sheet h1 { font-size: 1.5rem; margin-bottom: 0.3rem; }
  .sheet .verdict { padding: 0.4rem 0.8rem; }
  .sheet .verdict .mark { font-size: 1.6rem; }
  .sheet .verdict .answer { font-size: 1.1rem; }
  .sheet h2 { margin-top: 0.5rem; }
  .sheet figure { margin: 0.2rem 0; }
  .sheet figure svg { max-height: 70mm; }
  .sheet .pair { grid-template-columns: 1fr 1fr; }
  .sheet figcaption { font-size: 0.8rem; }
  .sheet table { font-size: 0.86rem; }
  .sheet th, .sheet td { padding: 0.08rem 0.35rem; }
}
"""
BOXES = (
    "Control engineer", "Shift supervisor", "Typed on (date, time, by)",
    "Result: keep or roll back (date, by)",
)  # fmt: skip


def write_change_sheet(folder: Path, change: LoopChange) -> Path:
    """Writes the sheet of one change, and returns its file.

    Raises:
        OSError: If it cannot be written; an older one is then unchanged.
    """
    path = folder / sheet_name(change)
    write_text(path, change_sheet(change))
    return path


def change_sheet(change: LoopChange) -> str:
    """The sheet as one HTML document, without scripts or external references."""
    header = [
        tag(
            "p", f"neorl \N{MIDDLE DOT} change sheet \N{MIDDLE DOT} {change.source}", class_="over"
        ),
        tag("h1", f"Change of {change.loop}"),
        _banner(change),
    ]
    sections = [
        ("values", "What to type, and why", _values(change)),
        ("steps", "What will change", _evidence(change)),
        ("plan", "How to try it", _plan(change)),
        ("sign", "Signatures", _signatures(change)),
    ]
    margin = f"change of {change.loop}, log {change.digest}"
    return document(
        f"Change of {change.loop}", header, sections, margin=margin, style=STYLE, body_class="sheet"
    )


def _banner(change: LoopChange) -> Html:
    kind, mark, answer = ("yes", "\N{CHECK MARK}", "May be tried") if change.accepted else (
        "no", "\N{MULTIPLICATION X}", "Do not type these numbers")  # fmt: skip
    further = (
        []
        if change.accepted
        else [paragraph("With the worst model that the log allows, the margins are too small.")]
    )
    return tag(
        "div",
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("div", paragraph(answer, class_="answer"), paragraph(f"{change.sentence}."), *further),
        class_=f"verdict {kind}",
        id="verdict",
        role="status",
    )


def _values(change: LoopChange) -> Html:
    sentences = [change.reason, change.stopped, *change.conditions]
    lines = [f"{one[0].upper()}{one[1:].rstrip('.')}." for one in sentences if one]
    return _pair(typed_table(change), join([margins_table(change), bullets(lines)]))


def _evidence(change: LoopChange) -> Html:
    logged = _pair(expected_table(change), trend_picture(change, "trend"))
    return join([steps_picture(change, "steps"), logged])


def _pair(left: Html, right: Html) -> Html:
    return tag("div", tag("div", left), tag("div", right), class_="pair")


def _plan(change: LoopChange) -> Html:
    back = ", ".join(f"{row.name} {row.old} {row.unit}".rstrip() for row in change.typed)
    watch = [
        paragraph(
            tag("strong", "Go back at once"),
            f" if {'; '.join(change.stop)}. ",
            tag("strong", f"To go back, type {back}."),
        ),
        paragraph(tag("strong", "Limits, alarms and interlocks on this loop:")),
        touched_list(change),
        paragraph("Who watches: __________________ (panel), __________________ (within call)"),
    ]
    return _pair(tag("ol", *(tag("li", step) for step in change.plan)), join(watch))


def _signatures(change: LoopChange) -> Html:
    digest = f"Log: {change.source}, {change.digest}"
    return join(
        [
            tag("div", *(tag("div", box) for box in BOXES), class_="signed"),
            paragraph(
                f"{digest}{f', {change.period_of_log}' if change.period_of_log else ''}.",
                class_="note",
            ),
        ]
    )
