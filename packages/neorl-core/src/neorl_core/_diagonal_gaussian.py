"""The Gaussian with independent channels."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

LOG_TWO_PI = math.log(2 * math.pi)


def diagonal_gaussian_log_density(
    x: Float[Array, "*batch channel"],
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
) -> Float[Array, " *batch"]:
    """Log-density of a Gaussian with independent channels, summed over them.

    ``sum_i -(x_i - mean_i)^2 / (2 s_i^2) - log s_i - log(2 pi) / 2`` with ``s = exp(log_std)``.

    Args:
        x: Where, last axis the channels.
        mean: Same shape.
        log_std: Logarithms of the standard deviations; broadcasts against ``x``.

    Returns:
        The log-density, without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> zero = jnp.zeros(2)
        >>> round(float(diagonal_gaussian_log_density(zero, zero, zero)), 4)
        -1.8379
    """
    standardised = (x - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * jnp.square(standardised) - log_std - 0.5 * LOG_TWO_PI, axis=-1)
