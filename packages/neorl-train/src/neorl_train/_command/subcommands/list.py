"""``neorl-train list [RUNS]``: lists environments, algorithms and runs."""

import dataclasses
import json
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import (
    Positional,
    declared_keys,
    one_line,
    parse_options,
)
from neorl_train._command.learner_sections import learner_sections
from neorl_train._command.shared import JsonFlag, print_json
from neorl_train.runs._directory import (
    DIVERGED,
    RECORD,
    RUNNING,
    STOPPED,
    VERDICT,
    RunDirectory,
    holder,
    numbered_runs,
)


@dataclasses.dataclass(frozen=True)
class ListOptions(JsonFlag):
    """Lists the environments, the algorithms, and the runs in a folder.

    example: neorl-train list
             neorl-train list runs --json

    Attributes:
        runs: Folder of the numbered runs; runs by default.
    """

    runs: Positional[str] = ""


def command(arguments: list[str]) -> None:
    """``neorl-train list [RUNS]``."""
    options = parse_options(ListOptions, arguments, program="neorl-train list")
    runs = Path(options.runs or "runs")
    if options.runs:
        _require_folder_of_runs(runs)
    if options.json:
        print_json("list", listing(runs))
    else:
        print(describe_all(runs))


def listing(runs: Path) -> dict[str, Any]:
    """The content of :func:`describe_all` as plain JSON; a damaged run has only an ``error``."""
    entries = []
    for path in numbered_runs(runs):
        run = RunDirectory(path.absolute())
        entry: dict[str, Any] = {"run": str(run.path)}
        try:
            record = run.record()
            entry |= {
                "started": record["started"],
                "status": state_of(record, holder(run)),
                "algorithms": record["algorithms"],
                "seeds": record["seeds"],
                "diverged": list(record.get(DIVERGED, {})),
                "verdict": verdict_of(run),
            }
        except InputError as error:
            entry["error"] = one_line(error)
        entries.append(entry)
    return {**known_names(), "runs": entries}


def state_of(record: dict[str, Any], process: str | None) -> str:
    """The status in one word; "running" is reported only while the run's lock is held."""
    if process is not None:
        return RUNNING
    return STOPPED if record["status"] == RUNNING else record["status"]


def verdict_of(run: RunDirectory) -> dict[str, Any] | None:
    """Answer and sentence of a run's verdict; ``None`` if there is none yet."""
    path = run.path / VERDICT
    if not path.exists():
        return None
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(verdict[name]) for name in ("answer", "sentence")}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged; `neorl-train resume` writes it again") from None


def known_names() -> dict[str, Any]:
    """Environments, networks, and algorithms with a one-line description each.

    Read from source: importing all learners and plants takes seconds.
    """
    table = "neorl_envs.plants._table"
    points = {point.name for point in metadata.entry_points(group="neorl.plants")}
    own, networks = declared_keys(table, "_OWN"), declared_keys(table, "_NETWORKS")
    return {
        "environments": [*own, *sorted(points.difference(own, networks))],
        "networks": networks,
        "algorithms": {name: read().summary for name, read in learner_sections().items()},
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

    Damaged runs and learners that cannot be imported are named.
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
    rows = [_row(RunDirectory(path.absolute())) for path in numbered_runs(runs)]
    return "\n".join(lines + (rows or ["  none yet; `neorl-train run` starts the first"]))


def _row(run: RunDirectory) -> str:
    try:
        record = run.record()
        verdict, process = verdict_of(run), holder(run)
    except InputError as error:
        return f"  {run.path.name}  {one_line(error)}"
    lost = record.get(DIVERGED, {})
    algorithms = ", ".join(f"{n} (diverged)" if n in lost else n for n in record["algorithms"])
    verdict_text = f"  {verdict['answer']}" if verdict else ""
    status = state_of(record, process)
    return f"  {run.path.name}  {record['started']}  {status:<11} {algorithms}{verdict_text}"
