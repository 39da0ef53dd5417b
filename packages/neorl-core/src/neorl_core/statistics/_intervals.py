"""Interval estimates of a mean."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    require_length,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.statistics._student import student_quantile

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
    samples: Float[ArrayLike, "sample *shape"], *, level: float = DEFAULT_LEVEL
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
