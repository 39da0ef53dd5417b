"""The report page: one file without external references."""

import os
from pathlib import Path

from neorl_core.infrastructure import write_text
from neorl_train.judging._results import line_warnings
from neorl_train.pages import _style
from neorl_train.pages._change_sheet import write_change_sheet
from neorl_train.pages._html import (
    Html,
    Section,
    bullets,
    document,
    fold,
    glossary,
    join,
    paragraph,
    tag,
)
from neorl_train.pages._inputs import Inputs, read_inputs
from neorl_train.pages._style import missing
from neorl_train.pages._terminal import SCORED
from neorl_train.pages.sections import _about as about
from neorl_train.pages.sections import _results as results
from neorl_train.pages.sections._amounts import benefit, movement_table
from neorl_train.pages.sections._comparison import acting_picture, cost_picture, start_picture
from neorl_train.pages.sections._learning import learning_picture
from neorl_train.pages.sections._loop_change import loop_sections
from neorl_train.pages.sections._scores import curve_table, score_table
from neorl_train.pages.sections._stretches import stretch_pictures
from neorl_train.pages.sections._trends import trend_pictures
from neorl_train.pages.sections._verdict import clause_table, headline, tiles
from neorl_train.runs._directory import REPORT


def write_report(run: str | os.PathLike[str]) -> Path:
    """Writes ``report.html`` into an evaluated run, and the sheets of changes that may be tried.

    Args:
        run: Directory of the run, with ``evaluation.json``, ``traces.json`` and ``verdict.json``.

    Returns:
        The file.

    Raises:
        InputError: If a required file is missing or damaged; the message names it.
        OSError: If the report cannot be written; an older one is then unchanged.
    """
    path, inputs = Path(run) / REPORT, read_inputs(Path(run))
    for change in inputs.loops if inputs.tried else ():
        write_change_sheet(path.parent, change)
    write_text(path, page(inputs))
    return path


def page(inputs: Inputs) -> str:
    """The report as one HTML document.

    Args:
        inputs: Result of :func:`read_inputs`.

    Returns:
        The document, without scripts or external references, suitable for light and dark mode and
        for printing.
    """
    tables = inputs.evaluation.tables
    name = tables.environment or tables.judge or inputs.evaluation.source.name
    header = [
        tag("p", f"neorl \N{MIDDLE DOT} run {inputs.run.name}", class_="over"),
        tag("h1", _question(inputs, name)),
        headline(inputs),
    ]
    answer = SCORED if tables.judge else inputs.verdict.answer
    title = f"{answer}: {inputs.verdict.candidate} on {name}"
    margin = f"neorl run {inputs.run.name} ({inputs.record.get('id', 'no id')}): {title}"
    return document(title, header, _sections(inputs), margin=margin)


def _question(inputs: Inputs, name: str) -> str:
    """The question that the report answers: about a plant, or about the plant behind a log."""
    candidate = inputs.verdict.candidate
    if inputs.evaluation.tables.judge:
        return f"What do the learners score in {name}?"
    if inputs.simulated:
        return f"Can {candidate} take over {name}?"
    return f"Can {candidate} take over the plant in {name}?"


def _sections(inputs: Inputs) -> list[Section]:
    """Identifier, heading and content of every section, in reading order."""
    scored = bool(inputs.evaluation.tables.judge)
    curves = ("curves", "Learning curves", learning_picture(inputs))
    meaning = (
        "What the scores mean, and what they do not"
        if scored
        else "What the verdict means, and what it does not"
    )
    guard = about.guard_facts(inputs) if inputs.record.get("speaks_of_guard", True) else Html("")
    parts = [
        ("why", "Scores" if scored else "Why", _why(inputs)),
        *([curves] if scored else []),
        ("limits", meaning, about.what_it_says(inputs)),
        ("next", "Next", about.next_commands(inputs)),
        ("loops", "The loops before and after", _loops(inputs)),
        ("identified", "What was identified and retuned", about.identified_models(inputs)),
        (
            "benefit",
            "What the gain consists of"
            if inputs.simulated
            else "The terms of the return in the log",
            benefit(inputs),
        ),
        *(_simulated_sections(inputs) if inputs.simulated else _logged_sections(inputs)),
        ("signs", "Signs that training went wrong", about.training_facts(inputs)),
        *([] if scored else [curves]),
        ("tables", "All numbers", _numbers(inputs)),
        ("data", "The log", about.data_facts(inputs)),
        ("guard", "The guard", guard),
        ("provenance", "Provenance", about.provenance(inputs)),
    ]
    return [part for part in parts if part[2].text]


def _loops(inputs: Inputs) -> Html:
    """Every changed loop, and why others have no sheet."""
    notes = [f"{line}." for line in inputs.record.get("loops", [])]
    changed = loop_sections(inputs.loops, tried=inputs.tried)
    return join([changed, bullets(notes)]) if notes else changed


def _why(inputs: Inputs) -> Html:
    parts = []
    if inputs.simulated:
        parts += [tiles(inputs), clause_table(inputs.verdict, inputs.evaluation.tables.level)]
        parts += [
            paragraph(f"{note[0].upper()}{note[1:].rstrip('.')}.", class_="note")
            for note in glossary(inputs.evaluation.tables.environment)
            if note
        ]
    else:
        if inputs.evaluation.tables.judge:
            parts.append(score_table(inputs.evaluation.tables))
            parts.append(curve_table(inputs.validations, inputs.curve_episodes))
        if inputs.verdict.clauses:
            parts.append(clause_table(inputs.verdict))
        if inputs.verdict.reason and not inputs.evaluation.tables.judge:
            parts.append(paragraph(f"Reason: {inputs.verdict.reason}."))
        worse = line_warnings(inputs.evaluation.imitation, inputs.verdict.candidate)
        parts += [paragraph(tag("strong", f"{line}.", class_="fails")) for line in worse]
        parts.append(results.score_line(inputs))
    if not _style.installed():
        parts.append(missing())
    return join(parts)


def _simulated_sections(inputs: Inputs) -> list[Section]:
    return [
        ("trends", "Episodes, as on the operator's screen", trend_pictures(inputs)),
        ("moves", "How the plant was moved", movement_table(inputs)),
        ("starts", "On every start", start_picture(inputs)),
        ("costs", "Return and cost", cost_picture(inputs)),
        ("acts", "Who acted", acting_picture(inputs)),
        ("pooled", "Did training learn anything?", _pooled_section(inputs)),
    ]


def _logged_sections(inputs: Inputs) -> list[Section]:
    return [
        ("stretches", "What it would have done on the log", stretch_pictures(inputs)),
        ("imitation", "Distance to the log", results.imitation_table(inputs)),
        ("moves", "How the plant was moved", movement_table(inputs)),
    ]


def _pooled_section(inputs: Inputs) -> Html:
    return join(
        [
            paragraph(
                "The verdict concerns one policy. This table answers another question: are all "
                "seeds of an algorithm together better than the controllers that recorded the log, "
                "which were run again on the same starts? \u201cThese seeds\u201d refers to the "
                "policies trained here; \u201cfresh seeds\u201d to another training run, which "
                "makes the interval wider."
            ),
            results.pooled_table(inputs.evaluation.tables),
        ]
    )


def _numbers(inputs: Inputs) -> Html:
    tables = inputs.evaluation.tables
    costs = [results.cost_table(tables, j) for j in range(tables.spec.n_cost)]
    endings = [results.ending_table(tables)] if inputs.simulated else []
    return fold("Show the tables of all policies", results.return_table(tables), *endings, *costs)
