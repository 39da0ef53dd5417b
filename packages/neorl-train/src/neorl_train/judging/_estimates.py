"""Means and fractions with their intervals, many at once, in float64.

The resampling unit is the episode, that is the start: everything that belongs to one start (all
policies, all seeds, all costs) is resampled together, so differences stay paired.
"""

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betaincinv

from neorl_core.statistics import Interval, bootstrap_interval, crossed_interval
from neorl_train.judging._tables import Estimate

RESAMPLES = 16_000
"""For rare large losses BCa uses an extreme quantile: of 4,000 resamples the eighth smallest."""
COLUMNS_AT_ONCE = 16  # tables of any width use the same two programs
_SEED = 20_260_101


def mean_estimates(
    samples: Float[np.ndarray, "episode quantity"], *, level: float
) -> list[Estimate]:
    """Bootstrap intervals (BCa) of the mean of every column; rows are resampled together.

    Args:
        samples: At least two episodes as rows, one column for each quantity.
        level: Confidence level of every interval, in (0, 1).

    Returns:
        One estimate per column. A column with a NaN gets NaN, which fails every clause.

    Raises:
        ValueError: If there are fewer than two episodes.
    """
    samples = np.asarray(samples, np.float64)
    estimates: list[Estimate] = []
    for begin in range(0, samples.shape[1], COLUMNS_AT_ONCE):
        chunk = samples[:, begin : begin + COLUMNS_AT_ONCE]
        padded = np.zeros((len(samples), COLUMNS_AT_ONCE))
        padded[:, : chunk.shape[1]] = chunk
        with jax.enable_x64(True):
            interval = bootstrap_interval(
                padded, jax.random.key(_SEED), level=level, resamples=RESAMPLES, method="bca"
            )
            estimates += _estimates(interval, chunk.shape[1])
    return estimates


def fraction_estimates(
    outcomes: Bool[np.ndarray, "episode event"], *, level: float
) -> list[Estimate]:
    """Fractions of episodes with exact intervals (Clopper-Pearson), one per column.

    The coverage of an interval is at least ``level``, whatever the probability is.

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    outcomes = np.asarray(outcomes, np.bool_)
    n, tail = len(outcomes), (1 - level) / 2
    counts = outcomes.sum(axis=0)
    ends = (
        counts / n,
        np.where(counts > 0, betaincinv(np.maximum(counts, 1), n - counts + 1, tail), 0.0),
        np.where(counts < n, betaincinv(counts + 1, np.maximum(n - counts, 1), 1 - tail), 1.0),
    )
    return [Estimate(*map(float, column)) for column in zip(*ends, strict=True)]


def crossed_estimate(samples: Float[np.ndarray, "seed episode"], *, level: float) -> Estimate:
    """Interval of the grand mean with both seeds and starts treated as random."""
    with jax.enable_x64(True):
        interval = _crossed_interval(np.asarray(samples, np.float64), level=level)
        return Estimate(*(float(end) for end in interval))


_crossed_interval = jax.jit(crossed_interval, static_argnames="level")
"""One program; without it, the first interval would compile 80 small ones."""


def _estimates(interval: Interval, count: int) -> list[Estimate]:
    ends = [np.asarray(end, np.float64)[:count] for end in interval]
    return [Estimate(*map(float, column)) for column in zip(*ends, strict=True)]
