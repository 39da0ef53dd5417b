"""Parses the arguments of a subcommand into its flags and the run directory.

Nothing here imports JAX, so that commands on a run directory answer ``--help`` quickly.
"""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neorl_core import InputError
from neorl_core.infrastructure import nearest_name

if TYPE_CHECKING:
    from neorl_train.runs._directory import RunDirectory


def flag_field(help_text: str) -> Any:
    """A field of :class:`Flags` with its help text."""
    return dataclasses.field(default=False, metadata={"help": help_text})


@dataclasses.dataclass(frozen=True)
class Flags:
    """Flags for the output of a command and for dry runs; set with ``--NAME``.

    Attributes:
        quiet: Whether to show no progress.
        timings: Whether to print a table of where the time went.
        json: Whether to print results as JSON.
        profile: Whether to write profiler traces into the run directory.
    """

    quiet: bool = flag_field("print no progress")
    timings: bool = flag_field("print a table of where the time went")
    json: bool = flag_field("print results as JSON in place of text")
    profile: bool = flag_field("trace the first chunks of every learner into RUN/profile")


DRY_RUN = "--dry-run"
"""Flag of ``run``: check everything, print the complete configuration and train nothing."""

RUNS = Path("runs")
"""Default folder of the runs."""

FLAGS = {f"--{field.name}": field for field in dataclasses.fields(Flags)}
"""Field of :class:`Flags` by the flag as typed."""


def read_run_argument(
    command: str, words: list[str], summary: str, *, accepted: Iterable[str] = ()
) -> "tuple[RunDirectory, Flags]":
    """The run directory and the flags of a command; prints the usage on request.

    Args:
        command: Name of the command.
        words: Arguments of the command.
        summary: What the command does, in one sentence.
        accepted: Flags of :data:`FLAGS` that the command accepts.

    Returns:
        The directory, and the flags that were given.

    Raises:
        InputError: If an option is not accepted or there is more than one argument; or if no run is
            named and none exists.
        SystemExit: After ``--help``.
    """
    accepted = tuple(accepted)
    if "-h" in words or "--help" in words:
        print(_usage(command, summary, accepted))
        sys.exit(0)
    positional = [word for word in words if word not in accepted]
    refuse_options(command, positional, known=accepted)
    if len(positional) > 1:
        raise InputError(
            f"{command} takes one run directory, got {len(positional)} arguments; "
            f"for example `neorl-train {command} runs/0001`"
        )
    flags = Flags(**{FLAGS[word].name: word in words for word in accepted})
    from neorl_train.runs._directory import RunDirectory

    path = named_run(positional[0]) if positional else newest_run(command)
    return RunDirectory(path.absolute()), flags


def named_run(word: str) -> Path:
    """The run directory that an argument names.

    Args:
        word: A path, or the number of a run in the folder ``runs``, with or without leading zeros.

    Returns:
        The path of the run; if there is no such run, the argument as a path.
    """
    path = Path(word)
    if word.isdecimal() and not path.exists():
        for name in (word, f"{int(word):04d}"):
            if (RUNS / name).is_dir():
                return RUNS / name
    return path


def newest_run(command: str) -> Path:
    """The run with the highest number in the folder ``runs``.

    Args:
        command: Name of the command that was called without a run.

    Raises:
        InputError: If there is none.
    """
    from neorl_train.runs._directory import numbered

    runs = numbered(RUNS)
    if not runs:
        raise InputError(
            f"{command} needs a run, and there is none in {RUNS.absolute()}; for example "
            f"`neorl-train {command} runs/0001`"
        )
    print(f"{command}: no run was named, so the newest is used, {runs[-1]}", file=sys.stderr)
    return runs[-1]


def _usage(command: str, summary: str, accepted: tuple[str, ...]) -> str:
    lines = [
        " ".join([f"usage: neorl-train {command} [RUN]", *(f"[{flag}]" for flag in accepted)]),
        f"\n{summary}\n",
        "RUN is a run directory or its number in ./runs; the newest run there by default.\n",
        *["flags:"] * bool(accepted),
        *(f"  {flag:<10} {FLAGS[flag].metadata['help']}" for flag in accepted),
        *[""] * bool(accepted),
        f"example:\n  neorl-train {command} runs/0001",
    ]
    return "\n".join(lines)


def refuse_options(command: str, words: list[str], *, known: Iterable[str] = ()) -> None:
    """Refuses options that a command does not have.

    Args:
        command: Name of the command.
        words: Arguments of the command without its flags.
        known: Flags that the command accepts.

    Raises:
        InputError: Names the first unknown option and the closest flag.
    """
    for word in words:
        if word.startswith("-"):
            near = nearest_name(word.partition("=")[0], known)
            hint = f"did you mean {near}? " if near else ""
            raise InputError(
                f"unknown option {word!r} of {command}; {hint}see `neorl-train {command} --help`"
            )


def take_flag(flag: str, words: Iterable[str]) -> tuple[list[str], bool]:
    """Removes a flag from the arguments; also returns whether it was there.

    Args:
        flag: The flag, such as ``"--json"``.
        words: Arguments of a command.
    """
    words = list(words)
    return [word for word in words if word != flag], flag in words
