"""The Gaussian squashed by tanh, with independent channels in (-1, 1)."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    is_concrete,
    like,
    require_same_shape,
)
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_prob,
    diagonal_gaussian_sample,
)

LOG_TWO = math.log(2)


def tanh_gaussian_sample(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    key: PRNGKeyArray,
) -> tuple[Float[Array, "*batch channel"], Float[Array, " *batch"]]:
    """A sample ``tanh(u)`` with Gaussian ``u``, and its log-density, computed exactly from ``u``.

    Args:
        mean: Mean of ``u``, last axis the channels.
        log_std: Logarithms of the standard deviations of ``u``; broadcasts against ``mean``.
        key: Used once.

    Returns:
        The action in [-1, 1], which rounding may put on a bound, and its log-density, which stays
        finite there. Both have gradients to both parameters.

    Raises:
        ValueError: If the shapes disagree.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> zero = jnp.zeros(2)
        >>> action, log_density = tanh_gaussian_sample(zero, zero - 40.0, jax.random.key(0))
        >>> action.round(6).tolist()
        [0.0, 0.0]

    Source: Haarnoja et al., Soft actor-critic, arXiv 1801.01290, appendix C.
    """
    latent = diagonal_gaussian_sample(mean, log_std, key)
    return jnp.tanh(latent), tanh_gaussian_latent_log_prob(latent, mean, log_std)


def tanh_gaussian_latent_log_prob(
    latent: Float[Array, "*batch channel"],
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
) -> Float[Array, " *batch"]:
    """Log-density of the action ``tanh(latent)``, from the latent: exact at saturation too.

    ``log N(latent) - sum_i log(1 - tanh(latent_i)^2)``, where the logarithm is computed as ``2 (log
    2 - |u| - log(1 + exp(-2 |u|)))``.

    Args:
        latent: Point of evaluation, before the squashing.
        mean: Same shape.
        log_std: Broadcasts against ``mean``.

    Returns:
        The log-density of the action, without the last axis.

    Raises:
        ValueError: If the shapes disagree.
    """
    latent, mean = floats(latent), floats(mean)
    require_same_shape("latent", latent, "mean", mean)
    gaussian = diagonal_gaussian_log_prob(latent, mean, log_std)
    return gaussian - jnp.sum(_log_slope(latent), axis=-1)


def tanh_gaussian_log_prob(
    action: Float[Array, "*batch channel"],
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    *,
    margin: float | Float[Array, ""] = 1e-5,
) -> Float[Array, " *batch"]:
    """Log-density of an action that was not sampled here, for example a logged one.

    Args:
        action: Action in [-1, 1]. The latent of a bound is infinite, so actions are first moved
            ``margin`` inside, as is usual for saturated actions in offline RL, and the density is
            that of the moved action. An action up to four rounding units beyond a bound is treated
            as on it; one further out gives NaN under ``jit``.
        mean: Mean of the latent, same shape.
        log_std: Broadcasts against ``mean``.
        margin: Distance kept from both bounds, in (0, 1); at least the rounding unit of the dtype.
            NaN results under ``jit`` if it is outside.

    Returns:
        The log-density, without the last axis, finite with finite gradients.

    Raises:
        ValueError: If the shapes disagree, ``margin`` is not a scalar, a concrete one is outside
            (0, 1), or a concrete action is outside [-1, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> zero = jnp.zeros(1)
        >>> round(float(tanh_gaussian_log_prob(zero, zero, zero)), 4)
        -0.9189
    """
    margin = checked_probability("margin", margin)
    action, mean = floats(action), floats(mean)
    require_same_shape("action", action, "mean", mean)
    limit = 1 - jnp.maximum(like(margin, action), jnp.finfo(action.dtype).eps)
    latent = jnp.arctanh(jnp.clip(action, -limit, limit))
    latent = jnp.where(_require_squashed(action), latent, jnp.nan)
    return tanh_gaussian_latent_log_prob(latent, mean, log_std)


def _require_squashed(action: Array) -> Array:
    """Whether an action is in [-1, 1] up to rounding; if concrete, raises an error if not."""
    inside = jnp.abs(action) <= 1 + 4 * jnp.finfo(action.dtype).eps
    if is_concrete(inside) and not np.all(inside):
        raise ValueError(
            f"action must be in [-1, 1], got {jnp.min(action)} to {jnp.max(action)}; "
            "scale it with unit_interval"
        )
    return inside


def _log_slope(latent: Array) -> Array:
    """``log(1 - tanh(u)^2)`` without cancellation."""
    size = jnp.abs(latent)
    return 2 * (LOG_TWO - size - jnp.log1p(jnp.exp(-2 * size)))
