"""Estimates of the return of one policy from the log of another."""

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
from neorl_core._internal.missing_names import missing_name
from neorl_core._internal.precision import narrow, widen

__all__ = [
    "LoggedTrajectories",
    "effective_sample_size",
    "weighted_doubly_robust",
    "wpdis",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# Importance sampling: estimating the return of one policy from the log of another.


class LoggedTrajectories(NamedTuple):
    """Logged trajectories with the probability ratios of their actions under another policy.

    The estimators take all trajectories at once, along the first axis. Their weights are
    self-normalised, which costs a bias of ``O(1 / n)`` and saves far more variance. Deterministic
    policies over continuous actions have no ratio: use a model-based estimate.

    Fields are arrays or values that NumPy can convert to arrays. Estimates are computed in float32
    or wider and have the dtype of the rewards.

    Attributes:
        log_ratio: ``log pi_e(a_t | s_t) - log pi_b(a_t | s_t)`` of the evaluated policy over the
            logging one, shape ``(trajectory, time)``; ``-inf`` if the evaluated policy never takes
            the action.
        reward: Shape ``(trajectory, time)``.
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


def wpdis(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted per-decision importance sampling.

    ``sum_t discount^t sum_i rho_{i,t} r_{i,t} / sum_i rho_{i,t}``, where ``rho_{i,t}`` is the
    product of the ratios up to step ``t``: a reward is not weighted by the ratios of later actions.
    The weights are normalised as logarithms, so they cannot overflow.

    Args:
        trajectories: All trajectories, shape ``(trajectory, time)``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The estimate; NaN if at some step all weights are zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, there is no trajectory or no step,
            or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> log = LoggedTrajectories(jnp.log(jnp.array([[3.0], [1.0]])), jnp.array([[8.0], [0.0]]))
        >>> round(float(wpdis(log, discount=1.0)), 4)
        6.0

    Source: Thomas, Safe reinforcement learning, 2015, section 3.10.
    """
    log_ratio, reward, discount = check_log(trajectories, discount)
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
    logs = widen(log_weights)
    largest = jnp.max(logs, axis=0, keepdims=True, initial=-jnp.inf)
    weights = jnp.exp(logs - jnp.where(jnp.isneginf(largest), 0, largest))
    total, squares = jnp.sum(weights, axis=0), jnp.sum(weights**2, axis=0)
    size = total**2 / jnp.where(squares == 0, 1, squares)
    return narrow(size, floats(log_weights).dtype)


def check_log(
    data: LoggedTrajectories, discount: float | Array
) -> tuple[Float[Array, "trajectory time"], Float[Array, "trajectory time"], Float[Array, ""]]:
    """Checks a log; returns log ratios and rewards, zero where masked, and the discount.

    In float32 or wider; the discount is NaN if it is traced and outside [0, 1].
    """
    discount = checked_probability("discount", discount, closed=True)
    if np.ndim(data.log_ratio) == 1:
        # As one trajectory, a log of many would have the weight 1: its own return, no estimate.
        raise ValueError(
            "log_ratio must have the axes (trajectory, time), got shape "
            f"{np.shape(data.log_ratio)}; put each episode into a row of its own, padded to one "
            "length, and mark the padding false in mask"
        )
    require_rank("log_ratio", data.log_ratio, 2, "trajectory, time")
    require_same_shape("log_ratio", data.log_ratio, "reward", data.reward)
    if data.mask is not None:
        require_same_shape("log_ratio", data.log_ratio, "mask", data.mask)
    if np.shape(data.log_ratio)[0] < 1:
        raise ValueError(
            "a weighted estimate needs one trajectory or more, got none; "
            "check how the log was cut into episodes"
        )
    if np.shape(data.log_ratio)[-1] < 1:
        raise ValueError(
            f"a trajectory needs one step or more, got shape {np.shape(data.log_ratio)}; "
            "leave out the trajectories that never began"
        )
    reward = zero_masked(data.reward, data.mask)
    return zero_masked(data.log_ratio, data.mask), reward, like(discount, reward)


def zero_masked(values: ArrayLike, mask: ArrayLike | None) -> Array:
    """The values as floats, float32 or wider, zero where the mask is false."""
    values = widen(values)
    return values if mask is None else jnp.where(booleans(mask), values, 0)


def like_reward(estimate: Any, data: LoggedTrajectories) -> Any:
    """The estimate in the dtype of the rewards, which may have half precision."""
    return narrow(estimate, floats(data.reward).dtype)


def discounts(discount: Float[Array, ""], reward: Array) -> Array:
    """``discount^t`` of every step, with a first axis of length one; ``0^0`` is 1."""
    powers = jnp.cumprod(jnp.full(reward.shape[-1:], discount))
    first = jnp.where(jnp.isnan(discount), discount, 1)
    return jnp.concatenate([first[None], powers])[None, : reward.shape[-1]]


# Doubly robust estimates: a value model corrected by importance sampling.


def weighted_doubly_robust(
    trajectories: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """The doubly robust estimate with self-normalised weights.

    ``sum_t discount^t sum_i [W_{i,t} (r_{i,t} - Q_{i,t}) + W_{i,t-1} V_{i,t}]`` with
    ``W_{i,t} = rho_{i,t} / sum_i rho_{i,t}`` and ``W_{i,-1} = 1 / n``.

    Args:
        trajectories: All trajectories, shape ``(trajectory, time)``, with ``q_value`` and
            ``value``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The estimate; NaN if at some step all weights are zero.

    Raises:
        ValueError: If shapes differ, there are not two axes, no trajectory or no step, the model's
            values are missing, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((2, 1))
        >>> log = LoggedTrajectories(0 * one, 3 * one, None, q_value=2 * one, value=5 * one)
        >>> float(weighted_doubly_robust(log, discount=0.9))
        6.0

    Source: Thomas and Brunskill, Data-efficient off-policy policy evaluation for reinforcement
    learning, arXiv 1604.00923, section 5.
    """
    log_ratio, reward, discount = check_log(trajectories, discount)
    q_value, value = model(trajectories)
    weights = jax.nn.softmax(jnp.cumsum(log_ratio, axis=1), axis=0)
    before = jnp.concatenate([jnp.full_like(weights[:, :1], 1 / len(weights)), weights[:, :-1]], 1)
    terms = weights * (reward - q_value) + before * value
    return like_reward(jnp.sum(discounts(discount, reward) * terms), trajectories)


def model(data: LoggedTrajectories) -> tuple[Array, Array]:
    """The two columns of the model, with zeros where masked."""
    if data.q_value is None or data.value is None:
        raise ValueError(
            "a doubly robust estimate needs q_value and value of a model, got None; "
            "fill both, or use an estimate without a model"
        )
    require_same_shape("q_value", data.q_value, "reward", data.reward)
    require_same_shape("value", data.value, "reward", data.reward)
    return zero_masked(data.q_value, data.mask), zero_masked(data.value, data.mask)
