"""Write the reference of the command line: what `--help` prints, a page for each program.

Usage:
    python tools/pages/command_pages.py           write docs/pages/reference/commands
    python tools/pages/command_pages.py --check   exit 1 and name the commands whose options differ

The check compares the names of commands and options, not the text, whose layout depends on the
version of Python.
"""

import argparse
import contextlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Container
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs/pages/reference/commands"
WIDTH = 100
LAYOUT = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*")
HEAD = (
    "# {program}\n\n`{program} COMMAND --help` prints the options of a command at the width of "
    "your terminal. This page has the\nsame text; `tools/pages/command_pages.py` writes it.\n"
)
SECTIONED = (
    "\nAll options are the fields of the [configuration](../train/configuration.md) and of the\n"
    "[learners](../../learners/index.md).\n"
)


def programs() -> dict[str, tuple[Callable[[list[str]], int], tuple[str, ...], Container[str]]]:
    """Every program: its function, its commands, and those whose help lists sections."""
    from neorl_deploy._command import main as deploy
    from neorl_envs._command import main as envs
    from neorl_train._command import main as train

    return {
        "neorl-train": (train.main, train.NAMES, train.FIRST),
        "neorl-envs": (envs.main, envs.COMMANDS, ()),
        "neorl-deploy": (deploy.main, deploy.names(), ()),
    }


def printed(run: Callable[[list[str]], int], words: list[str]) -> str:
    """What a program prints for some words, with long lines wrapped as in a terminal."""
    page, before = io.StringIO(), dict(os.environ)
    os.environ |= LAYOUT
    try:
        with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
            run(words)
    finally:
        os.environ.clear()
        os.environ |= before
    return "\n".join(
        part for line in page.getvalue().strip("\n").splitlines() for part in _wrapped(line)
    )


def _wrapped(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.rstrip(), WIDTH, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    ) or [""]


def page_of(program: str) -> str:
    """The page of a program."""
    run, commands, sectioned = programs()[program]
    parts = [HEAD.format(program=program), _block(printed(run, ["--help"]))]
    for command in commands:
        parts += [f"\n## {command}\n", _block(printed(run, [command, "--help"]))]
        if command in sectioned:
            parts.append(SECTIONED)
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def _block(text: str) -> str:
    return f"\n```text\n{text}\n```"


def options_of(page: str) -> dict[str, set[str]]:
    """The options that a page lists for every command; ``""`` stands for the program itself."""
    first, *others = re.split(r"(?m)^## (.+)$", page)
    named = {"": first, **dict(zip(others[::2], others[1::2], strict=True))}
    blocks = {name: re.findall(r"(?s)```text\n(.*?)\n```", part) for name, part in named.items()}
    return {name: set(OPTION.findall("\n".join(block))) for name, block in blocks.items()}


def differing(program: str) -> list[str]:
    """The commands of a program whose options are not those of its stored page."""
    path = PAGES / f"{program}.md"
    stored = options_of(path.read_text(encoding="utf-8")) if path.is_file() else {}
    now = options_of(page_of(program))
    return [name or program for name in {**now, **stored} if now.get(name) != stored.get(name)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args(arguments)
    if options.check:
        faults = [f"{one}: {name}" for one in programs() for name in differing(one)]
        print(*faults, sep="\n" if faults else "")
        return int(bool(faults))
    PAGES.mkdir(parents=True, exist_ok=True)
    for program in programs():
        (PAGES / f"{program}.md").write_text(page_of(program), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
