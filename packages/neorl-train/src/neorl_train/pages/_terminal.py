"""Summarises the results for the terminal."""

import importlib.util
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from neorl_core.costs import limit_kind
from neorl_core.infrastructure.command_line import command_prefix
from neorl_train.judging._results import Evaluation, fit_line, line_warnings, read_evaluation
from neorl_train.judging._sentences import violation_sentences
from neorl_train.judging._tables import PolicyRow, ResultTables
from neorl_train.judging._training_results import read_fine_tuning, training_signs
from neorl_train.judging._verdict import (
    DEPLOY,
    REFUSE,
    Verdict,
    clause_lines,
    closing,
    parts,
    read_verdict,
)
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    difference,
    percent,
    quantity,
    with_decimals,
    with_interval,
    with_unit,
)
from neorl_train.pages._html import glossary
from neorl_train.pages._inputs import (
    chosen_lines,
    curves,
    learner_settings,
    read_config,
    read_object,
)
from neorl_train.pages.sections._scores import curve_lines, score_lines
from neorl_train.runs._directory import DIVERGED, METRICS, RECORD, REPORT
from neorl_train.runs._records import read_records

SCORED = "scored"
"""Answer to scores in a Gymnasium environment, which are no verdict on a plant."""
Step = tuple[str, str]
"""A command and its purpose."""


def next_steps(run: Path, verdict: Verdict, tables: ResultTables) -> list[Step]:
    """What a user can do with a finished run.

    Returns:
        Commands, the most useful first. Those of neorl-deploy are left out if it is not installed,
        and for scores in a Gymnasium environment, which has no plant beside it.
    """
    run_path, simulated = shlex.quote(str(run)), bool(tables.environment)
    train = command_prefix("neorl-train")
    if tables.judge and not verdict.clauses:
        why = "play other episodes, whose seeds no evaluation has used"
        return [(f"{train} evaluate {run_path}", why)]
    steps = []
    if any(run.glob("change-*.html")):
        why = "after a trial by hand, as the change sheet plans it: are the loops better?"
        steps.append((f"{train} loop NEW.csv --before OLD.csv", why))
    elif not simulated and "loops" in read_object(run / RECORD):
        why = "say of each loop whether to retune it, mend its valve or sensor, or leave it"
        source = tomllib.loads(read_config(run)).get("data", {}).get("source", "LOG")
        steps.append((f"{train} loop {shlex.quote(source)}", why))
    if not simulated and verdict.answer != DEPLOY:
        why = "check the plant model, and estimate every candidate in it with intervals"
        steps.append((f"{train} choose {run_path}", why))
    if simulated and verdict.answer != DEPLOY:
        why = "show which constraints are broken, with and without the filter"
        steps.append((f"{train} safety-report {run_path}", why))
    if importlib.util.find_spec("neorl_deploy") is None:
        return steps
    deploy, bundle = command_prefix("neorl-deploy"), shlex.quote(str(run / "policy.bundle"))
    why = "seal the candidate" if verdict.answer == DEPLOY else "seal the candidate, to watch it"
    steps += [
        (f"{deploy} export {run_path}", why),
        (f"{deploy} replay {bundle}", "run it in shadow over the log of this run"),
        (
            f"{deploy} init {bundle}",
            "write a draft of the tag map, to run it in shadow beside the plant",
        ),
    ]
    return steps


def next_lines(steps: list[Step]) -> list[str]:
    """The commands as lines of text, the first one after ``Next:``."""
    return [
        f"{'Next:' if not i else '     '} {command}    ({why})"
        for i, (command, why) in enumerate(steps)
    ]


WIDTH = 118  # columns needed to show every mean with its interval on one line
_COLOURS = {DEPLOY: "bold green", REFUSE: "bold red"}


def print_summary(run: Path, stream: TextIO | None = None) -> None:
    """Prints the results of an evaluated run, useful next commands, and the path of its report.

    Args:
        run: Directory of the run.
        stream: Stream to print to; standard output by default.

    Raises:
        InputError: If a file of the run is missing or damaged; the message names it.
    """
    evaluation, verdict = read_evaluation(run), read_verdict(run)
    console = _console(stream)
    if evaluation.tables.judge:
        _print_scores(console, evaluation.tables)
        _print_curve(console, run)
    else:
        _print_table(console, evaluation)
        _print_fits(console, evaluation, verdict.candidate)
    explained, _ = glossary(evaluation.tables.environment)
    owner = evaluation.source.attribution
    for note in (explained, f"data: {owner}" if owner else ""):
        if note:
            console.print(note, markup=False)
    record = read_object(run / RECORD)
    for line in guard_lines(record) if record.get("speaks_of_guard", True) else ():
        console.print(line, markup=False)
    exploration = [str(sentence) for sentence in record.get("exploration", [])]
    fine_tuning = read_fine_tuning(run).lines() if record.get("fine_tunes") else exploration
    tables = evaluation.tables
    for line in [*pooled_lines(tables), *benefit_lines(tables), *fine_tuning]:
        console.print(line, markup=False)
    settings = learner_settings(read_config(run))
    records, diverged = read_records(run / METRICS), record.get(DIVERGED)
    for line in [*record.get("warnings", ()), *training_signs(records, settings, diverged)]:
        console.print(line, style="yellow", markup=False)
    _print_verdict(console, evaluation, verdict)
    for line in chosen_lines(run, verdict):
        console.print(f"  {line}", markup=False)
    report = (run / REPORT).absolute()
    last = f"report: {report}" if report.is_file() else f"results: {run.absolute()}"
    for sheet in sorted(run.glob("change-*.html")):
        console.print(f"change sheet: {sheet.absolute()}", markup=False, soft_wrap=True)
    for line in next_lines(next_steps(_relative(run), verdict, tables)):
        console.print(line, markup=False, soft_wrap=True)
    console.print(last, markup=False, soft_wrap=True)


def _relative(run: Path) -> Path:
    """The directory as one would type it: relative if it lies below the current folder."""
    current, path = Path.cwd(), run.absolute()
    return path.relative_to(current) if path.is_relative_to(current) and path != current else path


def print_evaluation(
    evaluation: Evaluation, verdict: Verdict, stream: TextIO | None = None
) -> None:
    """Prints the table of an evaluation and its verdict."""
    console = _console(stream)
    if evaluation.tables.judge:
        _print_scores(console, evaluation.tables)
    else:
        _print_table(console, evaluation)
    _print_verdict(console, evaluation, verdict)


def _console(stream: TextIO | None) -> Any:
    from rich.console import Console

    out = stream or sys.stdout
    width = None if out.isatty() else max(shutil.get_terminal_size().columns, WIDTH)
    # On a terminal, lines are wrapped between words; in a file each sentence stays on one line.
    return Console(file=out, highlight=False, width=width, soft_wrap=not out.isatty())


def _print_table(console: Any, evaluation: Evaluation) -> None:
    console.print()
    wide = console.width >= WIDTH
    console.print(_title(evaluation, wide=wide), markup=False)
    console.print(_table(evaluation, wide=wide), soft_wrap=False)


def _print_scores(console: Any, tables: ResultTables) -> None:
    console.print()
    for line in score_lines(tables):
        console.print(line, markup=False)


def _print_curve(console: Any, run: Path) -> None:
    """Prints the learning curve as papers print it."""
    config = tomllib.loads(read_config(run))
    validations = curves(read_records(run / METRICS), "validation")
    if curve := curve_lines(validations, config["evaluation"]["curve_starts"]):
        console.print()
        for line in curve:
            console.print(line, markup=False)


def _print_fits(console: Any, evaluation: Evaluation, candidate: str) -> None:
    for line in fit_lines(evaluation):
        console.print(line, markup=False)
    for line in line_warnings(evaluation.imitation, candidate):
        console.print(line, style="bold red", markup=False)


def _print_verdict(console: Any, evaluation: Evaluation, verdict: Verdict) -> None:
    from rich.text import Text

    console.print()
    style, answer = _COLOURS.get(verdict.answer, "bold yellow"), verdict.answer
    if evaluation.tables.judge and not verdict.clauses:
        style, answer = "bold", SCORED
    console.print(Text.assemble((answer.upper(), style), f"  {parts(verdict)[0]}"))
    for line in clause_lines(verdict):
        console.print(line, markup=False)
    if verdict.clauses:
        for line in filter(None, [*violation_sentences(evaluation.tables), closing(verdict)]):
            console.print(f"  {line}", markup=False)


def fit_lines(evaluation: Evaluation) -> list[str]:
    """How far each policy's actions are from the log's; for each learner its first seed."""
    fits = evaluation.imitation
    first = {fit.group: fit.policy for fit in reversed(fits)}
    return [fit_line(fit) for fit in fits if first[fit.group] == fit.policy]


def benefit_lines(tables: ResultTables) -> list[str]:
    """The terms of the return: candidate minus reference, or the values in the log."""
    if not tables.environment:
        rows = [row for row in tables.rows if row.role == "log"]
        cells = [cell for row in rows for cell in row.amounts if cell.kind == "term"]
        shown = [
            f"{cell.name} "
            f"{with_unit(with_interval(cell.amount, decimals([cell.amount])), cell.unit)}"
            for cell in cells
        ]
        return [f"mean over an episode of the log: {'; '.join(shown)}"] if shown else []
    shown = [
        f"{cell.name} "
        f"{with_unit(difference(cell.difference, decimals([cell.difference])), cell.unit)}"
        for row in tables.rows
        if (row.name, row.guarded) == (tables.candidate, True)
        for cell in row.amounts
        if cell.kind == "term" and cell.difference is not None
    ]
    subject = f"{tables.candidate} compared with {tables.reference}, per episode"
    return [f"{subject}: {'; '.join(shown)}"] if shown else []


def guard_lines(record: Mapping[str, Any]) -> list[str]:
    """The limits of a run and its fallback as recorded; empty if there is no record of them."""
    fallback, lines = record.get("fallback", ""), []
    for name, title in (
        ("limits", "limits:"),
        ("replaced_limits", "limits declared by the source, which these replace:"),
    ):
        sentences = record.get(name, [])
        lines += [title, *(f"  {sentence}" for sentence in sentences)] if sentences else []
    lines += [f"fallback: {fallback}"] if fallback else []
    supervision = record.get("supervision", [])
    return lines + (
        ["supervision:", *(f"  {sentence}" for sentence in supervision)] if supervision else []
    )


def chosen_rows(tables: ResultTables) -> list[PolicyRow]:
    """The candidate with its guard, controllers and log as they are; other seeds are pooled."""
    return [
        row
        for row in tables.rows
        if (row.role != "learner" and not row.guarded)
        or (row.role == "learner" and row.guarded and row.name == tables.candidate)
    ]


def _title(evaluation: Evaluation, *, wide: bool) -> str:
    tables = evaluation.tables
    shown = (
        f"mean [{confidence(tables.level)} interval]"
        if wide
        else "means; the report has their intervals"
    )
    where = f"{tables.n_starts} paired episodes" if tables.environment else "its episodes"
    return f"{tables.environment or evaluation.source.name}, {where}: {shown}"


def _table(evaluation: Evaluation, *, wide: bool) -> object:
    from rich import box
    from rich.table import Table

    tables = evaluation.tables
    simulated = bool(tables.environment)
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    numbers: Any = {"justify": "right", "no_wrap": wide}
    table.add_column(f"return\n{tables.reward_unit}", **numbers)
    if simulated:
        table.add_column(f"gain over\n{tables.reference}", **numbers)
    for channel in tables.spec.cost:
        unit = channel.unit if wide else channel.unit.replace(" ", "\N{NO-BREAK SPACE}")
        limit = f"limit {limit_kind(channel).limit_words(channel.limit, '1')}"
        head = channel.name if unit == "?" else f"{channel.name}, {unit}"
        table.add_column(f"{head}\n{limit}", **numbers)
    if tables.spec.n_cost:
        table.add_column("a limit\nbroken in", **numbers)
    if simulated:
        table.add_column("trips\n", **numbers)
        table.add_column("guard\nacts", **numbers)
    rows = chosen_rows(tables)
    digits = decimals(row.returns for row in rows)
    for row in rows:
        cells = _cells(row, tables, digits)
        table.add_row(*(cells if wide else [re.split(r"\s\[", cell)[0] for cell in cells]))
    return table


def _cells(row: PolicyRow, tables: ResultTables, digits: int) -> list[str]:
    names = {
        "classical": row.name,
        "learner": f"{row.name} + guard",
        "log": "recorded log",
    }
    simulated, gain = bool(tables.environment), row.difference
    returns = row.returns
    mean = with_decimals(returns.value, digits) if simulated else with_interval(returns, digits)
    cells = [names.get(row.role, row.name), mean]
    if simulated:
        paired = "" if gain is None else difference(gain, digits, space=" ")
        cells.append(DASH if row.name == tables.reference else paired or DASH)
    for cell in row.costs:
        cells.append(with_interval(cell.limited, decimals([cell.limited], most=2)))
    if row.costs:
        cells.append(f"{round((1 - row.satisfied.value) * row.n_episodes)}/{row.n_episodes}")
    if simulated:
        cells.append(DASH if row.trips is None else str(row.n_trips))
        cells.append(percent(row.filtered + row.fallback) if row.guarded else DASH)
    return cells


def pooled_lines(tables: ResultTables) -> list[str]:
    """One line for each algorithm: its pooled seeds compared with the behaviour in the log.

    If the candidate was compared with a controller other than the plant's reference, another line
    gives that comparison.
    """
    lines = []
    own = {row.group for row in tables.rows if row.name == tables.candidate}
    for row in tables.pooled:
        is_other_controller = row.against_role == "classical" and row.against != tables.reference
        if is_other_controller and row.guarded and row.group in own:
            digits = decimals([row.difference])
            lines.append(
                f"{row.group} compared with {row.against}, the plant's reference: return "
                f"{difference(row.difference, digits, space=' ')} {tables.reward_unit}"
            )
        if row.against_role == "behaviour" and not row.guarded:
            digits = decimals([row.difference])
            answer = "better than" if row.better else "not shown to be better than"
            seeds = "1 seed" if len(row.seeds) == 1 else f"{len(row.seeds)} seeds"
            lines.append(
                f"{row.group}, {seeds}: {answer} the {row.against}: return "
                f"{difference(row.difference, digits, space=' ')} "
                f"{tables.reward_unit}"
                + "".join(
                    f", {cost.name} at most {quantity(cost.mean.high, cost.unit)} ("
                    f"{row.against}: "
                    f"{quantity(cost.other.high, cost.unit)})"
                    for cost in row.costs
                )
            )
    return lines
