"""Interval of a mean over two crossed random factors."""

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Float

from neorl_core._intervals import Interval
from neorl_core._quantile_functions import student_quantile
from neorl_core._require import floats, require_probability, require_rank


def crossed_interval(samples: Float[ArrayLike, "row column"], *, level: float = 0.95) -> Interval:
    """Student's interval of the grand mean where rows and columns are both drawn at random.

    For ``samples[i, j] = mean + a_i + b_j + e_ij``: training seeds that all meet the same starts,
    or judges that all see the same cases. With the mean squares of rows, columns and remainder,

    ``var = (MS_row + MS_column - MS_rest) / (r c)``,

    and the degrees of freedom of Satterthwaite, ``(r c var)^2 / sum(MS^2 / degrees)``, kept at or
    above those of the smaller factor. A remainder above both mean squares counts as the smaller
    of them, so the variance is never negative. Averaging the rows first and taking the columns as
    the only samples speaks of these very rows; this interval speaks of fresh ones as well. Where
    only one factor varies it is :func:`student_interval` of that factor's means.

    Args:
        samples: One number for every pair, two rows and two columns or more.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` outside.

    Returns:
        The grand mean and its limits, scalars in the units of ``samples``.

    Raises:
        ValueError: If ``samples`` has not two axes of two or more, or ``level`` is outside (0, 1).

    Example:
        >>> interval = crossed_interval(jnp.array([[1.0, 2.0], [2.0, 3.0]]))
        >>> float(interval.estimate)
        2.0

    Source: Satterthwaite, "An approximate distribution of estimates of variance components",
    Biometrics Bulletin 2 (1946) 110; Searle, Casella and McCulloch, "Variance Components" (1992),
    chapter 4.
    """
    level = require_probability("level", level)
    require_rank("samples", samples, 2, "row column")
    samples = floats(samples)
    r, c = samples.shape
    if min(r, c) < 2:
        raise ValueError(f"samples needs two rows and two columns or more, got shape {(r, c)}")
    mean = jnp.mean(samples)
    rows = jnp.mean(samples, axis=1, keepdims=True)
    columns = jnp.mean(samples, axis=0, keepdims=True)
    ms_row = c * jnp.sum((rows - mean) ** 2) / (r - 1)
    ms_column = r * jnp.sum((columns - mean) ** 2) / (c - 1)
    ms_rest = jnp.sum((samples - rows - columns + mean) ** 2) / ((r - 1) * (c - 1))
    smaller = jnp.minimum(ms_row, ms_column)
    total = ms_row + ms_column - jnp.minimum(ms_rest, smaller)
    spread = ms_row**2 / (r - 1) + ms_column**2 / (c - 1) + ms_rest**2 / ((r - 1) * (c - 1))
    varies = total > 0
    degrees = jnp.where(varies, total**2 / jnp.where(varies, spread, 1), 1)
    degrees = jnp.maximum(jax.lax.stop_gradient(degrees), min(r, c) - 1)
    upper = (1 + jnp.asarray(level, samples.dtype)) / 2
    t = jax.lax.stop_gradient(student_quantile(upper, degrees))
    error = jnp.where(varies, jnp.sqrt(jnp.where(varies, total, 1) / (r * c)), 0)
    return Interval(mean, mean - t * error, mean + t * error)
