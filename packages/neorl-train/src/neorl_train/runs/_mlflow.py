"""Copies the records of a run into an MLflow database on SQLite, as far as they are permanent.

Importing this module imports MLflow, which takes a second.
"""

import logging
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag

from neorl_train.runs._checkpoints import complete_steps
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._lock import file_lock
from neorl_train.runs._names import MLFLOW_ARTIFACTS, MLFLOW_DATABASE, MLFLOW_LOCK
from neorl_train.runs._records import RecordReader

EXPERIMENT = "neorl"
BATCH = 1000
"""Most metrics that one call may carry."""
LINES, POLICY = "neorl.lines", "neorl.policy_digest"
"""Tags: how many lines of the records an MLflow run holds, and of which policy the artefact."""


def copy_to_mlflow(run: RunDirectory) -> None:
    """Brings the MLflow runs of a run directory up to its last checkpoints, once.

    Args:
        run: The run; its folder holds the database.
    """
    MlflowCopy(run).update()


class MlflowCopy:
    """The MLflow runs of one run directory, brought up to its last checkpoints on demand.

    One MLflow run for each algorithm and seed, with parameters, metrics, dataset hash and, at the
    end, the policy artefact. Only what a checkpoint has made permanent is copied, so nothing is
    ever logged twice or taken back. A lock lets one process at a time into the database.

    Args:
        run: The run; its folder holds the database.
    """

    def __init__(self, run: RunDirectory) -> None:
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.run, self.record = run, run.record()
        self.config = tomllib.loads(run.config.read_text(encoding="utf-8"))
        self.lines = RecordReader(run.metrics)
        self.waiting: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        with self._lock():
            folder = run.path.parent.absolute()
            self.client = MlflowClient(tracking_uri=f"sqlite:///{folder / MLFLOW_DATABASE}")
            self.experiment = self._experiment(folder)
            self.runs = self._existing()
        self.copied = {key: int(one.data.tags[LINES]) for key, one in self.runs.items()}
        self.read: dict[tuple[str, int], int] = defaultdict(int)

    def update(self) -> None:
        """Copies what has become permanent since the last time."""
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
        permanent = {
            name: max(complete_steps(self.run.checkpoints(name)), default=0)
            for name in self.config["training"]["algorithms"]
        }
        with self._lock():
            self.record = self.run.record()
            for key in list(self.waiting):
                self._seed(*key, permanent[key[0]])

    def _lock(self) -> AbstractContextManager[None]:
        return file_lock(self.run.path.parent / MLFLOW_LOCK, wait=True)

    def _experiment(self, folder: Path) -> str:
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return experiment.experiment_id
        where = (folder / MLFLOW_ARTIFACTS).as_uri()
        return self.client.create_experiment(EXPERIMENT, artifact_location=where)

    def _existing(self) -> dict[tuple[str, int], Run]:
        ours = f"tags.`neorl.id` = '{self.record['id']}'"
        existing = self.client.search_runs([self.experiment], ours, max_results=10_000)
        return {
            (run.data.tags["neorl.algorithm"], int(run.data.tags["neorl.seed"])): run
            for run in existing
        }

    def _seed(self, algorithm: str, seed: int, permanent: int) -> None:
        key = (algorithm, seed)
        ready = [line for line in self.waiting[key] if line["step"] <= permanent]
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
        one, policy = self.runs[algorithm, seed], self.run.policy(algorithm, seed)
        digest = self.record.get("policies", {}).get(policy.name)
        if one.data.tags.get(POLICY) == digest:
            return
        run_id = one.info.run_id
        self.client.log_artifact(run_id, str(policy))
        self.client.set_tag(run_id, "neorl.policy", str(policy.relative_to(self.run.path)))
        self.client.set_tag(run_id, POLICY, str(digest))
        self.client.set_terminated(run_id)
        self.runs[algorithm, seed] = self.client.get_run(run_id)

    def _create(self, algorithm: str, seed: int, first: dict[str, Any]) -> Run:
        tags = {
            "neorl.id": self.record["id"],
            "neorl.run": self.run.path.name,
            "neorl.algorithm": algorithm,
            "neorl.seed": str(seed),
            LINES: "0",
            "neorl.dataset_hash": self.record["dataset"]["content_hash"],
            "neorl.config_hash": self.record["config_hash"],
            "neorl.execution_mode": self.record["execution_mode"],
        }
        made = self.client.create_run(
            self.experiment,
            start_time=_milliseconds(first),
            tags=tags,
            run_name=f"{self.run.path.name}/{algorithm}-{seed}",
        )
        self.client.log_batch(made.info.run_id, params=self._parameters(algorithm, seed))
        return made

    def _parameters(self, algorithm: str, seed: int) -> list[Param]:
        sections = {
            "data": self.config["data"],
            "penalty": self.config["penalty"],
            "training": self.config["training"],
            algorithm: self.config["algorithms"][algorithm],
        }
        values = {
            f"{s}.{name}": v for s, section in sections.items() for name, v in section.items()
        }
        values |= {"algorithm": algorithm, "seed": seed}
        return [Param(name, str(value)) for name, value in values.items()]


def _batches(lines: list[dict[str, Any]]) -> Iterator[tuple[list[Metric], int]]:
    """Complete lines, at most a thousand metrics at a time, with the number of lines then done."""
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
