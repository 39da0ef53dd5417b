"""The bootstrap: percentile and bias-corrected accelerated intervals of any statistic."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, DTypeLike, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_probability,
    floats,
    require_choice,
    require_key,
    require_length,
)
from neorl_core._internal.float_widths import is_half_precision, narrow, widen
from neorl_core._internal.resampling import in_blocks, random_rows
from neorl_core.statistics._intervals import DEFAULT_LEVEL, Interval


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
    samples = checked_samples(samples, 2)
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


def checked_samples(samples: Any, minimum: int) -> Any:
    samples = jax.tree.map(jnp.asarray, samples)
    leaves = jax.tree.leaves(samples)
    if not leaves:
        raise ValueError("samples hold no array; give one row per sample along the first axis")
    for leaf in leaves:
        require_length("samples", leaf, minimum)
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
