"""Weights of advantage-weighted regression."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._masked_mean import masked_mean


def advantage_weights(
    advantage: Float[Array, "*batch"],
    *,
    temperature: float | Float[Array, ""],
    ceiling: float | Float[Array, ""] = 100.0,
) -> Float[Array, "*batch"]:
    """The clipped exponential ``min(exp(temperature * advantage), ceiling)``, elementwise.

    Args:
        advantage: Any shape.
        temperature: Inverse temperature, not negative; 0 gives plain regression.
        ceiling: Largest weight, positive.

    Returns:
        The weights, same shape, without gradient. Finite for every advantage that is not NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> advantage_weights(jnp.array([0.0, 1e6]), temperature=3.0).tolist()
        [1.0, 100.0]

    Source: Peng et al., Advantage-weighted regression, arXiv 1910.00177; the ceiling as in
    implicit Q-learning, arXiv 2110.06169.
    """
    exponent = jnp.minimum(temperature * advantage, jnp.log(ceiling))
    weights = jnp.minimum(jnp.exp(exponent), ceiling).astype(jnp.asarray(advantage).dtype)
    return jax.lax.stop_gradient(weights)


def scaled_advantage(
    advantage: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    epsilon: float = 1e-6,
) -> Float[Array, " batch"]:
    """The advantage over its own standard deviation in the batch: ``advantage / std(advantage)``.

    The mean is not subtracted: the sign keeps its meaning. Afterwards an inverse temperature means
    the same for every scale of reward.

    Args:
        advantage: One batch.
        mask: Rows that count; all where ``None``.
        epsilon: Floor of the standard deviation.

    Returns:
        The scaled advantage, same shape, zero where ``mask`` is false. No gradient through the
        standard deviation.
    """
    counted = advantage if mask is None else jnp.where(mask, advantage, 0)
    mean = masked_mean(counted, mask)
    std = jnp.sqrt(masked_mean(jnp.square(counted - mean), mask))
    return counted / jnp.maximum(jax.lax.stop_gradient(std), epsilon)
