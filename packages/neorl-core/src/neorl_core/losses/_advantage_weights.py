"""Weights of advantage-weighted regression."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_mask,
    checked_positive,
    floats,
    like,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.losses._masked_mean import masked_mean


def advantage_weights(
    advantage: Float[Array, "*batch"],
    *,
    inverse_temperature: float | Float[Array, ""],
    max_weight: float | Float[Array, ""] = 100.0,
) -> Float[Array, "*batch"]:
    """The clipped exponential ``min(exp(inverse_temperature * advantage), max_weight)``.

    Args:
        advantage: Any shape.
        inverse_temperature: ``beta`` in implicit Q-learning and ``1 / lambda`` in AWAC, per unit of
            advantage, not negative; 0 gives plain regression. NaN results under ``jit`` if it is
            negative.
        max_weight: Largest weight, positive; NaN results under ``jit`` if it is not.

    Returns:
        The weights, same shape, without gradient. They are finite for every advantage but NaN; for
        an infinite one the weight is 0 or ``max_weight``, or 1 if ``inverse_temperature`` is 0.

    Raises:
        ValueError: If a concrete ``inverse_temperature`` is negative or a concrete ``max_weight``
            is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> advantage_weights(jnp.array([0.0, 1e6]), inverse_temperature=3.0).tolist()
        [1.0, 100.0]

    Source: Peng et al., Advantage-weighted regression, arXiv 1910.00177; the largest weight as
    in implicit Q-learning, arXiv 2110.06169.
    """
    inverse_temperature = checked_positive("inverse_temperature", inverse_temperature, or_zero=True)
    max_weight = checked_positive("max_weight", max_weight)
    advantage = floats(advantage)
    beta, largest = like(inverse_temperature, advantage), like(max_weight, advantage)
    plain = (beta == 0) & ~jnp.isnan(advantage)
    exponent = jnp.minimum(beta * jnp.where(plain, 0, advantage), jnp.log(largest))
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(exponent), largest))


def scaled_advantage(
    advantage: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    min_std: float = 1e-6,
) -> Float[Array, " batch"]:
    """The advantage divided by its standard deviation in the batch: ``advantage / std(advantage)``.

    The mean is not subtracted, so the sign keeps its meaning. An inverse temperature then means the
    same for every scale of reward.

    Args:
        advantage: Advantages of one batch.
        mask: Rows to include; all if ``None``.
        min_std: Lower bound on the standard deviation, positive; NaN results under ``jit`` if it is
            not.

    Returns:
        The scaled advantage, same shape and dtype, zero where ``mask`` is false. No gradient
        through the standard deviation.

    Raises:
        ValueError: If the shapes differ, or ``min_std`` is not positive.
    """
    min_std = checked_positive("min_std", min_std)
    dtype, advantage = floats(advantage).dtype, widen(advantage)
    if mask is not None:
        require_same_shape("advantage", advantage, "mask", mask)
        advantage = jnp.where(checked_mask("mask", mask), advantage, 0)
    # Divided by a power of two near the largest number, so that no square overflows. The division
    # does not round, and the reciprocal is in range.
    fixed = jax.lax.stop_gradient(advantage)
    _, exponent = jnp.frexp(jnp.max(jnp.abs(fixed), initial=0))
    limit = jnp.finfo(fixed.dtype).minexp
    unit = jnp.ldexp(jnp.ones((), fixed.dtype), jnp.clip(exponent, limit, -limit))
    fixed = fixed / unit
    std = jnp.sqrt(masked_mean(jnp.square(fixed - masked_mean(fixed, mask)), mask))
    return narrow(advantage / unit / jnp.maximum(std, like(min_std, advantage) / unit), dtype)
