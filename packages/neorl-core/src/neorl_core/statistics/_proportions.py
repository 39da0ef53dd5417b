"""Intervals of a probability from counted successes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Num

from neorl_core._internal.checks import floats, is_concrete, require_probability
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.statistics._default_level import DEFAULT_LEVEL
from neorl_core.statistics._intervals import Interval
from neorl_core.statistics._quantile_functions import beta_quantile


def wilson_interval(
    successes: Num[ArrayLike, "*batch"],
    trials: Num[ArrayLike, "*batch"],
    *,
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """Wilson's score interval of a probability.

    The ``p`` with ``|k/n - p| <= z sqrt(p (1 - p) / n)``: centre ``(k + z^2/2) / (n + z^2)``,
    half width ``z sqrt(k (n - k) / n + z^2/4) / (n + z^2)``. Its coverage is near ``level`` on
    average; that of :func:`clopper_pearson_interval` is never below it.

    Args:
        successes: Counts, between zero and ``trials``.
        trials: Counts; with no trial the interval is [0, 1] and the estimate NaN.
        level: Coverage of the two-sided interval, in (0, 1); NaN limits under ``jit`` outside.

    Returns:
        The proportion and its limits; NaN under ``jit`` where a count is impossible.

    Raises:
        ValueError: If known counts are impossible or ``level`` is outside (0, 1).

    Example:
        >>> round(float(wilson_interval(0, 10).high), 3)
        0.278

    Source: Wilson, Probable inference, the law of succession, and statistical inference, Journal of
    the American Statistical Association 22 (1927) 209.
    """
    dtype = _dtype(successes, trials)
    k, n, tail = _counts(successes, trials, level)
    z = -jax.scipy.special.ndtri(tail)
    some = jnp.where(n > 0, n, 1)
    centre = (k + z**2 / 2) / (n + z**2)
    half_width = z * jnp.sqrt(k * (n - k) / some + z**2 / 4) / (n + z**2)
    low = jnp.where(k == 0, 0, jnp.maximum(centre - half_width, 0))
    high = jnp.where(k == n, 1, jnp.minimum(centre + half_width, 1))
    return narrowed(_masked(k, n, low, high), dtype)


def clopper_pearson_interval(
    successes: Num[ArrayLike, "*batch"],
    trials: Num[ArrayLike, "*batch"],
    *,
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """The exact interval of a probability: it covers with at least ``level``, whatever ``p`` is.

    With ``delta = (1 - level) / 2``: the ``delta`` quantile of Beta(k, n - k + 1) and the
    ``1 - delta`` quantile of Beta(k + 1, n - k). A one-sided bound of level ``1 - delta`` is an
    end of the interval of level ``1 - 2 delta``. In float32 the limits err by 1e-6 up to
    1000 trials and by 1e-5 up to 100 000.

    Args:
        successes: Counts, between zero and ``trials``.
        trials: Counts; with no trial the interval is [0, 1] and the estimate NaN.
        level: Least coverage of the two-sided interval, in (0, 1); NaN under ``jit`` outside.

    Returns:
        The proportion and its limits; NaN under ``jit`` where a count is impossible.

    Raises:
        ValueError: If known counts are impossible or ``level`` is outside (0, 1).

    Example:
        No violation in 299 episodes: with 95 % confidence fewer than one in a hundred violate.

        >>> bool(clopper_pearson_interval(0, 299, level=0.90).high <= 0.01)
        True

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    dtype = _dtype(successes, trials)
    k, n, delta = _counts(successes, trials, level)
    inner, outer = jnp.clip(k, 1, jnp.maximum(n, 1)), jnp.clip(k, 0, jnp.maximum(n - 1, 0))
    safe_trials = jnp.maximum(n, 1)
    low = beta_quantile(delta, inner, safe_trials - inner + 1)
    high = beta_quantile(1 - delta, outer + 1, safe_trials - outer)
    low, high = jnp.where(k == 0, 0, low), jnp.where(k == n, 1, high)
    return narrowed(_masked(k, n, low, high), dtype)


def _dtype(successes: ArrayLike, trials: ArrayLike) -> DTypeLike:
    return jnp.result_type(floats(successes), floats(trials))


def _counts(successes, trials, level) -> tuple[Array, Array, Array]:
    level = require_probability("level", level)
    if is_concrete((successes, trials)):
        k, n = np.asarray(successes), np.asarray(trials)
        if not np.all((k >= 0) & (k <= n)):
            raise ValueError(
                f"successes must be between 0 and trials, got {successes} of {trials}; "
                "check which is which"
            )
    k, n = jnp.broadcast_arrays(widened(successes), widened(trials))
    dtype = jnp.result_type(k, n)
    tail = (1 - jnp.asarray(level, dtype)) / 2
    return jnp.where(jnp.isnan(tail), tail, k.astype(dtype)), n.astype(dtype), tail


def _masked(
    k: Float[Array, "*batch"], n: Float[Array, "*batch"], low: Array, high: Array
) -> Interval:
    valid = (k >= 0) & (k <= n)
    proportion = jnp.where(n > 0, k / jnp.where(n > 0, n, 1), jnp.nan)
    return Interval(*(jnp.where(valid, x, jnp.nan) for x in (proportion, low, high)))
