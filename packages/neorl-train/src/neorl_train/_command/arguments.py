"""What the subcommands share: flags, the argument RUN, the results at the end."""

import sys
from pathlib import Path

from neorl_core import InputError
from neorl_train._process.timings import Timings
from neorl_train.runs._directory import RunDirectory


def flags(arguments: list[str]) -> tuple[list[str], bool, bool]:
    """What is left, whether ``--quiet``, whether ``--timings``."""
    names = ("--quiet", "--timings")
    left = [word for word in arguments if word not in names]
    return left, "--quiet" in arguments, "--timings" in arguments


def refuse_options(command: str, words: list[str]) -> None:
    """Refuses options where a command has none.

    Raises:
        InputError: Naming the first.
    """
    for word in words:
        if word.startswith("-"):
            raise InputError(
                f"unknown option {word!r} of {command}; see `neorl-train {command} --help`"
            )


def run_argument(command: str, words: list[str], summary: str) -> RunDirectory:
    """The one run directory that a command takes; prints the usage where that is asked for.

    Args:
        command: Name of the command.
        words: Arguments of the command.
        summary: What it does, in one sentence.

    Raises:
        InputError: If there is an option, or not exactly one argument.
        SystemExit: After ``--help``.
    """
    if "-h" in words or "--help" in words:
        print(f"usage: neorl-train {command} RUN\n\n{summary}\n")
        print(f"example:\n  neorl-train {command} runs/0001")
        sys.exit(0)
    refuse_options(command, words)
    if len(words) != 1:
        raise InputError(
            f"{command} takes one run directory, got {len(words)} arguments; "
            f"for example `neorl-train {command} runs/0001`"
        )
    return RunDirectory(Path(words[0]).absolute())


def print_results(run: RunDirectory, timings: Timings, *, table: bool) -> None:
    """Prints the results of a run, and before them where the time went if ``table``."""
    from neorl_train.report._terminal import print_summary

    if table:
        print(timings.table())
    print_summary(run.path)
