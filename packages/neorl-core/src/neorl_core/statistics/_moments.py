"""Mean and variance in one pass, mergeable across batches, shards and devices."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float

from neorl_core._internal.checks import checked_integer, require_length, require_scalar
from neorl_core._internal.float_widths import is_half_precision, widened


class Moments(NamedTuple):
    """Count, mean and centred second moment of the samples so far.

    In float32 or wider. Each of the three is kept in two parts, so that counting single updates
    continues where a float32 stops (at 2^24: half a year of seconds) and the mean still follows.

    Attributes:
        count: Number of samples, per component, shape ``(*shape)``.
        mean: Mean, in the units of the samples; zero before the first one.
        m2: Sum of squared deviations from the mean, in squared units.
        rest: Rounding errors of the three, in their order, shape ``(3, *shape)``; the next update
            adds them back. They have no other use.
    """

    count: Float[Array, "*shape"]
    mean: Float[Array, "*shape"]
    m2: Float[Array, "*shape"]
    rest: Float[Array, "3 *shape"]


def empty_moments(shape: tuple[int, ...] = (), dtype: DTypeLike = jnp.float32) -> Moments:
    """The moments of no samples, which are neutral in :func:`merge_moments`.

    Args:
        shape: Shape of one sample.
        dtype: Dtype of the moments, float32 or float64, independent of the samples' dtype.

    Returns:
        Moments that are all zero.

    Raises:
        ValueError: If ``dtype`` is narrower than float32.

    Example:
        >>> float(empty_moments().count)
        0.0
    """
    zero = jnp.zeros(shape, dtype)
    return _require_counting(Moments(zero, zero, zero, jnp.zeros((3, *shape), dtype)))


def sample_moments(
    samples: Float[ArrayLike, "sample *shape"],
    mask: Bool[ArrayLike, " sample"] | None = None,
) -> Moments:
    """The moments over the first axis.

    Args:
        samples: Samples along the first axis, which may have length zero.
        mask: Row mask; where false, the row is ignored, whatever it holds (NaN included).

    Returns:
        Count, mean and ``sum (x - mean)^2``; in float32 if the samples have half precision.

    Raises:
        ValueError: If ``samples`` has no axis or ``mask`` has another length.

    Example:
        >>> import jax.numpy as jnp
        >>> float(variance(sample_moments(jnp.array([1.0, 3.0]))))
        1.0
    """
    require_length("samples", samples, 0)
    samples = widened(samples)
    rows = samples.shape[:1]
    keep = jnp.ones(rows, bool) if mask is None else jnp.asarray(mask, bool)
    if keep.shape != rows:
        raise ValueError(
            f"mask must have shape {rows}, as samples have rows, got {keep.shape}; "
            "index it like the rows"
        )
    keep = jnp.broadcast_to(keep.reshape(rows + (1,) * (samples.ndim - 1)), samples.shape)
    count = jnp.sum(keep, axis=0).astype(samples.dtype)
    divisor = jnp.maximum(count, 1)
    rough = jnp.sum(jnp.where(keep, samples, 0), axis=0) / divisor
    deviations = jnp.where(keep, samples - jnp.expand_dims(rough, 0), 0)
    # Deviations from the true mean sum to zero, so their sum is the error of the mean.
    error = jnp.sum(deviations, axis=0) / divisor
    m2 = jnp.sum((deviations - jnp.where(keep, jnp.expand_dims(error, 0), 0)) ** 2, axis=0)
    rest = jnp.zeros((3, *count.shape), samples.dtype)
    return Moments(count, rough + error, m2, rest)


def update_moments(
    moments: Moments, sample: Float[ArrayLike, "*shape"], mask: Bool[ArrayLike, ""] = True
) -> Moments:
    """Adds one sample (Welford 1962): a step for ``scan``.

    ``mean += (x - mean) / count``, ``m2 += (x - old mean) (x - new mean)``.

    Args:
        moments: The moments so far.
        sample: One sample, with the shape of the mean.
        mask: Row mask; where false, nothing changes.

    Returns:
        The new moments.

    Raises:
        ValueError: If the shapes differ, ``mask`` is not a scalar, or ``moments`` were cast to a
            dtype narrower than float32.

    Example:
        >>> moments = update_moments(update_moments(empty_moments(), 1.0), 3.0)
        >>> float(moments.mean), float(moments.m2)
        (2.0, 2.0)

    Source: Welford, Note on a method for calculating corrected sums of squares and products,
    Technometrics 4 (1962) 419.
    """
    _require_counting(moments)
    sample = jnp.asarray(sample, moments.mean.dtype)
    if sample.shape != moments.mean.shape:
        raise ValueError(
            f"a sample has shape {moments.mean.shape}, got {sample.shape}; "
            "start other moments for it"
        )
    require_scalar("mask", mask)
    keep = jnp.asarray(mask, bool)
    one = keep.astype(moments.count.dtype)
    count, count_rest = _add_two_parts(moments.count, one, moments.rest[0])
    delta = jnp.where(keep, (sample - moments.mean) - moments.rest[1], 0)
    step = delta / jnp.maximum(count, 1)
    mean, mean_rest = _add_two_parts(moments.mean, step, moments.rest[1])
    spread = jnp.where(keep, delta * ((sample - mean) - mean_rest), 0)
    m2, m2_rest = _add_two_parts(moments.m2, spread, moments.rest[2])
    return Moments(count, mean, m2, jnp.stack([count_rest, mean_rest, m2_rest]))


def merge_moments(first: Moments, second: Moments) -> Moments:
    """The moments of two disjoint sets of samples together (Chan, Golub and LeVeque 1979).

    ``mean = mean_1 + delta n_2 / n``, ``m2 = m2_1 + m2_2 + delta^2 n_1 n_2 / n`` with
    ``delta = mean_2 - mean_1`` and ``n = n_1 + n_2``. Associative and commutative up to rounding.

    Args:
        first: Moments of one set; may be empty.
        second: Moments of the other; may be empty.

    Returns:
        The moments of the union.

    Raises:
        ValueError: If the shapes differ, or moments were cast to a dtype narrower than float32.

    Example:
        >>> import jax.numpy as jnp
        >>> one, two = (sample_moments(jnp.array(part)) for part in ([1.0], [3.0, 5.0]))
        >>> both = merge_moments(one, two)
        >>> float(both.count), float(both.mean)
        (3.0, 3.0)

    Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(
            f"moments must have one shape, got {first.mean.shape} and {second.mean.shape}; "
            "merge moments of the same quantities only"
        )
    for moments in (first, second):
        _require_counting(moments)
    rest = first.rest + second.rest
    count, count_rest = _add_two_parts(first.count, second.count, rest[0])
    fraction = second.count / jnp.maximum(count, 1)
    delta = (second.mean - first.mean) + (second.rest[1] - first.rest[1])
    mean, mean_rest = _add_two_parts(first.mean, delta * fraction, first.rest[1])
    # In this order no overflowing square is multiplied by zero.
    between = delta * (delta * (first.count * fraction))
    m2, m2_rest = _add_two_parts(first.m2, second.m2 + between, rest[2])
    return Moments(count, mean, m2, jnp.stack([count_rest, mean_rest, m2_rest]))


def variance(moments: Moments, *, ddof: int = 0) -> Float[Array, "*shape"]:
    """``m2 / (count - ddof)``; NaN where ``count <= ddof``.

    Args:
        moments: Moments of the samples.
        ddof: 0 for the population variance, 1 for the unbiased one.

    Returns:
        The variance, in squared units.

    Raises:
        ValueError: If ``ddof`` is not an integer >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> float(variance(sample_moments(jnp.array([1.0, 3.0])), ddof=1))
        2.0
    """
    ddof = checked_integer("ddof", ddof, 0, "0 divides by the count, 1 by one less")
    degrees = moments.count - ddof
    return jnp.where(degrees > 0, moments.m2 / jnp.where(degrees > 0, degrees, 1), jnp.nan)


def _require_counting(moments: Moments) -> Moments:
    if is_half_precision(jnp.result_type(moments.count)):
        raise ValueError(
            f"moments must be float32 or float64, got {jnp.result_type(moments.count).name}, which "
            "cannot count beyond 256; make them with empty_moments(shape) and do not cast them"
        )
    return moments


def _add_two_parts(first: Array, second: Array, rest: Array) -> tuple[Array, Array]:
    """The nearest float to ``first + second + rest``, and the rounding error.

    A float32 sum of ones stops at 2^24; with the rounding error kept it continues to 2^48.

    Args:
        first: First summand.
        second: Second summand.
        rest: Rounding error of both so far, small compared with them.
    """
    total = first + second
    added = total - first
    correction = (first - (total - added)) + (second - added) + rest
    correction = jnp.where(jnp.isfinite(total), correction, 0)
    result = total + correction
    return result, jnp.where(jnp.isfinite(total), correction - (result - total), 0)
