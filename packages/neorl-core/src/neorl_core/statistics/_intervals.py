"""Interval estimates: of a mean by Student's distribution, of any statistic by the bootstrap."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Int, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_probability,
    floats,
    require_choice,
    require_key,
    require_length,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.precision import is_half_precision, narrow, widen

# Random row numbers, and batched evaluation of one function within bounded memory.


_ELEMENTS_AT_ONCE = 2**20


def random_rows(key: Array, shape: tuple[int, ...], n: int) -> Int[Array, "*shape"]:
    """Row numbers from 0 to ``n - 1``, all equally likely up to ``n / 2^32``.

    Takes the upper word of 32 random bits times ``n`` (Lemire 2019), which needs half the bits of
    ``jax.random.randint`` and no division. The product is formed from halves of 16 bits, since
    float32 programs have no uint64.
    """
    bits = jax.random.bits(key, shape, jnp.uint32)
    half, rest = jnp.uint32(16), jnp.uint32(0xFFFF)
    upper, lower = bits >> half, bits & rest
    high, low = (jnp.uint32(part) for part in divmod(n, 2**16))
    if n < 2**16:
        rows = (upper * low + (lower * low >> half)) >> half
    else:
        first, second = upper * low, lower * high
        carry = (first & rest) + (second & rest) + (lower * low >> half)
        rows = upper * high + (first >> half) + (second >> half) + (carry >> half)
    return rows.astype(jnp.int32)


def in_blocks(one: Callable[[Any], Any], items: Array, size: int) -> Any:
    """Applies ``one``, which holds ``size`` numbers, to all items, about 2^20 numbers at once."""
    if size == 0:  # lax.map cannot join empty batches.
        return jax.vmap(one)(items)
    together = max(1, min(len(items), _ELEMENTS_AT_ONCE // size))
    return jax.lax.map(one, items, batch_size=together)


# Quantiles of Student's distribution, which JAX lacks.


_HALVINGS = 64


def student_quantile(
    probability: Float[Array, "*batch"], degrees: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The point that a Student t variable stays below with the given probability.

    With ``y = t^2 / (degrees + t^2)``, which has the distribution Beta(1/2, degrees/2), ``t =
    sign(p - 1/2) sqrt(degrees y / (1 - y))``. The equation is solved for the logarithm of ``y`` or
    ``1 - y``, so that few degrees of freedom and far tails keep their digits. Where the rounding of
    the beta function would show, it is replaced by the Cornish-Fisher series to third order
    (Abramowitz and Stegun, 26.7.5). Not differentiable.

    Args:
        probability: Probability in [0, 1], in float32 or wider; NaN gives NaN.
        degrees: Degrees of freedom, positive; same shape.
    """
    tail = jnp.minimum(probability, 1 - probability)
    safe = jnp.where(jnp.isnan(tail), 0.5, tail)
    size = jnp.sqrt(degrees) * jnp.exp(_log_odds(safe, degrees) / 2)
    t = jnp.where(probability == 0.5, 0, jnp.sign(probability - 0.5) * size)
    series = _cornish_fisher(jax.scipy.special.ndtri(probability), degrees)
    return jnp.where(_many(degrees) & (tail > 0), series, t)


def _many(degrees: Array) -> Array:
    """Where the incomplete beta function has lost more digits than a truncated series would."""
    return degrees > (1e4 if jnp.finfo(degrees.dtype).bits >= 64 else 200)


def _log_odds(tail: Array, degrees: Array) -> Array:
    """``log(y / (1 - y))`` beyond which the Student distribution has probability ``tail``."""
    half = jnp.full_like(tail, 0.5)
    inner = _log_beta_quantile(1 - 2 * tail, half, degrees / 2)
    outer = _log_beta_quantile(2 * tail, degrees / 2, half)
    by_outer = jnp.log(-jnp.expm1(outer)) - outer
    by_inner = inner - jnp.log(-jnp.expm1(inner))
    # One minus a small tail has lost the tail's digits, whatever y is.
    return jnp.where((tail < 0.1) | (outer < inner), by_outer, by_inner)


def _log_beta_quantile(p: Array, a: Array, b: Array) -> Array:
    """``log x`` with ``I_x(a, b) = p``, by bisection; near zero by the first term of the series."""
    least = jnp.log(jnp.finfo(p.dtype).eps)
    low, high = jnp.full_like(p, least), jnp.zeros_like(p)
    low, high, _ = jax.lax.fori_loop(0, _HALVINGS, _halve_log, (low, high, (p, a, b)))
    first = (jnp.log(p) + jnp.log(a) + jax.scipy.special.betaln(a, b)) / a
    return jnp.where(first < least, first, (low + high) / 2)


def _halve_log(_, bracket):
    low, high, (p, a, b) = bracket
    middle = (low + high) / 2
    below = jax.scipy.special.betainc(a, b, jnp.exp(middle)) < p
    return jnp.where(below, middle, low), jnp.where(below, high, middle), (p, a, b)


def _cornish_fisher(z: Array, degrees: Array) -> Array:
    square = z**2
    first = (square + 1) / 4
    second = (5 * square**2 + 16 * square + 3) / 96
    third = (3 * square**3 + 19 * square**2 + 17 * square - 15) / 384
    return z * (1 + (first + (second + third / degrees) / degrees) / degrees)


# Interval estimates of a mean.


DEFAULT_LEVEL = 0.95
"""Default confidence level; also the default of ``evaluation.level`` in a run."""


class Interval(NamedTuple):
    """A point estimate with two confidence limits, in the units of the samples.

    Each end of a two-sided interval of level ``1 - 2 delta`` is a one-sided bound of level ``1 -
    delta``.

    Attributes:
        estimate: The point estimate.
        low: Lower limit, same shape.
        high: Upper limit, same shape.
    """

    estimate: Float[Array, "*shape"]
    low: Float[Array, "*shape"]
    high: Float[Array, "*shape"]


def standard_deviation(samples: Float[Array, "sample *shape"]) -> Float[Array, "*shape"]:
    """Standard deviation (unbiased variance) over axis 0; zero gradient if all samples agree."""
    variance = jnp.var(samples, axis=0, ddof=1)
    moves = variance > 0
    return jnp.where(moves, jnp.sqrt(jnp.where(moves, variance, 1)), 0)


def student_interval(
    samples: Float[ArrayLike, "sample *shape"],
    *,
    level: float | Float[Array, ""] = DEFAULT_LEVEL,
) -> Interval:
    """Student's interval of the mean over axis 0.

    ``mean ± t_{(1 + level)/2, n - 1} s / sqrt(n)``: exact for normal samples, approximate for
    others if ``n`` is large.

    Args:
        samples: Independent samples along the first axis, at least two.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.

    Returns:
        The mean and its limits, in the units of ``samples``.

    Raises:
        ValueError: If there are fewer than two samples or ``level`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> interval = student_interval(jnp.array([1.0, 2.0, 3.0]))
        >>> round(float(interval.low), 2), round(float(interval.high), 2)
        (-0.48, 4.48)

    Source: Student, The probable error of a mean, Biometrika 6 (1908) 1.
    """
    level = checked_probability("level", level)
    require_length("samples", samples, 2)
    dtype, samples = floats(samples).dtype, widen(samples)
    n = samples.shape[0]
    upper = (1 + jnp.asarray(level, samples.dtype)) / 2
    t = jax.lax.stop_gradient(student_quantile(upper, jnp.asarray(n - 1, samples.dtype)))
    mean = jnp.mean(samples, axis=0)
    half_width = t * standard_deviation(samples) / n**0.5
    return narrow(Interval(mean, mean - half_width, mean + half_width), dtype)


def paired_difference_interval(
    first: Float[ArrayLike, "sample *shape"],
    second: Float[ArrayLike, "sample *shape"],
    *,
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """Student's interval of the mean of ``first - second`` over paired samples.

    Two policies that were run with the same seeds, disturbances and starts are compared in pairs:
    the effects common to a pair cancel.

    Args:
        first: Results along the first axis, at least two.
        second: Results of the same cases, same shape.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.

    Returns:
        The mean difference and its limits.

    Raises:
        ValueError: If the shapes differ, there are fewer than two pairs, or ``level`` is outside
            (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> better = paired_difference_interval(jnp.array([2.0, 3.1, 4.0]), jnp.array([1.0, 2, 3]))
        >>> bool(better.low > 0)
        True
    """
    require_same_shape("first", first, "second", second)
    require_length("first", first, 2)
    dtype = jnp.result_type(floats(first), floats(second))
    return narrow(student_interval(widen(first) - widen(second), level=level), dtype)


# The bootstrap: percentile and bias-corrected accelerated intervals of any statistic.


def sample_mean(samples: Float[Array, "sample *shape"]) -> Float[Array, "*shape"]:
    """Mean over the first axis: the default statistic of the bootstrap."""
    return jnp.mean(floats(samples), axis=0)


def bootstrap_interval(
    samples: Any,
    key: PRNGKeyArray,
    *,
    statistic: Callable[[Any], Array] = sample_mean,
    level: float = DEFAULT_LEVEL,
    resamples: int = 2000,
    method: Literal["percentile", "bca"] = "bca",
) -> Interval:
    """A bootstrap interval of ``statistic`` over the first axis.

    ``percentile``: the quantiles ``(1 - level)/2`` and ``(1 + level)/2`` of the replicates.
    ``bca``: the quantiles ``Phi(z0 + (z0 + z) / (1 - a (z0 + z)))``. The bias ``z0`` comes from the
    fraction of replicates below the estimate (ties count half; the fraction is kept half a
    replicate away from 0 and 1). The acceleration ``a`` comes from the jackknife (zero if nothing
    varies).
    Neither has a guarantee; both approach ``level`` as the number of samples grows (Efron 1987).
    They assume independent samples, which the steps of one episode are not.

    The resamples are evaluated in blocks of bounded memory, at a cost of ``resamples`` times ``n``.
    The jackknife of ``bca`` evaluates ``n`` statistics of ``n - 1`` samples, a cost of ``n^2``,
    except for the mean, which has a closed form. For other statistics choose ``percentile`` from
    some thousand samples on.

    Args:
        samples: An array or PyTree of arrays with independent samples along the first axis.
        key: Random key; equal keys give equal intervals.
        statistic: Function from the samples to an array; a named function, since it is static.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.
        resamples: Number of bootstrap samples.
        method: ``"percentile"`` or ``"bca"``.

    Returns:
        The statistic of the samples and its limits. NaN samples give NaN limits.

    Raises:
        ValueError: If there are fewer than two samples, first axes differ, ``level`` is outside
            (0, 1), ``resamples`` is not a positive integer or ``method`` is unknown.
        TypeError: If ``key`` is not a random key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> returns = jnp.array([3.0, 5.0, 4.0, 6.0])
        >>> interval = bootstrap_interval(returns, jax.random.key(0))
        >>> bool(interval.low < 4.5) and bool(interval.high > 4.5)
        True

    Source: Efron, Better bootstrap confidence intervals, Journal of the American Statistical
    Association 82 (1987) 171.
    """
    samples = checked_samples(samples)
    level = checked_probability("level", level)
    resamples = checked_integer("resamples", resamples, 1, "give the number of draws")
    require_key(key)
    require_choice("method", method, ("percentile", "bca"))
    dtype, samples = result_type(statistic, samples), widened_samples(samples)
    interval = _interval(
        samples, key, level, statistic=statistic, resamples=resamples, bca=method == "bca"
    )
    return narrow(interval, dtype)


def percentile_interval(
    replicates: Float[Array, "resample *shape"], estimate: Float[Array, "*shape"], level: ArrayLike
) -> Interval:
    """The plain quantiles of the replicates, as an interval around ``estimate``."""
    tail = (1 - jnp.asarray(level, replicates.dtype)) / 2
    ends = jnp.quantile(replicates, jnp.stack([tail, 1 - tail]), axis=0)
    return Interval(estimate, ends[0], ends[1])


def checked_samples(samples: Any) -> Any:
    samples = jax.tree.map(jnp.asarray, samples)
    leaves = jax.tree.leaves(samples)
    if not leaves:
        raise ValueError("samples hold no array; give one row per sample along the first axis")
    for leaf in leaves:
        require_length("samples", leaf, 2)
    lengths = sorted({leaf.shape[0] for leaf in leaves})
    if len(lengths) > 1:
        raise ValueError(
            f"samples must have one length along the first axis, got {lengths}; "
            "cut them to the same samples"
        )
    return samples


def widened_samples(samples: Any) -> Any:
    return jax.tree.map(
        lambda leaf: widen(leaf) if is_half_precision(leaf.dtype) else leaf, samples
    )


def result_type(statistic: Callable, samples: Any) -> DTypeLike:
    """Dtype of the statistic of these samples; float32 stands for any wider dtype."""
    if not any(is_half_precision(leaf.dtype) for leaf in jax.tree.leaves(samples)):
        return jnp.float32
    return jnp.result_type(*jax.tree.leaves(jax.eval_shape(statistic, samples)))


@functools.partial(jax.jit, static_argnames=("statistic", "resamples"))
def replicates(samples: Any, key: Array, *, statistic: Callable, resamples: int) -> Array:
    """The statistic of ``resamples`` draws of the samples with replacement, row by row."""
    leaves = jax.tree.leaves(samples)
    n, size = leaves[0].shape[0], sum(math.prod(leaf.shape) for leaf in leaves)

    def one(key: Array) -> Array:
        return statistic(take_rows(samples, random_rows(key, (n,), n)))

    return in_blocks(one, jax.random.split(key, resamples), size)


@functools.partial(jax.jit, static_argnames=("statistic", "resamples", "bca"))
def _interval(
    samples: Any, key: Array, level: Array, *, statistic: Callable, resamples: int, bca: bool
) -> Interval:
    estimate = statistic(samples)
    drawn = replicates(samples, key, statistic=statistic, resamples=resamples)
    if not bca:
        return percentile_interval(drawn, estimate, level)
    tail = (1 - jnp.asarray(level, drawn.dtype)) / 2
    acceleration = _acceleration(_influence(samples, statistic))
    low, high = (
        _quantile_at(drawn, _corrected_level(p, drawn, estimate, acceleration))
        for p in (tail, 1 - tail)
    )
    return Interval(estimate, low, high)


def _influence(samples: Any, statistic: Callable) -> Float[Array, "sample *shape"]:
    """The mean of the leave-one-out statistics minus each of them; scaled if it is the mean."""
    if statistic is sample_mean:
        samples = floats(samples)
        return samples - jnp.mean(samples, axis=0, keepdims=True)
    left_out = _leave_one_out(samples, statistic)
    return jnp.mean(left_out, axis=0, keepdims=True) - left_out


def _leave_one_out(samples: Any, statistic: Callable) -> Array:
    leaves = jax.tree.leaves(samples)
    n, size = leaves[0].shape[0], sum(math.prod(leaf.shape) for leaf in leaves)

    def one(left_out: Array) -> Array:
        rows = jnp.arange(n - 1)
        return statistic(take_rows(samples, jnp.where(rows >= left_out, rows + 1, rows)))

    return in_blocks(one, jnp.arange(n), size)


def take_rows(samples: Any, rows: Array) -> Any:
    """The given rows of every leaf; the indices must be in range."""
    return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), samples)


def _acceleration(influence: Float[Array, "sample *shape"]) -> Float[Array, "*shape"]:
    scale = jnp.max(jnp.abs(influence), axis=0, keepdims=True)
    influence = influence / jnp.where(scale > 0, scale, 1)
    squares = jnp.sum(influence**2, axis=0)
    cubes = jnp.sum(influence**3, axis=0)
    return cubes / (6 * jnp.where(squares > 0, squares, 1) ** 1.5)


def _corrected_level(p: Array, replicates: Array, estimate: Array, acceleration: Array) -> Array:
    middle = jnp.expand_dims(estimate, 0)
    below = jnp.mean((replicates < middle).astype(p.dtype), axis=0)
    ties = jnp.mean((replicates == middle).astype(p.dtype), axis=0)
    half = 0.5 / replicates.shape[0]
    bias = jax.scipy.special.ndtri(jnp.clip(below + ties / 2, half, 1 - half))
    shifted = bias + jax.scipy.special.ndtri(p)
    denominator = 1 - acceleration * shifted
    denominator = jnp.where(denominator > 0, denominator, jnp.nan)
    return jax.scipy.special.ndtr(bias + shifted / denominator)


def _quantile_at(replicates: Array, p: Array) -> Array:
    flat = replicates.reshape(replicates.shape[0], -1)
    ends = jax.vmap(jnp.quantile, in_axes=(1, 0))(flat, p.reshape(-1))
    return ends.reshape(p.shape)


# Confidence interval of a mean over two crossed random factors.


def crossed_interval(
    samples: Float[ArrayLike, "row column"], *, level: float = DEFAULT_LEVEL
) -> Interval:
    """Student's interval of the grand mean when rows and columns are both random samples.

    For ``samples[i, j] = mean + a_i + b_j + e_ij``: training seeds that are all evaluated on the
    same starts, or judges who all see the same cases. The mean squares of rows, columns and
    remainder estimate the variance of the grand mean, ``(MS_row + MS_column - MS_rest) / (r c)``.
    Each factor contributes Student's quantile for its own degrees of freedom, ``t_row`` for ``r -
    1`` and ``t_column`` for ``c - 1``:

    ``half width^2 = (t_row^2 MS_row + t_column^2 MS_column - min(t)^2 MS_rest) / (r c)``.

    Conservative: two independent mean squares combined in this way cover at least as often as
    stated, however their variances compare (Banerjee). Both contain the remainder; that it may be
    subtracted once, with the smaller quantile, is verified by simulation. The coverage is nominal
    if one factor dominates, and highest if the remainder does. A single pooled number of degrees of
    freedom (Satterthwaite) would be shorter and cover too rarely: 93 % for 95 % with 3 rows of 100
    and equal variances.

    A remainder above both mean squares is replaced by the smaller of them, so the width is real. If
    the rows were averaged first and the columns were the only samples, the interval would hold only
    for these rows; this one also holds for new rows. If only one factor varies, it is
    :func:`student_interval` of that factor's means.

    Args:
        samples: One number for every pair, with at least two rows and two columns.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.

    Returns:
        The grand mean and its limits, scalars in the units of ``samples``.

    Raises:
        ValueError: If ``samples`` does not have two axes of at least two, or ``level`` is outside
            (0, 1).

    Example:
        >>> interval = crossed_interval(jnp.array([[1.0, 2.0], [2.0, 3.0]]))
        >>> float(interval.estimate)
        2.0

    Source: Banerjee, "Approximate confidence interval for linear functions of means of k
    populations when the population variances are not equal", Sankhya 22 (1960) 357; Searle, Casella
    and McCulloch, "Variance Components" (1992), chapter 4.
    """
    level = checked_probability("level", level)
    require_rank("samples", samples, 2, "row column")
    dtype, samples = floats(samples).dtype, widen(samples)
    r, c = samples.shape
    if min(r, c) < 2:
        raise ValueError(
            f"samples needs two rows and two columns or more, got shape {(r, c)}; "
            "for one factor use student_interval"
        )
    mean = jnp.mean(samples)
    rows = jnp.mean(samples, axis=1, keepdims=True)
    columns = jnp.mean(samples, axis=0, keepdims=True)
    ms_row = c * jnp.sum((rows - mean) ** 2) / (r - 1)
    ms_column = r * jnp.sum((columns - mean) ** 2) / (c - 1)
    ms_rest = jnp.sum((samples - rows - columns + mean) ** 2) / ((r - 1) * (c - 1))
    shared = jnp.minimum(ms_rest, jnp.minimum(ms_row, ms_column))
    degrees = jnp.asarray([r - 1, c - 1], samples.dtype)
    upper = jnp.full_like(degrees, (1 + jnp.asarray(level, samples.dtype)) / 2)
    t_row, t_column = jax.lax.stop_gradient(student_quantile(upper, degrees))
    t_least = jnp.minimum(t_row, t_column)
    square = t_row**2 * ms_row + t_column**2 * ms_column - t_least**2 * shared
    # The double jnp.where keeps the gradient finite if nothing varies.
    constant = square <= 0
    half = jnp.where(constant, 0, jnp.sqrt(jnp.where(constant, 1, square) / (r * c)))
    return narrow(Interval(mean, mean - half, mean + half), dtype)
