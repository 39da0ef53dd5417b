"""Discounted returns."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    like,
    require_rank,
    require_series,
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.returns._recurrence import backward_recurrence


def discounted_returns(
    reward: Float[Array, " time"],
    final_value: float | Float[Array, ""] = 0.0,
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """The discounted sum of the rewards from every step to the end of one episode.

    ``G_t = r_t + discount G_{t+1}`` with ``G_T = final_value``.

    Args:
        reward: Rewards of one episode.
        final_value: Value after the last step: zero if it terminated, the value of the last
            ``next_obs`` if it was truncated.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per step.

    Raises:
        ValueError: If ``reward`` is empty or not one-dimensional, ``final_value`` is not a scalar,
            or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> discounted_returns(jnp.array([1.0, 0.0, 2.0]), discount=0.5).tolist()
        [1.5, 1.0, 2.0]

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 3.9.
    """
    require_series(reward=reward)
    require_rank("final_value", final_value, 0, "")
    discount = checked_probability("discount", discount, closed=True)
    dtype, reward = floats(reward).dtype, widen(reward)
    factor = like(discount, reward)
    offset = reward.at[-1].add(factor * like(final_value, reward))
    returns = backward_recurrence(offset, factor, jnp.zeros(reward.shape, jnp.bool_))
    return narrow(returns, dtype)
