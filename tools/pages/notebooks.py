"""Make notebooks of tutorials: text, commands and Python of a page, cell by cell.

Usage:
    python tools/pages/notebooks.py FOLDER    write a notebook beside each page of `NOTEBOOKS`

Commands become cells that begin with ``!``; texts that a page shows as output are left out, since
a notebook prints its own. The build of the site puts them beside their pages.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs/pages/tutorials"
NOTEBOOKS = ("first-run", "from-a-csv", "compare-learners", "pieces")
"""Tutorials that can be followed in a notebook."""
BLOCK = re.compile(
    r"(?ms)^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.+?)^```\n"
)
"""A block; the comment before it names the file that a reader writes it to."""


def notebook(page: str, name: str) -> dict[str, Any]:
    """A notebook of the text of a page.

    Args:
        page: Markdown.
        name: Name of the page, which the first cell links.
    """
    cells: list[dict[str, Any]] = []
    end = 0
    for block in BLOCK.finditer(page):
        kind, text = block["kind"], block["text"]
        cells += _text(page[end : block.start()])
        if block["file"]:
            cells.append(_code(f"%%writefile {block['file']}\n{text}"))
        elif kind == "python":
            cells.append(_code(text))
        elif kind == "console":
            cells.append(_code("".join(f"!{line}\n" for line in _commands(text))))
        elif kind == "toml":
            cells += _text(block.group())
        end = block.end()
    cells += _text(page[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"{name}-{number}"
    return {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_notebooks(folder: Path) -> None:
    """Writes the notebooks of all `NOTEBOOKS` into a folder that holds their pages."""
    for name in NOTEBOOKS:
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        made = json.dumps(notebook(page, name), indent=1, ensure_ascii=False)
        (folder / f"{name}.ipynb").write_text(f"{made}\n", encoding="utf-8")


def _commands(text: str) -> list[str]:
    """The lines of a console block, each command in one line."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def _text(text: str) -> list[dict[str, Any]]:
    # Links lead to the pages of the site, which stand beside the notebook without their suffix.
    text = re.sub(r"\]\((\.\./)?([\w/-]+)\.md(#[\w-]+)?\)", r"](\1\2/\3)", text.strip())
    return [{"cell_type": "markdown", "metadata": {}, "source": text}] if text else []


def _code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.rstrip("\n"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Make notebooks of tutorials.")
    parser.add_argument("folder", type=Path, help="a copy of the pages of the tutorials")
    write_notebooks(parser.parse_args().folder)


if __name__ == "__main__":
    main()
