"""The terms of the gain, in units that plant engineers use."""

from collections.abc import Mapping, Sequence

from neorl_train.judging._results import LOG
from neorl_train.judging._tables import AmountCell, AmountKind, Estimate, PolicyRow
from neorl_train.judging._wording import (
    DASH,
    confidence,
    decimals,
    difference,
    with_interval,
    with_sign,
)
from neorl_train.pages._html import Column, Content, Group, Html, join, paragraph, table
from neorl_train.pages._inputs import Inputs


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
