"""What a run is and how far it is, read from its directory without starting JAX."""

import json
from pathlib import Path
from typing import Any

from neorl_train._errors import BadInputError, one_line
from neorl_train.runs._checkpoints import complete_steps
from neorl_train.runs._directory import RunDirectory, holder, numbered
from neorl_train.runs._records import read_records

REPORT, VERDICT = "report.html", "verdict.json"
STOPPED = "stopped"
"""What a run is called whose record says "running" and on which no process works."""


def describe_run(run: RunDirectory) -> str:
    """A page about one run.

    Args:
        run: Its directory.

    Returns:
        Text for people.

    Raises:
        BadInputError: If the directory is damaged.
    """
    record, process = run.record(), holder(run)
    dataset = record.get("dataset", {})
    lines = [
        f"run         {run.path}",
        f"status      {_status(record, process)}",
        f"started     {record['started']}",
        f"program     {record['program_form']}; devices: {record['devices']}",
        f"versions    {', '.join(f'{name} {v}' for name, v in record['versions'].items())}",
        f"config      {record['config_hash']}",
    ]
    if dataset:
        size = f"{dataset['rows']} rows, {dataset['episodes']} episodes"
        lines += [f"log         {dataset['file']}: {size}"]
        lines += [f"            {dataset['content_hash']}"]
    lines += _progress(run, record)
    verdict = _verdict(run)
    if verdict:
        lines += [f"verdict     {verdict['verdict']}: {verdict['sentence']}"]
    if (run.path / REPORT).exists():
        lines += [f"report      {run.path / REPORT}"]
    if record["status"] != "finished" and process is None:
        label = "try again" if record["status"] == "failed" else "continue"
        lines += [f"{label:<11} {run.resume_line()}"]
    lines += _times(record)
    return "\n".join(lines)


def describe_all(runs: Path) -> str:
    """Environments, algorithms, and one line for each run of a folder.

    Args:
        runs: Folder of the numbered runs; may be missing.

    Returns:
        Text for people; a damaged run is named as such.
    """
    from neorl_agents import ALGORITHMS
    from neorl_envs import environment_names

    lines = ["environments"]
    lines += [f"  {name}" for name in environment_names()]
    lines += ["algorithms"]
    lines += [f"  {name:<10} {_first_line(kind)}" for name, kind in ALGORITHMS.items()]
    lines += [f"runs in {runs}"]
    found = [_row(RunDirectory(path.absolute())) for path in numbered(runs)]
    return "\n".join(lines + (found or ["  none yet; `neorl-train run` makes the first"]))


def _row(run: RunDirectory) -> str:
    try:
        record = run.record()
        verdict, process = _verdict(run), holder(run)
    except BadInputError as error:
        return f"  {run.path.name}  {one_line(error)}"
    what = ", ".join(record["algorithms"])
    decided = f"  {verdict['verdict']}" if verdict else ""
    status = _state(record, process)
    return f"  {run.path.name}  {record['started']}  {status:<11} {what}{decided}"


def _state(record: dict[str, Any], process: str | None) -> str:
    """The status in one word: a record that says "running" is believed while its lock is held."""
    if process is not None:
        return "running"
    return STOPPED if record["status"] == "running" else record["status"]


def _status(record: dict[str, Any], process: str | None) -> str:
    state, error = _state(record, process), record.get("error", "")
    if process is not None:
        return f"{state} (process {process})"
    if state == STOPPED:
        return f"{state} without a word: its process is gone"
    return f"{state}: {error}" if error else state


def _progress(run: RunDirectory, record: dict[str, Any]) -> list[str]:
    reached: dict[str, int] = {}
    for line in read_records(run.metrics):
        reached[line["algorithm"]] = max(line["step"], reached.get(line["algorithm"], 0))
    found = []
    for name in record["algorithms"]:
        steps = complete_steps(run.checkpoints(name))
        saved = f"checkpoints at {', '.join(map(str, steps))}" if steps else "no checkpoint"
        policies = sum(run.policy(name, seed).exists() for seed in record["seeds"])
        found.append(
            f"{name:<11} update {reached.get(name, 0)}; {saved}; "
            f"{policies} of {len(record['seeds'])} policies"
        )
        if steps and reached.get(name, 0) < max(steps):
            found.append(
                f"            {run.metrics.name} ends before the checkpoint at {max(steps)}: it "
                "was cut short, and learning curves lack what is gone"
            )
    return found


def _times(record: dict[str, Any]) -> list[str]:
    timings = record.get("timings", {})
    stages = [(one["name"], one["seconds"]) for one in timings.get("stages", [])]
    moments = [(f"{name} (after start)", s) for name, s in timings.get("moments", {}).items()]
    if not stages and not moments:
        return []
    return ["time"] + [f"  {name:<38} {seconds:8.2f} s" for name, seconds in stages + moments]


def _verdict(run: RunDirectory) -> dict[str, Any] | None:
    path = run.path / VERDICT
    if not path.exists():
        return None
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
        return {name: str(verdict[name]) for name in ("verdict", "sentence")}
    except (ValueError, KeyError, TypeError):
        raise BadInputError(f"{path} is damaged; `neorl-train resume` writes it again") from None


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0].replace("``", "")
