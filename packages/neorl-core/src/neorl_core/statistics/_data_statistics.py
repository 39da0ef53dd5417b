"""Statistics of training data: merged over several sites, or derived from declared ranges only."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_core._vocabulary.channels import Channel, Spec, highs, lows
from neorl_core._vocabulary.errors import InputError
from neorl_core._vocabulary.experience import DataStatistics, FieldStatistics


def merge_statistics(parts: Sequence[DataStatistics]) -> DataStatistics:
    """The statistics of several data sets as if they were one.

    Counts add, means and variances merge pairwise, ranges are combined. Sites that may not share
    their rows share these numbers, initialise from the merged ones and so start equal.

    Args:
        parts: Statistics of each data set of the same plant; at least one.

    Returns:
        Statistics of all rows together; a field that is unknown for one data set is unknown here.

    Raises:
        InputError: If there are none, or their channels differ.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core import DataStatistics, FieldStatistics
        >>> def site(mean):
        ...     one = FieldStatistics(*(jnp.float32(x) for x in (10, mean, 0, mean, mean)))
        ...     return DataStatistics(*[one] * 6)
        >>> both = merge_statistics([site(1.0), site(3.0)])
        >>> float(both.obs.mean), float(both.obs.std), float(both.obs.count)
        (2.0, 1.0, 20.0)

    Source: Chan, Golub and LeVeque, Algorithms for computing the sample variance, The American
    Statistician 37, 1983, equation 2.1.
    """
    if not parts:
        raise InputError("there are no statistics to merge; give those of at least one data set")
    first, *others = parts
    for name in DataStatistics._fields:
        known = (getattr(part, name) for part in parts)
        shapes = {np.shape(field.mean) for field in known if field is not None}
        if len(shapes) > 1:
            raise InputError(
                f"statistics of different plants cannot be merged: {name} has the shapes "
                f"{', '.join(map(str, sorted(shapes)))}; merge data with the same channels"
            )
    for other in others:
        fields = zip(first, other, strict=True)
        merged: Any = [None if a is None or b is None else _merge(a, b) for a, b in fields]
        first = DataStatistics(*merged)
    return first


def range_statistics(spec: Spec) -> DataStatistics:
    """Substitutes for the statistics of a log, for training that starts without one.

    Observations and actions are taken to be uniform over their measuring ranges. Nothing is known
    about rewards and costs before the first step: their mean is zero and their standard deviation
    one, so that they keep their own units. Whether episodes end early is also unknown. Every count
    is zero, so merging with real data replaces these numbers.

    Args:
        spec: Channels of the plant.

    Returns:
        Statistics with counts of zero.
    """
    return DataStatistics(
        obs=_uniform(spec.obs),
        action=_uniform(spec.action),
        reward=_unknown(()),
        cost=_unknown((spec.n_cost,)),
        episode_return=_unknown(()),
        episode_length=_constant(float(spec.horizon)),
    )


def _merge(a: FieldStatistics, b: FieldStatistics) -> FieldStatistics:
    count = a.count + b.count
    share = jnp.where(count > 0, b.count / jnp.where(count > 0, count, 1), 0)
    delta = b.mean - a.mean
    # A weighted mean of the variances, since float32 might overflow in a sum of squares.
    variance = (1 - share) * a.std**2 + share * b.std**2 + share * (1 - share) * delta**2
    merged = FieldStatistics(
        count,
        a.mean + share * delta,
        jnp.sqrt(variance),
        jnp.minimum(a.min, b.min),
        jnp.maximum(a.max, b.max),
    )
    chosen = zip(a, b, merged, strict=True)
    return FieldStatistics(
        *(jnp.where(a.count == 0, y, jnp.where(b.count == 0, x, z)) for x, y, z in chosen)
    )


def _uniform(channels: Sequence[Channel]) -> FieldStatistics:
    low, high = (np.asarray(ends(channels), np.float64) for ends in (lows, highs))
    return _field((low + high) / 2, (high - low) / np.sqrt(12), low, high)


def _unknown(shape: tuple[int, ...]) -> FieldStatistics:
    zero, one = np.zeros(shape), np.ones(shape)
    return _field(zero, one, -one, one)


def _constant(value: float) -> FieldStatistics:
    return _field(*(np.asarray(x) for x in (value, 0.0, value, value)))


def _field(mean: np.ndarray, std: np.ndarray, low: np.ndarray, high: np.ndarray) -> FieldStatistics:
    numbers = (np.zeros(()), mean, std, low, high)
    return FieldStatistics(*(jnp.asarray(x, jnp.float32) for x in numbers))
