"""Importance sampling: estimating the return of one policy from the log of another."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_probability,
    floats,
    like,
    require_rank,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrowed, widened


class LoggedTrajectories(NamedTuple):
    """Logged trajectories with the probability ratios of their actions under another policy.

    Functions named ``…_return`` take one trajectory and are batched by ``vmap``; their mean over
    trajectories is the estimate. The weighted estimators take all trajectories, along the first
    axis.

    Fields are arrays or values that NumPy can convert to arrays. Estimates are computed in float32
    or wider and have the dtype of the rewards.

    Attributes:
        log_ratio: ``log pi_e(a_t | s_t) - log pi_b(a_t | s_t)`` of the evaluated policy over the
            logging one, shape ``(..., time)``; ``-inf`` if the evaluated policy never takes the
            action.
        reward: Shape ``(..., time)``.
        mask: False after the end of a trajectory, where the other fields may hold anything;
            ``None`` if all trajectories have the full length. After its end a trajectory has no
            reward and keeps its weight.
        q_value: ``Q(s_t, a_t)`` of a model of the evaluated policy; for doubly robust estimates.
        value: ``V(s_t) = E Q(s_t, a)`` over the evaluated policy, of the same model.
    """

    log_ratio: Float[ArrayLike, "*trajectory time"]
    reward: Float[ArrayLike, "*trajectory time"]
    mask: Bool[ArrayLike, "*trajectory time"] | None = None
    q_value: Float[ArrayLike, "*trajectory time"] | None = None
    value: Float[ArrayLike, "*trajectory time"] | None = None


def tis_return(
    trajectory: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Trajectory-wise importance sampling: ``rho_{T-1} sum_t discount^t r_t``.

    ``rho_t`` is the product of the ratios up to step ``t``. The mean over trajectories is an
    unbiased estimate of the value of the evaluated policy, provided that the logging policy may
    take every action that the evaluated one does. Its variance grows exponentially with the
    horizon. Deterministic policies over continuous actions have no ratio: use a marginalised or a
    model-based estimate.

    Args:
        trajectory: One trajectory.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        Its weighted return; infinite if the product of the ratios overflows. A return of zero stays
        zero under any weight, and so does any return under a weight of zero.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis with at least one step, or a
            concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([2.0, 0.5])), jnp.array([1.0, 2.0]))
        >>> round(float(tis_return(log, discount=0.5)), 4)
        2.0

    Source: Precup, Sutton and Singh, Eligibility traces for off-policy policy evaluation, 2000.
    """
    log_ratio, reward, discount = checked(trajectory, 1, discount)
    total = jnp.sum(discounts(discount, reward) * reward)
    return like_reward(weighted(jnp.sum(log_ratio), total), trajectory)


def pdis_return(
    trajectory: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Per-decision importance sampling: ``sum_t discount^t rho_t r_t``.

    Unbiased like :func:`tis_return`; a reward is not weighted by the ratios of later actions.

    Args:
        trajectory: One trajectory.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        Its weighted return. A step whose product of ratios overflows adds an infinity, or nothing
        if its discounted reward is zero.

    Raises:
        ValueError: See :func:`tis_return`.

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([2.0, 0.5])), jnp.array([1.0, 2.0]))
        >>> round(float(pdis_return(log, discount=0.5)), 4)
        3.0

    Source: Precup, Sutton and Singh, 2000.
    """
    log_ratio, reward, discount = checked(trajectory, 1, discount)
    terms = weighted(jnp.cumsum(log_ratio), discounts(discount, reward) * reward)
    return like_reward(jnp.sum(terms), trajectory)


def wis(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted (self-normalised) TIS: ``sum_i rho_i G_i / sum_i rho_i``.

    It has a bias of ``O(1 / n)`` and far less variance, and never leaves the range of the returns.
    The weights are normalised as logarithms, so they cannot overflow.

    Args:
        trajectories: All trajectories, shape ``(trajectory, time)``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The estimate; NaN if all weights are zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, there is no trajectory or no step,
            or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([[3.0], [1.0]])), jnp.array([[8.0], [0.0]]))
        >>> round(float(wis(log, discount=1.0)), 4)
        6.0

    Source: Precup, Sutton and Singh, 2000.
    """
    log_ratio, reward, discount = checked(trajectories, 2, discount)
    returns = jnp.sum(discounts(discount, reward) * reward, axis=1)
    value = jnp.sum(jax.nn.softmax(jnp.sum(log_ratio, axis=1)) * returns)
    return like_reward(value, trajectories)


def wpdis(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted PDIS: ``sum_t discount^t sum_i rho_{i,t} r_{i,t} / sum_i rho_{i,t}``.

    Args:
        trajectories: All trajectories, shape ``(trajectory, time)``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The estimate; NaN if at some step all weights are zero.

    Raises:
        ValueError: See :func:`wis`.

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([[3.0], [1.0]])), jnp.array([[8.0], [0.0]]))
        >>> round(float(wpdis(log, discount=1.0)), 4)
        6.0

    Source: Thomas, Safe reinforcement learning, 2015, section 3.10.
    """
    log_ratio, reward, discount = checked(trajectories, 2, discount)
    weights = jax.nn.softmax(jnp.cumsum(log_ratio, axis=1), axis=0)
    return like_reward(jnp.sum(discounts(discount, reward) * weights * reward), trajectories)


def effective_sample_size(
    log_weights: Float[ArrayLike, "sample *shape"],
) -> Float[Array, "*shape"]:
    """Equivalent number of equally weighted samples: ``(sum w)^2 / sum w^2``.

    Args:
        log_weights: Logarithms of the weights along the first axis, up to a common constant: for a
            trajectory the sum of its log ratios, for every step their cumulative sum.

    Returns:
        Between 1 and the number of samples; 0 if all weights are zero or there is no sample.

    Raises:
        ValueError: If there is no axis.

    Example:
        >>> import jax.numpy as jnp
        >>> float(effective_sample_size(jnp.zeros(8)))
        8.0

    Source: Kong, A note on importance sampling using standardized weights, 1992.
    """
    if np.ndim(log_weights) < 1:
        raise ValueError(
            "log_weights needs the samples along its first axis, got a scalar; "
            "put one log-weight per trajectory into an array"
        )
    logs = widened(log_weights)
    largest = jnp.max(logs, axis=0, keepdims=True, initial=-jnp.inf)
    weights = jnp.exp(logs - jnp.where(jnp.isneginf(largest), 0, largest))
    total, squares = jnp.sum(weights, axis=0), jnp.sum(weights**2, axis=0)
    size = total**2 / jnp.where(squares == 0, 1, squares)
    return narrowed(size, floats(log_weights).dtype)


def checked(
    data: LoggedTrajectories, rank: int, discount: float | Array
) -> tuple[Float[Array, "*trajectory time"], Float[Array, "*trajectory time"], Float[Array, ""]]:
    """Checks a log; returns log ratios and rewards, zero where masked, and the discount.

    In float32 or wider; the discount is NaN if it is traced and outside [0, 1].
    """
    discount = checked_probability("discount", discount, closed=True)
    axes = "time" if rank == 1 else "trajectory, time"
    require_rank("log_ratio", data.log_ratio, rank, axes)
    require_same_shape("log_ratio", data.log_ratio, "reward", data.reward)
    if data.mask is not None:
        require_same_shape("log_ratio", data.log_ratio, "mask", data.mask)
    if rank > 1 and np.shape(data.log_ratio)[0] < 1:
        raise ValueError(
            "a weighted estimate needs one trajectory or more, got none; "
            "check how the log was cut into episodes"
        )
    if np.shape(data.log_ratio)[-1] < 1:
        raise ValueError(
            f"a trajectory needs one step or more, got shape {np.shape(data.log_ratio)}; "
            "leave out the trajectories that never began"
        )
    reward = masked(data.reward, data.mask)
    return masked(data.log_ratio, data.mask), reward, like(discount, reward)


def weighted(log_weight: Array, amount: Array) -> Array:
    """``exp(log_weight) amount``; zero if either factor is zero, even if the other overflows."""
    overflows = jnp.exp(log_weight) == jnp.inf
    nothing = ((amount == 0) & overflows) | (jnp.isneginf(log_weight) & jnp.isinf(amount))
    log_weight, amount = jnp.where(nothing, 0, log_weight), jnp.where(nothing, 0, amount)
    return jnp.exp(log_weight) * amount


def masked(values: ArrayLike, mask: ArrayLike | None) -> Array:
    """The values as floats, float32 or wider, zero where the mask is false."""
    values = widened(values)
    return values if mask is None else jnp.where(booleans(mask), values, 0)


def like_reward(estimate: Any, data: LoggedTrajectories) -> Any:
    """The estimate in the dtype of the rewards, which may have half precision."""
    return narrowed(estimate, floats(data.reward).dtype)


def discounts(discount: Float[Array, ""], reward: Array) -> Array:
    """``discount^t``, with as many axes as the rewards; ``0^0`` is 1."""
    powers = jnp.cumprod(jnp.full(reward.shape[-1:], discount))
    first = jnp.where(jnp.isnan(discount), discount, 1)
    powers = jnp.concatenate([first[None], powers])[: reward.shape[-1]]
    return powers.reshape((1,) * (reward.ndim - 1) + powers.shape)
