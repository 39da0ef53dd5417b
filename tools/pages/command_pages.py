"""The reference of the command line: what `--help` prints, a page for each program."""

import contextlib
import io
import os
import textwrap
from collections.abc import Callable, Container

WIDTH = 100
LAYOUT = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
HEAD = (
    "# {program}\n\n`{program} COMMAND --help` prints the options of a command at the width of "
    "your terminal. This page has the\nsame text.\n"
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
