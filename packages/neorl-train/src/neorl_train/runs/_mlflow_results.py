"""Content of a job's MLflow run: parameters, dataset, verdict, gain, costs and files."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag

from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import BUNDLE, EVALUATION, REPORT, VERDICT

EXCLUDED = ("algorithms", "output")
"""Sections left out of the job's run; those of the learners are in their own runs."""


def run_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a job by dotted name."""
    logged = {name: section for name, section in config.items() if name not in EXCLUDED}
    return dict(_leaves(logged, ""))


def _leaves(value: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for name, entry in value.items():
        dotted = f"{where}.{name}" if where else name
        if isinstance(entry, Mapping):
            yield from _leaves(entry, dotted)
        else:
            yield dotted, entry


def dataset_input(
    run: RunDirectory, record: Mapping[str, Any], config: Mapping[str, Any]
) -> DatasetInput | None:
    """The log of a run as MLflow's dataset input; ``None`` if none was recorded."""
    known = record.get("dataset", {})
    if "content_hash" not in known:
        return None
    source = str(config["data"]["source"])
    file = known.get("file", "")
    path = file if Path(file).is_absolute() else str(run.path / file)
    return DatasetInput(
        dataset=Dataset(
            name=Path(source).name,
            digest=known["content_hash"].partition(":")[2][:32],
            source_type="local",
            source=json.dumps({"uri": path}),
            profile=json.dumps(
                {name: known[name] for name in ("rows", "episodes") if name in known}
            ),
        ),
        tags=[InputTag("mlflow.data.context", "training")],
    )


def artifacts_of(run: RunDirectory) -> tuple[list[Path], str]:
    """Report, configuration, record, evaluation, verdict and bundle, with a digest of them.

    Args:
        run: The run.

    Returns:
        The existing files and their digest; empty as long as there is no verdict.
    """
    if not (run.path / VERDICT).is_file():
        return [], ""
    names = (run.config.name, VERDICT, EVALUATION, REPORT, BUNDLE)
    files = [run.path / name for name in names if (run.path / name).exists()]
    digest = hashlib.sha256()
    for file in files:
        parts = sorted(file.rglob("*")) if file.is_dir() else [file]
        for part in parts:
            if part.is_file():
                digest.update(part.name.encode())
                digest.update(part.read_bytes())
    return files, digest.hexdigest()


def result_tags(run: RunDirectory) -> dict[str, str]:
    """The verdict as text."""
    verdict = _read(run.path / VERDICT)
    return {
        "neorl.verdict": str(verdict["answer"]),
        "neorl.candidate": str(verdict["candidate"]),
        "neorl.reference": str(verdict["reference"]),
        "neorl.sentence": str(verdict["sentence"])[:5000],
    }


def result_metrics(run: RunDirectory) -> dict[str, float]:
    """Return, gain, costs, trips and whether the answer is *deploy*; intervals as their two ends.

    The values are those of the guarded candidate; for a log without a simulator there is only the
    answer.
    """
    verdict, tables = _read(run.path / VERDICT), _read(run.path / EVALUATION)["tables"]
    metrics: dict[str, Any] = {"verdict.deploy": float(verdict["answer"] == "deploy")}
    row = next(
        (r for r in tables["rows"] if r["name"] == verdict["candidate"] and r["guarded"]), None
    )
    if row is not None:
        metrics |= _ends("return", row["returns"]) | _ends("gain", row["difference"])
        metrics["fallback"] = row["fallback"]
        if row["trips"] is not None:
            metrics["trips"] = row["trips"]["value"]
        for cost in row["costs"]:
            metrics |= _ends(f"cost.{cost['name']}", cost["total"])
            metrics[f"cost.{cost['name']}.over"] = cost["violating"]["value"]
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: float(v) for name, v in numbers.items() if math.isfinite(v)}


def _ends(name: str, estimate: Mapping[str, Any] | None) -> dict[str, Any]:
    if estimate is None:
        return {}
    value = {name: estimate["value"]}
    return value | {f"{name}.{end}": estimate[end] for end in ("low", "high")}


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
