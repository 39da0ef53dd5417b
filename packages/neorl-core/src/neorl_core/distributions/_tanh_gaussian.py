"""The Gaussian squashed by tanh, with independent channels in (-1, 1)."""

import functools
import math

import jax
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
    diagonal_gaussian_entropy,
    diagonal_gaussian_kl,
    diagonal_gaussian_log_prob,
    diagonal_gaussian_sample,
    gaussian_parameters,
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


def tanh_gaussian_entropy(
    mean: Float[Array, "*batch channel"], log_std: Float[Array, "*#batch channel"]
) -> Float[Array, " *batch"]:
    """Differential entropy of the action in nats, by quadrature: no sampling noise.

    ``H(Gaussian) + sum_i E log(1 - tanh(u_i)^2)``. The expectation splits into that of ``|u|``,
    which has a closed form, and that of ``log(1 + exp(-2 |u|))``, which is smooth and local and is
    computed by Gauss-Legendre quadrature.

    Args:
        mean: Mean of the latent, last axis the channels.
        log_std: Broadcasts against ``mean``.

    Returns:
        The entropy, without the last axis, at most ``channel log 2``. In float64 its error is below
        1e-9 per channel for ``log_std`` up to 5. In float32 it is below 1e-6 times one plus the
        magnitudes of the Gaussian's entropy and of ``E |u|``, which cancel where the action
        saturates.

    Raises:
        ValueError: If the shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(tanh_gaussian_entropy(jnp.zeros(1), jnp.zeros(1))), 3)
        0.67
    """
    mean, log_std = gaussian_parameters(mean, log_std)
    # Below exp(-20) the expectations no longer depend on the width: they equal their values at the
    # mean.
    std = jnp.exp(jnp.maximum(log_std, LEAST_LOG_STD))
    rest = _expected_softplus(mean, std, side=1.0) + _expected_softplus(mean, std, side=-1.0)
    slope = 2 * (LOG_TWO - _expected_size(mean, std) - rest)
    return diagonal_gaussian_entropy(log_std) + jnp.sum(slope, axis=-1)


def tanh_gaussian_kl(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    other_mean: Float[Array, "*batch channel"],
    other_log_std: Float[Array, "*#batch channel"],
) -> Float[Array, " *batch"]:
    """Kullback-Leibler divergence in nats; equal to that of the latents, since tanh is a bijection.

    Args:
        mean: Mean of the first latent.
        log_std: Logarithm of its standard deviation.
        other_mean: Mean of the second latent.
        other_log_std: Logarithm of its standard deviation.

    Returns:
        The divergence, as for :func:`diagonal_gaussian_kl`.

    Raises:
        ValueError: If the shapes disagree.
    """
    return diagonal_gaussian_kl(mean, log_std, other_mean, other_log_std)


def tanh_gaussian_mode(mean: Float[Array, "*batch channel"]) -> Float[Array, "*batch channel"]:
    """The deterministic action ``tanh(mean)``, channel by channel.

    It is the median of every channel, and reinforcement learning usually calls it the mode of this
    distribution. The true mode lies nearer to a bound, or there is one at each bound.

    Args:
        mean: Mean of the latent.

    Returns:
        The action in [-1, 1].
    """
    return jnp.tanh(floats(mean))


@functools.cache
def _legendre(axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1], with ``axes`` axes of length one in front."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    shape = (1,) * axes + (-1,)
    return nodes.reshape(shape), weights.reshape(shape)


def _log_slope(latent: Array) -> Array:
    """``log(1 - tanh(u)^2)`` without cancellation."""
    size = jnp.abs(latent)
    return 2 * (LOG_TWO - size - jnp.log1p(jnp.exp(-2 * size)))


def _expected_size(mean: Array, std: Array) -> Array:
    """``E|u|`` of a Gaussian: the mean of a folded normal."""
    ratio = jnp.clip(mean / std, -SATURATED, SATURATED)
    density = jnp.exp(-jnp.square(ratio) / 2) / math.sqrt(2 * math.pi)
    return 2 * std * density + mean * jax.lax.erf(ratio / math.sqrt(2))


REACH = 10.0
SIGMAS = 8.0
SATURATED = 40.0
LEAST_LOG_STD = -20.0


def _expected_softplus(mean: Array, std: Array, *, side: float) -> Array:
    """``E[log(1 + exp(-2 |u|)); side u > 0]``, integrated where it does not vanish."""
    centre = side * mean
    # In units of the standard deviation, so that rounding the mean does not affect narrow
    # Gaussians.
    start = jnp.clip(-centre / std, -SIGMAS, SIGMAS)
    stop = jnp.clip((REACH - centre) / std, -SIGMAS, SIGMAS)
    half = ((stop - start) / 2)[..., None]
    nodes, weights = (like(values, mean) for values in _legendre(mean.ndim))
    standardised = start[..., None] + half * (1 + nodes)
    u = centre[..., None] + std[..., None] * standardised
    density = jnp.exp(-jnp.square(standardised) / 2) / math.sqrt(2 * math.pi)
    # Clamped at zero, since rounding may turn an empty interval negative.
    soft = jnp.log1p(jnp.exp(-2 * jnp.maximum(u, 0)))
    return jnp.sum(half * weights * density * soft, axis=-1)
