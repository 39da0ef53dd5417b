"""Intervals of a probability from counted successes."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Num

from neorl_core._internal.checks import checked_probability, floats, is_concrete
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.statistics._binomial_limits import upper_log_odds
from neorl_core.statistics._intervals import DEFAULT_LEVEL, Interval


def clopper_pearson_interval(
    successes: Num[ArrayLike, "*batch"],
    trials: Num[ArrayLike, "*batch"],
    *,
    level: float = DEFAULT_LEVEL,
) -> Interval:
    """The exact interval of a probability: its coverage is at least ``level``, whatever ``p`` is.

    With ``delta = (1 - level) / 2``: the ``delta`` quantile of Beta(k, n - k + 1) and the ``1 -
    delta`` quantile of Beta(k + 1, n - k); without successes the upper limit is ``1 -
    delta^(1/n)``. A one-sided bound of level ``1 - delta`` is an end of the interval of level ``1 -
    2 delta``.

    The computed limits lie outside the exact ones. For up to 10^9 trials they differ by less than
    2e-5 of the distance from 0 in float32 (1e-9 in float64). Counts of an integer dtype are exact;
    a float32 count above 2^24 is not.

    Args:
        successes: Number of successes, between zero and ``trials``.
        trials: Number of trials; without trials the interval is [0, 1] and the estimate NaN.
        level: Guaranteed coverage of the two-sided interval, in (0, 1); NaN under ``jit`` if it is
            outside.

    Returns:
        The proportion and its limits; NaN under ``jit`` if a count is impossible.

    Raises:
        ValueError: If concrete counts are impossible or ``level`` is outside (0, 1).

    Example:
        No violation in 299 episodes: with 95 % confidence fewer than one in a hundred violate.

        >>> bool(clopper_pearson_interval(0, 299, level=0.90).high <= 0.01)
        True

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    dtype = _dtype(successes, trials)
    k, failures, delta = _counts(successes, trials, level)
    # Two solutions in one call: the lower limit is one minus the upper limit for the failures. A
    # little of delta, more than the error of the tail, is left unused.
    counted, other = jnp.stack([failures, k]), jnp.stack([k, failures])
    a, b = jnp.maximum(counted, 0) + 1, jnp.maximum(other, 1)
    cautious = delta * (1 - (1e-10 if jnp.finfo(k.dtype).bits >= 64 else 1e-5))
    odds = a / b * jnp.exp(upper_log_odds(a, b, cautious))
    # Without successes or without failures there is a closed form.
    certain = jnp.log(cautious) / (a + b - 1)
    outside = 1 + 4 * jnp.finfo(k.dtype).eps
    high_odds, low_odds = odds[1], odds[0]
    high = jnp.where(k <= 0, -jnp.expm1(certain[1]), high_odds / (1 + high_odds)) * outside
    low = jnp.where(failures <= 0, jnp.exp(certain[0]), 1 / (1 + low_odds)) / outside
    low = jnp.where(k <= 0, jnp.where(k == 0, 0, jnp.nan), low)
    high = jnp.where(failures <= 0, jnp.where(failures == 0, 1, jnp.nan), jnp.minimum(high, 1))
    return narrowed(_masked(k, failures, low, high), dtype)


def _dtype(successes: ArrayLike, trials: ArrayLike) -> DTypeLike:
    return jnp.result_type(floats(successes), floats(trials))


def _counts(successes, trials, level) -> tuple[Array, Array, Array]:
    """Successes and failures as floats (NaN if the level is), and the probability in each tail."""
    level = checked_probability("level", level)
    if is_concrete((successes, trials)):
        k, n = np.asarray(successes), np.asarray(trials)
        if not np.all((k >= 0) & (k <= n)):
            raise ValueError(
                f"successes must be between 0 and trials, got {successes} of {trials}; "
                "check which is which"
            )
    k, n = jnp.broadcast_arrays(jnp.asarray(successes), jnp.asarray(trials))
    if k.dtype == n.dtype and jnp.issubdtype(k.dtype, jnp.signedinteger):
        failures = widened(n - k)  # exact, unlike a difference of large float counts
    else:
        failures = widened(n) - widened(k)
    k = widened(k)
    delta = (1 - jnp.asarray(level, k.dtype)) / 2
    return jnp.where(jnp.isnan(delta), delta, k), failures, delta


def _masked(k: Float[Array, "*batch"], failures: Array, low: Array, high: Array) -> Interval:
    valid = (k >= 0) & (failures >= 0)
    n = k + failures
    proportion = jnp.where(n > 0, k / jnp.where(n > 0, n, 1), jnp.nan)
    return Interval(*(jnp.where(valid, x, jnp.nan) for x in (proportion, low, high)))
