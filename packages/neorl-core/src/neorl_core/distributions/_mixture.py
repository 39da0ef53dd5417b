"""Mixtures of Gaussians with independent channels, for multimodal behaviour."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core._internal.checks import floats
from neorl_core.distributions._diagonal_gaussian import (
    diagonal_gaussian_log_prob,
    diagonal_gaussian_sample,
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


def gaussian_mixture_sample(
    logits: Float[Array, "*batch component"],
    mean: Float[Array, "*batch component channel"],
    log_std: Float[Array, "*#batch #component channel"],
    key: PRNGKeyArray,
) -> Float[Array, "*batch channel"]:
    """A sample; its gradients reach the chosen component, but not the choice itself.

    Args:
        logits: Unnormalised log-weights along the last axis.
        mean: One mean for each component.
        log_std: Logarithms of the standard deviations; broadcasts against ``mean``.
        key: Used once.

    Returns:
        The sample, one number for each channel.

    Raises:
        ValueError: If the shapes disagree or there is no component.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> logits, mean = jnp.array([-jnp.inf, 0.0]), jnp.array([[1.0], [2.0]])
        >>> gaussian_mixture_sample(logits, mean, mean - 40.0, jax.random.key(0)).tolist()
        [2.0]
    """
    logits, mean, log_std = _mixture(logits, mean, log_std)
    choice_key, draw_key = jax.random.split(key)
    chosen = jax.random.categorical(choice_key, logits, axis=-1)[..., None, None]
    centre, width = (
        jnp.take_along_axis(values, chosen, axis=-2)[..., 0, :] for values in (mean, log_std)
    )
    return diagonal_gaussian_sample(centre, width, draw_key)


def gaussian_mixture_mean(
    logits: Float[Array, "*batch component"], mean: Float[Array, "*batch component channel"]
) -> Float[Array, "*batch channel"]:
    """The mean ``sum_k w_k mean_k``, which may lie far from every component.

    Args:
        logits: Unnormalised log-weights along the last axis.
        mean: One mean for each component.

    Returns:
        The mean of every channel.

    Raises:
        ValueError: If the shapes disagree or there is no component.

    Example:
        >>> import jax.numpy as jnp
        >>> gaussian_mixture_mean(jnp.zeros(2), jnp.array([[1.0], [3.0]])).tolist()
        [2.0]
    """
    logits, mean, _ = _mixture(logits, mean, jnp.zeros_like(floats(mean)))
    return jnp.sum(jax.nn.softmax(logits, axis=-1)[..., None] * mean, axis=-2)


def gaussian_mixture_mode(
    logits: Float[Array, "*batch component"],
    mean: Float[Array, "*batch component channel"],
    log_std: Float[Array, "*#batch #component channel"],
) -> Float[Array, "*batch channel"]:
    """The component mean at which the mixture is densest; the first one if several are equal.

    The exact mode has no closed form; if the components lie far apart, it is close to this mean.

    Args:
        logits: Unnormalised log-weights along the last axis.
        mean: One mean for each component.
        log_std: Logarithms of the standard deviations; broadcasts against ``mean``.

    Returns:
        One of the means, with a gradient to it.

    Raises:
        ValueError: If the shapes disagree or there is no component.

    Example:
        >>> import jax.numpy as jnp
        >>> mean, log_std = jnp.array([[1.0], [3.0]]), jnp.array([[0.0], [-1.0]])
        >>> gaussian_mixture_mode(jnp.zeros(2), mean, log_std).tolist()
        [3.0]
    """
    logits, mean, log_std = _mixture(logits, mean, log_std)
    # Every component's mean as a point, along a separate axis.
    points = jnp.moveaxis(mean, -2, 0)
    density = jax.vmap(gaussian_mixture_log_prob, (0, None, None, None))(
        points, logits, mean, log_std
    )
    best = jnp.argmax(density, axis=0)[..., None, None]
    return jnp.take_along_axis(mean, best, axis=-2)[..., 0, :]


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
