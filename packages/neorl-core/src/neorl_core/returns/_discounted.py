"""Discounted returns."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_probability,
    floats,
    like,
    require_rank,
    require_series,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.returns._recurrence import backward_recurrence, bootstrap, cut_at_the_last


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
    dtype, reward = floats(reward).dtype, widened(reward)
    factor = like(discount, reward)
    offset = reward.at[-1].add(factor * like(final_value, reward))
    returns = backward_recurrence(offset, factor, jnp.zeros(reward.shape, jnp.bool_))
    return narrowed(returns, dtype)


def segment_discounted_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """:func:`discounted_returns` of every episode of a flat log.

    ``G_t = r_t`` where terminated, ``r_t + discount next_value_t`` where only truncated, and ``r_t
    + discount G_{t+1}`` elsewhere. The last row is treated as truncated.

    Args:
        reward: Rewards of a log of consecutive episodes.
        next_value: Value of each row's own ``next_obs``; used only where an episode is truncated.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per row.

    Raises:
        ValueError: If the time axis is empty, shapes differ, or a concrete ``discount`` is
            outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> value = jnp.array([0.0, 0.0, 8.0])
        >>> segment_discounted_returns(jnp.ones(3), value, tripped, stopped, discount=0.5).tolist()
        [1.5, 1.0, 5.0]
    """
    require_series(reward=reward, next_value=next_value, terminated=terminated, truncated=truncated)
    discount = checked_probability("discount", discount, closed=True)
    dtype = jnp.result_type(floats(reward), floats(next_value))
    reward, next_value = widened(reward), widened(next_value)
    terminated = booleans(terminated)
    ends = cut_at_the_last(terminated | booleans(truncated))
    factor = like(discount, reward)
    offset = reward + factor * bootstrap(next_value, terminated | ~ends)
    return narrowed(backward_recurrence(offset, factor, ends), dtype)
