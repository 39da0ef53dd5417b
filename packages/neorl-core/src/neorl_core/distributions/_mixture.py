"""Mixtures of Gaussians with independent channels, for multimodal behaviour."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import floats
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_prob,
    gaussian_parameters,
)


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
