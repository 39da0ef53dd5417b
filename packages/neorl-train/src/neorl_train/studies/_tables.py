"""Compared runs as tables: text for the terminal, Markdown, LaTeX, CSV and JSON."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import head, write_text
from neorl_train.judging._json import to_plain
from neorl_train.judging._wording import (
    DASH,
    NBSP,
    confidence,
    decimals,
    difference,
    fixed,
    interval,
    listed,
    percent,
    signed,
    with_interval,
)
from neorl_train.studies._aggregates import THRESHOLDS, LearnerAggregate
from neorl_train.studies._comparison import ComparedRow, Comparison
from neorl_train.studies._formats import Table, check_output, csv_text, ends, rendered, short_names

VERSION = 1
SUFFIXES = (".txt", ".md", ".tex", ".csv", ".json", ".html", ".png")


def write_comparison(
    path: Path, comparison: Comparison, aggregates: Sequence[LearnerAggregate]
) -> None:
    """Writes compared runs in the format given by the suffix of the file.

    Args:
        path: File with one of :data:`SUFFIXES`. A CSV file contains only the rows of the runs.
        comparison: The compared runs.
        aggregates: Learners over several plants.

    Raises:
        InputError: If the suffix is unknown, its folder is missing, or a figure cannot be drawn.
        OSError: If the file cannot be written.
    """
    check_output(path, SUFFIXES)
    if path.suffix in (".html", ".png"):
        from neorl_train.studies._pictures import write_comparison_picture

        write_comparison_picture(path, comparison, aggregates)
        return
    if path.suffix == ".csv":
        text = _csv(comparison)
    elif path.suffix == ".json":
        text = json.dumps(comparison_to_json(comparison, aggregates), indent=1) + "\n"
    else:
        text = rendered(comparison_tables(comparison, aggregates), path.suffix)
    write_text(path, text)


def comparison_text(comparison: Comparison, aggregates: Sequence[LearnerAggregate]) -> str:
    """Both tables for the terminal."""
    return rendered(comparison_tables(comparison, aggregates), ".txt").rstrip("\n")


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
        other = comparison.against or "the incumbent of the run"
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
            f"{'Run' if len(others) == 1 else 'Runs'} {listed(list(others))} predicted no gain, "
            "because no controller was retuned; retuning.controller names the one to retune."
        )
    return " ".join(sentences)


def _aggregate_title(comparison: Comparison) -> str:
    return (
        f"Gain over {comparison.against or 'the incumbent'} in standard deviations of the "
        "incumbent's return over the starts: interquartile mean over plants and seeds, "
        f"{confidence(comparison.level)} interval. Limits are not part of it."
    )


def _run_cells(comparison: Comparison) -> list[list[str]]:
    """Heads and rows, without the columns that no row fills."""
    rows = comparison.rows
    settings = list(dict.fromkeys(name for row in rows for name in row.settings))
    heads = ["run", "source", *short_names(settings), "policy", "seeds", "return"]
    heads += [f"gain over {comparison.against or 'the incumbent'}", "p", "over a limit in"]
    heads += ["trips", "R2 of logged actions"]
    heads += ["predicted gain over the incumbent", "verdict"]
    lines = [
        [
            row.run,
            row.source,
            *(row.settings.get(name, DASH) for name in settings),
            row.policy,
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
    nothing = "incumbent" if row.policy == row.incumbent and not against else DASH
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
        DASH if row.explained is None else fixed(row.explained, 2),
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
                f"{signed(aggregate.score.value, 2)}{shown_ends}",
                *(percent(aggregate.profile[THRESHOLDS.index(threshold)]) for threshold in shown),
                f"{aggregate.deployed} of {aggregate.judged}" if aggregate.judged else DASH,
            ]
        )
    return lines


def _csv(comparison: Comparison) -> str:
    settings = list(dict.fromkeys(name for row in comparison.rows for name in row.settings))
    heads = [
        *("run", "source", *settings, "policy", "role", "seeds", "unit"),
        *("return", "return_low", "return_high", "incumbent", "gain", "gain_low", "gain_high"),
        *("p_value", "p_adjusted"),
        *("worst_cost", "over", "over_low", "over_high", "trips", "explained"),
        *("predicted_gain", "predicted_low", "predicted_high", "verdict"),
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
        ]
        for row in comparison.rows
    ]
    return csv_text(heads, rows)
