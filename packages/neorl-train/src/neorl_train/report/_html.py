"""Small pieces of HTML; every text is escaped here and nowhere else."""

import dataclasses
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

Align = Literal["left", "right"]


@dataclasses.dataclass(frozen=True)
class Html:
    """Text that is HTML already."""

    text: str


Content = str | Html


@dataclasses.dataclass(frozen=True)
class Column:
    """Head of a column of a table.

    Attributes:
        title: Words for what the column holds.
        unit: Unit of its numbers; shown below the title.
        align: Side to align to: numbers right, words left.
    """

    title: str
    unit: str = ""
    align: Align = "right"


@dataclasses.dataclass(frozen=True)
class Group:
    """A row of a table that only names those below it."""

    title: str


def text(content: Content) -> str:
    """Escaped, unless it is HTML already."""
    return content.text if isinstance(content, Html) else escape(content, quote=True)


def tag(name: str, *content: Content, **attributes: str) -> Html:
    """An element; a trailing underscore of an attribute's name is dropped, others become dashes."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(text(part) for part in content)}</{name}>")


def joined(parts: Iterable[Content]) -> Html:
    """One piece of HTML after the other."""
    return Html("\n".join(text(part) for part in parts))


def paragraph(*content: Content, class_: str = "") -> Html:
    """A paragraph."""
    return tag("p", *content, class_=class_) if class_ else tag("p", *content)


def bullets(entries: Sequence[Content]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", entry) for entry in entries))


def section(identifier: str, title: str, *content: Content) -> Html:
    """A section with its heading."""
    heading = tag("h2", title, id=identifier)
    return tag("section", heading, *content, aria_labelledby=identifier)


def table(
    caption: Content, columns: Sequence[Column], rows: Iterable[Sequence[Content] | Group]
) -> Html:
    """A table; the first cell of every row is its heading.

    Args:
        caption: Description of the table, with remarks that apply to all of it.
        columns: Heads.
        rows: Cells in the order of the columns, or the heading of the rows that follow.

    Returns:
        The table in a frame that scrolls sideways where the screen is narrow.
    """
    head = tag("tr", *(_head(column) for column in columns))
    body = [_row(columns, row) for row in rows]
    inner = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body)
    )
    return tag("div", inner, class_="scroll")


def _head(column: Column) -> Html:
    unit = (tag("span", column.unit, class_="unit"),) if column.unit else ()
    return tag("th", column.title, *unit, scope="col", class_=column.align)


def _row(columns: Sequence[Column], row: Sequence[Content] | Group) -> Html:
    if isinstance(row, Group):
        return tag("tr", tag("th", row.title, colspan=str(len(columns)), scope="colgroup"))
    cells = [
        tag("td" if i else "th", cell, class_=column.align, **({} if i else {"scope": "row"}))
        for i, (column, cell) in enumerate(zip(columns, row, strict=True))
    ]
    return tag("tr", *cells)


def figure(picture: Html, caption: Content) -> Html:
    """A picture with its caption."""
    return tag("figure", picture, tag("figcaption", caption), class_="picture")


def folded(title: str, *content: Content) -> Html:
    """What is shown when asked for; printed unfolded."""
    return tag("details", tag("summary", title), *content)
