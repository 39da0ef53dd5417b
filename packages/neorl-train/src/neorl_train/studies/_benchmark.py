"""Results of a benchmark: a row for each policy and task, and the learners over all tasks."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.statistics import (
    interquartile_mean,
    performance_profile,
    stratified_bootstrap_interval,
)
from neorl_train.judging._results import Evaluation
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import FINISHED
from neorl_train.studies._scores import (
    PolicyScores,
    Scale,
    controller_scores,
    join,
    means_of,
    over_seeds,
    run_scores,
)

PROFILE = tuple(float(score) for score in range(-50, 151, 10))
"""Thresholds of a profile: normalised scores."""
_SEED = 20_260_101
_NO_RESULTS: dict[str, Any] = {
    **dict.fromkeys(("returns", "gain", "last", "best", "last_there", "over", "trips")),
    **{"role": "learner", "seeds": 0, "each_seed": (), "worst_cost": ""},
}
"""Remaining fields of the row of a learner of which no seed has finished."""

Task = tuple[str, str]
"""Name of a plant and quality of its log."""


@dataclasses.dataclass(frozen=True)
class BenchmarkRow:
    """One policy on one plant, trained on a log of one quality.

    Attributes:
        plant: Name of the plant.
        quality: Quality of the log.
        policy: Learner with its guard, or controller as it is.
        role: Role of the policy.
        seeds: Number of seeds that finished; 1 for a controller.
        failed: Number of seeds whose run failed.
        unit: Unit of the return.
        returns: Mean return; ``None`` if no seed has finished.
        incumbent: Name of the controller that runs today.
        gain: Paired gain in return over the incumbent; ``None`` for the incumbent itself.
        last: Normalised score after the last update; 0 for random actions, 100 for the reference.
        each_seed: The same score for every seed that finished.
        best: Normalised score at the best validation of each seed, on other starts and without
            guard: the score that a choice by online evaluations would have shown. ``None`` for a
            controller, and if policies were not run on the plant during training.
        last_there: Normalised score after the last update on those same starts.
        worst_cost: Cost whose limit was broken in the most episodes; empty if there is none.
        over: Fraction of the episodes over that limit, for the worst seed.
        trips: Fraction of the episodes that the plant ended, for the worst seed.
    """

    plant: str
    quality: str
    policy: str
    role: Role
    seeds: int
    failed: int
    unit: str
    returns: Estimate | None
    incumbent: str
    gain: Estimate | None
    last: Estimate | None
    each_seed: tuple[float, ...]
    best: Estimate | None
    last_there: Estimate | None
    worst_cost: str
    over: float | None
    trips: float | None


@dataclasses.dataclass(frozen=True)
class Overall:
    """One learner, or one kind of controller, over all tasks of a benchmark.

    Attributes:
        policy: Learner, or ``"first tuning"``, ``"reference"`` and ``"logged behaviour"``.
        role: Role of the policy.
        tasks: Number of complete tasks.
        failed: Number of seeds that failed in them; each counts as the worst score of its task.
        last: Interquartile mean over tasks and seeds of the score after the last update.
        best: The same mean for the best validation; ``None`` if it is unknown.
        profile: Fraction of the scores above each of :data:`PROFILE`.
    """

    policy: str
    role: Role
    tasks: int
    failed: int
    last: Estimate
    best: Estimate | None
    profile: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Learning:
    """The learning curve of one learner on one task.

    Attributes:
        plant: Name of the plant.
        quality: Quality of the log.
        policy: Learner.
        steps: Numbers of updates.
        score: Mean over seeds of the normalised score, with Student's interval.
    """

    plant: str
    quality: str
    policy: str
    steps: tuple[int, ...]
    score: tuple[Estimate, ...]


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A benchmark, complete or in progress.

    Attributes:
        level: Confidence level of all intervals.
        rows: Rows of every task, learners before controllers.
        overall: Learners and controllers over all tasks, best first.
        learning: Learning curves.
        runs: Number of runs by status: ``finished``, ``failed`` and ``left``.
        failures: One sentence for each run that failed.
        starts: Number of paired episodes behind ``last``.
        online: Number of episodes on the plant, for each seed, that choosing ``best`` would use.
    """

    level: float
    rows: tuple[BenchmarkRow, ...]
    overall: tuple[Overall, ...]
    learning: tuple[Learning, ...]
    runs: dict[str, int]
    failures: tuple[str, ...]
    starts: int
    online: int


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run of a benchmark, finished or not.

    Attributes:
        task: Plant and quality.
        learner: Name of the learner.
        seeds: Its seeds.
        run: Directory; ``None`` if there is none yet.
        error: Reason why it failed; empty if it did not.
    """

    task: Task
    learner: str
    seeds: tuple[int, ...]
    run: RunDirectory | None
    error: str

    @property
    def finished(self) -> bool:
        """Whether it has results."""
        return self.run is not None and self.run.record()["status"] == FINISHED


def benchmark_of(
    entries: Sequence[Entry],
    controllers: Mapping[Task, Evaluation],
    scales: Mapping[str, Scale],
    *,
    level: float,
    curve_starts: int,
) -> Benchmark:
    """Reads the runs of a benchmark."""
    rows: list[BenchmarkRow] = []
    curves: list[Learning] = []
    by_task: dict[Task, dict[str, tuple[PolicyScores | None, int, bool]]] = {}
    validations = 0
    for task in dict.fromkeys(entry.task for entry in entries):
        scale, task_entries = scales[task[0]], [entry for entry in entries if entry.task == task]
        policies: dict[str, tuple[PolicyScores | None, int, bool]] = {}
        for learner in dict.fromkeys(entry.learner for entry in task_entries):
            learner_entries = [entry for entry in task_entries if entry.learner == learner]
            done = [
                run_scores(e.run, learner, scale) for e in learner_entries if e.run and e.finished
            ]
            failed = sum(len(entry.seeds) for entry in learner_entries if entry.error)
            complete = all(entry.finished or entry.error for entry in learner_entries)
            policies[learner] = join(done) if done else None, failed, complete
        others = controller_scores(controllers[task], scale)
        policies |= {entry.policy: (entry, 0, True) for entry in others}
        rows += _rows(task, policies, others[0].tables, level)
        by_task[task] = policies
        for scored, _, _ in policies.values():
            if scored is not None and len(scored.steps):
                validations = max(validations, len(scored.steps))
                curves.append(_learning(task, scored, level))
    return Benchmark(
        level=level,
        rows=tuple(rows),
        overall=_overall(by_task, level),
        learning=tuple(curves),
        runs={
            "finished": sum(entry.finished for entry in entries),
            "failed": sum(bool(entry.error) for entry in entries),
            "left": sum(not entry.finished and not entry.error for entry in entries),
        },
        failures=tuple(
            f"{e.task[0]}, {e.task[1]} log, {e.learner}, seeds {_seed_text(e.seeds)}: {e.error}"
            for e in entries
            if e.error
        ),
        starts=next(iter(controllers.values())).tables.n_starts,
        online=validations * curve_starts,
    )


def controller_rows(
    task: Task, evaluation: Evaluation, scale: Scale, level: float
) -> tuple[BenchmarkRow, ...]:
    """The rows of a plant's controllers."""
    scored = controller_scores(evaluation, scale)
    policies = {entry.policy: (entry, 0, True) for entry in scored}
    return tuple(_rows(task, policies, evaluation.tables, level))


def _rows(
    task: Task,
    policies: Mapping[str, tuple[PolicyScores | None, int, bool]],
    tables: ResultTables,
    level: float,
) -> list[BenchmarkRow]:
    known = {policy: scored for policy, (scored, _, _) in policies.items() if scored is not None}
    means = dict(zip(known, means_of(list(known.values()), level), strict=True))
    rows = []
    for policy, (scored, failed, _) in policies.items():
        shared: dict[str, Any] = {
            "plant": task[0],
            "quality": task[1],
            "policy": policy,
            "failed": failed,
            "unit": tables.reward_unit,
            "incumbent": tables.reference,
        }
        if scored is None:
            rows.append(BenchmarkRow(**shared, **_NO_RESULTS))
            continue
        last, returns, gain = means[policy]
        worst, over = _worst(scored)
        has_curve = scored.curves.shape[1] > 0
        trips = float(np.max(scored.trips))
        rows.append(
            BenchmarkRow(
                **shared,
                role=scored.role,
                seeds=len(scored.scores),
                returns=returns,
                gain=None if policy == tables.reference else gain,
                last=last,
                each_seed=tuple(map(float, scored.scores.mean(axis=1))),
                best=over_seeds(scored.curves.max(axis=1), level) if has_curve else None,
                last_there=over_seeds(scored.curves[:, -1], level) if has_curve else None,
                worst_cost=worst,
                over=over,
                trips=None if math.isnan(trips) else trips,
            )
        )
    return rows


def _worst(scored: PolicyScores) -> tuple[str, float | None]:
    if not scored.violated.shape[1]:
        return "", None
    each = scored.violated.max(axis=0)
    return scored.tables.spec.cost[int(np.argmax(each))].name, float(each.max())


def _learning(task: Task, scored: PolicyScores, level: float) -> Learning:
    score = tuple(over_seeds(scored.curves[:, i], level) for i in range(len(scored.steps)))
    return Learning(*task, scored.policy, tuple(int(step) for step in scored.steps), score)


def _overall(
    by_task: Mapping[Task, Mapping[str, tuple[PolicyScores | None, int, bool]]], level: float
) -> tuple[Overall, ...]:
    """Learners and kinds of controllers over the complete tasks."""
    groups: dict[str, list[tuple[Task, PolicyScores | None, int]]] = {}
    for task, policies in by_task.items():
        for policy, (scored, failed, complete) in policies.items():
            for kind in _kinds(policy, scored):
                if complete:
                    groups.setdefault(kind, []).append((task, scored, failed))
    worst = {
        task: min([0.0, *(float(f.scores.mean(axis=1).min()) for f, _, _ in p.values() if f)])
        for task, p in by_task.items()
    }
    overall = [_overall_of_policy(kind, parts, worst, level) for kind, parts in groups.items()]
    return tuple(sorted(overall, key=lambda entry: -entry.last.value))


def _kinds(policy: str, scored: PolicyScores | None) -> list[str]:
    """Common name of a policy over several plants, whose tunings have individual names."""
    if scored is None or scored.role == "learner" or scored.role == "behaviour":
        return [policy]
    first = ["first tuning"] if policy == scored.tables.reference else []
    return first + (["reference"] if policy == scored.best_tuning else [])


def _overall_of_policy(
    kind: str,
    parts: Sequence[tuple[Task, PolicyScores | None, int]],
    worst: Mapping[Task, float],
    level: float,
) -> Overall:
    columns, bests = [], []
    for task, scored, failed in parts:
        seed_scores = [] if scored is None else list(scored.scores.mean(axis=1))
        columns.append(seed_scores + [worst[task]] * failed)
        if scored is not None and scored.curves.shape[1] and not failed:
            bests.append(list(scored.curves.max(axis=1)))
    scores = _table(columns)
    known: list[Role] = [scored.role for _, scored, _ in parts if scored]
    profile = performance_profile(scores.astype(np.float32), jnp.asarray(PROFILE))
    complete = len(bests) == len(parts)
    return Overall(
        policy=kind,
        role=known[0] if known else "learner",
        tasks=len(parts),
        failed=sum(failed for _, _, failed in parts),
        last=_interquartile_mean(scores, level),
        best=_interquartile_mean(_table(bests), level) if complete else None,
        profile=tuple(map(float, profile)),
    )


def _table(columns: Sequence[Sequence[float]]) -> np.ndarray:
    """Scores of seeds by tasks; if tasks have more seeds, only the first ones are used."""
    seeds = min(map(len, columns))
    return np.asarray([column[:seeds] for column in columns], np.float64).T


def _interquartile_mean(scores: np.ndarray, level: float) -> Estimate:
    """Interquartile mean; seeds are resampled within each task."""
    with jax.enable_x64(True):
        if len(scores) < 2:
            return Estimate(float(interquartile_mean(scores)), math.nan, math.nan)
        scored = stratified_bootstrap_interval(scores, jax.random.key(_SEED), level=level)
        return Estimate(float(scored.estimate), float(scored.low), float(scored.high))


def _seed_text(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))
