"""Tables in formats for pasting: text, Markdown, LaTeX with booktabs, CSV."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_train.judging._table_text import aligned
from neorl_train.judging._wording import DASH, NBSP

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


def rendered(tables: Sequence[Table], suffix: str) -> str:
    """The tables one below the other.

    Args:
        tables: Tables in order.
        suffix: ``".txt"``, ``".md"`` or ``".tex"``.
    """
    style = {".txt": _text, ".md": _markdown, ".tex": _latex}[suffix]
    return "\n".join(style(table) for table in tables)


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Refuses an output file that could not be written, before anything is computed for it.

    Args:
        path: File to write.
        suffixes: Suffixes of the available formats.

    Raises:
        InputError: If the name has another suffix, or the folder is missing.
    """
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
    return "\n".join([table.title, "", *aligned(table.cells), ""])


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
