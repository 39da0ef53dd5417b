"""What an evaluation leaves in a run: ``evaluation.json``, ``traces.json``, ``verdict.json``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from neorl_train._errors import BadInputError
from neorl_train.results._json import from_plain, read_json, to_plain
from neorl_train.results._results import Evaluation
from neorl_train.runs._files import write_text
from neorl_train.verdicts._rule import Verdict

Thing = TypeVar("Thing")

EVALUATION, TRACES, VERDICT = "evaluation.json", "traces.json", "verdict.json"
SCHEMAS = {EVALUATION: "neorl.evaluation/1", TRACES: "neorl.traces/1", VERDICT: "neorl.verdict/1"}


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``evaluation.json``: tables, episodes and units; rows are left out.

    Args:
        evaluation: As found.

    Returns:
        What JSON can hold, with the schema's name.
    """
    plain = to_plain(evaluation)
    del plain["traces"]
    spec = evaluation.tables.spec
    units = {
        "return": evaluation.tables.reward_unit,
        "length": f"steps of {spec.dt:g} s",
        "cost": {channel.name: channel.unit for channel in spec.cost},
        "action": {channel.name: channel.unit for channel in spec.action},
        "share": "1",
    }
    return {"schema": SCHEMAS[EVALUATION], "units": units, **plain}


def traces_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of ``traces.json``: the episodes that are kept row by row."""
    spec = evaluation.tables.spec
    units = {
        field: {channel.name: channel.unit for channel in getattr(spec, field)}
        for field in ("obs", "action", "cost")
    }
    return {
        "schema": SCHEMAS[TRACES],
        "units": {**units, "reward": evaluation.tables.reward_unit},
        "period_s": spec.dt,
        "traces": to_plain(evaluation.traces),
    }


def evaluation_from_json(evaluation: dict[str, Any], traces: dict[str, Any]) -> Evaluation:
    """Inverse of :func:`evaluation_to_json` and :func:`traces_to_json`, without their schemas.

    Raises:
        BadInputError: If a field is missing, unknown or of another type; it is named.
    """
    plain = {name: value for name, value in evaluation.items() if name != "units"}
    return from_plain(Evaluation, {**plain, "traces": traces.get("traces")}, "")


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The content of ``verdict.json``; ``candidate`` is the artefact of the policy."""
    plain = to_plain(verdict)
    return {
        "schema": SCHEMAS[VERDICT],
        "verdict": plain.pop("answer"),
        "sentence": plain.pop("sentence"),
        "candidate": artefact_of(verdict.candidate),
        "policy": plain.pop("candidate"),
        "guarded": True,
        **plain,
    }


def verdict_from_json(content: dict[str, Any]) -> Verdict:
    """Inverse of :func:`verdict_to_json`, without its schema.

    Raises:
        BadInputError: If a field is missing, unknown or of another type; it is named.
    """
    renamed = {"answer": content.get("verdict"), "candidate": content.get("policy")}
    left_out = ("verdict", "candidate", "policy", "guarded")
    plain = {name: value for name, value in content.items() if name not in left_out}
    return from_plain(Verdict, {**plain, **renamed}, "")


def artefact_of(policy: str) -> str:
    """Where in a run the artefact of a policy lies."""
    return f"policies/{policy}.safetensors"


def write_evaluation(run: Path, evaluation: Evaluation, verdict: Verdict) -> None:
    """Writes the three files into a run directory, each whole or not at all.

    Args:
        run: The directory.
        evaluation: What was found.
        verdict: What follows from it; written last, so that it never stands alone.

    Raises:
        OSError: If a file cannot be written.
    """
    for name, content in (
        (EVALUATION, evaluation_to_json(evaluation)),
        (TRACES, traces_to_json(evaluation)),
    ):
        write_text(run / name, json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n")
    text = json.dumps(verdict_to_json(verdict), allow_nan=False, indent=2)
    write_text(run / VERDICT, text + "\n")


def read_evaluation(run: Path) -> Evaluation:
    """The evaluation of a run.

    Raises:
        BadInputError: If a file is missing, damaged or of another schema; it is named.
    """
    path = run / EVALUATION
    evaluation = read_json(path, SCHEMAS[EVALUATION])
    traces = read_json(run / TRACES, SCHEMAS[TRACES])
    return _naming(path, evaluation_from_json, evaluation, traces)


def read_verdict(run: Path) -> Verdict:
    """The verdict of a run.

    Raises:
        BadInputError: If the file is missing, damaged or of another schema.
    """
    path = run / VERDICT
    return _naming(path, verdict_from_json, read_json(path, SCHEMAS[VERDICT]))


def _naming(path: Path, reader: Callable[..., Thing], *content: dict[str, Any]) -> Thing:
    try:
        return reader(*content)
    except BadInputError as error:
        raise BadInputError(
            f"{path}: {error}; `neorl-train resume` evaluates the run again"
        ) from None
