"""An evaluation on disk: ``evaluation.json`` and ``traces.json``."""

import json
import os
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import head, write_text
from neorl_train.judging._json import decoded, from_plain, read_json, to_plain
from neorl_train.judging._results import Evaluation
from neorl_train.runs._names import EVALUATION, TRACES

VERSION = 1
"""Version of both files."""


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``evaluation.json``: tables, episodes and units; rows are left out.

    Args:
        evaluation: Results of an evaluation.

    Returns:
        JSON data with its head.
    """
    plain = to_plain(evaluation)
    del plain["traces"], plain["stretches"]
    spec = evaluation.tables.spec
    units = {
        "return": evaluation.tables.reward_unit,
        "length": f"steps of {spec.dt:g} s",
        "cost": {channel.name: channel.unit for channel in spec.cost},
        "action": {channel.name: channel.unit for channel in spec.action},
        "fraction": "1",
    }
    return {**head("evaluation", VERSION), "units": units, **plain}


def traces_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``traces.json``: episodes and stretches of a log, row by row."""
    spec = evaluation.tables.spec
    units = {
        field: {channel.name: channel.unit for channel in getattr(spec, field)}
        for field in ("obs", "action", "cost")
    }
    return {
        **head("traces", VERSION),
        "units": {**units, "reward": evaluation.tables.reward_unit},
        "period_s": spec.dt,
        "traces": to_plain(evaluation.traces),
        "stretches": to_plain(evaluation.stretches),
    }


def evaluation_from_json(evaluation: dict[str, Any], traces: dict[str, Any]) -> Evaluation:
    """Inverse of :func:`evaluation_to_json` and :func:`traces_to_json`, without their heads.

    Raises:
        InputError: If a field is missing, unknown or of another type; the message names it.
    """
    plain = {name: value for name, value in evaluation.items() if name != "units"}
    tables = plain.get("tables")
    rows = tables.get("rows") if isinstance(tables, dict) else None
    for row in _objects(rows):  # files from before the verdict considered the worst episode
        row.setdefault("least_difference", None)
        row.setdefault("amounts", [])  # and from before there were any
    for result in _objects(plain.get("results")):
        if isinstance(result.get("episodes"), dict):
            for name in ("travel", "reversals", "terms"):
                result["episodes"].setdefault(name, [])
    for fit in _objects(plain.get("imitation")):  # files from before this comparison
        fit.setdefault("beyond_line", None)
    rows_of = {"traces": traces.get("traces"), "stretches": traces.get("stretches", [])}
    return from_plain(Evaluation, {**plain, **rows_of})


def _objects(entries: Any) -> list[dict[str, Any]]:
    """The objects in a list that a file may contain in damaged form."""
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )


def write_evaluation(run: str | os.PathLike[str], evaluation: Evaluation) -> None:
    """Writes both files into a run directory, each completely or not at all.

    Args:
        run: Run directory.
        evaluation: Results of the evaluation.

    Raises:
        OSError: If a file cannot be written.
    """
    for name, content in (
        (EVALUATION, evaluation_to_json(evaluation)),
        (TRACES, traces_to_json(evaluation)),
    ):
        write_text(
            Path(run) / name, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"
        )


def read_evaluation(run: str | os.PathLike[str]) -> Evaluation:
    """The evaluation of a run.

    Raises:
        InputError: If a file is missing, damaged or of another version; the message names it.
    """
    path = Path(run) / EVALUATION
    evaluation = read_json(path, "evaluation", VERSION)
    traces = read_json(path.with_name(TRACES), "traces", VERSION)
    return decoded(path, evaluation_from_json, evaluation, traces)
