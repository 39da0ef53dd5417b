"""Returns and advantages of one recorded trajectory, or of a flat log of many.

With a discount near one, sums over long logs lose digits in float32. ``discount`` itself is
rounded, and each step rounds the return by up to 6e-8 of its value, always in the same direction if
rewards repeat. The error can reach ``1.2e-7 / (1 - discount)`` of the return: for
``discount=0.99999`` and three million rewards of one, the result is 99474 instead of 100000.
Rewards in float64, under ``jax.enable_x64(True)``, avoid this.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_probability,
    floats,
    like,
    require_rank,
    require_series,
)
from neorl_core._internal.missing_names import missing_name
from neorl_core._internal.precision import narrow, widen

__all__ = [
    "discounted_returns",
    "generalised_advantages",
    "n_step_returns",
    "segment_generalised_advantages",
    "segment_n_step_returns",
    "segment_td_lambda_returns",
    "td_lambda_returns",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# The backward linear recurrence behind every return, restarted at the ends of episodes.


def backward_recurrence(
    offset: Float[Array, " time"],
    factor: Float[Array, "#time"] | Float[Array, ""],
    ends: Bool[Array, " time"],
) -> Float[Array, " time"]:
    """``y_t = offset_t + factor_t y_{t+1}``, and ``y_t = offset_t`` where ``ends``.

    The sum is not cut by multiplying with zero, so a NaN does not spread to the previous episode.
    """
    factors = jnp.broadcast_to(factor, offset.shape)
    _, result = jax.lax.scan(
        _step_back, jnp.zeros((), offset.dtype), (offset, factors, ends), reverse=True
    )
    return result


def _step_back(following: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    offset, factor, end = row
    here = offset + factor * jnp.where(end, jnp.zeros_like(following), following)
    return here, here


def cut_at_the_last(ends: Bool[Array, " time"]) -> Bool[Array, " time"]:
    """The same flags with the last row marked, since the record ends there."""
    return ends.at[-1].set(True)


def bootstrap(
    value: Float[Array, " time"], terminated: Bool[Array, " time"]
) -> Float[Array, " time"]:
    """The value to bootstrap from: zero after a termination, whatever ``value`` holds there."""
    return jnp.where(terminated, jnp.zeros_like(value), value)


# Discounted returns.


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


# Returns over a fixed number of steps.


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


# Returns and advantages that mix all horizons with geometric weights.


def td_lambda_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """The TD(lambda) return of every step of one episode.

    ``G_t = r_t + discount (1 - terminated_t) ((1 - lam) next_value_t + lam G_{t+1})``. After the
    last step the return is ``next_value``, unless it terminated. If ``next_value`` is the largest
    value over actions, this is Peng's Q(lambda).

    Args:
        reward: Rewards of one episode.
        next_value: Value of each step's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of TD(lambda), in [0, 1]: 0 gives one-step targets, 1 the discounted return.
            NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per step. Gradients are not stopped.

    Raises:
        ValueError: If the time axis is empty, shapes differ, or a concrete ``discount`` or
            ``lam`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> ended = jnp.array([False, True])
        >>> value = jnp.array([4.0, 0.0])
        >>> td_lambda_returns(jnp.ones(2), value, ended, discount=0.5, lam=0.5).tolist()
        [2.25, 1.0]

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 12.20.
    """
    stopped = jnp.zeros_like(booleans(terminated))
    return segment_td_lambda_returns(
        reward, next_value, terminated, stopped, discount=discount, lam=lam
    )


def segment_td_lambda_returns(
    reward: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """:func:`td_lambda_returns` of every episode of a flat log.

    At a truncation, and at the last row, the return bootstraps only from the row's own
    ``next_value``.

    Args:
        reward: Rewards of a log of consecutive episodes.
        next_value: Value of each row's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the mixture, in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The returns, one per row.

    Raises:
        ValueError: See :func:`td_lambda_returns`.

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> then = jnp.array([0.0, 0.0, 8.0])
        >>> segment_td_lambda_returns(
        ...     jnp.ones(3), then, tripped, stopped, discount=0.5, lam=1.0
        ... ).tolist()
        [1.5, 1.0, 5.0]
    """
    dtype = jnp.result_type(floats(reward), floats(next_value))
    reward, next_value, terminated, ends, factor, trace = _check(
        reward, next_value, terminated, truncated, discount, lam
    )
    weight = jnp.where(ends, jnp.ones_like(reward), 1 - trace)
    offset = reward + factor * weight * bootstrap(next_value, terminated)
    return narrow(backward_recurrence(offset, factor * trace, ends), dtype)


def generalised_advantages(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """The generalised advantage estimate (GAE) of every step of one episode.

    ``A_t = d_t + discount lam A_{t+1}`` with the temporal difference
    ``d_t = r_t + discount (1 - terminated_t) next_value_t - value_t``.

    Args:
        reward: Rewards of one episode.
        value: Value of each ``obs``.
        next_value: Value of each step's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of GAE, in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The advantages, one per step. Gradients are not stopped.

    Raises:
        ValueError: If the time axis is empty, shapes differ, or a concrete ``discount`` or
            ``lam`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> value, ended = jnp.array([1.0, 2.0]), jnp.array([False, True])
        >>> next_value = jnp.array([2.0, 0.0])
        >>> generalised_advantages(
        ...     jnp.ones(2), value, next_value, ended, discount=0.5, lam=0.5
        ... ).tolist()
        [0.75, -1.0]

    Source: Schulman et al., High-dimensional continuous control using generalized advantage
    estimation, arXiv 1506.02438, equation 16.
    """
    stopped = jnp.zeros_like(booleans(terminated))
    return segment_generalised_advantages(
        reward, value, next_value, terminated, stopped, discount=discount, lam=lam
    )


def segment_generalised_advantages(
    reward: Float[Array, " time"],
    value: Float[Array, " time"],
    next_value: Float[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    discount: float | Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " time"]:
    """:func:`generalised_advantages` of every episode of a flat log.

    Args:
        reward: Rewards of a log of consecutive episodes.
        value: Value of each ``obs``.
        next_value: Value of each row's own ``next_obs``; ignored where terminated.
        terminated: Flags of the rows where the plant ended the episode.
        truncated: Flags of the rows where the record ended; the temporal difference bootstraps
            there and the sum stops.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        lam: The lambda of the mixture, in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The advantages, one per row.

    Raises:
        ValueError: See :func:`generalised_advantages`.

    Example:
        >>> import jax.numpy as jnp
        >>> tripped, stopped = jnp.array([False, True, False]), jnp.array([False, False, True])
        >>> now, then = jnp.zeros(3), jnp.array([0.0, 0.0, 8.0])
        >>> segment_generalised_advantages(
        ...     jnp.ones(3), now, then, tripped, stopped, discount=0.5, lam=1.0
        ... ).tolist()
        [1.5, 1.0, 5.0]
    """
    require_series(reward=reward, value=value)
    dtype = jnp.result_type(floats(reward), floats(value), floats(next_value))
    reward, next_value, terminated, ends, factor, trace = _check(
        reward, next_value, terminated, truncated, discount, lam
    )
    difference = reward + factor * bootstrap(next_value, terminated) - widen(value)
    return narrow(backward_recurrence(difference, factor * trace, ends), dtype)


def _check(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    discount: float | Array,
    lam: float | Array,
) -> tuple[Array, Array, Array, Array, Array, Array]:
    require_series(reward=reward, next_value=next_value, terminated=terminated, truncated=truncated)
    discount = checked_probability("discount", discount, closed=True)
    lam = checked_probability("lam", lam, closed=True)
    terminated = booleans(terminated)
    ends = cut_at_the_last(terminated | booleans(truncated))
    reward = widen(reward)
    factor, trace = like(discount, reward), like(lam, reward)
    return reward, widen(next_value), terminated, ends, factor, trace
