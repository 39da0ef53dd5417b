"""Copies the records of a run into an MLflow database on SQLite, as far as they are permanent.

Importing this module imports MLflow, which takes a second.
"""

import logging
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag

from neorl_train._checkpoint import complete_steps
from neorl_train._records import read_records
from neorl_train._run_directory import RunDirectory, file_lock

EXPERIMENT = "neorl"
DATABASE, ARTIFACTS, LOCK = "mlflow.db", "mlflow-artifacts", "mlflow.lock"
BATCH = 1000
"""Most metrics that one call may carry."""
LINES = "neorl.lines"
"""Tag: how many lines of the records an MLflow run holds."""


def copy_to_mlflow(run: RunDirectory) -> None:
    """Brings the MLflow runs of a run directory up to its last checkpoints.

    One MLflow run for each algorithm and seed, with parameters, metrics, dataset hash and, at the
    end, the policy artefact. Only what a checkpoint has made permanent is copied, so nothing is
    ever logged twice or taken back. A lock lets one process at a time into the database.

    Args:
        run: The run; its folder holds the database.
    """
    with file_lock(run.path.parent / LOCK, wait=True):
        _Copy(run).all()


class _Copy:
    def __init__(self, run: RunDirectory) -> None:
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.run, self.record = run, run.record()
        self.config = tomllib.loads(run.config.read_text(encoding="utf-8"))
        folder = run.path.parent.absolute()
        self.client = MlflowClient(tracking_uri=f"sqlite:///{folder / DATABASE}")
        self.experiment = self._experiment(folder)
        self.runs = self._existing()

    def _experiment(self, folder: Path) -> str:
        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return found.experiment_id
        where = (folder / ARTIFACTS).as_uri()
        return self.client.create_experiment(EXPERIMENT, artifact_location=where)

    def _existing(self) -> dict[tuple[str, int], Run]:
        ours = f"tags.`neorl.id` = '{self.record['id']}'"
        found = self.client.search_runs([self.experiment], ours, max_results=10_000)
        return {
            (run.data.tags["neorl.algorithm"], int(run.data.tags["neorl.seed"])): run
            for run in found
        }

    def all(self) -> None:
        permanent = {
            name: max(complete_steps(self.run.checkpoints(name)), default=0)
            for name in self.config["training"]["algorithms"]
        }
        lines: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for line in read_records(self.run.metrics):
            if line["step"] <= permanent.get(line["algorithm"], 0):
                lines[line["algorithm"], line["seed"]].append(line)
        for (algorithm, seed), of_seed in lines.items():
            self._seed(algorithm, seed, of_seed)

    def _seed(self, algorithm: str, seed: int, lines: list[dict[str, Any]]) -> None:
        found = self.runs.get((algorithm, seed)) or self._create(algorithm, seed, lines[0])
        begun = int(found.data.tags.get(LINES, "0"))
        run_id = found.info.run_id
        for metrics, done in _batches(lines, begun):
            self.client.log_batch(run_id, metrics, tags=[RunTag(LINES, str(done))])
        policy = self.run.policy(algorithm, seed)
        if policy.exists() and found.info.status != "FINISHED":
            self.client.log_artifact(run_id, str(policy))
            digest = self.record.get("policies", {}).get(policy.name, "")
            self.client.set_tag(run_id, "neorl.policy", str(policy.relative_to(self.run.path)))
            self.client.set_tag(run_id, "neorl.policy_digest", digest)
            self.client.set_terminated(run_id, end_time=_milliseconds(lines[-1]))

    def _create(self, algorithm: str, seed: int, first: dict[str, Any]) -> Run:
        tags = {
            "neorl.id": self.record["id"],
            "neorl.run": self.run.path.name,
            "neorl.algorithm": algorithm,
            "neorl.seed": str(seed),
            "neorl.dataset_hash": self.record["dataset"]["content_hash"],
            "neorl.config_hash": self.record["config_hash"],
            "neorl.program_form": self.record["program_form"],
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


def _batches(lines: list[dict[str, Any]], begun: int) -> Iterator[tuple[list[Metric], int]]:
    """Whole lines, at most a thousand metrics at a time, with the number of lines then done."""
    metrics: list[Metric] = []
    for number, line in enumerate(lines[begun:], start=begun):
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
