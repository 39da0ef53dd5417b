"""The mean of a series whose neighbours depend on each other."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import checked_mask, floats, require_series
from neorl_core._internal.precision import checked_wide

_WINDOW = 5.0
_LEAST_INDEPENDENT = 8.0


class CorrelatedMean(NamedTuple):
    """The mean of a stationary series with its uncertainty.

    Attributes:
        mean: The mean; NaN without a value.
        error: Its standard error; NaN if fewer than 8 values are effectively independent.
        degrees: Degrees of freedom of the standard error, for Student's interval.
        time: Integrated autocorrelation time in rows, 1 for white noise.
        independent: Effective number of independent values.
    """

    mean: Float[Array, ""]
    error: Float[Array, ""]
    degrees: Float[Array, ""]
    time: Float[Array, ""]
    independent: Float[Array, ""]


def correlated_mean(
    values: Float[ArrayLike, " time"], valid: Bool[ArrayLike, " time"]
) -> CorrelatedMean:
    """The mean of a series whose neighbours depend on each other, with its standard error.

    The variance of the mean is ``s^2 tau / n`` with the integrated autocorrelation time ``tau = 1 +
    2 sum_k rho_k``, summed to the least window ``W`` of at least ``5 tau(W)`` rows and corrected
    for the bias by the mean. The standard error has about ``n / (2 W + 1)`` degrees of freedom.

    Args:
        values: Equidistant values.
        valid: Rows to use; those left out, and any that are not finite, are cut out, so that their
            neighbours become neighbours.

    Returns:
        The mean and its uncertainty. Not differentiable. Equal values have an error of zero.

    Raises:
        ValueError: If lengths differ, ``valid`` is not boolean, or the values have half precision.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> steps = jax.random.normal(jax.random.key(0), (4000,))
        >>> walk = jax.lax.scan(lambda x, w: (0.9 * x + w,) * 2, 0.0, steps)[1]
        >>> result = correlated_mean(walk, jnp.ones(4000, bool))
        >>> bool(result.independent < 400)
        True

    Source: Sokal, Monte Carlo methods in statistical mechanics, 1997, section 3; the corrections:
    Wolff, Monte Carlo errors with less errors, Comput. Phys. Commun. 156 (2004) 143.
    """
    require_series(values=values, valid=valid)
    valid = checked_mask("valid", valid)
    return _correlated_mean(checked_wide("values", floats(values)), valid)


@jax.jit
def _correlated_mean(values: Array, valid: Array) -> CorrelatedMean:
    length = values.shape[0]
    valid = valid & jnp.isfinite(values)
    row = jnp.arange(length, dtype=values.dtype)
    n = jnp.sum(valid).astype(values.dtype)
    kept = row < n
    values = jnp.where(kept, values[jnp.argsort(~valid, stable=True)], 0)
    mean = jnp.sum(values) / n
    centred = jnp.where(kept, values - mean, 0)
    centred = centred - jnp.where(kept, jnp.sum(centred) / n, 0)
    squares = jnp.sum(centred**2)
    size = 1 << max(2 * length - 1, 1).bit_length()
    power = jnp.abs(jnp.fft.rfft(centred / jnp.sqrt(squares), size)) ** 2
    # Each lag has fewer pairs than the one before it.
    correlation = jnp.fft.irfft(power, size)[:length] * n / jnp.maximum(n - row, 1)
    times = 2 * jnp.cumsum(correlation) - 1
    within = (row >= _WINDOW * jnp.maximum(times, 1)) & kept
    last = jnp.maximum(jnp.sum(valid.astype(jnp.int32)) - 1, 0)
    place = jnp.where(jnp.any(within), jnp.argmax(within).astype(jnp.int32), last)
    window = row[place]
    time = jnp.maximum(times[place], 1) * (1 + (2 * window + 1) / n)
    independent = n / time
    variance = squares / n / (1 - jnp.minimum(1 / independent, 0.5)) / independent
    error = jnp.where(independent >= _LEAST_INDEPENDENT, jnp.sqrt(variance), jnp.nan)
    degrees = jnp.maximum(n / (2 * window + 1), 1)
    numbers = jnp.stack([mean, error, degrees, time, independent])
    first = values[0]
    equal = jnp.stack([first, jnp.zeros_like(n), n - 1, jnp.ones_like(n), n])
    numbers = jnp.where(jnp.all(jnp.where(kept, values == first, True)), equal, numbers)
    few = jnp.stack([mean, jnp.nan * n, jnp.zeros_like(n), jnp.ones_like(n), n])
    return CorrelatedMean(*jnp.where(n < 2, few, numbers))
