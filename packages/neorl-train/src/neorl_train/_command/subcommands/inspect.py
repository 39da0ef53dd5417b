"""``neorl-train inspect RUN``: describes a run and its progress without starting JAX."""

import dataclasses
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.shared import JsonFlag, RunArgument, print_json, run_results
from neorl_train._command.subcommands.list import state_of, verdict_of
from neorl_train.runs._checkpoints import complete_steps
from neorl_train.runs._directory import (
    DIVERGED,
    FAILED,
    FINISHED,
    REPORT,
    STOPPED,
    RunDirectory,
    holder,
)
from neorl_train.runs._records import read_records


@dataclasses.dataclass(frozen=True)
class InspectOptions(JsonFlag, RunArgument):
    """Shows the settings of a run, its progress and its results.

    example: neorl-train inspect runs/0001
             neorl-train inspect runs/0001 --report --track

    Attributes:
        report: Write the report of an evaluated run again, and show its results.
        track: Copy the records of the run into MLflow.
    """

    report: bool = False
    track: bool = False


def command(arguments: list[str]) -> None:
    """``neorl-train inspect RUN``."""
    options = parse_options(InspectOptions, arguments, program="neorl-train inspect")
    run = options.directory("inspect")
    if options.report:
        _write_report(run)
    tracking_uri = _copy_to_mlflow(run) if options.track else ""
    if options.json:
        results = {"results": run_results(run)} if options.report else {}
        copied = {"tracking_uri": tracking_uri} if options.track else {}
        print_json("run-state", {**run_state(run), **results, **copied})
        return
    print(describe_run(run))
    if options.report:
        from neorl_train.pages._terminal import print_summary

        print_summary(run.path)
    if options.track:
        print(f"copied to {tracking_uri}")


def _write_report(run: RunDirectory) -> None:
    """Writes the report of an evaluated run again."""
    from neorl_train._job.stages import write_run_report
    from neorl_train._process.progress import Reporter, Timings

    run.record()
    write_run_report(run, Reporter(), Timings())


def _copy_to_mlflow(run: RunDirectory) -> str:
    """Copies the records of a run; returns where they are now."""
    from neorl_train.runs._tracker import MISSING, copy_once, mlflow_installed

    run.record()
    if not mlflow_installed():
        raise InputError(MISSING)
    from neorl_train.runs._mlflow import tracking_uri

    copy_once(run)
    return tracking_uri(run)


def run_state(run: RunDirectory) -> dict[str, Any]:
    """The content of :func:`describe_run` as plain JSON: the run's record with derived values."""
    record, process = run.record(), holder(run)
    reached = _last_updates(run)
    return {
        **record,
        "run": str(run.path),
        "status": state_of(record, process),
        "process": process,
        "progress": {
            name: {
                "update": reached.get(name, 0),
                "checkpoints": complete_steps(run.checkpoints(name)),
                "policies": [s for s in record["seeds"] if run.policy(name, s).exists()],
            }
            for name in record["algorithms"]
        },
        "verdict": verdict_of(run),
        "report": str(run.path / REPORT) if (run.path / REPORT).exists() else "",
        "resume": run.resume_line() if record["status"] != FINISHED and process is None else "",
    }


def describe_run(run: RunDirectory) -> str:
    """Describes one run on a page of text."""
    record, process = run.record(), holder(run)
    dataset = record.get("dataset", {})
    lines = [
        f"run         {run.path}",
        f"status      {_status(record, process)}",
        f"started     {record['started']}",
        f"mode        {record['execution_mode']}; devices: {record['devices']}",
        f"versions    {_versions(record)}",
        f"config      {record['config_hash']}",
    ]
    lines += [
        f"resumed     {later['time']} with {_versions(later)}"
        for later in record.get("resumed_with", [])
    ]
    if dataset:
        size = f"{dataset['rows']} rows, {dataset['episodes']} episodes"
        lines += [f"log         {dataset['file']}: {size}"]
        lines += [f"            {dataset['content_hash']}"]
    for label, name in (("limits", "limits"), ("in place of", "replaced_limits")):
        sentences = record.get(name, [])
        lines += [f"{label * (i == 0):<11} {s}" for i, s in enumerate(sentences)]
    for kind, names in record.get("origins", {}).items():
        lines += [f"{kind:<11} {name}, from {origin}" for name, origin in names.items()]
    if record.get("fine_tunes"):
        lines += [f"fine-tunes  {record['fine_tunes']}"]
    if record.get("fallback"):
        lines += [f"fallback    {record['fallback']}"]
    for name in ("exploration", "controllers", "choice", "supervision"):
        lines += [f"{name * (i == 0):<11} {s}" for i, s in enumerate(record.get(name, []))]
    lines += _progress(run, record)
    verdict = verdict_of(run)
    if verdict:
        lines += [f"verdict     {verdict['answer']}: {verdict['sentence']}"]
    if (run.path / REPORT).exists():
        lines += [f"report      {run.path / REPORT}"]
    if record["status"] != FINISHED and process is None:
        label = "try again" if record["status"] == FAILED else "continue"
        lines += [f"{label:<11} {run.resume_line()}"]
    lines += _times(record)
    return "\n".join(lines)


def _versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in record["versions"].items())


def _status(record: dict[str, Any], process: str | None) -> str:
    state, error = state_of(record, process), record.get("error", "")
    if process is not None:
        return f"{state} (process {process})"
    if state == STOPPED:
        return f"{state}: its process ended without recording a reason"
    return f"{state}: {error}" if error else state


def _last_updates(run: RunDirectory) -> dict[str, int]:
    """The last update that the records contain for each learner."""
    reached: dict[str, int] = {}
    for line in read_records(run.metrics):
        reached[line["algorithm"]] = max(line["step"], reached.get(line["algorithm"], 0))
    return reached


def _progress(run: RunDirectory, record: dict[str, Any]) -> list[str]:
    reached, lines = _last_updates(run), []
    for name in record["algorithms"]:
        steps = complete_steps(run.checkpoints(name))
        saved = f"checkpoints at {', '.join(map(str, steps))}" if steps else "no checkpoint"
        policies = sum(run.policy(name, seed).exists() for seed in record["seeds"])
        lines.append(
            f"{name:<11} update {reached.get(name, 0)}; {saved}; "
            f"{policies} of {len(record['seeds'])} policies"
        )
        if name in record.get(DIVERGED, {}):
            lines.append(f"            {record[DIVERGED][name]['error']}")
        if steps and reached.get(name, 0) < max(steps):
            lines.append(
                f"            {run.metrics.name} ends before the checkpoint at {max(steps)}: the "
                "file was cut short, and the learning curves lack the lost part"
            )
    return lines


def _times(record: dict[str, Any]) -> list[str]:
    timings = record.get("timings", {})
    stages = [(stage["name"], stage["seconds"]) for stage in timings.get("stages", [])]
    moments = [(f"{name} (after start)", s) for name, s in timings.get("moments", {}).items()]
    if not stages and not moments:
        return []
    return ["time"] + [f"  {name:<38} {seconds:8.2f} s" for name, seconds in stages + moments]
