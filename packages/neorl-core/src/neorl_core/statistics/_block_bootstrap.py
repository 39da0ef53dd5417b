"""The bootstrap of a time series, which resamples whole blocks to keep neighbours together."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_integer,
    checked_probability,
    require_choice,
    require_key,
)
from neorl_core._internal.float_widths import narrowed
from neorl_core._internal.resampling import in_blocks, random_rows
from neorl_core.statistics._bootstrap import (
    checked_samples,
    percentile_interval,
    result_type,
    sample_mean,
    take_rows,
    widened_samples,
)
from neorl_core.statistics._intervals import DEFAULT_LEVEL, Interval

Blocks = Literal["stationary", "circular", "moving"]


def block_bootstrap_replicates(
    samples: Any,
    key: PRNGKeyArray,
    *,
    block_length: int,
    blocks: Blocks = "stationary",
    statistic: Callable[[Any], Array] = sample_mean,
    resamples: int = 2000,
) -> Float[Array, "resample *shape"]:
    """The statistic of ``resamples`` series, each assembled from random blocks of the given series.

    ``moving``: blocks of ``block_length`` steps that lie within the series (Kuensch). Its ends are
    sampled less often, so the replicates of a mean are not centred on it. ``circular``: the first
    step follows the last, so every step is equally likely. ``stationary``: circular, but each block
    ends with probability ``1 / block_length`` after every step, so the resampled series are
    stationary. The last block is cut to the length of the series.

    Args:
        samples: An array or PyTree of arrays with time along the first axis; rows are kept
            together.
        key: Random key.
        block_length: Length of the blocks in steps, from 1 (independent samples) to the length of
            the series; the mean length for ``stationary``. It should exceed the range of the
            dependence and be far shorter than the series, and grow as the cube root of its length.
        blocks: ``"stationary"``, ``"circular"`` or ``"moving"``.
        statistic: Function from the resampled series to an array; a named function, since it is
            static.
        resamples: Number of resampled series.

    Returns:
        The replicates along the first axis.

    Raises:
        ValueError: If there is no sample, first axes differ, ``block_length`` is not an integer
            between one and the length, ``resamples`` is not a positive integer, or ``blocks`` is
            unknown.
        TypeError: If ``key`` is not a random key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> series = jnp.array([1.0, 2.0, 3.0])
        >>> options = {"block_length": 3, "blocks": "circular", "resamples": 2}
        >>> block_bootstrap_replicates(series, jax.random.key(0), **options).tolist()
        [2.0, 2.0]

    Source: Politis and Romano, The stationary bootstrap, Journal of the American Statistical
    Association 89 (1994) 1303; Kuensch, The jackknife and the bootstrap for general stationary
    observations, Annals of Statistics 17 (1989) 1217.
    """
    samples, block_length, resamples = _checked(samples, 1, block_length, blocks, resamples)
    dtype, samples = result_type(statistic, samples), widened_samples(samples)
    require_key(key)
    options = {"blocks": blocks, "statistic": statistic, "resamples": resamples}
    replicates = _replicates(samples, key, block_length=block_length, **options)
    return narrowed(replicates, dtype)


def block_bootstrap_interval(
    samples: Any,
    key: PRNGKeyArray,
    *,
    block_length: int,
    blocks: Blocks = "stationary",
    statistic: Callable[[Any], Array] = sample_mean,
    level: float = DEFAULT_LEVEL,
    resamples: int = 2000,
) -> Interval:
    """A percentile interval of a statistic of one stationary time series.

    The quantiles ``(1 - level)/2`` and ``(1 + level)/2`` of :func:`block_bootstrap_replicates`. The
    interval of :func:`bootstrap_interval` is too short for autocorrelated series: for an AR(1)
    process with coefficient 0.9 by a factor of about 4.4. This one is still somewhat short, the
    more so the fewer blocks the series holds.

    Args:
        samples: An array or PyTree of arrays with time along the first axis, two steps or more.
        key: Random key; equal keys give equal intervals.
        block_length: Length of the blocks in steps, from 1 to the length of the series; the mean
            length for ``stationary``.
        blocks: ``"stationary"``, ``"circular"`` or ``"moving"``.
        statistic: Function from the series to an array; a named function, since it is static.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` if it is
            outside.
        resamples: Number of resampled series.

    Returns:
        The statistic of the series and its limits. NaN samples give NaN limits.

    Raises:
        ValueError: As for :func:`block_bootstrap_replicates`, and if there are fewer than two steps
            or ``level`` is outside (0, 1).
        TypeError: If ``key`` is not a random key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> series = jnp.sin(jnp.arange(200.0) / 3)
        >>> interval = block_bootstrap_interval(series, jax.random.key(0), block_length=20)
        >>> bool(interval.low < 0) and bool(interval.high > 0)
        True

    Source: Politis and Romano, The stationary bootstrap, 1994.
    """
    level = checked_probability("level", level)
    samples, block_length, resamples = _checked(samples, 2, block_length, blocks, resamples)
    dtype, samples = result_type(statistic, samples), widened_samples(samples)
    require_key(key)
    options = {"blocks": blocks, "statistic": statistic, "resamples": resamples}
    interval = _interval(samples, key, level, block_length=block_length, **options)
    return narrowed(interval, dtype)


def _checked(
    samples: Any, minimum: int, block_length: int, blocks: str, resamples: int
) -> tuple[Any, int, int]:
    samples = checked_samples(samples, minimum)
    require_choice("blocks", blocks, ("stationary", "circular", "moving"))
    resamples = checked_integer("resamples", resamples, 1, "give the number of draws")
    block_length = checked_integer("block_length", block_length, 1, "1 draws independent samples")
    length = jax.tree.leaves(samples)[0].shape[0]
    if block_length > length:
        raise ValueError(
            f"block_length must be at most the {length} steps of the series, got {block_length}; "
            "take shorter blocks"
        )
    return samples, block_length, resamples


_STATIC = ("block_length", "blocks", "statistic", "resamples")


@functools.partial(jax.jit, static_argnames=_STATIC)
def _replicates(
    samples: Any,
    key: Array,
    *,
    block_length: int,
    blocks: Blocks,
    statistic: Callable,
    resamples: int,
) -> Array:
    leaves = jax.tree.leaves(samples)
    n, size = leaves[0].shape[0], sum(math.prod(leaf.shape) for leaf in leaves)

    def one(key: Array) -> Array:
        if blocks == "stationary":
            rows = _stationary_rows(key, n, block_length)
        else:
            rows = _block_rows(key, n, block_length, circular=blocks == "circular")
        return statistic(take_rows(samples, rows))

    return in_blocks(one, jax.random.split(key, resamples), size)


@functools.partial(jax.jit, static_argnames=_STATIC)
def _interval(samples: Any, key: Array, level: Array, **options: Any) -> Interval:
    replicates = _replicates(samples, key, **options)
    return percentile_interval(replicates, options["statistic"](samples), level)


def _block_rows(key: Array, n: int, length: int, *, circular: bool) -> Int[Array, " time"]:
    count = -(-n // length)
    starts = random_rows(key, (count, 1), n if circular else n - length + 1)
    rows = (starts + jnp.arange(length, dtype=starts.dtype)[None, :]).reshape(-1)[:n]
    return rows % n if circular else rows


def _stationary_rows(key: Array, n: int, length: int) -> Int[Array, " time"]:
    key_start, key_ends = jax.random.split(key)
    starts = random_rows(key_start, (n,), n)
    begins = (random_rows(key_ends, (n,), length) == 0).at[0].set(True)
    step = jnp.arange(n, dtype=starts.dtype)
    since = jax.lax.cummax(jnp.where(begins, step, 0))
    return (starts[since] + step - since) % n
