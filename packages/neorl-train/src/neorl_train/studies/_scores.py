"""The score of every policy of a benchmark: after the last update, and at its best validation."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

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
from neorl_train.judging._evaluation_file import read_evaluation
from neorl_train.judging._results import Episodes, Evaluation, PolicyResult
from neorl_train.judging._summary import crossed_estimate, mean_estimates
from neorl_train.judging._tables import Estimate, ResultTables, Role
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._records import read_records
from neorl_train.studies._comparison import ComparedRow, Comparison


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


THRESHOLDS = tuple(round(0.5 * step, 1) for step in range(-8, 9))
"""Thresholds of a profile: gains in standard deviations of the incumbent's return."""

_SEED = 20_260_101


@dataclasses.dataclass(frozen=True)
class LearnerAggregate:
    """One learner with one choice of settings over several plants.

    The score of a seed is its gain over the incumbent in standard deviations of the incumbent's
    return over the starts. It is comparable between plants, and above zero if the learner is better
    than the incumbent. It does not show whether limits are kept.

    Attributes:
        learner: Name of the learner.
        settings: Its settings that differ between the compared runs.
        sources: Plants that are included.
        seeds: Number of seeds per plant.
        score: Interquartile mean of the scores, with a bootstrap interval that resamples the seeds
            within each plant; its ends are NaN with a single seed.
        profile: Fraction of the scores above each of :data:`THRESHOLDS`.
        deployed: Number of runs that have this learner as candidate and answered *deploy*.
        judged: Number of runs that have this learner as candidate.
    """

    learner: str
    settings: dict[str, str]
    sources: tuple[str, ...]
    seeds: int
    score: Estimate
    profile: tuple[float, ...]
    deployed: int
    judged: int


def aggregate(comparison: Comparison) -> tuple[LearnerAggregate, ...]:
    """One row for each learner and choice of settings that ran on at least two plants.

    Args:
        comparison: Result of :func:`compare_runs`.

    Returns:
        The rows, best first. If plants have different numbers of seeds, only the first seeds of
        each are used, as many as the plant with the fewest has.
    """
    groups: dict[Any, list[ComparedRow]] = {}
    for row in comparison.rows:
        if row.role == "learner" and row.each_seed and row.spread > 0:
            groups.setdefault((row.policy, tuple(row.settings.items())), []).append(row)
    aggregates = [
        _aggregate(policy, dict(settings), rows, comparison.level)
        for (policy, settings), rows in groups.items()
        if len({row.source for row in rows}) > 1
    ]
    return tuple(sorted(aggregates, key=lambda learner: -learner.score.value))


def _aggregate(
    learner: str, settings: dict[str, str], rows: Sequence[ComparedRow], level: float
) -> LearnerAggregate:
    by_source: dict[str, list[float]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).extend(g / row.spread for g in row.each_seed)
    seeds = min(map(len, by_source.values()))
    scores = np.asarray([values[:seeds] for values in by_source.values()], np.float32).T
    judged = [row for row in rows if row.answer]
    return LearnerAggregate(
        learner=learner,
        settings=settings,
        sources=tuple(by_source),
        seeds=seeds,
        score=_score(scores, level),
        profile=tuple(map(float, performance_profile(scores, jnp.asarray(THRESHOLDS)))),
        deployed=sum(row.answer == "deploy" for row in judged),
        judged=len(judged),
    )


def _score(scores: np.ndarray, level: float) -> Estimate:
    if len(scores) < 2:
        return Estimate(float(interquartile_mean(scores)), math.nan, math.nan)
    interval = stratified_bootstrap_interval(scores, jax.random.key(_SEED), level=level)
    return Estimate(float(interval.estimate), float(interval.low), float(interval.high))
