"""Compared runs as tables: text for the terminal, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core import InputError
from neorl_core.infrastructure import head, unknown_name
from neorl_train.judging._results import to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    DASH,
    NBSP,
    align,
    confidence,
    decimals,
    difference,
    enumeration,
    interval,
    percent,
    with_decimals,
    with_interval,
    with_sign,
)
from neorl_train.studies._benchmark import PROFILE, Benchmark, BenchmarkRow
from neorl_train.studies._comparison import THRESHOLDS, ComparedRow, Comparison, LearnerAggregate

TODAY = "today's controller"
"""What people read for the incumbent."""

_LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


class Table(NamedTuple):
    """A table of text cells.

    Attributes:
        title: Description of the table, with remarks that apply to the whole table.
        cells: Heads, then the rows.
    """

    title: str
    cells: list[list[str]]


def render(tables: Sequence[Table], suffix: str) -> str:
    """The tables one below the other.

    ``suffix`` is ``".txt"``, ``".md"`` or ``".tex"``.
    """
    style = {".txt": _text, ".md": _markdown, ".tex": _latex}[suffix]
    return "\n".join(style(table) for table in tables)


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Refuses an output file that could not be written, before anything is computed for it."""
    if path.suffix not in suffixes:
        raise unknown_name(f"ending of {path}:", path.suffix, suffixes)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; create it first")


def csv_text(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as CSV with the same line ends on every system."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def ends(estimate: Any) -> list[Any]:
    """Value and both ends of an estimate for CSV; empty if there is none."""
    if estimate is None:
        return ["", "", ""]
    numbers = (estimate.value, estimate.low, estimate.high)
    return ["" if number != number else number for number in numbers]


def short_names(names: Sequence[str]) -> list[str]:
    """The last parts of dotted names, as few as needed to distinguish them."""
    short = []
    for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            end = ".".join(parts[-count:])
            if sum(other == end or other.endswith(f".{end}") for other in names) == 1:
                break
        short.append(end)
    return short


def _text(table: Table) -> str:
    return "\n".join([table.title, "", *align(table.cells), ""])


def _markdown(table: Table) -> str:
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in table.cells]
    lines = [f"| {' | '.join(line)} |" for line in escaped]
    rule = "|---" * len(table.cells[0]) + "|"
    return "\n".join([table.title, "", lines[0], rule, *lines[1:], ""])


def _latex(table: Table) -> str:
    heads, *rows = [[_latex_cell(cell) for cell in line] for line in table.cells]
    return "\n".join(
        [
            f"% {table.title}",
            f"\\begin{{tabular}}{{{'l' * len(heads)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex_cell(cell: str) -> str:
    escaped = re.sub(r"[\\&%$#_{}~^]", lambda mark: _LATEX[mark[0]], cell)
    for mark, replacement in (
        ("\N{MINUS SIGN}", "$-$"),
        (DASH, "--"),
        (NBSP, "~"),
        ("\N{THIN SPACE}", r"\,"),
    ):
        escaped = escaped.replace(mark, replacement)
    return escaped


VERSION = 1
SUFFIXES = (".txt", ".md", ".tex", ".csv", ".json", ".html", ".png")


def comparison_text(comparison: Comparison, aggregates: Sequence[LearnerAggregate]) -> str:
    """Both tables for the terminal."""
    return render(comparison_tables(comparison, aggregates), ".txt").rstrip("\n")


def comparison_to_json(
    comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> dict[str, Any]:
    """Everything as plain JSON; unknown numbers are ``null``."""
    plain = {
        "thresholds": list(THRESHOLDS),
        **to_plain(comparison),
        "aggregates": to_plain(tuple(aggregates)),
    }
    return {**head("comparison", VERSION), **plain}


def comparison_tables(
    comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> list[Table]:
    """The rows of the runs, and the learners over several plants if there are any."""
    tables = [Table(_runs_title(comparison), _run_cells(comparison))]
    if aggregates:
        tables.append(Table(_aggregate_title(comparison), _aggregate_cells(aggregates)))
    return tables


def _runs_title(comparison: Comparison) -> str:
    """Describes the columns that the rows fill."""
    rows, level = comparison.rows, confidence(comparison.level)
    on_log = [row for row in rows if row.explained is not None]
    sentences = [f"Means with their {level} intervals."]
    if any(row.gain is not None for row in rows):
        other = comparison.against or f"{TODAY} of the run"
        sentences.append(
            "Learners behind their guard, controllers as they are. The gain is paired with "
            f"{other}; with several seeds its interval applies to the next training run. p is that "
            "of Wilcoxon's test of these policies on the same starts, adjusted by Holm for all "
            "rows."
        )
    if on_log:
        sentences.append(
            "In a run on a log without a simulator no policy was run: the return is that of the "
            "log, and R2 is the fraction of the variance of its actions on held-out rows that the "
            "policy's actions explain."
        )
    if any(row.predicted is not None for row in on_log):
        sentences.append(
            "The predicted gain is that of the run's candidate in a plant model of the log; its "
            "interval covers the differences between episodes and between the networks of the "
            "model."
        )
    predicting = {row.run for row in on_log if row.predicted is not None}
    others = dict.fromkeys(row.run for row in on_log if row.run not in predicting)
    if others:
        sentences.append(
            f"{'Run' if len(others) == 1 else 'Runs'} {enumeration(list(others))} predicted no "
            "gain, because no controller was retuned; retuning.controller names the one to retune."
        )
    sentences += [
        f"In run {run}, {enumeration(list(names))} diverged, with no row."
        for run, names in comparison.diverged.items()
    ]
    if _differ_in_size(rows):
        sentences.append(
            "The policies differ in size (numbers in one) by more than a factor of two, so methods "
            "are compared together with their sizes."
        )
    return " ".join(sentences)


def _differ_in_size(rows: Sequence[ComparedRow]) -> bool:
    sizes = [row.size for row in rows if row.size is not None]
    return max(sizes, default=0) > 2 * min(sizes, default=0)


def _aggregate_title(comparison: Comparison) -> str:
    return (
        f"Gain over {comparison.against or TODAY} in standard deviations of the return of "
        f"{TODAY} over the starts: interquartile mean over plants and seeds, "
        f"{confidence(comparison.level)} interval. Limits are not part of it."
    )


def _run_cells(comparison: Comparison) -> list[list[str]]:
    """Heads and rows, without the columns that no row fills."""
    rows = comparison.rows
    settings = list(dict.fromkeys(name for row in rows for name in row.settings))
    heads = ["run", "source", *short_names(settings), "policy", "size", "seeds", "return"]
    heads += [f"gain over {comparison.against or TODAY}", "p", "over a limit in"]
    heads += ["trips", "R2 of logged actions"]
    heads += [f"predicted gain over {TODAY}", "verdict"]
    sized = _differ_in_size(rows)
    lines = [
        [
            row.run,
            row.source,
            *(row.settings.get(name, DASH) for name in settings),
            row.policy,
            f"{row.size:,}" if row.size is not None and sized else DASH,
            str(row.seeds),
            *_result_cells(row, comparison.against),
            row.answer or DASH,
        ]
        for row in rows
    ]
    filled = [i for i in range(len(heads)) if any(line[i] != DASH for line in lines)]
    return [[line[i] for i in filled] for line in (heads, *lines)]


def _result_cells(row: ComparedRow, against: str) -> list[str]:
    """The results of a row, those on a plant before those on a log."""
    digits, on_log = decimals([row.returns]), row.explained is not None
    returns = DASH
    if row.returns is not None:
        returns = f"{with_interval(row.returns, digits)} {row.unit}"
    nothing = TODAY if row.policy == row.incumbent and not against else DASH
    gain = predicted = DASH
    if on_log:
        predicted = nothing
    else:
        gain = nothing
    if row.gain is not None:
        gain = difference(row.gain, digits)
    if row.predicted is not None:
        predicted = f"{difference(row.predicted, decimals([row.predicted]))} {row.unit}"
    return [
        returns,
        gain,
        _p_text(row.adjusted),
        DASH if row.over is None else f"{percent(row.over.value)} ({row.worst_cost})",
        DASH if row.trips is None else percent(row.trips),
        DASH if row.explained is None else with_decimals(row.explained, 2),
        predicted,
    ]


def _p_text(value: float | None) -> str:
    """A p value with three decimals, or the bound if it is smaller."""
    if value is None or math.isnan(value):
        return DASH
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _aggregate_cells(aggregates: Sequence[LearnerAggregate]) -> list[list[str]]:
    settings = list(dict.fromkeys(name for aggregate in aggregates for name in aggregate.settings))
    heads = ["learner", *short_names(settings), "plants", "seeds", "interquartile mean"]
    shown = [0.0, 1.0]
    heads += [f"above {threshold:g}" for threshold in shown] + ["deployed"]
    lines = [heads]
    for aggregate in aggregates:
        known = math.isfinite(aggregate.score.low)
        shown_ends = f"{NBSP}{interval(aggregate.score, 2)}" if known else ""
        lines.append(
            [
                aggregate.learner,
                *(aggregate.settings.get(name, DASH) for name in settings),
                str(len(aggregate.sources)),
                str(aggregate.seeds),
                f"{with_sign(aggregate.score.value, 2)}{shown_ends}",
                *(percent(aggregate.profile[THRESHOLDS.index(threshold)]) for threshold in shown),
                f"{aggregate.deployed} of {aggregate.judged}" if aggregate.judged else DASH,
            ]
        )
    return lines


def comparison_csv(comparison: Comparison) -> str:
    """Every number of the rows of the runs, with the ends of its interval."""
    settings = list(dict.fromkeys(name for row in comparison.rows for name in row.settings))
    heads = [
        *("run", "source", *settings, "policy", "role", "seeds", "unit"),
        *("return", "return_low", "return_high", "incumbent", "gain", "gain_low", "gain_high"),
        *("p_value", "p_adjusted"),
        *("worst_cost", "over", "over_low", "over_high", "trips", "explained"),
        *("predicted_gain", "predicted_low", "predicted_high", "verdict", "size"),
    ]
    rows = [
        [
            *(row.run, row.source, *(row.settings.get(name, "") for name in settings)),
            *(row.policy, row.role, row.seeds, row.unit, *ends(row.returns), row.incumbent),
            *ends(row.gain),
            *("" if p is None else p for p in (row.p_value, row.adjusted)),
            *(row.worst_cost, *ends(row.over)),
            *("" if row.trips is None else row.trips,),
            *("" if row.explained is None else row.explained, *ends(row.predicted), row.answer),
            "" if row.size is None else row.size,
        ]
        for row in comparison.rows
    ]
    return csv_text(heads, rows)


BENCHMARK_VERSION = 1
SHOWN_SCORES = (0.0, 50.0, 100.0)
"""Thresholds of the profile in the table over all tasks."""


def benchmark_text(benchmark: Benchmark) -> str:
    """All tables and notes on unfinished runs, for the terminal."""
    return "\n".join([render(benchmark_tables(benchmark), ".txt"), *notes(benchmark)])


def benchmark_to_json(benchmark: Benchmark) -> dict[str, Any]:
    """Everything as plain JSON; unknown numbers are ``null``."""
    return {
        **head("benchmark", BENCHMARK_VERSION),
        "thresholds": list(PROFILE),
        **to_plain(benchmark),
        "notes": notes(benchmark),
    }


def benchmark_tables(benchmark: Benchmark) -> list[Table]:
    """The table over all tasks if there are several, then one table per task."""
    tasks = list(dict.fromkeys((row.plant, row.quality) for row in benchmark.rows))
    tables = [_overall_table(benchmark, len(tasks))] if len(tasks) > 1 else []
    for plant, quality in tasks:
        rows = [row for row in benchmark.rows if (row.plant, row.quality) == (plant, quality)]
        title = (
            f"{plant}, {quality} log: learners behind their guard, controllers as they are; mean "
            f"with its {confidence(benchmark.level)} interval over {benchmark.starts} common "
            "starts, and over seeds where there are several. Score: return less the declared "
            "penalties, 0 as random actions, 100 as the plant's reference controller."
        )
        tables.append(Table(title, task_cells(rows)))
    return tables


def notes(benchmark: Benchmark) -> list[str]:
    """Notes on the budget of online evaluations, the number of runs, and each failed run."""
    runs = benchmark.runs
    lines = [
        f"runs: {runs['finished']} finished, {runs['failed']} failed, {runs['left']} left",
        "online evaluations: the last score needs none for its choice and is measured in "
        f"{benchmark.starts} episodes per policy; the best score needs {benchmark.online} episodes "
        "on the plant per seed for its choice, and is the score in these same episodes, without "
        "guard: compare it with the column 'last there', not with 'score, last'",
    ]
    return lines + [f"failed: {failure}" for failure in benchmark.failures]


def task_cells(rows: Sequence[BenchmarkRow]) -> list[list[str]]:
    """The cells of one task's table: one line per policy."""
    failed = any(row.failed for row in rows)
    has_curve = any(row.best is not None for row in rows)
    heads = ["policy", "seeds", *["failed"] * failed, "score, last"]
    heads += ["score, best on the way", "last there"] * has_curve
    heads += ["return", "gain over today's controller", "over a limit in", "trips"]
    lines = [heads]
    for row in rows:
        digits = decimals([row.returns])
        returns, gain = DASH, "runs today" if row.policy == row.incumbent else DASH
        if row.returns is not None:
            returns = f"{with_interval(row.returns, digits)} {row.unit}"
        if row.gain is not None and math.isfinite(row.gain.value):
            gain = difference(row.gain, digits)
        over = DASH if row.over is None else f"{percent(row.over)} ({row.worst_cost})"
        lines.append(
            [
                row.policy,
                str(row.seeds) if row.role == "learner" else DASH,
                *[str(row.failed) if row.role == "learner" else DASH] * failed,
                _score(row.last),
                *[_score(row.best), _score(row.last_there)] * has_curve,
                returns,
                gain,
                over,
                DASH if row.trips is None else percent(row.trips),
            ]
        )
    return lines


def rows_csv(rows: Sequence[BenchmarkRow]) -> str:
    """Every number of the rows, with the ends of its interval."""
    heads = [
        *("plant", "quality", "policy", "role", "seeds", "failed", "unit"),
        *("score_last", "score_last_low", "score_last_high"),
        *("score_best", "score_best_low", "score_best_high"),
        *("score_last_there", "score_last_there_low", "score_last_there_high"),
        *("return", "return_low", "return_high", "incumbent", "gain", "gain_low", "gain_high"),
        *("worst_cost", "over", "trips"),
    ]
    lines = [
        [
            *(row.plant, row.quality, row.policy, row.role, row.seeds, row.failed, row.unit),
            *(*ends(row.last), *ends(row.best), *ends(row.last_there)),
            *(*ends(row.returns), row.incumbent, *ends(row.gain), row.worst_cost),
            *("" if row.over is None else row.over, "" if row.trips is None else row.trips),
        ]
        for row in rows
    ]
    return csv_text(heads, lines)


def _overall_table(benchmark: Benchmark, tasks: int) -> Table:
    title = (
        "Interquartile mean of the score over plants, qualities and seeds; "
        f"{confidence(benchmark.level)} interval by drawing seeds anew within each task; and the "
        "fraction of the scores above a threshold. A seed that failed counts as the worst score "
        "that any policy has on that task, random actions included. Limits are not part of it."
    )
    has_curve = any(policy.best is not None for policy in benchmark.overall)
    heads = ["policy", "tasks", "failed seeds", "score, last"]
    heads += [
        *["score, best on the way"] * has_curve,
        *(f"above {score:g}" for score in SHOWN_SCORES),
    ]
    cells = [
        [
            policy.policy,
            f"{policy.tasks} of {tasks}",
            str(policy.failed) if policy.role == "learner" else DASH,
            _score(policy.last),
            *[_score(policy.best)] * has_curve,
            *(percent(policy.profile[PROFILE.index(score)]) for score in SHOWN_SCORES),
        ]
        for policy in benchmark.overall
    ]
    return Table(title, [heads, *cells])


def _score(estimate: Estimate | None) -> str:
    if estimate is None:
        return DASH
    has_interval = math.isfinite(estimate.low)
    return with_interval(estimate, 1) if has_interval else with_decimals(estimate.value, 1)
