"""Result tables as plain text, for a Python session."""

from collections.abc import Sequence

from neorl_core.costs import limit_kind
from neorl_train.judging._tables import PolicyRow, ResultTables
from neorl_train.judging._wording import confidence, decimals, difference, with_interval


def table_text(tables: ResultTables) -> str:
    """Return, paired gain and limited costs of every policy, one line each.

    Learners are shown with their guard, as they would be deployed, all others as they are.

    Args:
        tables: Tables of one evaluation.

    Returns:
        Aligned columns under a title.
    """
    shown = [row for row in tables.rows if row.guarded == (row.role == "learner")]
    digits = decimals(row.returns for row in shown)
    heads = ["policy", f"return, {tables.reward_unit}"]
    if tables.environment:
        heads.append(f"gain over {tables.reference}")
    for channel in tables.spec.cost:
        words = limit_kind(channel).limit_words(channel.limit, channel.unit)
        heads.append(f"{channel.name} (limit {words})")
    cells = [heads, *(_cells(row, tables, digits) for row in shown)]
    where = (
        f"{tables.environment}, {tables.n_starts} common starts"
        if tables.environment
        else ("the log's own episodes; no policy was run")
    )
    title = f"{where}: mean [{confidence(tables.level)} interval]"
    return "\n".join([title, *aligned(cells)])


def _cells(row: PolicyRow, tables: ResultTables, digits: int) -> list[str]:
    name = f"{row.name} + guard" if row.guarded else row.name
    cells = [name, with_interval(row.returns, digits)]
    if tables.environment:
        gain = row.difference
        no_gain = row.name == tables.reference or gain is None
        cells.append("" if no_gain or gain is None else difference(gain, digits, space=" "))
    for cell in row.costs:
        cells.append(with_interval(cell.limited, decimals([cell.limited], most=2)))
    return cells


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns to their widest cells, the first one left, the others right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
