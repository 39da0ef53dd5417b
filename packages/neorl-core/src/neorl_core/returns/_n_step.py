"""Returns over a fixed number of steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_probability,
    floats,
    like,
    require_series,
)
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.returns._recurrence import bootstrap, cut_at_the_last


def n_step_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    *,
    n: int,
    discount: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """The sum of ``n`` discounted rewards plus the discounted value after them, at every step.

    ``G_t = sum_{k<m} discount^k r_{t+k} + discount^m next_value_{t+m-1}`` with ``m = n``, or less
    if the episode ends earlier; no value is added after a termination.

    Args:
        reward: Rewards of one episode.
        next_value: Value of each step's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        n: Number of steps, static, at least one.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per step. Gradients are not stopped.

    Raises:
        ValueError: If the time axis is empty, shapes differ, ``n`` is not a positive integer,
            or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> value, ended = jnp.full(3, 8.0), jnp.array([False, False, True])
        >>> n_step_returns(jnp.ones(3), value, ended, n=2, discount=0.5).tolist()
        [3.5, 1.5, 1.0]

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 7.1.
    """
    stopped = jnp.zeros_like(booleans(terminated))
    return segment_n_step_returns(reward, next_value, terminated, stopped, n=n, discount=discount)


def segment_n_step_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    n: int,
    discount: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """:func:`n_step_returns` of every episode of a flat log: no window crosses an episode boundary.

    Args:
        reward: Rewards of a log of consecutive episodes.
        next_value: Value of each row's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended; the last row is treated as truncated.
        n: Number of steps, static, at least one.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per row.

    Raises:
        ValueError: See :func:`n_step_returns`.

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> then = jnp.array([0.0, 0.0, 8.0])
        >>> segment_n_step_returns(
        ...     jnp.ones(3), then, tripped, stopped, n=2, discount=0.5
        ... ).tolist()
        [1.5, 1.0, 5.0]
    """
    require_series(reward=reward, next_value=next_value, terminated=terminated, truncated=truncated)
    discount = checked_probability("discount", discount, closed=True)
    n = checked_integer("n", n, 1, "1 is the plain temporal difference")
    dtype = jnp.result_type(floats(reward), floats(next_value))
    reward = widen(reward)
    terminated = booleans(terminated)
    factor = like(discount, reward)
    value = factor * bootstrap(widen(next_value), terminated)
    ends = cut_at_the_last(terminated | booleans(truncated))
    steps = (reward, value, ends, jnp.broadcast_to(factor, reward.shape))
    # A window cannot be longer than the record.
    length = min(n, reward.shape[0])
    returns = jax.lax.fori_loop(1, length, _one_step_longer, (reward + value, *steps))[0]
    return narrow(returns, dtype)


def _one_step_longer(_: ArrayLike, windows: tuple[Array, ...]) -> tuple[Array, ...]:
    """Turns returns over ``m`` steps into returns over ``m + 1``: ``r_t + discount G^m_{t+1}``."""
    total, reward, value, ends, factor = windows
    following = jnp.roll(total, -1)
    longer = jnp.where(ends, reward + value, reward + factor * following)
    return longer, reward, value, ends, factor
