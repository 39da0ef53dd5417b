"""Bounds on a mean that hold at every sample size, computed from the range of the samples."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    require_length,
    require_order,
    require_rank,
    require_scalar,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core._internal.sorting import sort_floats
from neorl_core.statistics._intervals import DEFAULT_LEVEL, Interval


def hoeffding_interval(
    samples: Float[ArrayLike, " sample"],
    *,
    low: float | Float[Array, ""],
    high: float | Float[Array, ""],
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """Hoeffding's interval: ``mean ± (high - low) sqrt(ln(1 / delta) / (2 n))``.

    ``delta = (1 - level) / 2``, so either end by itself is a bound of level ``1 - delta``. Holds
    for any distribution on ``[low, high]``. The range of importance-weighted returns is so wide
    that the interval is of little use for them.

    Args:
        samples: Independent samples, at least one, each within the range.
        low: Smallest value that a sample can take.
        high: Largest value that a sample can take.
        level: Guaranteed coverage, in (0, 1); NaN limits under ``jit`` if it is outside.

    Returns:
        The mean and its limits, not clipped to the range; NaN under ``jit`` if a sample is outside.

    Raises:
        ValueError: If there is not exactly one axis or no sample, a concrete sample is outside the
            range, or ``level`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> interval = hoeffding_interval(jnp.full(200, 0.5), low=0.0, high=1.0, level=0.9)
        >>> round(float(interval.low), 3)
        0.413

    Source: Hoeffding, Probability inequalities for sums of bounded random variables, 1963.
    """
    dtype = floats(samples).dtype
    samples, width, delta = _bounded(samples, low, high, level, 1)
    half_width = width * jnp.sqrt(-jnp.log(delta) / (2 * samples.shape[0]))
    return narrowed(_around(jnp.mean(samples), half_width), dtype)


def empirical_bernstein_interval(
    samples: Float[ArrayLike, " sample"],
    *,
    low: float | Float[Array, ""],
    high: float | Float[Array, ""],
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """The empirical Bernstein interval, which is narrow if the samples vary little.

    ``mean ± [sqrt(2 s^2 ln(2 / delta) / n) + 7 (high - low) ln(2 / delta) / (3 (n - 1))]`` with
    the unbiased variance ``s^2`` and ``delta = (1 - level) / 2``.

    Args:
        samples: Independent samples, at least two, each within the range.
        low: Smallest value that a sample can take.
        high: Largest value that a sample can take.
        level: Guaranteed coverage, in (0, 1); NaN limits under ``jit`` if it is outside.

    Returns:
        The mean and its limits, not clipped to the range; NaN under ``jit`` if a sample is outside.

    Raises:
        ValueError: As for :func:`hoeffding_interval`, and if there are fewer than two samples.

    Example:
        >>> import jax.numpy as jnp
        >>> same = empirical_bernstein_interval(jnp.full(1001, 0.5), low=0.0, high=1.0, level=0.9)
        >>> round(float(same.low), 4)
        0.4914

    Source: Maurer and Pontil, Empirical Bernstein bounds and sample variance penalization, arXiv
    0907.3740, theorem 4.
    """
    dtype = floats(samples).dtype
    samples, width, delta = _bounded(samples, low, high, level, 2)
    return narrowed(_around(jnp.mean(samples), _bernstein(samples, width, delta)), dtype)


def hcope_lower_bound(
    samples: Float[ArrayLike, " sample"],
    *,
    threshold: float | Float[Array, ""],
    level: float = DEFAULT_LEVEL,
) -> Float[Array, ""]:
    """A lower confidence bound of the mean of samples without a useful upper limit.

    With ``Y = min(X, c)``: ``mean(Y) - sqrt(2 s_Y^2 ln(2 / delta) / n) - 7 c ln(2 / delta) / (3 (n
    - 1))`` with ``delta = 1 - level``. Clipping can only lower the mean, so the bound holds for any
    ``c`` chosen without these samples; :func:`hcope_threshold` chooses it from held-out ones.

    Args:
        samples: Importance-weighted returns, independent, at least two, none negative: shift the
            rewards so that returns start at zero.
        threshold: ``c``, positive; NaN under ``jit`` if it is not.
        level: One-sided confidence that the mean is higher, in (0, 1); the bound is the lower end
            of an interval of level ``2 level - 1``. NaN under ``jit`` if it is outside.

    Returns:
        The bound, in the units of the samples; NaN under ``jit`` if a sample is negative.

    Raises:
        ValueError: If there are fewer than two samples, a concrete sample is negative, or a
            hyperparameter is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> returns = jnp.ones(1001).at[0].set(1e6)
        >>> round(float(hcope_lower_bound(returns, threshold=2.0)), 2)
        0.98

    Source: Thomas, Theocharous and Ghavamzadeh, High-confidence off-policy evaluation, AAAI 2015,
    theorem 1 with one threshold.
    """
    dtype, samples = floats(samples).dtype, _not_negative(samples)
    threshold = checked_positive("threshold", threshold)
    level = checked_probability("level", level)
    cut = jnp.minimum(samples, jnp.asarray(threshold, samples.dtype))
    width, delta = jnp.asarray(threshold, samples.dtype), 1 - jnp.asarray(level, samples.dtype)
    bound = jnp.mean(cut) - _bernstein(cut, width, delta)
    return narrowed(jnp.where(jnp.all(samples >= 0), bound, jnp.nan), dtype)


def hcope_threshold(
    samples: Float[ArrayLike, " sample"], *, size: int, level: float = DEFAULT_LEVEL
) -> Float[Array, ""]:
    """The threshold for which held-out samples predict the highest bound.

    Every held-out value is tried as ``c``. Its bound is predicted from the held-out mean and
    variance of ``min(X, c)`` and the ``size`` of the sample for which the bound will be computed.

    Args:
        samples: Held-out samples (about 5 %), at least two, none negative, used for nothing else.
        size: Number of samples that :func:`hcope_lower_bound` will use, at least two.
        level: Level of that bound, in (0, 1); NaN under ``jit`` if it is outside.

    Returns:
        ``c``, positive; the smallest positive number if all held-out samples are zero.

    Raises:
        ValueError: If there are fewer than two samples, a concrete sample is negative, or a
            hyperparameter is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> held_out = jnp.array([0.5, 1.0, 0.8, 400.0])
        >>> float(hcope_threshold(held_out, size=10))
        0.5

    Source: Thomas, Theocharous and Ghavamzadeh, 2015, section "Optimising the threshold".
    """
    dtype, samples = floats(samples).dtype, _not_negative(samples)
    level = checked_probability("level", level)
    size = checked_integer("size", size, 2, "hold out fewer samples")
    cuts = sort_floats(samples)
    mean, variance = _moments_cut_at_each(cuts)
    log_term = jnp.log(2 / (1 - jnp.asarray(level, samples.dtype)))
    spread = jnp.sqrt(2 * variance * log_term / size)
    bound = mean - spread - 7 * cuts * log_term / (3 * (size - 1))
    bound = jnp.where(cuts > 0, bound, -jnp.inf)
    best = jnp.maximum(cuts[jnp.argmax(bound)], jnp.finfo(samples.dtype).tiny)
    best = jnp.where(jnp.all(samples >= 0) & ~jnp.isnan(log_term), best, jnp.nan)
    return narrowed(best, dtype)


def _moments_cut_at_each(ordered: Float[Array, " sample"]) -> tuple[Array, Array]:
    """Mean and unbiased variance of ``min(X, c)`` for every ``c`` among the samples, in one pass.

    The samples up to ``c`` have running moments (Welford); the others, all equal to ``c``, form a
    second group.
    """
    n = ordered.shape[0]
    count = jnp.arange(1, n + 1).astype(ordered.dtype)
    total = jnp.cumsum(ordered)
    mean = total / count
    before = jnp.roll(mean, 1)
    within = jnp.cumsum((ordered - before) ** 2 * ((count - 1) / count))
    n_remaining = n - count
    between = (ordered - mean) ** 2 * (count * (n_remaining / n))
    return (total + n_remaining * ordered) / n, (within + between) / (n - 1)


def _bounded(
    samples: ArrayLike, low: ArrayLike, high: ArrayLike, level: float | Array, minimum: int
) -> tuple[Array, Array, Array]:
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, minimum)
    require_scalar("low", low)
    require_scalar("high", high)
    require_order(low, high)
    level = checked_probability("level", level)
    if is_concrete((samples, low, high)):
        values = np.asarray(samples)
        if not np.all((values >= np.asarray(low)) & (values <= np.asarray(high))):
            raise ValueError(
                f"samples must lie in [{low}, {high}], got {values.min()} to {values.max()}; "
                "widen the range or scale the samples"
            )
    samples = widened(samples)
    low, high = jnp.asarray(low, samples.dtype), jnp.asarray(high, samples.dtype)
    inside = jnp.all((samples >= low) & (samples <= high))
    width = jnp.where(inside, high - low, jnp.nan)
    return samples, width, (1 - jnp.asarray(level, samples.dtype)) / 2


def _bernstein(samples: Array, width: Array, delta: Array) -> Array:
    n = samples.shape[0]
    log_term = jnp.log(2 / delta)
    variance = jnp.var(samples, ddof=1)
    moves = variance > 0
    spread = jnp.where(moves, jnp.sqrt(2 * jnp.where(moves, variance, 1) * log_term / n), 0)
    return spread + 7 * width * log_term / (3 * (n - 1))


def _around(mean: Array, half_width: Array) -> Interval:
    return Interval(mean, mean - half_width, mean + half_width)


def _not_negative(samples: ArrayLike) -> Array:
    require_rank("samples", samples, 1, "sample")
    require_length("samples", samples, 2)
    if is_concrete(samples) and not np.all(np.asarray(samples) >= 0):
        raise ValueError(
            f"samples must not be negative, got {np.min(np.asarray(samples))}; "
            "shift the rewards so that every return starts at zero"
        )
    return widened(samples)
