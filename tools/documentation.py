"""Build or serve the documentation site, and check what a reader of it would see.

The site is built in .cache/docs, from a copy of docs/pages into which `built` writes tables and
help texts. The menu is made from its folders, in the order of ``SECTIONS``, so a new page needs no
entry anywhere; learners are grouped as on their index. The pages of docs/results are built too,
outside menu and search. Formulas become MathML, which browsers typeset without a script, so that
the site works offline; while serving they stay LaTeX. After building, no page may show a formula as
text, a role of a docstring (``:func:``) or a link that was not resolved.

The footer names the version. If the checkout has a remote on the web, or ``--repository`` gives its
address, every page that someone wrote has a link to edit it there.

Usage:
    python tools/documentation.py build
    python tools/documentation.py build --repository https://github.com/OWNER/NAME
    python tools/documentation.py serve --dev-addr localhost:8001
"""

import argparse
import html
import importlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "pages"))

from built import PAGES, copy_pages, sources
from notebooks import write_notebooks

DOCS = Path(__file__).resolve().parent.parent / "docs"
BUILT = DOCS.parent / ".cache/docs"
SECTIONS = {
    "Tutorials": "tutorials",
    "How-to": "how-to",
    "Learners": "learners",
    "Plants": "plants",
    "Reference": "reference",
    "Explanation": "explanation",
}
PROJECT = {
    "faq": "FAQ",
    "cheat-sheet": "Twenty commands",
    "architecture": "Architecture",
    "comparison": "Other libraries",
    "changelog": "Changelog",
    "cite": "Cite",
    "contributing": "Contributing",
}
"""Pages at the top of the folder, and their titles in the menu."""
FIRST = {
    "tutorials": [
        "first-run",
        "from-a-csv",
        "beside-a-plant",
        "every-form",
        "compare-learners",
        "historian",
        "pieces",
    ],
    "reference": ["dataset-file", "plant-toml"],
}
"""Pages that a reader should meet before the others of their folder."""
UNREAD = re.compile(r"(?s)<(script|style|pre|code)\b.*?</\1>")
RAW = re.compile(
    r":(?:attr|class|data|exc|func|math|meth|mod|obj|ref):\S+|\]\[\S+\]|\$\$\S*|\\[(\[a-zA-Z]\S*"
)
FORMULA = re.compile(r'(?s)<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>')
"""What ``pymdownx.arithmatex`` makes of `$...$` and `$$...$$`."""


EDIT = re.compile(r'(?s)<a href="[^"]+/docs/pages/([^"]+)"[^>]* rel="edit".*?</a>')
LONG_FORMULA = 50
"""Characters of LaTeX from which a formula in a line may be wider than a phone."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Build or serve the documentation site.")
    parser.add_argument("command", choices=("build", "serve"))
    parser.add_argument("--repository", default=remote(), help="address of the repository")
    options, others = parser.parse_known_args(arguments)
    command = options.command
    pages = BUILT / "pages"
    copy_pages(pages)
    write_notebooks(pages / "tutorials")
    menu = json.dumps(navigation(pages), ensure_ascii=False)
    text = (DOCS / "mkdocs.yml").read_text().replace("../packages", str(DOCS.parent / "packages"))
    text = text.replace("docstrings.py", str(DOCS / "docstrings.py"))
    configuration = BUILT / "mkdocs.yml"
    configuration.write_text(f"{text}{about_the_checkout(options.repository)}nav: {menu}\n")
    strict = ["--strict"] if command == "build" else []
    site = subprocess.Popen(["zensical", command, *strict, "-f", str(configuration), *others])
    if command == "serve":
        follow(site, pages)
    if site.wait() or command == "serve":
        return site.returncode
    convert = importlib.import_module("latex2mathml.converter").convert  # this environment alone
    pages = sorted((BUILT / "site").rglob("*.html"))
    for page in pages:
        typeset(page, convert)
        correct_repository_links(page)
    faults = [fault for page in pages for fault in raw(page)]
    print(*faults, sep="\n" if faults else "")
    return int(bool(faults))


def follow(site: subprocess.Popen[bytes], pages: Path) -> None:
    """Copies pages that someone edits, as long as the site is served."""
    seen = time.time()
    while site.poll() is None:
        time.sleep(1)
        edited = [path for path in sources() if path.stat().st_mtime > seen]
        seen = time.time()
        copy_pages(pages, edited)


def navigation(pages: Path) -> list[object]:
    """The menu: the first page, the sections in their order, what belongs to none of them."""
    folders = {title: _folder(pages, pages / folder) for title, folder in SECTIONS.items()}
    index = (pages / "learners/index.md").read_text(encoding="utf-8")
    folders["Learners"] = _grouped(folders["Learners"], groups_of_learners(index))
    sections = [{title: entries} for title, entries in folders.items()]
    project = [{title: f"{page}.md"} for page, title in PROJECT.items()]
    return [{"Home": "index.md"}, *sections, {"Project": project}]


def groups_of_learners(index: str) -> dict[str, list[str]]:
    """By section of the learners' index, the pages that its table lists in their order."""
    sections = re.findall(r"(?ms)^## ([^\n]+)\n(.+?)(?=^## |\Z)", index)
    row = re.compile(r"(?m)^\| `[^|]+ \| \[[^|]+\]\(([\w-]+\.md)\) \|")
    return {title: pages for title, text in sections if (pages := row.findall(text))}


def remote() -> str:
    """The address of the checkout's remote repository; empty without one."""
    words = ["git", "config", "--get", "remote.origin.url"]
    done = subprocess.run(words, cwd=DOCS, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def about_the_checkout(repository: str) -> str:
    """Lines of configuration: the version, and the repository if it is on the web.

    Args:
        repository: Its address as git has it, ``https://HOST/...`` or ``git@HOST:...``.
    """
    citation = (DOCS.parent / "CITATION.cff").read_text(encoding="utf-8")
    (version,) = re.findall(r"(?m)^version: (\S+)$", citation)
    lines = [f"copyright: neorl {version}, Apache-2.0"]
    address = re.sub(r"^git@([^:]+):", r"https://\1/", repository).removesuffix(".git")
    if address.startswith("https://"):
        lines += [f"repo_url: {address}", "repo_name: neorl", "edit_uri: edit/main/docs/pages/"]
    return "".join(f"{line}\n" for line in lines)


def correct_repository_links(page: Path) -> None:
    """Lets a built page ask no other host for the repository's stars, and edit what was written.

    Pages that are made as a whole have no source, and that of a result is in docs/results.
    """

    def replaced(match: re.Match[str]) -> str:
        edited = match[0].replace("/docs/pages/results/", "/docs/results/")
        return "" if match[1] in PAGES else edited

    text = page.read_text(encoding="utf-8")
    changed = EDIT.sub(replaced, text.replace(' data-md-component="source"', ""))
    if changed != text:
        page.write_text(changed, encoding="utf-8")


def typeset(page: Path, convert: Callable[..., str]) -> None:
    """Replaces the formulas of a built page by MathML; wide ones scroll within their line.

    Args:
        page: The page.
        convert: Converts LaTeX with a keyword ``display``, ``"inline"`` or ``"block"``.
    """

    def replaced(match: re.Match[str]) -> str:
        kind, latex = match[1], html.unescape(match[2]).strip()
        formula = convert(latex, display="inline" if kind == "span" else "block")
        short = kind == "span" and len(latex) < LONG_FORMULA
        return formula if short else f'<{kind} class="formula">{formula}</{kind}>'

    text = page.read_text(encoding="utf-8")
    changed = FORMULA.sub(replaced, text)
    if changed != text:
        page.write_text(changed, encoding="utf-8")


def raw(page: Path) -> list[str]:
    """What stands on a built page as text and should not, a line each."""
    text = html.unescape(re.sub(r"<[^>]+>", "", UNREAD.sub("", page.read_text())))
    return [f"{page.relative_to(BUILT)}: {match.group()}" for match in RAW.finditer(text)]


def _folder(pages: Path, folder: Path) -> list[object]:
    """The index of a folder, its pages by title, then its folders."""
    order = FIRST.get(folder.name, [])
    files = sorted(folder.glob("*.md"), key=lambda page: _rank(page, order))
    entries: list[object] = [
        path if page.stem == "index" else {_title(page): path}
        for page in files
        for path in [page.relative_to(pages).as_posix()]
    ]
    below = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return entries + [{_name(path): _folder(pages, path)} for path in below]


def _grouped(entries: list[object], groups: dict[str, list[str]]) -> list[object]:
    """Entries of a folder with some of them in groups, between its index and the others."""
    of_page = {
        path.rpartition("/")[2]: entry
        for entry in entries
        for path in (entry.values() if isinstance(entry, dict) else [str(entry)])
    }
    made = [{title: [of_page.pop(page) for page in of]} for title, of in groups.items()]
    return [of_page.pop("index.md"), *made, *of_page.values()]


def _rank(page: Path, order: list[str]) -> tuple[int, int, str]:
    place = order.index(page.stem) if page.stem in order else len(order)
    return page.stem != "index", place, _title(page).lower()


def _title(page: Path) -> str:
    """The first heading; a namespace without the name of its package."""
    heading = re.search(r"(?m)^# (.+)$", page.read_text())
    title = heading.group(1) if heading else page.stem
    return title.rpartition(".")[2] if title.startswith("neorl_") else title


def _name(folder: Path) -> str:
    """Folders of the reference that are packages bear their names."""
    return f"neorl_{folder.name}" if folder.parent.name == "reference" else folder.name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
