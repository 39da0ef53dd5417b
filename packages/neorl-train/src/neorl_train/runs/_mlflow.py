"""Copies the permanent records and results of a run to MLflow.

Importing this module imports MLflow, which takes a second.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag

from neorl_core.infrastructure import replacing
from neorl_train.runs._checkpoints import complete_steps
from neorl_train.runs._directory import (
    BUNDLE,
    DIVERGED,
    EVALUATION,
    MLFLOW_ARTIFACTS,
    MLFLOW_DATABASE,
    MLFLOW_LOCK,
    REPORT,
    VERDICT,
    RunDirectory,
    file_lock,
)
from neorl_train.runs._records import RecordReader

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


EXPERIMENT = "neorl"
BATCH = 1000
"""Largest number of metrics in one call."""
PARAMETERS = 100
"""Largest number of parameters in one call."""
LINES, POLICY = "neorl.lines", "neorl.policy_digest"
"""Tags: the number of record lines that an MLflow run contains, and the policy of its artefact."""
RESULTS = "neorl.results_digest"
"""Tag: a digest of the results and files that were copied to the job's run."""
PARENT = "mlflow.parentRunId"
PATIENCE = 60.0
"""Seconds until the lock of the database counts as permanently held."""


def tracking_uri(run: RunDirectory) -> str:
    """Tracking address for the runs in a folder: ``MLFLOW_TRACKING_URI``, else its own database."""
    address = os.environ.get("MLFLOW_TRACKING_URI", "")
    return address or f"sqlite:///{run.path.parent.absolute() / MLFLOW_DATABASE}"


def copy_to_mlflow(run: RunDirectory) -> None:
    """Updates the MLflow runs of a run directory once, up to its last checkpoints and results.

    Raises:
        InputError: If another process holds the database's lock.
    """
    copy = MlflowCopy(run)
    copy.update()
    copy.end(_STATUS.get(copy.record["status"], "RUNNING"))


class MlflowCopy:
    """The MLflow runs of one run directory, updated to its last checkpoints on demand.

    There is one parent run for the job, with its configuration, dataset, source commit and, at the
    end, verdict, gain, costs and files. Nested in it is one run for each algorithm and seed, with
    parameters, metrics and the policy artefact. Only data made permanent by a checkpoint are
    copied, so nothing is ever logged twice or revoked. A database beside the runs has a lock that
    admits one process at a time; a server needs none.

    Args:
        run: The run.

    Raises:
        InputError: If another process holds the lock.
    """

    def __init__(self, run: RunDirectory) -> None:
        # The caller reports every failure in one line; these loggers would print tracebacks.
        for noisy in ("mlflow", "alembic", "sqlalchemy"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        self.run, self.record = run, run.record()
        self.config = tomllib.loads(run.config.read_text(encoding="utf-8"))
        self.lines = RecordReader(run.metrics)
        self.waiting: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        with self._lock():
            if not os.environ.get("MLFLOW_TRACKING_URI"):
                _make_database(run.path.parent.absolute() / MLFLOW_DATABASE)
            self.client = MlflowClient(tracking_uri=tracking_uri(run))
            self.experiment = self._experiment()
            self.parent, self.runs = self._existing()
        self.copied = {key: int(run.data.tags[LINES]) for key, run in self.runs.items()}
        self.read: dict[tuple[str, int], int] = defaultdict(int)
        self.samples = 0

    def update(self) -> None:
        """Copies what has become permanent since the last call."""
        lines = self.lines.new()
        if self.lines.restarted:
            self.lines.restarted = False
            self.waiting.clear()
            self.read.clear()
        for line in lines:
            key = (line["algorithm"], line["seed"])
            self.read[key] += 1
            if self.read[key] > self.copied.get(key, 0):
                self.waiting[key].append(line)
        checkpointed = {
            name: max(complete_steps(self.run.checkpoints(name)), default=0)
            for name in self.config["training"]["algorithms"]
        }
        with self._lock():
            self.record = self.run.record()
            for key in list(self.waiting):
                self._seed(*key, checkpointed[key[0]])
            if self.parent is not None:
                self._results(self.parent)

    def measure(self, values: dict[str, float], time: float) -> None:
        """Writes system metrics of the process to the job's run.

        Args:
            values: Values under MLflow's names, without ``system/``.
            time: Seconds since 1970.
        """
        if self.parent is None or not values:
            return
        metrics = [
            Metric(f"system/{name}", value, int(time * 1000), self.samples)
            for name, value in values.items()
        ]
        self.samples += 1
        with self._lock():
            self.client.log_batch(self.parent.info.run_id, metrics=metrics)

    def end(self, status: str) -> None:
        """Records how the job ended: ``FINISHED``, ``FAILED`` or ``KILLED``; else ``RUNNING``."""
        if self.parent is None or self.parent.info.status == status:
            return
        with self._lock():
            for (algorithm, _), run in self.runs.items():
                if run.info.status != "FINISHED":
                    own = "FAILED" if algorithm in self.record.get(DIVERGED, {}) else status
                    self.client.update_run(run.info.run_id, status=own)
            self.client.update_run(self.parent.info.run_id, status=status)
            self.parent = self.client.get_run(self.parent.info.run_id)

    def _lock(self) -> AbstractContextManager[None]:
        if os.environ.get("MLFLOW_TRACKING_URI"):
            return contextlib.nullcontext()
        return file_lock(self.run.path.parent / MLFLOW_LOCK, patience=PATIENCE)

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        experiment = self.client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        where = (self.run.path.parent.absolute() / MLFLOW_ARTIFACTS).as_uri()
        local = None if os.environ.get("MLFLOW_TRACKING_URI") else where
        return self.client.create_experiment(name, artifact_location=local)

    def _existing(self) -> tuple[Run | None, dict[tuple[str, int], Run]]:
        by_id = f"tags.`neorl.id` = '{self.record['id']}'"
        existing = self.client.search_runs([self.experiment], by_id, max_results=10_000)
        parents = [run for run in existing if "neorl.seed" not in run.data.tags]
        seeds = {
            (run.data.tags["neorl.algorithm"], int(run.data.tags["neorl.seed"])): run
            for run in existing
            if "neorl.seed" in run.data.tags
        }
        return next(iter(parents), None), seeds

    def _seed(self, algorithm: str, seed: int, checkpointed: int) -> None:
        key = (algorithm, seed)
        ready = [line for line in self.waiting[key] if line["step"] <= checkpointed]
        if ready:
            if key not in self.runs:
                self.runs[key] = self._create(algorithm, seed, ready[0])
            done = self.copied.get(key, 0)
            for metrics, lines in _batches(ready):
                tags = [RunTag(LINES, str(done + lines))]
                self.client.log_batch(self.runs[key].info.run_id, metrics, tags=tags)
            self.copied[key] = done + len(ready)
            self.waiting[key] = self.waiting[key][len(ready) :]
        if key in self.runs and self.run.policy(*key).exists():
            self._finish(algorithm, seed)

    def _finish(self, algorithm: str, seed: int) -> None:
        run, policy = self.runs[algorithm, seed], self.run.policy(algorithm, seed)
        digest = self.record.get("policies", {}).get(policy.name)
        if run.data.tags.get(POLICY) == digest:
            return
        run_id = run.info.run_id
        self.client.log_artifact(run_id, str(policy))
        self.client.set_tag(run_id, "neorl.policy", str(policy.relative_to(self.run.path)))
        self.client.set_tag(run_id, POLICY, str(digest))
        self.client.set_terminated(run_id)
        self.runs[algorithm, seed] = self.client.get_run(run_id)

    def _results(self, parent: Run) -> None:
        """Copies verdict, gain, costs and files of the job when they are new or have changed."""
        files, digest = artifacts_of(self.run)
        if not digest or parent.data.tags.get(RESULTS) == digest:
            return
        run_id = parent.info.run_id
        now = int(max(path.stat().st_mtime for path in files) * 1000)
        metrics = [Metric(name, v, now, 0) for name, v in result_metrics(self.run).items()]
        tags = [RunTag(name, value) for name, value in result_tags(self.run).items()]
        for path in files:
            if path.is_dir():
                self.client.log_artifacts(run_id, str(path), path.name)
            else:
                self.client.log_artifact(run_id, str(path))
        self.client.log_batch(run_id, metrics=metrics, tags=[*tags, RunTag(RESULTS, digest)])
        self.parent = self.client.get_run(run_id)

    def _create(self, algorithm: str, seed: int, first: dict[str, Any]) -> Run:
        if self.parent is None:
            self.parent = self._new_run({}, self.run.path.name, first)
            self._log_parameters(self.parent, run_parameters(self.config))
        parent = {PARENT: self.parent.info.run_id}
        own = {"neorl.algorithm": algorithm, "neorl.seed": str(seed), LINES: "0"}
        name = f"{self.run.path.name}/{algorithm}-{seed}"
        run = self._new_run({**parent, **own}, name, first)
        self._log_parameters(run, self._parameters(algorithm, seed))
        return run

    def _new_run(self, tags: dict[str, str], name: str, first: dict[str, Any]) -> Run:
        shared = {
            "neorl.id": self.record["id"],
            "neorl.run": self.run.path.name,
            "neorl.dataset_hash": self.record.get("dataset", {}).get("content_hash", ""),
            "neorl.config_hash": self.record["config_hash"],
            "neorl.execution_mode": self.record["execution_mode"],
            "mlflow.source.name": "neorl-train",
            "mlflow.source.type": "LOCAL",
        }
        if self.record.get("commit"):
            shared["mlflow.source.git.commit"] = self.record["commit"]
        run = self.client.create_run(
            self.experiment,
            start_time=_milliseconds(first),
            tags={**shared, **tags},
            run_name=name,
        )
        dataset = dataset_input(self.run, self.record, self.config)
        if dataset is not None:
            self.client.log_inputs(run.info.run_id, datasets=[dataset])
        return run

    def _log_parameters(self, run: Run, values: dict[str, Any]) -> None:
        params = [Param(name, str(value)[:6000]) for name, value in values.items()]
        for first in range(0, len(params), PARAMETERS):
            self.client.log_batch(run.info.run_id, params=params[first : first + PARAMETERS])

    def _parameters(self, algorithm: str, seed: int) -> dict[str, Any]:
        sections = {
            "data": self.config["data"],
            "penalty": self.config["penalty"],
            "training": self.config["training"],
            algorithm: self.config["algorithms"][algorithm],
        }
        values = {
            f"{s}.{name}": v for s, section in sections.items() for name, v in section.items()
        }
        return values | {"algorithm": algorithm, "seed": seed}


_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def _make_database(path: Path) -> None:
    """Makes an empty database if there is none, under another name until it is complete.

    MLflow builds it table by table, which takes seconds, and cannot continue one whose process was
    killed on the way.
    """
    if path.exists():
        return
    # The name is new each time: SQLite would replay the journal of a killed process of that name.
    with replacing(path) as unfinished:
        MlflowClient(tracking_uri=f"sqlite:///{unfinished}").get_experiment_by_name(EXPERIMENT)


def _batches(lines: list[dict[str, Any]]) -> Iterator[tuple[list[Metric], int]]:
    """Complete lines, at most a thousand metrics at a time, with the number of lines so far."""
    metrics: list[Metric] = []
    for number, line in enumerate(lines):
        more = [
            Metric(name, value, _milliseconds(line), line["step"])
            for name, value in line["metrics"].items()
        ]
        if metrics and len(metrics) + len(more) > BATCH:
            yield metrics, number
            metrics = []
        metrics += more
    if metrics:
        yield metrics, len(lines)


def _milliseconds(line: dict[str, Any]) -> int:
    return int(line["time"] * 1000)
