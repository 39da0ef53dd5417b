"""Compared runs as tables: text for the terminal, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import head, unknown_name, write_text
from neorl_train.results._json import to_plain
from neorl_train.results._text import aligned
from neorl_train.results._wording import (
    DASH,
    NBSP,
    confidence,
    decimals,
    fixed,
    interval,
    percent,
    signed,
)
from neorl_train.studies._aggregates import THRESHOLDS, LearnerAggregate
from neorl_train.studies._comparison import ComparedRow, Comparison

VERSION = 1
SUFFIXES = (".txt", ".md", ".tex", ".csv", ".json")

_LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_comparison(
    path: Path, comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> None:
    """Writes compared runs in the format that the name of the file ends with.

    Args:
        path: File of one of :data:`SUFFIXES`. A CSV file holds the rows of the runs alone.
        comparison: Runs side by side.
        aggregates: Learners over several plants.

    Raises:
        InputError: If the name ends otherwise.
        OSError: If the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise unknown_name(f"ending of {path}:", path.suffix, SUFFIXES)
    if path.suffix == ".csv":
        text = _csv(comparison)
    elif path.suffix == ".json":
        text = json.dumps(comparison_to_json(comparison, aggregates), indent=1) + "\n"
    else:
        style = {".txt": _text, ".md": _markdown, ".tex": _latex}[path.suffix]
        text = "\n".join(style(*one) for one in _all_tables(comparison, aggregates))
    write_text(path, text)


def comparison_text(comparison: Comparison, aggregates: Sequence[LearnerAggregate]) -> str:
    """Both tables for the terminal."""
    return "\n".join(_text(*one) for one in _all_tables(comparison, aggregates)).rstrip("\n")


def comparison_to_json(
    comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> dict[str, Any]:
    """Everything as plain JSON; numbers that are not known are ``null``."""
    plain = {
        "thresholds": list(THRESHOLDS),
        **to_plain(comparison),
        "aggregates": to_plain(tuple(aggregates)),
    }
    return {**head("comparison", VERSION), **plain}


def _all_tables(
    comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> list[tuple[str, list[list[str]]]]:
    tables = [(_runs_title(comparison), _run_cells(comparison.rows))]
    if aggregates:
        tables.append((_aggregate_title(comparison.level), _aggregate_cells(aggregates)))
    return tables


def _runs_title(comparison: Comparison) -> str:
    return (
        "Learners behind their guard, controllers as they are; mean with its "
        f"{confidence(comparison.level)} interval. The gain is paired with the incumbent of the "
        "run; with several seeds it speaks of the next training run."
    )


def _aggregate_title(level: float) -> str:
    return (
        "Gain over the incumbent in standard deviations of its return over the starts: "
        f"interquartile mean over plants and seeds, {confidence(level)} interval. Limits are not "
        "part of it."
    )


def _run_cells(rows: Sequence[ComparedRow]) -> list[list[str]]:
    settings = list(dict.fromkeys(name for row in rows for name in row.settings))
    short = _short_names(settings)
    heads = ["run", "source", *short, "policy", "seeds", "return", "gain over the incumbent"]
    offline = any(row.explained is not None for row in rows)
    heads += ["over a limit in", "trips", *["R2 of logged actions"] * offline, "verdict"]
    lines = [heads]
    for row in rows:
        digits = decimals([row.returns])
        returns = DASH
        if row.returns is not None:
            ends = interval(row.returns, digits)
            returns = f"{fixed(row.returns.value, digits)}{NBSP}{ends} {row.unit}"
        explained = DASH if row.explained is None else f"{row.explained:.2f}"
        incumbent = row.policy == row.incumbent
        gain = "incumbent" if incumbent else DASH
        if row.gain is not None:
            gain = f"{signed(row.gain.value, digits)}{NBSP}{interval(row.gain, digits)}"
        over = DASH if row.over is None else f"{percent(row.over.value)} ({row.worst_cost})"
        lines.append(
            [
                row.run,
                row.source,
                *(row.settings.get(name, DASH) for name in settings),
                row.policy,
                str(row.seeds),
                returns,
                gain,
                over,
                DASH if row.trips is None else percent(row.trips),
                *[explained] * offline,
                row.answer or DASH,
            ]
        )
    return lines


def _aggregate_cells(aggregates: Sequence[LearnerAggregate]) -> list[list[str]]:
    settings = list(dict.fromkeys(name for one in aggregates for name in one.settings))
    heads = ["learner", *_short_names(settings), "plants", "seeds", "interquartile mean"]
    shown = [0.0, 1.0]
    heads += [f"above {threshold:g}" for threshold in shown] + ["deployed"]
    lines = [heads]
    for one in aggregates:
        known = math.isfinite(one.score.low)
        ends = f"{NBSP}{interval(one.score, 2)}" if known else ""
        lines.append(
            [
                one.learner,
                *(one.settings.get(name, DASH) for name in settings),
                str(len(one.sources)),
                str(one.seeds),
                f"{signed(one.score.value, 2)}{ends}",
                *(percent(one.profile[THRESHOLDS.index(threshold)]) for threshold in shown),
                f"{one.deployed} of {one.judged}" if one.judged else DASH,
            ]
        )
    return lines


def _short_names(names: Sequence[str]) -> list[str]:
    """The last parts of dotted names, as few as keep them apart."""
    short = []
    for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            end = ".".join(parts[-count:])
            if sum(other == end or other.endswith(f".{end}") for other in names) == 1:
                break
        short.append(end)
    return short


def _text(title: str, cells: list[list[str]]) -> str:
    return "\n".join([title, "", *aligned(cells), ""])


def _markdown(title: str, cells: list[list[str]]) -> str:
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in cells]
    lines = [f"| {' | '.join(line)} |" for line in escaped]
    return "\n".join([title, "", lines[0], "|---" * len(cells[0]) + "|", *lines[1:], ""])


def _latex(title: str, cells: list[list[str]]) -> str:
    heads, *rows = [[_latex_cell(cell) for cell in line] for line in cells]
    return "\n".join(
        [
            f"% {title}",
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
    for mark, written in (
        ("\N{MINUS SIGN}", "$-$"),
        (DASH, "--"),
        (NBSP, "~"),
        ("\N{THIN SPACE}", r"\,"),
    ):
        escaped = escaped.replace(mark, written)
    return escaped


def _csv(comparison: Comparison) -> str:
    settings = list(dict.fromkeys(name for row in comparison.rows for name in row.settings))
    heads = [
        *("run", "source", *settings, "policy", "role", "seeds", "unit"),
        *("return", "return_low", "return_high", "incumbent", "gain", "gain_low", "gain_high"),
        *("worst_cost", "over", "over_low", "over_high", "trips", "explained", "verdict"),
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in comparison.rows:
        writer.writerow(
            [
                *(row.run, row.source, *(row.settings.get(name, "") for name in settings)),
                *(row.policy, row.role, row.seeds, row.unit, *_ends(row.returns), row.incumbent),
                *(*_ends(row.gain), row.worst_cost, *_ends(row.over)),
                *("" if row.trips is None else row.trips,),
                *("" if row.explained is None else row.explained, row.answer),
            ]
        )
    return text.getvalue()


def _ends(estimate: Any) -> list[Any]:
    return ["", "", ""] if estimate is None else [estimate.value, estimate.low, estimate.high]
