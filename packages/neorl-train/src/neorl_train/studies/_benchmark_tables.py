"""A benchmark as tables: one per task, one over all tasks, and the notes on both."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import head, write_text
from neorl_train.judging._json import to_plain
from neorl_train.judging._tables import Estimate
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    difference,
    fixed,
    percent,
    with_interval,
)
from neorl_train.studies._benchmark import PROFILE, Benchmark, BenchmarkRow
from neorl_train.studies._formats import Table, csv_text, ends, rendered

VERSION = 1
SHOWN_SCORES = (0.0, 50.0, 100.0)
"""Thresholds of the profile in the table over all tasks."""


def benchmark_text(benchmark: Benchmark) -> str:
    """All tables and notes on unfinished runs, for the terminal."""
    return "\n".join([rendered(benchmark_tables(benchmark), ".txt"), *notes(benchmark)])


def benchmark_to_json(benchmark: Benchmark) -> dict[str, Any]:
    """Everything as plain JSON; unknown numbers are ``null``."""
    return {
        **head("benchmark", VERSION),
        "thresholds": list(PROFILE),
        **to_plain(benchmark),
        "notes": notes(benchmark),
    }


def write_benchmark(folder: Path, benchmark: Benchmark) -> list[Path]:
    """Writes the tables as text, Markdown, LaTeX, CSV and JSON.

    Args:
        folder: Folder of the benchmark.
        benchmark: Results of the benchmark.

    Returns:
        The files.

    Raises:
        OSError: If one cannot be written.
    """
    tables, note_lines = benchmark_tables(benchmark), notes(benchmark)
    content = {
        ".txt": benchmark_text(benchmark) + "\n",
        ".md": "\n".join([rendered(tables, ".md"), *(f"- {note}" for note in note_lines), ""]),
        ".tex": "\n".join([rendered(tables, ".tex"), *(f"% {note}" for note in note_lines), ""]),
        ".csv": rows_csv(benchmark.rows),
        ".json": json.dumps(benchmark_to_json(benchmark), indent=1) + "\n",
    }
    for suffix, text in content.items():
        write_text(folder / f"benchmark{suffix}", text)
    return [folder / f"benchmark{suffix}" for suffix in content]


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
    heads += ["return", "gain over what runs today", "over a limit in", "trips"]
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
    return with_interval(estimate, 1) if has_interval else fixed(estimate.value, 1)
