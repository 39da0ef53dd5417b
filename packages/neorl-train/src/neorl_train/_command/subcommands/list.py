"""``neorl-train list [RUNS]``: environments, algorithms and runs."""

import shlex
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line, summary_of
from neorl_train._command.options import refuse_options
from neorl_train._command.run_state import state_of, verdict_of
from neorl_train.runs._directory import RunDirectory, numbered
from neorl_train.runs._lock import holder
from neorl_train.runs._names import RECORD

USAGE = """usage: neorl-train list [RUNS]

Names the environments, the algorithms,
and the runs in the folder RUNS (default: runs).

example:
  neorl-train list runs"""


def command(arguments: list[str]) -> None:
    """``neorl-train list [RUNS]``."""
    if arguments[:1] in (["-h"], ["--help"]) or len(arguments) > 1:
        print(USAGE)
        return
    refuse_options("list", arguments)
    runs = Path(arguments[0] if arguments else "runs")
    if arguments:
        _require_folder_of_runs(runs)
    print(describe_all(runs))


def _require_folder_of_runs(runs: Path) -> None:
    if not runs.is_dir():
        raise InputError(
            f"{runs}: no such folder; name the folder that holds the numbered runs, such as runs"
        )
    if (runs / RECORD).is_file():
        run, folder = shlex.quote(str(runs)), shlex.quote(str(runs.absolute().parent))
        raise InputError(
            f"{runs} is itself a run; see it with `neorl-train inspect {run}`, or all of them with "
            f"`neorl-train list {folder}`"
        )


def describe_all(runs: Path) -> str:
    """Environments, algorithms, and one line for each run of a folder.

    Args:
        runs: Folder of the numbered runs; may be missing.

    Returns:
        Text for people; a damaged run is named as such, and a learner that cannot be imported.
    """
    from neorl_agents import ALGORITHMS
    from neorl_envs import environment_names

    lines = ["environments"]
    lines += [f"  {name}" for name in environment_names()]
    lines += ["algorithms"]
    lines += [f"  {name:<10} {_about(name)}" for name in ALGORITHMS]
    lines += [f"runs in {runs}"]
    rows = [_row(RunDirectory(path.absolute())) for path in numbered(runs)]
    return "\n".join(lines + (rows or ["  none yet; `neorl-train run` makes the first"]))


def _row(run: RunDirectory) -> str:
    try:
        record = run.record()
        verdict, process = verdict_of(run), holder(run)
    except InputError as error:
        return f"  {run.path.name}  {one_line(error)}"
    algorithms = ", ".join(record["algorithms"])
    decided = f"  {verdict['answer']}" if verdict else ""
    status = state_of(record, process)
    return f"  {run.path.name}  {record['started']}  {status:<11} {algorithms}{decided}"


def _about(name: str) -> str:
    """The first line about a learner; where its distribution is broken, why."""
    from neorl_agents import ALGORITHMS

    try:
        kind = ALGORITHMS.find(name)
    except InputError as error:
        return one_line(error)
    return summary_of(kind)
