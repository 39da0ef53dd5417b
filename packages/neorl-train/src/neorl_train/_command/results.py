"""Prints the results of a run at the end of a command, as text or as JSON."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neorl_train._command.run_argument import Flags

if TYPE_CHECKING:
    from neorl_train._process.timings import Timings
    from neorl_train.runs._directory import RunDirectory

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
    """Path, status, verdict and tables of a run, as plain JSON."""
    from neorl_train.judging._results import read_evaluation, to_plain
    from neorl_train.judging._verdict import read_verdict
    from neorl_train.runs._names import REPORT

    record, report = run.record(), run.path / REPORT
    return {
        "run": str(run.path),
        "status": record["status"],
        "report": str(report) if report.is_file() else "",
        "verdict": to_plain(read_verdict(run.path)),
        "tables": to_plain(read_evaluation(run.path).tables),
        "timings": record.get("timings", {}),
    }


def print_json(kind: str, content: Mapping[str, Any]) -> None:
    """Prints one JSON document with the head that every neorl file has.

    If the content already has a head, that one is kept.
    """
    from neorl_core.infrastructure import head

    print(json.dumps({**head(kind, VERSION), **content}, indent=1))
