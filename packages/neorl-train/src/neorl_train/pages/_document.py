"""The frame of every page: one file without scripts or external references."""

import importlib.resources
from collections.abc import Sequence

from neorl_train.pages._html import Html, joined, section, tag, text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Makes the browser itself refuse everything that is not in the page."""

Section = tuple[str, str, Html]
"""Identifier, heading and content of a section."""


def document(
    title: str, header: Sequence[Html], sections: Sequence[Section], *, margin: str = ""
) -> str:
    """A page as one HTML document, suitable for light and dark mode and for printing.

    Args:
        title: Title of the window.
        header: Elements above the contents.
        sections: Sections in reading order; the table of contents links to them.
        margin: Text at the bottom of every printed page, left of the page number; the title by
            default.

    Returns:
        The document.
    """
    head = joined(
        [
            Html('<meta charset="utf-8">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<meta name="color-scheme" content="light dark">'),
            Html('<link rel="icon" href="data:,">'),
            tag("title", title),
            Html(f"<style>{_stylesheet()}{_margin(margin or title)}</style>"),
        ]
    )
    links = (tag("li", tag("a", heading, href=f"#{key}")) for key, heading, _ in sections)
    contents = tag("nav", tag("ul", *links), aria_label="Contents")
    body = joined(
        [
            tag("header", *header, contents),
            tag("main", *(section(*entry) for entry in sections)),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n'
        f"<head>\n{text(head)}\n</head>\n<body>\n{text(body)}\n</body>\n</html>\n"
    )


def _stylesheet() -> str:
    return (importlib.resources.files("neorl_train.pages") / "style.css").read_text("utf-8")


def _margin(words: str) -> str:
    """The CSS rule that prints a text and the page number at the bottom of every page."""
    plain = "".join(c if c.isalnum() or c in " .:,()-_+/" else " " for c in words)
    style = "font: 8pt sans-serif; color: #444444"
    return (
        f'@page {{ @bottom-left {{ content: "{plain}"; {style}; }} '
        f'@bottom-right {{ content: "page " counter(page) " of " counter(pages); {style}; }} }}'
    )
