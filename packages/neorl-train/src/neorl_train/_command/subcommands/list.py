"""``neorl-train list [RUNS]``: lists environments, algorithms and runs."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import cached_text, one_line, summary_of
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import refuse_options
from neorl_train._command.run_state import state_of, verdict_of
from neorl_train.runs._directory import RunDirectory, numbered
from neorl_train.runs._lock import holder
from neorl_train.runs._names import RECORD

USAGE = """usage: neorl-train list [RUNS] [--json]

Lists the environments, the algorithms,
and the runs in the folder RUNS (default: runs).

flags:
  --json     print results as JSON in place of text

examples:
  neorl-train list runs
  neorl-train list runs --json"""


def command(arguments: list[str]) -> None:
    """``neorl-train list [RUNS]``."""
    words = [word for word in arguments if word != "--json"]
    if "-h" in words or "--help" in words:
        print(USAGE)
        return
    refuse_options("list", words, known=["--json"])
    if len(words) > 1:
        raise InputError(
            f"list takes one folder of runs, got {len(words)} arguments; for example "
            "`neorl-train list runs`"
        )
    runs = Path(words[0] if words else "runs")
    if words:
        _require_folder_of_runs(runs)
    if len(words) < len(arguments):
        print_json("list", listing(runs))
    else:
        print(describe_all(runs))


def listing(runs: Path) -> dict[str, Any]:
    """The content of :func:`describe_all` as plain JSON; a damaged run has only an ``error``."""
    entries = []
    for path in numbered(runs):
        run = RunDirectory(path.absolute())
        entry: dict[str, Any] = {"run": str(run.path)}
        try:
            record = run.record()
            entry |= {
                "started": record["started"],
                "status": state_of(record, holder(run)),
                "algorithms": record["algorithms"],
                "seeds": record["seeds"],
                "verdict": verdict_of(run),
            }
        except InputError as error:
            entry["error"] = one_line(error)
        entries.append(entry)
    return {**known_names(), "runs": entries}


def known_names() -> dict[str, Any]:
    """Environments, networks, and algorithms with a one-line description each.

    Importing all learners takes seconds, so the names are cached between processes until the code
    changes. A process that has already imported the learners may have registered others, so it
    lists them again.
    """
    if "neorl_agents" in sys.modules:
        return _names_in_tables()
    text = cached_text("neorl-train", ["list"], lambda: print(json.dumps(_names_in_tables())))
    return json.loads(text)


def _names_in_tables() -> dict[str, Any]:
    from neorl_agents import ALGORITHMS
    from neorl_envs import environment_names
    from neorl_envs.plants import GRAPH_PLANTS

    return {
        "environments": list(environment_names()),
        "networks": list(GRAPH_PLANTS),
        "algorithms": {name: _about(name) for name in ALGORITHMS},
    }


def _require_folder_of_runs(runs: Path) -> None:
    if not runs.is_dir():
        raise InputError(
            f"{runs}: there is no such folder; name the folder that contains the numbered runs, "
            "such as runs"
        )
    if (runs / RECORD).is_file():
        run, folder = shlex.quote(str(runs)), shlex.quote(str(runs.absolute().parent))
        raise InputError(
            f"{runs} is itself a run; see it with `neorl-train inspect {run}`, or all of them with "
            f"`neorl-train list {folder}`"
        )


def describe_all(runs: Path) -> str:
    """Lists environments, algorithms, and one line for each run in a folder.

    Args:
        runs: Folder of the numbered runs; it need not exist.

    Returns:
        Text to print; it names damaged runs and learners that cannot be imported.
    """
    known = known_names()
    lines = ["environments"]
    lines += [f"  {name}" for name in known["environments"]]
    lines += ["networks of any size, of which the names here are small ones"]
    lines += [f"  {name}" for name in known["networks"]]
    lines += ["algorithms"]
    width = max(map(len, known["algorithms"]))
    lines += [f"  {name:<{width}}  {about}" for name, about in known["algorithms"].items()]
    lines += [f"runs in {runs}"]
    rows = [_row(RunDirectory(path.absolute())) for path in numbered(runs)]
    return "\n".join(lines + (rows or ["  none yet; `neorl-train run` starts the first"]))


def _row(run: RunDirectory) -> str:
    try:
        record = run.record()
        verdict, process = verdict_of(run), holder(run)
    except InputError as error:
        return f"  {run.path.name}  {one_line(error)}"
    algorithms = ", ".join(record["algorithms"])
    verdict_text = f"  {verdict['answer']}" if verdict else ""
    status = state_of(record, process)
    return f"  {run.path.name}  {record['started']}  {status:<11} {algorithms}{verdict_text}"


def _about(name: str) -> str:
    """The first docstring line of a learner; if its distribution is broken, the reason."""
    from neorl_agents import ALGORITHMS

    try:
        kind = ALGORITHMS.find(name)
    except InputError as error:
        return one_line(error)
    return summary_of(kind)
