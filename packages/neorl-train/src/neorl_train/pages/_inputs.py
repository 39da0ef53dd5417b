"""Inputs of a report: the files of a run."""

import dataclasses
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_train.judging._loop_change import LoopChange, read_changes
from neorl_train.judging._results import Evaluation, read_evaluation
from neorl_train.judging._training_results import training_signs
from neorl_train.judging._verdict import DEPLOY, TRIAL, Verdict, read_verdict
from neorl_train.runs._directory import (
    CONFIG,
    CONSTRAINTS,
    DIVERGED,
    LOOPS,
    METRICS,
    RECORD,
    earlier_verdicts,
)
from neorl_train.runs._records import read_records


@dataclasses.dataclass(frozen=True)
class Curve:
    """One metric of one training run.

    Attributes:
        metric: Name of the metric in the records.
        algorithm: Name of the learner.
        seed: Seed of the training run.
        step: Numbers of critic gradient steps.
        value: Values of the metric at these steps.
    """

    metric: str
    algorithm: str
    seed: int
    step: np.ndarray
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that the report shows.

    Attributes:
        run: Run directory.
        evaluation: Results of the evaluation.
        verdict: Verdict on these results.
        record: Content of ``run.json``; empty if there is none.
        config: Resolved configuration as TOML; empty if there is none.
        constraints: Content of ``constraints.json``; empty if there is none.
        validations: Validation curves recorded during training.
        chunks: Curves of the training loop's metrics.
        signs: Warnings about the log, and signs that training went wrong, one sentence each.
        loops: What the candidate changes in each declared loop, with the evidence.
    """

    run: Path
    evaluation: Evaluation
    verdict: Verdict
    record: dict[str, Any]
    config: str
    constraints: dict[str, Any]
    validations: list[Curve]
    chunks: list[Curve]
    signs: list[str]
    loops: list[LoopChange] = dataclasses.field(default_factory=list)

    @property
    def curve_episodes(self) -> int:
        """Number of episodes behind each point of a learning curve."""
        return int(tomllib.loads(self.config).get("evaluation", {}).get("curve_starts", 0))

    @property
    def simulated(self) -> bool:
        """Whether there was a simulator."""
        return bool(self.evaluation.tables.environment)

    @property
    def tried(self) -> bool:
        """Whether the candidate may be used or tried."""
        return self.verdict.answer in (DEPLOY, TRIAL)


def chosen_lines(run: Path, verdict: Verdict) -> list[str]:
    """Cautions against a *deploy* that may be the best of several runs; none for the first run."""
    earlier = earlier_verdicts(run)
    if verdict.answer != DEPLOY or not earlier:
        return []
    runs = "1 earlier run was" if earlier == 1 else f"{earlier} earlier runs were"
    return [
        f"In {run.parent.name}, {runs} evaluated on the same source. If this run is chosen for its "
        "verdict, evaluate it once more on fresh starts: `neorl-train evaluate "
        f"{run.parent.name}/{run.name}`."
    ]


def read_inputs(run: Path) -> Inputs:
    """Reads the files of an evaluated run."""
    records = list(read_records(run / METRICS))
    config, record = read_config(run), read_object(run / RECORD)
    return Inputs(
        run=run,
        evaluation=read_evaluation(run),
        verdict=read_verdict(run),
        record=record,
        config=config,
        constraints=read_object(run / CONSTRAINTS),
        validations=curves(records, "validation"),
        chunks=curves(records, "chunk"),
        signs=[
            *record.get("warnings", ()),
            *training_signs(records, learner_settings(config), record.get(DIVERGED)),
        ],
        loops=read_changes(run / LOOPS),
    )


def read_config(run: Path) -> str:
    """The resolved configuration of a run as TOML; empty if there is none."""
    path = run / CONFIG
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def learner_settings(config: str) -> dict[str, Any]:
    """The hyperparameters of every learner in a configuration as TOML, by name."""
    return tomllib.loads(config).get("algorithms", {})


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{path} is damaged; restore it, then write the report again") from None
    return content if isinstance(content, dict) else {}


def curves(records: Iterable[dict[str, Any]], kind: str) -> list[Curve]:
    """The records of one kind, as one curve for each metric, algorithm and seed.

    ``kind`` is ``"validation"`` or ``"chunk"``.
    """
    points: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for line in records:
        if line.get("kind") == kind:
            for metric, value in line["metrics"].items():
                key = (metric, str(line["algorithm"]), int(line["seed"]))
                points.setdefault(key, []).append((int(line["step"]), float(value)))
    collected = []
    for (metric, algorithm, seed), pairs in points.items():
        steps, values = np.array(sorted(pairs)).T
        collected.append(Curve(metric, algorithm, seed, steps, values))
    return collected
