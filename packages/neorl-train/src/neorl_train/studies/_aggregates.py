"""Learners over several plants: interquartile means with intervals, and performance profiles."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.statistics import (
    interquartile_mean,
    performance_profile,
    stratified_bootstrap_interval,
)
from neorl_train.judging._tables import Estimate
from neorl_train.studies._comparison import ComparedRow, Comparison

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
