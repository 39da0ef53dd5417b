"""Scores on a common scale, their aggregates over runs and tasks, and the means of their tails."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_key,
    require_length,
    require_rank,
    require_same_shape,
    require_scalar,
)
from neorl_core._internal.precision import is_half_precision, narrow, widen
from neorl_core.statistics._intervals import (
    DEFAULT_LEVEL,
    Interval,
    in_blocks,
    percentile_interval,
    random_rows,
)
from neorl_core.statistics._ranks import sort_floats

# Scores on a common scale.


def normalised_score(
    returns: Float[ArrayLike, "*batch"],
    *,
    low: Float[ArrayLike, ""],
    high: Float[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    """``100 (return - low) / (high - low)``: 0 is the poor reference, 100 the good one.

    The convention of D4RL and NeoRL. Scores may be negative or exceed 100.

    Args:
        returns: Undiscounted episode returns.
        low: Return of the poor reference (a random policy).
        high: Return of the good reference (an expert); must differ from ``low``.

    Returns:
        Scores in per cent of the distance between the references; infinite or NaN under ``jit`` if
        the references agree.

    Raises:
        ValueError: If a reference is not a scalar, or concrete references agree.

    Example:
        >>> float(normalised_score(5.0, low=0.0, high=10.0))
        50.0

    Source: Fu et al., D4RL: datasets for deep data-driven reinforcement learning, arXiv 2004.07219.
    """
    require_scalar("low", low)
    require_scalar("high", high)
    if is_concrete((low, high)) and np.any(np.asarray(low) == np.asarray(high)):
        raise ValueError(f"low and high must differ, got {low} and {high}; measure both references")
    returns = floats(returns)
    low, high = jnp.asarray(low, returns.dtype), jnp.asarray(high, returns.dtype)
    return 100 * (returns - low) / nan_unless(high != low, high - low)


# Aggregates over runs and tasks that do not depend on a few lucky seeds.


def interquartile_mean(scores: Float[ArrayLike, "*shape"]) -> Float[Array, ""]:
    """Mean of the middle half of all scores, pooled over every axis.

    ``floor(N / 4)`` of the ``N`` scores are dropped at each end. It is as robust to outliers as the
    median, with less variance.

    Args:
        scores: Scores of any shape, for example ``(run, task)``; not empty.

    Returns:
        The mean, in the units of ``scores``; NaN if one is NaN.

    Raises:
        ValueError: If there is no score.

    Example:
        >>> import jax.numpy as jnp
        >>> float(interquartile_mean(jnp.array([0.0, 1.0, 3.0, 1000.0])))
        2.0

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice".
    """
    scores = floats(scores).reshape(-1)
    require_length("scores", scores, 1)
    drop = scores.shape[0] // 4
    middle = sort_floats(scores)[drop : scores.shape[0] - drop]
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, jnp.mean(middle))


def median_task_mean(scores: Float[ArrayLike, "run task"]) -> Float[Array, ""]:
    """Median over the tasks of the mean over the runs.

    Args:
        scores: Shape ``(run, task)``, not empty.

    Returns:
        The median, in the units of ``scores``.

    Raises:
        ValueError: If ``scores`` does not have two axes or is empty.

    Example:
        >>> import jax.numpy as jnp
        >>> float(median_task_mean(jnp.array([[1.0, 5.0, 90.0], [3.0, 5.0, 70.0]])))
        5.0
    """
    scores = _by_run_and_task("scores", scores)
    return jnp.median(jnp.mean(scores, axis=0))


def optimality_gap(scores: Float[ArrayLike, "*shape"], *, gamma: float = 1.0) -> Float[Array, ""]:
    """Mean shortfall of the scores from ``gamma``: ``gamma - mean(min(x, gamma))``.

    Args:
        scores: Scores of any shape, not empty.
        gamma: Score above which more has no value.

    Returns:
        The shortfall, not negative, in the units and the dtype of ``scores``.

    Raises:
        ValueError: If there is no score, or a concrete ``gamma`` is not one finite number.

    Example:
        >>> import jax.numpy as jnp
        >>> float(optimality_gap(jnp.array([0.5, 7.0])))
        0.25

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice".
    """
    dtype, scores = floats(scores).dtype, widen(scores).reshape(-1)
    require_length("scores", scores, 1)
    require_scalar("gamma", gamma)
    if is_concrete(gamma) and not np.isfinite(np.asarray(gamma)):
        raise ValueError(f"gamma must be finite, got {gamma}; give the target score")
    target = like(gamma, scores)
    return narrow(jnp.mean(target - jnp.minimum(scores, target)), dtype)


def probability_of_improvement(
    first: Float[ArrayLike, "run task"], second: Float[ArrayLike, "other_run task"]
) -> Float[Array, ""]:
    """Probability that a run of ``first`` beats a run of ``second`` on a random task.

    Mean over the tasks of the Mann-Whitney ``U / (runs x other runs)``; a tie counts half.

    Args:
        first: Shape ``(run, task)``.
        second: Shape ``(other run, task)``: the same tasks, in the same order.

    Returns:
        The probability, in [0, 1]; NaN if a score is NaN.

    Raises:
        ValueError: If the tasks disagree or an array is empty or does not have two axes.

    Example:
        >>> import jax.numpy as jnp
        >>> float(probability_of_improvement(jnp.array([[1.0], [2.0]]), jnp.array([[1.0]])))
        0.75

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice".
    """
    first, second = _by_run_and_task("first", first), _by_run_and_task("second", second)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"both need the same tasks along axis 1, got {first.shape[1]} and {second.shape[1]}; "
            "compare on the same tasks"
        )
    # Counted among sorted runs, since all pairs of many runs do not fit into memory.
    win_rates = jax.vmap(_win_rates, in_axes=1)(first, second)
    undefined = jnp.any(jnp.isnan(first)) | jnp.any(jnp.isnan(second))
    return jnp.where(undefined, jnp.nan, jnp.mean(win_rates)).astype(first.dtype)


def _win_rates(first: Float[Array, " run"], second: Float[Array, " other_run"]) -> Array:
    """The fraction of ``second`` below every run of ``first``; ties count half."""
    ordered = sort_floats(second)
    below, not_above = (jnp.searchsorted(ordered, first, side=side) for side in ("left", "right"))
    return widen(below + not_above) / (2 * second.shape[0])


def performance_profile(
    scores: Float[ArrayLike, "*shape"], thresholds: Float[ArrayLike, " threshold"]
) -> Float[Array, " threshold"]:
    """Fraction of all scores above each threshold: the run-score distribution.

    Args:
        scores: Scores of any shape, not empty.
        thresholds: Score thresholds in the units of ``scores``.

    Returns:
        Fractions in [0, 1], which do not increase with the threshold. NaN exceeds nothing.

    Raises:
        ValueError: If there is no score or ``thresholds`` does not have exactly one axis.

    Example:
        >>> import jax.numpy as jnp
        >>> performance_profile(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0, 2.0])).tolist()
        [1.0, 0.5, 0.0]

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice".
    """
    require_rank("thresholds", thresholds, 1, "threshold")
    scores = floats(scores).reshape(-1)
    require_length("scores", scores, 1)
    thresholds = floats(thresholds).astype(scores.dtype)
    above = scores[None, :] > thresholds[:, None]
    return jnp.mean(above.astype(scores.dtype), axis=1)


def stratified_bootstrap_interval(
    scores: Float[ArrayLike, "run task"],
    key: PRNGKeyArray,
    *,
    statistic: Callable[[Array], Array] = interquartile_mean,
    level: float = DEFAULT_LEVEL,
    resamples: int = 2000,
) -> Interval:
    """Percentile interval of an aggregate, resampling the runs within each task.

    Args:
        scores: Shape ``(run, task)``, with at least two runs.
        key: Random key; equal keys give equal intervals.
        statistic: Named function from scores of this shape to an array; it is static.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.
        resamples: Number of bootstrap samples.

    Returns:
        The aggregate and its limits.

    Raises:
        ValueError: If ``scores`` does not have two axes, there are fewer than two runs or no task,
            ``level`` is outside (0, 1) or ``resamples`` is not a positive integer.
        TypeError: If ``key`` is not a random key.

    Example:
        >>> import jax
        >>> scores = jax.random.uniform(jax.random.key(0), (10, 3))
        >>> interval = stratified_bootstrap_interval(scores, jax.random.key(1))
        >>> bool(interval.low < interval.estimate) and bool(interval.estimate < interval.high)
        True

    Source: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice".
    """
    scores = _by_run_and_task("scores", scores)
    require_length("scores", scores, 2)
    level = checked_probability("level", level)
    resamples = checked_integer("resamples", resamples, 1, "give the number of draws")
    require_key(key)
    return _resample(scores, key, level, statistic=statistic, resamples=resamples)


@functools.partial(jax.jit, static_argnames=("statistic", "resamples"))
def _resample(
    scores: Array, key: Array, level: Array, *, statistic: Callable, resamples: int
) -> Interval:
    # The default statistic depends only on the order of the scores, so they are sorted only once.
    by_rank = statistic is interquartile_mean
    ordered, source = _ordered_and_ranks(scores) if by_rank else (None, scores)
    columns = jnp.arange(scores.shape[1], dtype=jnp.int32)[None, :]

    def one(key: Array) -> Array:
        rows = random_rows(key, scores.shape, scores.shape[0])
        drawn = source.at[rows, columns].get(mode="promise_in_bounds")
        return statistic(drawn) if ordered is None else _interquartile_mean_of_ranks(ordered, drawn)

    replicates = in_blocks(one, jax.random.split(key, resamples), scores.size)
    return percentile_interval(replicates, statistic(scores), level)


def _ordered_and_ranks(scores: Array) -> tuple[Array, Array]:
    """All scores in order (all NaN if one is), and the position of each in that order."""
    flat = scores.reshape(-1)
    order = jnp.argsort(flat)
    ranks = jnp.zeros_like(order).at[order].set(jnp.arange(flat.size, dtype=order.dtype))
    ordered = jnp.where(jnp.any(jnp.isnan(flat)), jnp.nan, flat[order])
    return ordered, ranks.reshape(scores.shape)


def _interquartile_mean_of_ranks(ordered: Float[Array, " score"], ranks: Array) -> Float[Array, ""]:
    """The interquartile mean of the scores at these positions, counted as often as they occur."""
    n = ordered.shape[0]
    counts = jnp.zeros(n, ranks.dtype).at[ranks.reshape(-1)].add(1, mode="promise_in_bounds")
    drop, cumulative = n // 4, jnp.cumsum(counts)
    before = jnp.clip(cumulative - counts, drop, n - drop)
    inside = jnp.clip(cumulative, drop, n - drop) - before
    terms = jnp.where(inside > 0, inside.astype(ordered.dtype) * ordered, 0)
    return jnp.where(jnp.isnan(ordered[0]), jnp.nan, jnp.sum(terms) / (n - 2 * drop))


def _by_run_and_task(name: str, scores: ArrayLike) -> Array:
    require_rank(name, scores, 2, "run, task")
    array = floats(scores)
    if array.size == 0:
        raise ValueError(
            f"{name} must hold one run and one task or more, got {array.shape}; "
            "give scores of shape (run, task)"
        )
    return array


# Tail means of returns, plain or importance-weighted.


def conditional_value_at_risk(
    samples: Float[ArrayLike, " sample"],
    weights: Float[ArrayLike, " sample"] | None = None,
    *,
    tail: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Mean of the lowest fraction ``tail`` of the returns.

    It is ``1/tail`` times the integral of the quantile from zero to ``tail``. The sample that
    straddles the end of the tail contributes with the part inside; samples beyond it contribute
    nothing, even if they are infinite. At 1 it is the mean, towards 0 the minimum. For costs,
    negate samples and result. Weights are summed to within 2e-6 of their total in float32.

    Args:
        samples: Samples, for example returns of episodes, one or more.
        weights: Sample weights, not negative; equal if ``None``.
        tail: Fraction of the samples to average, in (0, 1]; NaN results under ``jit`` if it is
            outside.

    Returns:
        The tail mean, in the units of the samples; NaN if all weights are zero, one is negative or
        infinite, or anything is NaN.

    Raises:
        ValueError: If shapes differ, there is no sample, or ``tail`` is outside (0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> float(conditional_value_at_risk(jnp.array([4.0, 1.0, 2.0, 3.0]), tail=0.5))
        1.5

    Source: Rockafellar and Uryasev, Optimization of conditional value-at-risk, 2000.
    """
    tail = checked_probability("tail", tail, closed=True)
    if is_concrete(tail) and np.any(np.asarray(tail) <= 0):
        raise ValueError(
            f"tail must be in (0, 1], got {tail}; 1 is the mean; give a fraction, not a percentage"
        )
    ordered, mass = _distribution(samples, weights)
    cumulative = _cumulative(mass, weights is None)
    before = jnp.roll(cumulative, 1).at[0].set(0)
    target = jnp.asarray(tail).astype(mass.dtype) * cumulative[-1]
    # Not jnp.clip: its gradient tests whether the result equals an argument, which XLA may compute
    # twice with different rounding.
    room = target - before
    inside = jnp.where(room >= mass, mass, jnp.where(room <= 0, 0, room))
    part = inside / jnp.sum(inside)
    counted = jnp.where((part > 0) | jnp.isfinite(ordered), ordered, 0).astype(mass.dtype)
    return jnp.sum(part * counted).astype(ordered.dtype)


def _cumulative(mass: Float[Array, " sample"], counted: bool) -> Float[Array, " sample"]:
    """The cumulative mass; if all samples have weight one, their exact number."""
    if counted:
        return mass * jnp.arange(1, mass.shape[0] + 1).astype(mass.dtype)
    return jnp.cumsum(mass)


def _distribution(samples: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    """The samples in order and their scaled weights, in float32 or wider; NaN if invalid."""
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, 1)
    samples = floats(samples)
    dtype = jnp.float32 if is_half_precision(samples.dtype) else samples.dtype
    if weights is None:
        ordered = sort_floats(samples)
        any_nan = jnp.any(jnp.isnan(samples))
        return ordered, jnp.broadcast_to(
            jnp.where(any_nan, jnp.nan, 1).astype(dtype), ordered.shape
        )
    weights = floats(weights).astype(dtype)
    require_same_shape("samples", samples, "weights", weights)
    largest = jnp.max(weights)
    valid = jnp.all(weights >= 0) & (largest > 0) & (largest < jnp.inf)
    valid = valid & ~jnp.any(jnp.isnan(samples))
    # Powers of two do not round, and keep the sum in range.
    factor = jnp.where(largest > 2.0**64, 2.0**-64, jnp.where(largest < 2.0**-64, 2.0**64, 1.0))
    order = jnp.argsort(samples)
    return samples[order], jnp.where(valid, weights[order] * factor.astype(dtype), jnp.nan)
