"""Scores in a Gymnasium environment: one table of all policies, and the curve as a table."""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from neorl_core import InputError
from neorl_core.costs import limit_kind
from neorl_train.judging._tables import ResultTables
from neorl_train.judging._wording import (
    DASH,
    align,
    confidence,
    decimals,
    short,
    significant,
    with_interval,
)
from neorl_train.pages._html import Column, Content, Group, Html, table
from neorl_train.pages._inputs import Curve, curves, read_config
from neorl_train.runs._directory import METRICS
from neorl_train.runs._records import read_records

RETURN = "plant_return"
MOST_POINTS = 12
"""Most rows of a curve as a table; of more points, some in equal distances are shown."""


def score_cells(tables: ResultTables) -> list[list[str]]:
    """Every policy with its seeds, return, deviation over seeds and costs; the log comes last."""
    logged = [row for row in tables.rows if row.role == "log"]
    digits = decimals([*(one.returns for one in tables.scores), *(row.returns for row in logged)])
    cells = [
        [
            one.policy,
            str(one.seeds) if one.role == "learner" else DASH,
            with_interval(one.returns, digits),
            DASH if np.isnan(one.seed_std) else significant(one.seed_std),
            *map(short, one.costs),
        ]
        for one in tables.scores
    ]
    own = [
        [
            "the log's own episodes",
            DASH,
            with_interval(row.returns, digits),
            DASH,
            *(short(cell.limited.value) for cell in row.costs),
        ]
        for row in logged
    ]
    return [*cells, *own]


def score_columns(tables: ResultTables) -> list[Column]:
    """The heads of :func:`score_cells`."""
    costs = [
        Column(f"Cost {channel.name}", limit_kind(channel).limit_words(channel.limit, channel.unit))
        for channel in tables.spec.cost
    ]
    return [
        Column("Policy", align="left"),
        Column("Seeds"),
        Column("Return", f"{tables.reward_unit}, mean [{confidence(tables.level)}]"),
        Column("Std of seeds"),
        *costs,
    ]


def score_lines(tables: ResultTables) -> list[str]:
    """The table of scores as aligned text, with a title."""
    heads = [f"{c.title.lower()}{f', {c.unit}' if c.unit else ''}" for c in score_columns(tables)]
    title = f"{tables.judge}, {tables.n_starts} episodes, the same for every policy"
    return [title, *align([heads, *score_cells(tables)])]


def curve_cells(recorded: Sequence[Curve]) -> tuple[list[str], list[list[str]]]:
    """The learning curve as a table: updates, and for every learner the mean over its seeds.

    Returns:
        The learners, and for every point its updates and the mean with the deviation over seeds.
        Without a return in the records, both are empty.
    """
    own = [curve for curve in recorded if curve.metric == RETURN]
    learners = list(dict.fromkeys(curve.algorithm for curve in own))
    values: dict[tuple[str, int], list[float]] = {}
    for curve in own:
        for step, value in zip(curve.step, curve.value, strict=True):
            values.setdefault((curve.algorithm, int(step)), []).append(float(value))
    steps = sorted({step for _, step in values})
    if len(steps) > MOST_POINTS:
        chosen = np.linspace(0, len(steps) - 1, 10).round().astype(int)
        steps = [steps[i] for i in dict.fromkeys(chosen.tolist())]
    rows = [
        [f"{step}", *(_mean(values.get((name, step), [])) for name in learners)] for step in steps
    ]
    return learners, rows


def _mean(values: Sequence[float]) -> str:
    if not values:
        return DASH
    mean = significant(float(np.mean(values)))
    if len(values) == 1:
        return mean
    return f"{mean} \N{PLUS-MINUS SIGN} {significant(float(np.std(values, ddof=1)))}"


def curve_lines(recorded: Sequence[Curve], episodes: int) -> list[str]:
    """The learning curve as aligned text, with a title; empty for fewer than two points."""
    learners, rows = curve_cells(recorded)
    if len(rows) < 2:
        return []
    return [_curve_title(recorded, episodes), *align([["updates", *learners], *rows])]


def learning_table(run: str | os.PathLike[str]) -> str:
    """The learning curve of a run as papers print it: returns of all seeds at about ten points.

    Args:
        run: Directory of a run whose policies acted on a plant or in a Gymnasium environment.

    Returns:
        Aligned text: updates, and for every learner the mean undiscounted return over its seeds
        with their standard deviation, in the unit of the reward.

    Raises:
        InputError: If a file is damaged, or fewer than two points were recorded.
    """
    path = Path(run)
    episodes = tomllib.loads(read_config(path)).get("evaluation", {}).get("curve_starts", 0)
    lines = curve_lines(curves(read_records(path / METRICS), "validation"), episodes)
    if not lines:
        raise InputError(
            f"{run} has no returns at two points of its training; name a plant or a Gymnasium "
            "environment as evaluation.environment, and a smaller checkpoints.interval"
        )
    return "\n".join(lines)


def _curve_title(recorded: Sequence[Curve], episodes: int) -> str:
    seeds = len({curve.seed for curve in recorded if curve.metric == RETURN})
    spread = (
        f", mean \N{PLUS-MINUS SIGN} standard deviation over {seeds} seeds" if seeds > 1 else ""
    )
    return f"return while training, {episodes} episodes a seed{spread}"


def score_table(tables: ResultTables) -> Html:
    """The table of scores."""
    rows: list[Sequence[Content] | Group] = [*score_cells(tables)]
    caption = (
        f"Undiscounted return in {tables.judge} of {tables.n_starts} episodes, the same for every "
        "policy, without guard. With several seeds the interval treats seeds and episodes as "
        "random. Mean action and linear feedback are fitted to the log without learning."
    )
    return table(caption, score_columns(tables), rows)


def curve_table(recorded: Sequence[Curve], episodes: int) -> Html:
    """The learning curve as a table; nothing for fewer than two points."""
    learners, cells = curve_cells(recorded)
    if len(cells) < 2:
        return Html("")
    columns = [Column("Updates"), *(Column(name) for name in learners)]
    rows: list[Sequence[Content] | Group] = [*cells]
    title = _curve_title(recorded, episodes)
    return table(f"{title[0].upper()}{title[1:]}.", columns, rows)
