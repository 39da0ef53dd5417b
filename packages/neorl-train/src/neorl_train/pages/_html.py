"""Small pieces of HTML; all text is escaped in this module."""

import dataclasses
import importlib.resources
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from neorl_envs import make
from neorl_envs.plants import PLANTS


def glossary(environment: str) -> tuple[str, str]:
    """Explains the terms of the return, the names of controllers, and the channels.

    Returns:
        Two sentences; each is empty if the environment is unknown here or explains nothing.
    """
    if environment not in PLANTS:
        return "", ""
    plant = make(environment)
    return plant.glossary, plant.channel_descriptions


Align = Literal["left", "right"]


@dataclasses.dataclass(frozen=True)
class Html:
    """Text that is already HTML."""

    text: str


Content = str | Html


@dataclasses.dataclass(frozen=True)
class Column:
    """Head of a column of a table.

    Attributes:
        title: Description of the column's content.
        unit: Unit of the numbers; shown below the title.
        align: Alignment: numbers right, text left.
    """

    title: str
    unit: str = ""
    align: Align = "right"


@dataclasses.dataclass(frozen=True)
class Group:
    """A table row that is a heading for the rows below it."""

    title: str


def text(content: Content) -> str:
    """Escapes text unless it is already HTML."""
    return content.text if isinstance(content, Html) else escape(content, quote=True)


def tag(name: str, *content: Content, **attributes: str) -> Html:
    """An element; trailing underscores of attribute names are dropped, others become dashes."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(text(part) for part in content)}</{name}>")


def join(parts: Iterable[Content]) -> Html:
    """Concatenates pieces of HTML."""
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

    Returns:
        The table in a frame that scrolls sideways; on a narrow screen every row becomes a list, in
        which each cell repeats the head of its column.
    """
    head = tag("tr", *(_head(column) for column in columns))
    body = [_row(columns, row) for row in rows]
    inner = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body)
    )
    return tag("div", inner, class_="scroll")


def _head(column: Column) -> Html:
    shown = _known_unit(column)
    unit = (tag("span", shown, class_="unit"),) if shown else ()
    return tag("th", column.title, *unit, scope="col", class_=column.align)


def _row(columns: Sequence[Column], row: Sequence[Content] | Group) -> Html:
    if isinstance(row, Group):
        return tag("tr", tag("th", row.title, colspan=str(len(columns)), scope="colgroup"))
    # A log that states no units has "?" for them.
    known = ["\N{EN DASH}" if cell == "?" else cell for cell in row]
    cells = [
        tag("td", cell, class_=column.align, data_label=_label(column))
        if i
        else tag("th", cell, class_=column.align, scope="row")
        for i, (column, cell) in enumerate(zip(columns, known, strict=True))
    ]
    return tag("tr", *cells)


def _label(column: Column) -> str:
    """The head of a column on one line."""
    shown = _known_unit(column)
    return f"{column.title}, {shown}" if shown else column.title


def _known_unit(column: Column) -> str:
    """The unit of a column without that of a log that states none, which is ``?``."""
    return re.sub(r"^\?[,;]? ?", "", column.unit)


def figure(picture: Html, caption: Content) -> Html:
    """A figure with its caption."""
    return tag("figure", picture, tag("figcaption", caption), class_="picture")


def fold(title: str, *content: Content) -> Html:
    """Content that is collapsed on screen and expanded in print."""
    return tag("details", tag("summary", title), *content)


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Makes the browser itself refuse everything that is not in the page."""

Section = tuple[str, str, Html]
"""Identifier, heading and content of a section."""


def document(
    title: str,
    header: Sequence[Html],
    sections: Sequence[Section],
    *,
    margin: str = "",
    style: str = "",
    body_class: str = "",
) -> str:
    """A page as one HTML document, suitable for light and dark mode and for printing.

    ``margin`` is printed at the bottom of every page, left of the page number; by default it is the
    title. ``style`` are further rules of a page of its own form, which ``body_class`` names.
    """
    rules = (importlib.resources.files("neorl_train.pages") / "style.css").read_text("utf-8")
    head = join(
        [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            Html('<link rel="icon" href="data:,">'),
            tag("title", title),
            Html(f"<style>{rules}{_margin(margin or title)}{style}</style>"),
        ]
    )
    links = (tag("li", tag("a", heading, href=f"#{key}")) for key, heading, _ in sections)
    contents = tag("nav", tag("ul", *links), aria_label="Contents")
    body = join(
        [
            tag("header", *header, contents),
            tag("main", *(section(*entry) for entry in sections)),
        ]
    )
    kind = f' class="{escape(body_class, quote=True)}"' if body_class else ""
    return (
        '<!doctype html>\n<html lang="en">\n'
        f"<head>\n{text(head)}\n</head>\n<body{kind}>\n{text(body)}\n</body>\n</html>\n"
    )


def _margin(text: str) -> str:
    """The CSS rule that prints a text and the page number at the bottom of every page."""
    plain = "".join(c if c.isalnum() or c in " .:,()-_+/" else " " for c in text)
    style = "font: 8pt sans-serif; color: #444444"
    return (
        f'@page {{ @bottom-left {{ content: "{plain}"; {style}; }} '
        f'@bottom-right {{ content: "page " counter(page) " of " counter(pages); {style}; }} }}'
    )


def page_with_answer(
    subject: str,
    question: str,
    answer: str,
    sentence: Content,
    sections: Sequence[Section],
    *,
    good: bool | None,
    title: str,
) -> str:
    """A page that answers one question, with a mark, before it shows the numbers.

    Args:
        subject: What the page is about, above the question.
        question: Its heading.
        answer: The answer in a few words.
        sentence: The answer in a sentence.
        sections: Sections in reading order; those without text are left out.
        good: Whether the answer is the one that was hoped for; ``None`` if there is none.
        title: Title of the window.
    """
    marks = {True: ("yes", "\N{CHECK MARK}"), False: ("no", "\N{MULTIPLICATION X}")}
    kind, mark = ("unknown", "?") if good is None else marks[good]
    header = [
        tag("p", f"neorl \N{MIDDLE DOT} {subject}", class_="over"),
        tag("h1", question),
        tag(
            "div",
            tag("span", mark, class_="mark", aria_hidden="true"),
            tag("div", tag("p", answer, class_="answer"), tag("p", sentence)),
            class_=f"verdict {kind}",
            id="verdict",
            role="status",
        ),
    ]
    return document(title, header, [section for section in sections if section[2].text])
