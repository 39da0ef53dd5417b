"""Amounts of an episode: the terms of the gain, and how the plant was moved."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from neorl_core.costs import limit_kind
from neorl_train.judging._results import LOG, SMALLEST, Trace
from neorl_train.judging._tables import AmountCell, AmountKind, Estimate, PolicyRow
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    difference,
    with_ends,
    with_interval,
    with_sign,
)
from neorl_train.pages._html import Column, Content, Group, Html, fold, join, paragraph, table
from neorl_train.pages._inputs import Inputs
from neorl_train.pages.sections._trends import TITLES, other_policy


def benefit(inputs: Inputs) -> Html:
    """Every term of the return with its paired difference and the worth of that difference.

    Empty if neither the plant nor the log declares terms.
    """
    row = described_row(inputs)
    cells = [cell for cell in row.amounts if cell.kind == "term"] if row else []
    if row is None or not cells:
        return Html("")
    tables = inputs.evaluation.tables
    if not inputs.simulated:
        caption = "Terms of the return in the log; mean over its episodes."
        return amount_table(inputs, {"term": "Terms of the return"}, caption)
    caption = (
        f"Terms of the return of an episode, mean over {tables.n_starts} starts: {row.name} behind "
        f"its guard compared with {tables.reference}. The last column is the difference times its "
        f"worth, which is its contribution to the return in {tables.reward_unit}."
    )
    parts = [amount_table(inputs, {"term": "Terms of the return"}, caption, total=row.difference)]
    unweighted = [cell.name for cell in cells if cell.worth == 0]
    if unweighted:
        parts.append(
            paragraph(
                f"Reported without a worth, so not part of the return: {', '.join(unweighted)}."
            )
        )
    return join(parts)


def described_row(inputs: Inputs) -> PolicyRow | None:
    """The row of the candidate with its guard, or of the log if no policy was run."""
    tables = inputs.evaluation.tables
    name, guarded = (tables.candidate, True) if inputs.simulated else (LOG, False)
    rows = [row for row in tables.rows if (row.name, row.guarded) == (name, guarded)]
    return rows[0] if rows else None


def amount_table(
    inputs: Inputs,
    kinds: Mapping[AmountKind, str],
    caption: str,
    *,
    total: Estimate | None = None,
) -> Html:
    """Amounts per episode: the candidate's, the reference's and their paired difference.

    Nothing if there is no such amount. The worths should add up to ``total``.
    """
    tables, row = inputs.evaluation.tables, described_row(inputs)
    if row is None or not any(cell.kind in kinds for cell in row.amounts):
        return Html("")
    level = confidence(tables.level)
    reference_cells: Mapping[tuple[AmountKind, str], AmountCell] = {}
    if inputs.simulated:
        other = tables.row(tables.reference, guarded=False)
        reference_cells = {(cell.kind, cell.name): cell for cell in other.amounts}
    columns = [
        Column("Amount", align="left"),
        Column("Unit", align="left"),
        Column(row.name if inputs.simulated else "The log", f"mean [{level}]"),
    ]
    if inputs.simulated:
        columns += [
            Column(tables.reference, f"mean [{level}]"),
            Column("Difference", f"paired [{level}]"),
        ]
    if total is not None:
        columns.append(Column("Worth", tables.reward_unit))
    rows: list[Sequence[Content] | Group] = []
    for kind, heading in kinds.items():
        cells = [cell for cell in row.amounts if cell.kind == kind]
        if cells and len(kinds) > 1:
            rows.append(Group(heading))
        for cell in cells:
            rows.append(
                _cells(cell, reference_cells.get((kind, cell.name)), inputs.simulated, total)
            )
    if total is not None:
        rows.append(_sum(row, total, len(columns)))
    return table(caption, columns, rows)


def _cells(
    cell: AmountCell, other: AmountCell | None, simulated: bool, total: Estimate | None
) -> list[Content]:
    digits = decimals([cell.amount, None if other is None else other.amount])
    content: list[Content] = [cell.name, cell.unit, with_interval(cell.amount, digits)]
    if simulated:
        change = cell.difference
        content.append(DASH if other is None else with_interval(other.amount, digits))
        content.append(DASH if change is None else difference(change, decimals([change])))
    if total is not None:
        change = cell.difference if cell.worth else None
        digits = decimals([total])
        content.append(DASH if change is None else with_sign(cell.worth * change.value, digits))
    return content


def _sum(row: PolicyRow, total: Estimate, width: int) -> list[Content]:
    """The total gain, and the part that no term explains."""
    contributions = [
        cell.worth * cell.difference.value
        for cell in row.amounts
        if cell.kind == "term" and cell.difference is not None
    ]
    digits, rest = decimals([total]), total.value - sum(contributions)
    name = "Gain in return"
    if abs(rest) > 0.01 * max(abs(total.value), total.high - total.low, 1e-12):
        name = (
            f"Gain in return, of which {with_sign(rest, digits)} does not belong to any of the "
            "terms"
        )
    return [name, *[""] * (width - 3), difference(total, digits), with_sign(total.value, digits)]


HEADINGS: dict[AmountKind, str] = {
    "travel": "Travel of the actuators",
    "reversals": "Reversals of the actuators",
    "beyond": "Time beyond a limit",
}


def movement_table(inputs: Inputs) -> Html:
    """Travel and reversals of every actuator, spread of measurements, and time beyond limits.

    The first table covers all episodes, with intervals. Collapsed below it is one table for each
    stored episode: the candidate compared with the other policy from the same start.
    """
    evaluation = inputs.evaluation
    shown = [
        trace
        for trace in evaluation.traces
        if trace.policy == evaluation.tables.candidate and trace.label in TITLES
    ]
    single = [
        _table(trace, other_policy(evaluation.traces, trace), inputs)
        for trace in shown
        if trace.applied.size
    ]
    where = f"sums over an episode, mean over all {evaluation.tables.n_starts} starts"
    if not inputs.simulated:
        where = "sums over an episode, mean over all episodes of the log"
    caption = (
        f"Movement of the actuators: {where}. A move of less than {SMALLEST:.1%} of a range does "
        "not count as a reversal."
    )
    parts = [amount_table(inputs, HEADINGS, caption), _predictions(inputs)]
    if single:
        parts.append(fold("Show the tables of the episodes in the pictures", *single))
    return join([part for part in parts if part.text])


def _predictions(inputs: Inputs) -> Html:
    """The predictions of the plant model of a log; nothing if there are none."""
    predicted, verdict = inputs.record.get("predicted_movement", []), inputs.verdict
    if inputs.simulated or not predicted:
        return Html("")
    headings = {
        "error": "Mean size of setpoint minus measurement",
        "travel": "Mean travel of the actuators per step",
        "deviation": "Standard deviation of the measurements within an episode",
    }
    rows: list[Sequence[Content] | Group] = []
    for kind, heading in headings.items():
        if not any(one["kind"] == kind for one in predicted):
            continue
        rows.append(Group(heading))
        rows += [
            [
                one["name"],
                one["unit"],
                *(with_ends(*one[who]) for who in ("candidate", "incumbent")),
            ]
            for one in predicted
            if one["kind"] == kind
        ]
    columns = [
        Column("Channel", align="left"),
        Column("Unit", align="left"),
        Column(verdict.candidate, "predicted"),
        Column(verdict.reference, "predicted"),
    ]
    caption = (
        "Predicted by the plant model of the log, in the same replayed episodes for both. In "
        "brackets: the 95 % interval over episodes and the networks of the model."
    )
    return table(caption, columns, rows)


def _table(first: Trace, other: Trace | None, inputs: Inputs) -> Html:
    spec = inputs.evaluation.tables.spec
    both = [trace for trace in (first, other) if trace is not None]

    def row(name: str, unit: str, number: Callable[[Trace], float]) -> list[Content]:
        return [
            name,
            unit,
            *(f"{number(trace):.4g}" for trace in both),
            *[DASH] * (2 - len(both)),
        ]

    rows: list[Sequence[Content] | Group] = [Group("Mean travel of the actuators per step")]
    for i, channel in enumerate(spec.action):
        rows.append(row(channel.name, channel.unit, lambda t, i=i: travel(t.applied[:, i])))
    rows.append(Group("Reversals of the actuators"))
    for i, channel in enumerate(spec.action):
        smallest = SMALLEST * (channel.high - channel.low)
        rows.append(
            row(
                channel.name,
                "per 100 steps",
                lambda t, i=i, smallest=smallest: 100 * reversals(t.applied[:, i], smallest),
            )
        )
    rows.append(Group("Standard deviation of the measurements"))
    for i, channel in enumerate(spec.obs):
        rows.append(row(channel.name, channel.unit, lambda t, i=i: float(t.obs[:, i].std())))
    kinds = [limit_kind(channel) for channel in spec.cost]
    if any(channel.per == "step" for channel in spec.cost):
        rows.append(Group("Time beyond a limit"))
        rows += [
            row(
                f"{channel.name}, {kind.limit_words(channel.limit, channel.unit)}",
                "min",
                lambda t, j=j, limit=channel.limit: float(
                    (t.cost[:, j] > limit).sum() * spec.dt / 60
                ),
            )
            for j, (channel, kind) in enumerate(zip(spec.cost, kinds, strict=True))
            if channel.per == "step"
        ]
    columns = [
        Column("Channel", align="left"),
        Column("Unit", align="left"),
        Column(first.policy, "with its guard"),
        Column("no other policy" if other is None else other.policy, "on the same start"),
    ]
    title = TITLES.get(first.label, first.label)
    caption = (
        f"{title}: values of this single episode of {len(first.reward)} steps. A move of less than "
        f"{SMALLEST:.1%} of a range does not count as a reversal."
    )
    return table(caption, columns, rows)


def travel(action: Float[np.ndarray, " time"]) -> float:
    """Mean distance between consecutive actions; zero for a single action.

    Example:
        >>> travel(np.array([0.0, 2.0, 1.0]))
        1.5
    """
    return float(np.abs(np.diff(action)).mean()) if len(action) > 1 else 0.0


def reversals(action: Float[np.ndarray, " time"], smallest: float = 0.0) -> float:
    """Fraction of the steps in which an action reverses; moves of at most ``smallest`` are ignored.

    Example:
        >>> reversals(np.array([0.0, 1.0, 1.0, 0.0, 2.0]))
        0.4
    """
    moves = np.diff(action)
    directions = np.sign(moves[np.abs(moves) > smallest])
    return float((directions[1:] != directions[:-1]).sum() / len(action)) if len(action) else 0.0
