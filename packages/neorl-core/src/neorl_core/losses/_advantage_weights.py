"""Weights of advantage-weighted regression."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import floats, like, require_positive, require_same_shape
from neorl_core.losses._masked_mean import masked_mean


def advantage_weights(
    advantage: Float[Array, "*batch"],
    *,
    temperature: float | Float[Array, ""],
    ceiling: float | Float[Array, ""] = 100.0,
) -> Float[Array, "*batch"]:
    """The clipped exponential ``min(exp(temperature * advantage), ceiling)``, elementwise.

    Args:
        advantage: Any shape.
        temperature: Inverse temperature, not negative; 0 gives plain regression. NaN results
            under ``jit`` where it is negative.
        ceiling: Largest weight, positive; NaN results under ``jit`` where it is not.

    Returns:
        The weights, same shape, without gradient. Finite for every advantage that is not NaN, an
        infinite one included: its weight is 0 or the ceiling, and 1 at temperature 0.

    Raises:
        ValueError: If a concrete ``temperature`` is negative or a concrete ``ceiling`` is not
            positive.

    Example:
        >>> import jax.numpy as jnp
        >>> advantage_weights(jnp.array([0.0, 1e6]), temperature=3.0).tolist()
        [1.0, 100.0]

    Source: Peng et al., Advantage-weighted regression, arXiv 1910.00177; the ceiling as in
    implicit Q-learning, arXiv 2110.06169.
    """
    temperature = require_positive("temperature", temperature, or_zero=True)
    ceiling = require_positive("ceiling", ceiling)
    advantage = floats(advantage)
    temperature, ceiling = like(temperature, advantage), like(ceiling, advantage)
    plain = (temperature == 0) & ~jnp.isnan(advantage)
    exponent = jnp.minimum(temperature * jnp.where(plain, 0, advantage), jnp.log(ceiling))
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(exponent), ceiling))


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
        epsilon: Floor of the standard deviation, positive; NaN results under ``jit`` where it
            is not.

    Returns:
        The scaled advantage, same shape and dtype, zero where ``mask`` is false. No gradient
        through the standard deviation.

    Raises:
        ValueError: If the shapes differ, or ``epsilon`` is not positive.
    """
    epsilon = require_positive("epsilon", epsilon)
    advantage = floats(advantage)
    if mask is not None:
        require_same_shape("advantage", advantage, "mask", mask)
    counted = advantage if mask is None else jnp.where(mask, advantage, 0)
    mean = masked_mean(counted, mask)
    std = jnp.sqrt(masked_mean(jnp.square(counted - mean), mask))
    return counted / jnp.maximum(jax.lax.stop_gradient(std), like(epsilon, advantage))
