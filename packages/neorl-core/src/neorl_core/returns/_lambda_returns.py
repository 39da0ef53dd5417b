"""Returns and advantages that mix all horizons with geometric weights."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import booleans, checked_probability, floats, like, require_series
from neorl_core._internal.float_widths import narrow, widen
from neorl_core.returns._recurrence import backward_recurrence, bootstrap, cut_at_the_last


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
