"""Search a box for the largest mean score: random draws first, then cross-entropy, then one by one.

Noise is common to all candidates (the caller scores them on the same episodes), so differences
between candidates are differences of the candidates. What is found is to be scored on others.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Scores = Callable[[np.ndarray], np.ndarray]
ELITE = 0.2
SMOOTHING = 0.8
FLOOR = 1e-3  # of the box


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes:
        best: The best points, the best one first, shape ``(n_best, dimension)``.
        scores: Theirs on the episodes of the search.
        candidates: How many points were scored.
    """

    best: np.ndarray
    scores: np.ndarray
    candidates: int


def search(
    score: Scores,
    low: np.ndarray,
    high: np.ndarray,
    *,
    seed: int,
    population: int = 64,
    first: int = 192,
    generations: int = 20,
    start: np.ndarray | None = None,
    n_best: int = 5,
) -> SearchResult:
    """The best points of a box by random draws, the cross-entropy method and single coordinates.

    Each generation draws from a normal distribution clipped to the box, moved to the best fifth of
    the last one with smoothing 0.8. The last generations change one coordinate at a time of the
    best point, by steps that shrink.

    Args:
        score: Mean scores of points, shape ``(population, dimension)`` to ``(population,)``;
            always called with as many points, so that it may be one compiled program. NaN loses.
        low: Least values.
        high: Largest values.
        seed: Decides the draws.
        population: Points a call.
        first: Uniform random points before; the ends and the middle of the box are among them.
        generations: Of the cross-entropy method.
        start: Further points to begin with, shape ``(n, dimension)``.
        n_best: How many of the best to return.

    Example:
        >>> peak = np.asarray([0.3, -2.0])
        >>> result = search(
        ...     lambda x: -np.abs(x - peak).sum(axis=1), np.asarray([-5.0, -5.0]),
        ...     np.asarray([5.0, 5.0]), seed=0,
        ... )
        >>> bool(np.abs(result.best[0] - peak).max() < 0.02)
        True
    """
    rng = np.random.default_rng(seed)
    span = high - low
    points, values = [], []

    def evaluate(batch: np.ndarray) -> np.ndarray:
        scored = np.asarray(score(low + batch * span), np.float64)
        scored = np.where(np.isfinite(scored), scored, -np.inf)
        points.append(batch)
        values.append(scored)
        return scored

    uniform = rng.uniform(size=(-(-first // population) * population, low.size))
    uniform[:3] = np.asarray([0.0, 1.0, 0.5])[:, None]
    if start is not None:
        uniform[3 : 3 + len(start)] = (start - low) / span
    for batch in np.split(uniform, len(uniform) // population):
        evaluate(batch)
    n_elite = max(int(ELITE * population), 2)
    pool, pool_scores = np.concatenate(points), np.concatenate(values)
    elite = pool[np.argsort(-pool_scores)[:n_elite]]
    mean, sd = elite.mean(axis=0), elite.std(axis=0)
    for _ in range(generations):
        batch = np.clip(rng.normal(mean, sd + FLOOR, (population, low.size)), 0, 1)
        batch[0] = np.clip(mean, 0, 1)
        elite = batch[np.argsort(-evaluate(batch))[:n_elite]]
        mean = SMOOTHING * elite.mean(axis=0) + (1 - SMOOTHING) * mean
        sd = SMOOTHING * elite.std(axis=0) + (1 - SMOOTHING) * sd
    for width in (0.1, 0.03, 0.01, 0.003, 0.001):
        evaluate(_one_by_one(_best(points, values, 1)[0], width, population, rng))
    best = _best(points, values, n_best)
    all_scores = np.concatenate(values)
    return SearchResult(low + best * span, -np.sort(-all_scores)[: len(best)], len(all_scores))


def _best(points: list[np.ndarray], values: list[np.ndarray], count: int) -> np.ndarray:
    return np.concatenate(points)[np.argsort(-np.concatenate(values), kind="stable")[:count]]


def _one_by_one(
    best: np.ndarray, width: float, population: int, rng: np.random.Generator
) -> np.ndarray:
    """The best point with one coordinate changed in each row."""
    batch = np.repeat(best[None], population, axis=0)
    rows = np.arange(1, population)
    batch[rows, rows % best.size] += (
        width * rng.choice((-1, 1), rows.size) * rng.uniform(0.3, 1, rows.size)
    )
    return np.clip(batch, 0, 1)
