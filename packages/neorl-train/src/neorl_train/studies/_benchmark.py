"""Results of a benchmark: scores, a row for each policy and task, and learners over all tasks.

A policy is scored after its last update, and at its best validation.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from neorl_core.statistics import (
    interquartile_mean,
    performance_profile,
    stratified_bootstrap_interval,
    student_interval,
)
from neorl_envs import make
from neorl_envs.scoring import anchors
from neorl_train.judging._results import Episodes, Evaluation, PolicyResult, read_evaluation
from neorl_train.judging._summary import crossed_estimate, mean_estimates
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.runs._directory import FINISHED, RunDirectory
from neorl_train.runs._records import read_records


@dataclasses.dataclass(frozen=True)
class Scale:
    """Scale of the scores of a plant: ``100 (score - random) / (reference - random)``.

    The score is the return minus the declared penalties.

    Attributes:
        plant: Name of the plant.
        penalty: Penalty of every cost by name; a cost without a penalty does not affect the score.
        random: Mean score of uniform random actions.
        reference: Mean score of the plant's reference controller.
        best_tuning: Name of that controller.
    """

    plant: str
    penalty: dict[str, float]
    random: float
    reference: float
    best_tuning: str

    def __call__(self, score: np.ndarray) -> np.ndarray:
        """The normalised score: 0 for random actions, 100 for the reference."""
        return 100 * (score - self.random) / (self.reference - self.random)

    def of(self, episodes: Episodes, costs: Sequence[str]) -> Float[np.ndarray, " episode"]:
        """Normalised score of every episode."""
        penalty_weights = np.asarray([self.penalty.get(name, 0.0) for name in costs])
        return self(episodes.returns - episodes.cost_sum @ penalty_weights)


def scale_of(plant: str) -> Scale:
    """The scale of a plant, from its stored anchors.

    Raises:
        InputError: If there are none for that plant.
    """
    ends = anchors(plant)
    env = make(plant)
    penalty = dict(env.penalty_weights())
    return Scale(plant, penalty, ends.random, ends.reference, env.reference)


@dataclasses.dataclass(frozen=True)
class PolicyScores:
    """One policy on one plant, from all runs of a benchmark that contain it.

    Attributes:
        policy: Learner, or controller.
        role: Role of the policy.
        tables: Tables of a run that contains it.
        seeds: Its seeds, as many as ``scores`` has rows; a controller has one row and no seed.
        scores: Normalised score of every seed and start.
        returns: Return of every seed and start.
        gains: Return minus that of the incumbent from the same start.
        violated: Fraction of the episodes over each limit, by seed, shape ``(seed, cost)``.
        trips: Fraction of the episodes that the plant ended, by seed; NaN if unknown.
        steps: Updates at which the policies were scored during training.
        curves: Normalised scores at these updates, by seed; policies without guard, on other
            starts.
        best_tuning: Name of the plant's reference controller.
    """

    policy: str
    role: Role
    tables: ResultTables
    seeds: tuple[int, ...]
    scores: np.ndarray
    returns: np.ndarray
    gains: np.ndarray
    violated: np.ndarray
    trips: np.ndarray
    steps: np.ndarray
    curves: np.ndarray
    best_tuning: str


def run_scores(run: RunDirectory, learner: str, scale: Scale) -> PolicyScores:
    """A learner of a finished run on a plant, with its guard."""
    evaluation = read_evaluation(run.path)
    results = [
        result for result in evaluation.results if result.group == learner and result.guarded
    ]
    results.sort(key=lambda result: result.seeds)
    seeds = tuple(seed for result in results for seed in result.seeds[:1])
    costs = [channel.name for channel in evaluation.tables.spec.cost]
    steps, curves = _curves(run, learner, seeds, costs, scale)
    return _scores(results, evaluation, scale, seeds, steps, curves)


def controller_scores(evaluation: Evaluation, scale: Scale) -> list[PolicyScores]:
    """Every controller of a plant as it is, the behaviour of its log, and the recorded episodes."""
    plain = [
        result for result in evaluation.results if not result.guarded and result.role != "learner"
    ]
    no_curves = np.zeros(0), np.zeros((1, 0))
    return [_scores([result], evaluation, scale, (), *no_curves) for result in plain]


def _scores(
    members: Sequence[PolicyResult],
    evaluation: Evaluation,
    scale: Scale,
    seeds: tuple[int, ...],
    steps: np.ndarray,
    curves: np.ndarray,
) -> PolicyScores:
    tables = evaluation.tables
    costs = [channel.name for channel in tables.spec.cost]
    incumbent = next(r for r in evaluation.results if r.name == tables.reference and not r.guarded)
    first = members[0]

    def gain(episodes: Episodes) -> np.ndarray:
        if not first.paired:  # recorded episodes have their own starts
            return np.full(episodes.count, math.nan)
        return episodes.returns - incumbent.episodes.returns

    return PolicyScores(
        policy=first.group,
        role=first.role,
        tables=tables,
        seeds=seeds,
        scores=_stack(members, lambda e: scale.of(e, costs)),
        returns=_stack(members, lambda e: e.returns),
        gains=_stack(members, gain),
        violated=_stack(members, lambda e: e.violated.mean(axis=0)),
        trips=_stack(members, lambda e: math.nan if e.trip is None else e.trip.mean()),
        steps=steps,
        curves=curves,
        best_tuning=scale.best_tuning,
    )


def join(parts: Sequence[PolicyScores]) -> PolicyScores:
    """The same learner from several runs, with their seeds concatenated."""
    first = parts[0]
    names = ("scores", "returns", "gains", "violated", "trips")
    shortest = min(len(part.steps) for part in parts)
    return dataclasses.replace(
        first,
        seeds=tuple(seed for part in parts for seed in part.seeds),
        steps=first.steps[:shortest],
        curves=np.concatenate([part.curves[:, :shortest] for part in parts]),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
    )


def means_of(
    policies: Sequence[PolicyScores], level: float
) -> list[tuple[Estimate, Estimate, Estimate]]:
    """Mean score, return and gain of every policy.

    With several seeds, the intervals resample both seeds and starts. Policies with one seed and
    the same number of starts are resampled together.

    Returns:
        Score, return and gain of every policy; NaN where a value is unknown.
    """
    samples = [(result.scores, result.returns, result.gains) for result in policies]
    means: dict[int, tuple[Estimate, ...]] = {}
    single_seed: dict[int, list[int]] = {}
    for i, parts in enumerate(samples):
        if len(parts[0]) == 1:
            single_seed.setdefault(parts[0].shape[1], []).append(i)
        else:
            means[i] = tuple(crossed_estimate(part, level=level) for part in parts)
    for members in single_seed.values():
        columns = np.stack([part[0] for i in members for part in samples[i]], axis=1)
        estimates = mean_estimates(columns, level=level)
        for position, i in enumerate(members):
            means[i] = tuple(estimates[3 * position : 3 * position + 3])
    return [(means[i][0], means[i][1], means[i][2]) for i in range(len(policies))]


def over_seeds(values: Float[np.ndarray, " seed"], level: float) -> Estimate:
    """Mean over seeds with Student's interval; the ends are NaN for a single seed."""
    if len(values) < 2:
        return Estimate(float(values[0]), math.nan, math.nan)
    with jax.enable_x64(True):
        interval = student_interval(np.asarray(values, np.float64), level=level)
        return Estimate(float(np.mean(values)), float(interval.low), float(interval.high))


def _stack(members: Iterable[PolicyResult], value: Any) -> np.ndarray:
    return np.stack([np.asarray(value(result.episodes), np.float64) for result in members])


def _curves(
    run: RunDirectory,
    learner: str,
    seeds: Sequence[int],
    costs: Sequence[str],
    scale: Scale,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores during training; empty if policies were not run on the plant."""
    points: dict[int, dict[int, float]] = {seed: {} for seed in seeds}
    for line in read_records(run.metrics):
        metrics = line["metrics"]
        is_validation = line["kind"] == "validation" and line["algorithm"] == learner
        if not is_validation or "plant_return" not in metrics or line["seed"] not in points:
            continue
        penalty = sum(
            scale.penalty.get(name, 0.0) * metrics[f"plant_cost_{name}"] for name in costs
        )
        points[line["seed"]][line["step"]] = metrics["plant_return"] - penalty
    common = sorted(set.intersection(*(set(curve) for curve in points.values())))
    values = np.asarray([[points[seed][step] for step in common] for seed in seeds], np.float64)
    return np.asarray(common), scale(values)


PROFILE = tuple(float(score) for score in range(-50, 151, 10))
"""Thresholds of a profile: normalised scores."""
_SEED = 20_260_101
BenchmarkTask = tuple[str, str]
"""Name of a plant and quality of its log."""


@dataclasses.dataclass(frozen=True, kw_only=True)
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
    role: Role = "learner"
    seeds: int = 0
    failed: int
    unit: str
    returns: Estimate | None = None
    incumbent: str
    gain: Estimate | None = None
    last: Estimate | None = None
    each_seed: tuple[float, ...] = ()
    best: Estimate | None = None
    last_there: Estimate | None = None
    worst_cost: str = ""
    over: float | None = None
    trips: float | None = None


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
class PlannedRun:
    """One run of a benchmark, finished or not.

    Attributes:
        task: Plant and quality.
        learner: Name of the learner.
        seeds: Its seeds.
        run: Directory; ``None`` if there is none yet.
        error: Reason why it failed; empty if it did not.
    """

    task: BenchmarkTask
    learner: str
    seeds: tuple[int, ...]
    run: RunDirectory | None
    error: str

    @property
    def finished(self) -> bool:
        """Whether it has results."""
        return self.run is not None and self.run.record()["status"] == FINISHED


class _OnTask(NamedTuple):
    """A policy on one task: its scores, how many of its seeds failed, whether its runs ended."""

    scores: PolicyScores | None
    failed: int = 0
    complete: bool = True


def benchmark_of(
    entries: Sequence[PlannedRun],
    controllers: Mapping[BenchmarkTask, Evaluation],
    scales: Mapping[str, Scale],
    *,
    level: float,
    curve_starts: int,
) -> Benchmark:
    """Reads the runs of a benchmark."""
    rows: list[BenchmarkRow] = []
    curves: list[Learning] = []
    by_task: dict[BenchmarkTask, dict[str, _OnTask]] = {}
    validations = 0
    for task in dict.fromkeys(entry.task for entry in entries):
        scale, task_entries = scales[task[0]], [entry for entry in entries if entry.task == task]
        policies: dict[str, _OnTask] = {}
        for learner in dict.fromkeys(entry.learner for entry in task_entries):
            learner_entries = [entry for entry in task_entries if entry.learner == learner]
            done = [
                run_scores(e.run, learner, scale) for e in learner_entries if e.run and e.finished
            ]
            failed = sum(len(entry.seeds) for entry in learner_entries if entry.error)
            complete = all(entry.finished or entry.error for entry in learner_entries)
            policies[learner] = _OnTask(join(done) if done else None, failed, complete)
        others = controller_scores(controllers[task], scale)
        policies |= {entry.policy: _OnTask(entry) for entry in others}
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
            f"{e.task[0]}, {e.task[1]} log, {e.learner}, seeds {' '.join(map(str, e.seeds))}: "
            f"{e.error}"
            for e in entries
            if e.error
        ),
        starts=next(iter(controllers.values())).tables.n_starts,
        online=validations * curve_starts,
    )


def controller_rows(
    task: BenchmarkTask, evaluation: Evaluation, scale: Scale, level: float
) -> tuple[BenchmarkRow, ...]:
    """The rows of a plant's controllers."""
    scored = controller_scores(evaluation, scale)
    policies = {entry.policy: _OnTask(entry) for entry in scored}
    return tuple(_rows(task, policies, evaluation.tables, level))


def _rows(
    task: BenchmarkTask,
    policies: Mapping[str, _OnTask],
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
            rows.append(BenchmarkRow(**shared))  # no seed has finished
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


def _learning(task: BenchmarkTask, scored: PolicyScores, level: float) -> Learning:
    score = tuple(over_seeds(scored.curves[:, i], level) for i in range(len(scored.steps)))
    return Learning(*task, scored.policy, tuple(int(step) for step in scored.steps), score)


def _overall(
    by_task: Mapping[BenchmarkTask, Mapping[str, _OnTask]],
    level: float,
) -> tuple[Overall, ...]:
    """Learners and kinds of controllers over the complete tasks."""
    groups: dict[str, list[tuple[BenchmarkTask, PolicyScores | None, int]]] = {}
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
    parts: Sequence[tuple[BenchmarkTask, PolicyScores | None, int]],
    worst: Mapping[BenchmarkTask, float],
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
        last=interquartile_estimate(scores, level),
        best=interquartile_estimate(_table(bests), level) if complete else None,
        profile=tuple(map(float, profile)),
    )


def _table(columns: Sequence[Sequence[float]]) -> np.ndarray:
    """Scores of seeds by tasks; if tasks have more seeds, only the first ones are used."""
    seeds = min(map(len, columns))
    return np.asarray([column[:seeds] for column in columns], np.float64).T


def interquartile_estimate(scores: np.ndarray, level: float) -> Estimate:
    """Interquartile mean of scores ``(seed, task)``; seeds are resampled within each task."""
    with jax.enable_x64(True):
        if len(scores) < 2:
            return Estimate(float(interquartile_mean(scores)), math.nan, math.nan)
        scored = stratified_bootstrap_interval(scores, jax.random.key(_SEED), level=level)
        return Estimate(float(scored.estimate), float(scored.low), float(scored.high))
