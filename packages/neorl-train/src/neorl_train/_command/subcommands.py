"""What each subcommand does."""

import importlib.util
import shlex
import sys
from pathlib import Path

from neorl_agents import ALGORITHMS
from neorl_train._command.options import config_of, read_config
from neorl_train._errors import BadInputError
from neorl_train._pipeline import job as _job
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings
from neorl_train.runs._directory import RECORD, RunDirectory, command_prefix


def run(arguments: list[str]) -> None:
    """``neorl-train run``."""
    timings = Timings.since_start("start of Python, imports")
    words, quiet, table = _flags(arguments)
    with timings.stage("configuration"):
        config = read_config(words, ALGORITHMS)
    reporter = Reporter(quiet=quiet)
    _finished(_job.start(config, reporter, timings), timings, table)


def resume(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    timings = Timings.since_start("start of Python, imports")
    words, quiet, table = _flags(arguments)
    found = _the_run("resume", words, "Continues an interrupted run to the same bits.")
    found.record()
    config = config_of(found.config, ALGORITHMS)
    reporter = Reporter(quiet=quiet)
    _finished(_job.resume(found, config, reporter, timings), timings, table)
    if importlib.util.find_spec("neorl_deploy") is not None:
        deploy = command_prefix("neorl-deploy")
        print(f"Next: {deploy} export {shlex.quote(words[0])}")
        print(f"      {deploy} replay {shlex.quote(str(Path(words[0]) / 'policy.bundle'))}")


def report(arguments: list[str]) -> None:
    """``neorl-train report RUN``."""
    words, quiet, _ = _flags(arguments)
    found = _the_run("report", words, "Writes the report of an evaluated run again.")
    found.record()
    from neorl_train._pipeline.stages import write_run_report

    timings = Timings()
    write_run_report(found, Reporter(quiet=quiet), timings)
    _finished(found, timings, table=False)


def inspect(arguments: list[str]) -> None:
    """``neorl-train inspect RUN``."""
    found = _the_run("inspect", arguments, "Says what a run is, how far it is, what it found.")
    from neorl_train._command.inspect import describe_run

    print(describe_run(found))


def list_all(arguments: list[str]) -> None:
    """``neorl-train list [RUNS]``."""
    if arguments[:1] in (["-h"], ["--help"]) or len(arguments) > 1:
        print("usage: neorl-train list [RUNS]\n\nNames the environments, the algorithms,")
        print(
            "and the runs in the folder RUNS (default: runs).\n\nexample:\n  neorl-train list runs"
        )
        return
    _no_options("list", arguments)
    runs = Path(arguments[0] if arguments else "runs")
    if arguments:
        _require_folder_of_runs(runs)
    from neorl_train._command.inspect import describe_all

    print(describe_all(runs))


def _require_folder_of_runs(runs: Path) -> None:
    if not runs.is_dir():
        raise BadInputError(
            f"{runs}: no such folder; name the folder that holds the numbered runs, such as runs"
        )
    if (runs / RECORD).is_file():
        run, folder = shlex.quote(str(runs)), shlex.quote(str(runs.absolute().parent))
        raise BadInputError(
            f"{runs} is itself a run; see it with `neorl-train inspect {run}`, or all of them with "
            f"`neorl-train list {folder}`"
        )


def track(arguments: list[str]) -> None:
    """``neorl-train track RUN``."""
    found = _the_run("track", arguments, "Copies the records of a run into MLflow.")
    found.record()
    from neorl_train.runs._tracker import MISSING, mlflow_installed

    if not mlflow_installed():
        raise BadInputError(MISSING)
    from neorl_train.runs._mlflow import DATABASE, copy_to_mlflow

    copy_to_mlflow(found)
    print(f"copied to {found.path.parent / DATABASE}")


def _finished(found: RunDirectory, timings: Timings, table: bool) -> None:
    from neorl_train.report._terminal import print_summary

    if table:
        print(timings.table())
    print_summary(found.path)


def _flags(arguments: list[str]) -> tuple[list[str], bool, bool]:
    """What is left, whether ``--quiet``, whether ``--timings``."""
    flags = ("--quiet", "--timings")
    left = [word for word in arguments if word not in flags]
    return left, "--quiet" in arguments, "--timings" in arguments


def _no_options(command: str, words: list[str]) -> None:
    for word in words:
        if word.startswith("-"):
            raise BadInputError(
                f"unknown option {word!r} of {command}; see `neorl-train {command} --help`"
            )


def _the_run(command: str, words: list[str], what: str) -> RunDirectory:
    if "-h" in words or "--help" in words:
        print(f"usage: neorl-train {command} RUN\n\n{what}\n")
        print(f"example:\n  neorl-train {command} runs/0001")
        sys.exit(0)
    _no_options(command, words)
    if len(words) != 1:
        raise BadInputError(
            f"{command} takes one run directory, got {len(words)} arguments; "
            f"for example `neorl-train {command} runs/0001`"
        )
    return RunDirectory(Path(words[0]).absolute())
