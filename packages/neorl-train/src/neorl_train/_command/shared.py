"""What commands share: the run that is named, the flags, and how results are printed."""

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from neorl_core import InputError
from neorl_core.infrastructure.command_line import Positional, parse_options

if TYPE_CHECKING:
    from neorl_train._process.progress import Timings
    from neorl_train.runs._directory import RunDirectory


Options = TypeVar("Options")


@dataclasses.dataclass(frozen=True)
class RunArgument:
    """The run that a command is about.

    Attributes:
        run: Run directory or its number in ./runs; the newest run there by default.
    """

    run: Positional[str] = ""

    def directory(self, command: str) -> "RunDirectory":
        """The directory that is named.

        Raises:
            InputError: If no run is named and none exists.
        """
        from neorl_train.runs._directory import RunDirectory

        path = named_run(self.run) if self.run else newest_run(command)
        return RunDirectory(path.absolute())


@dataclasses.dataclass(frozen=True)
class JsonFlag:
    """How a command prints its results.

    Attributes:
        json: Print results as JSON in place of text.
    """

    json: bool = False


@dataclasses.dataclass(frozen=True)
class Flags(JsonFlag):
    """What a command prints.

    Attributes:
        quiet: Print no progress.
        timings: Print a table of where the time went.
    """

    quiet: bool = False
    timings: bool = False


@dataclasses.dataclass(frozen=True)
class TrainingFlags(Flags):
    """What a command that trains prints and records.

    Attributes:
        profile: Trace the first chunks of every learner into RUN/profile.
    """

    profile: bool = False


RUNS = Path("runs")
"""Default folder of the runs."""


def named_run(word: str) -> Path:
    """The run directory that an argument names.

    A number is that of a run in the folder ``runs``; if there is no such run, it is the path
    itself.
    """
    path = Path(word)
    if word.isdecimal() and not path.exists():
        for name in (word, f"{int(word):04d}"):
            if (RUNS / name).is_dir():
                return RUNS / name
    return path


def newest_run(command: str) -> Path:
    """The run with the highest number in the folder ``runs``.

    Raises:
        InputError: If there is none.
    """
    from neorl_train.runs._directory import numbered_runs

    runs = numbered_runs(RUNS)
    if not runs:
        raise InputError(
            f"{command} needs a run, and there is none in {RUNS.absolute()}; for example "
            f"`neorl-train {command} runs/0001`"
        )
    print(f"{command}: no run was named, so the newest is used, {runs[-1]}", file=sys.stderr)
    return runs[-1]


def parse_named(kind: type[Options], arguments: Iterable[str], program: str) -> tuple[str, Options]:
    """The first word, empty if that is an option, and the options behind it, each in its range."""
    from neorl_core.infrastructure import require_settings

    words = list(arguments)
    name = words.pop(0) if words and not words[0].startswith("-") else ""
    options = parse_options(kind, words, program=program)
    require_settings(options, "")
    return name, options


VERSION = 1


def print_results(run: "RunDirectory", timings: "Timings", flags: Flags) -> None:
    """Prints the results of a run, preceded by a table of timings if requested."""
    from neorl_train.pages._terminal import print_summary

    if flags.json:
        print_json("run-results", run_results(run))
        return
    if flags.timings:
        print(timings.table())
    print_summary(run.path)


def run_results(run: "RunDirectory") -> dict[str, Any]:
    """Path, status, verdict, diverged learners and tables of a run, as plain JSON."""
    from neorl_train.judging._results import read_evaluation, to_plain
    from neorl_train.judging._verdict import read_verdict
    from neorl_train.runs._directory import DIVERGED, REPORT

    record, report = run.record(), run.path / REPORT
    return {
        "run": str(run.path),
        "status": record["status"],
        "report": str(report) if report.is_file() else "",
        "verdict": to_plain(read_verdict(run.path)),
        "diverged": record.get(DIVERGED, {}),
        "tables": to_plain(read_evaluation(run.path).tables),
        "timings": record.get("timings", {}),
    }


def print_json(kind: str, content: Mapping[str, Any]) -> None:
    """Prints one JSON document with the head that every neorl file has.

    If the content already has a head, that one is kept.
    """
    from neorl_core.infrastructure import head

    print(json.dumps({**head(kind, VERSION), **content}, indent=1))
