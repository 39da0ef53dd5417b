"""The Gaussian with independent channels."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import floats, require_broadcast, require_same_shape

LOG_TWO_PI = math.log(2 * math.pi)


def diagonal_gaussian_log_prob(
    x: Float[Array, "*batch channel"],
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
) -> Float[Array, " *batch"]:
    """Log-density of a Gaussian with independent channels, summed over them.

    ``sum_i -(x_i - mean_i)^2 / (2 s_i^2) - log s_i - log(2 pi) / 2`` with ``s = exp(log_std)``.

    Args:
        x: Point of evaluation; the last axis is the channels.
        mean: Same shape.
        log_std: Logarithms of the standard deviations; broadcasts against ``x``.

    Returns:
        The log-density, without the last axis.

    Raises:
        ValueError: If the shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> zero = jnp.zeros(2)
        >>> round(float(diagonal_gaussian_log_prob(zero, zero, zero)), 4)
        -1.8379
    """
    x, mean = floats(x), floats(mean)
    require_same_shape("x", x, "mean", mean)
    mean, log_std = gaussian_parameters(mean, log_std)
    standardised = (x - mean) * jnp.exp(-log_std)
    return jnp.sum(-jnp.square(standardised) / 2 - log_std - LOG_TWO_PI / 2, axis=-1)


def diagonal_gaussian_sample(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    key: PRNGKeyArray,
) -> Float[Array, "*batch channel"]:
    """A sample ``mean + exp(log_std) noise``, with gradients to both parameters.

    Args:
        mean: Last axis the channels.
        log_std: Logarithms of the standard deviations; broadcasts against ``mean``.
        key: Used once.

    Returns:
        The sample, with the shape of ``mean``.

    Raises:
        ValueError: If the shapes disagree.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> mean = jnp.array([1.0, 2.0])
        >>> diagonal_gaussian_sample(mean, jnp.full(2, -40.0), jax.random.key(0)).tolist()
        [1.0, 2.0]
    """
    mean, log_std = gaussian_parameters(mean, log_std)
    return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)


def diagonal_gaussian_entropy(log_std: Float[Array, "*batch channel"]) -> Float[Array, " *batch"]:
    """Differential entropy in nats: ``sum_i log s_i + (1 + log(2 pi)) / 2``.

    Args:
        log_std: Logarithms of the standard deviations, last axis the channels.

    Returns:
        The entropy, without the last axis.

    Raises:
        ValueError: If there is no axis.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(diagonal_gaussian_entropy(jnp.zeros(2))), 4)
        2.8379
    """
    log_std = floats(log_std)
    _require_channels("log_std", log_std)
    return jnp.sum(log_std + (1 + LOG_TWO_PI) / 2, axis=-1)


def gaussian_parameters(mean: Array, log_std: Array, *, prefix: str = "") -> tuple[Array, Array]:
    """Both as floats with the shape of the mean; raises an error if they do not broadcast to it."""
    mean, log_std = floats(mean), floats(log_std)
    _require_channels(f"{prefix}mean", mean)
    require_broadcast(f"{prefix}log_std", log_std, f"{prefix}mean", mean.shape)
    return mean, jnp.broadcast_to(log_std, mean.shape)


def _require_channels(name: str, value: Array) -> None:
    if value.ndim == 0:
        raise ValueError(
            f"{name} needs a last axis of channels, got a scalar; "
            "for one channel give it shape (1,)"
        )
