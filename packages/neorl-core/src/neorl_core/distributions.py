"""Action distributions as functions of their parameters."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    is_concrete,
    like,
    require_broadcast,
    require_same_shape,
)
from neorl_core._internal.missing_names import missing_name

__all__ = [
    "categorical_entropy",
    "categorical_log_prob",
    "diagonal_gaussian_entropy",
    "diagonal_gaussian_log_prob",
    "diagonal_gaussian_sample",
    "gaussian_mixture_log_prob",
    "tanh_gaussian_latent_log_prob",
    "tanh_gaussian_log_prob",
    "tanh_gaussian_sample",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# The categorical distribution given by its logits; a logit of -infinity excludes a choice.


def categorical_log_prob(
    index: Int[Array, " *batch"], logits: Float[Array, "*batch choice"]
) -> Float[Array, " *batch"]:
    """Log-probability of a choice.

    Args:
        index: Index in ``[0, choice)``.
        logits: Unnormalised log-probabilities along the last axis.

    Returns:
        The log-probability, with the shape of ``index``; NaN for an index outside the range.

    Raises:
        ValueError: If the shapes disagree or there is no choice.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(categorical_log_prob(jnp.array(1), jnp.zeros(4))), 4)
        -1.3863
    """
    logits = _logits(logits)
    index = jnp.asarray(index)
    if index.shape != logits.shape[:-1]:
        raise ValueError(
            f"index must have the shape of logits without the last axis, got {index.shape} "
            f"for {logits.shape}; give one index for each row of logits"
        )
    log_p = jax.nn.log_softmax(logits, axis=-1)
    # Clamped for the gather and set to NaN after it: a negative index would wrap around.
    inside = (index >= 0) & (index < logits.shape[-1])
    safe = jnp.where(inside, index, 0)[..., None]
    chosen = jnp.take_along_axis(log_p, safe, axis=-1)[..., 0]
    return jnp.where(inside, chosen, jnp.nan)


def categorical_entropy(logits: Float[Array, "*batch choice"]) -> Float[Array, " *batch"]:
    """Entropy in nats, ``-sum_i p_i log p_i``; excluded choices contribute nothing.

    Args:
        logits: Unnormalised log-probabilities along the last axis.

    Returns:
        The entropy, without the last axis.

    Raises:
        ValueError: If there is no choice.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(categorical_entropy(jnp.array([0.0, 0.0, -jnp.inf]))), 4)
        0.6931
    """
    probability, log_p, _ = _possible(logits)
    return -jnp.sum(probability * log_p, axis=-1)


def _possible(logits: Array) -> tuple[Array, Array, Array]:
    """Probabilities, their logarithms (0 for excluded choices), and which choices are possible."""
    log_p = jax.nn.log_softmax(_logits(logits), axis=-1)
    possible = jnp.isfinite(log_p)
    safe = jnp.where(possible, log_p, 0)
    return jnp.where(possible, jnp.exp(safe), 0), safe, possible


def _logits(logits: Array) -> Array:
    logits = floats(logits)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"logits need a last axis with at least one choice, got shape {logits.shape}; "
            "give one logit for each choice"
        )
    return logits


# The Gaussian with independent channels.


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


# Mixtures of Gaussians with independent channels, for multimodal behaviour.


def gaussian_mixture_log_prob(
    x: Float[Array, "*batch channel"],
    logits: Float[Array, "*batch component"],
    mean: Float[Array, "*batch component channel"],
    log_std: Float[Array, "*#batch #component channel"],
) -> Float[Array, " *batch"]:
    """Log-density of a mixture of Gaussians: ``log sum_k w_k N(x; mean_k, exp(log_std_k))``.

    Args:
        x: Point of evaluation; the last axis is the channels.
        logits: Unnormalised log-weights ``log w`` along the last axis; minus infinity disables a
            component.
        mean: One mean for each component.
        log_std: Logarithms of the standard deviations; broadcasts against ``mean``.

    Returns:
        The log-density, without the last axis; its negative is the behaviour-cloning loss.

    Raises:
        ValueError: If the shapes disagree or there is no component.

    Example:
        >>> import jax.numpy as jnp
        >>> twice, at = jnp.zeros((2, 1)), jnp.zeros(1)
        >>> round(float(gaussian_mixture_log_prob(at, jnp.zeros(2), twice, twice)), 4)
        -0.9189

    Source: Bishop, Mixture density networks, 1994.
    """
    logits, mean, log_std = _mixture(logits, mean, log_std)
    x = floats(x)
    if x.shape != (*logits.shape[:-1], *mean.shape[-1:]):
        raise ValueError(
            "x must have the axes of logits without the components and then the channels of mean, "
            f"got {x.shape} for logits of {logits.shape} and mean of {mean.shape}; "
            "give one point for each mixture"
        )
    each = jnp.broadcast_to(x[..., None, :], mean.shape)
    inside = diagonal_gaussian_log_prob(each, mean, log_std)
    return jax.nn.logsumexp(jax.nn.log_softmax(logits, axis=-1) + inside, axis=-1)


def _mixture(logits: Array, mean: Array, log_std: Array) -> tuple[Array, Array, Array]:
    logits = floats(logits)
    mean, log_std = gaussian_parameters(mean, log_std)
    if logits.ndim == 0 or logits.shape[-1] == 0 or mean.shape[:-1] != logits.shape:
        raise ValueError(
            "mean must have the axes of logits, the last of them one or more components, and then "
            f"the channels, got {mean.shape} for logits of {logits.shape}; "
            "give one mean for each component"
        )
    return logits, mean, log_std


# The Gaussian squashed by tanh, with independent channels in (-1, 1).


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
