"""Doubly robust estimates: a value model corrected by importance sampling."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import require_same_shape
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories,
    checked,
    discounts,
    like_reward,
    masked,
    weighted,
)


def doubly_robust_return(
    trajectory: LoggedTrajectories, *, discount: float | Float[Array, ""]
) -> Float[Array, ""]:
    """The doubly robust estimate from one trajectory.

    ``v_t = V(s_t) + w_t (r_t + discount v_{t+1} - Q(s_t, a_t))``, computed backwards from zero
    after the last step, with the ratio ``w_t`` of the step. The mean over trajectories is unbiased
    if either the ratios or the model are right, and its variance falls as the model improves. With
    a model of zero it is PDIS.

    Args:
        trajectory: One trajectory with ``q_value`` and ``value``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        ``v_0``; infinite if the ratios overflow. A bracket of zero stays zero under any ratio, and
        later overflow has no effect after a ratio or a discount of zero.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis with at least one step, the
            model's values are missing, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones(1)
        >>> log = LoggedTrajectories(0 * one, 3 * one, None, q_value=2 * one, value=5 * one)
        >>> float(doubly_robust_return(log, discount=0.9))
        6.0

    Source: Jiang and Li, Doubly robust off-policy value evaluation for reinforcement learning,
    arXiv 1511.03722, equation 10.
    """
    log_ratio, reward, discount = checked(trajectory, 1, discount)
    q_value, value = model(trajectory)
    steps = (log_ratio, reward, q_value, value, jnp.broadcast_to(discount, reward.shape))
    result, _ = jax.lax.scan(_correct, jnp.zeros((), reward.dtype), steps, reverse=True)
    return like_reward(result, trajectory)


def _correct(following: Array, step: tuple[Array, ...]) -> tuple[Array, None]:
    log_ratio, reward, q_value, value, discount = step
    following = jnp.where((discount == 0) & jnp.isinf(following), 0, following)
    return value + weighted(log_ratio, reward + discount * following - q_value), None


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
    log_ratio, reward, discount = checked(trajectories, 2, discount)
    q_value, value = model(trajectories)
    weights = jax.nn.softmax(jnp.cumsum(log_ratio, axis=1), axis=0)
    terms = discounts(discount, reward) * weighted_terms(weights, reward - q_value, value)
    return like_reward(jnp.sum(terms), trajectories)


def weighted_terms(
    weights: Float[Array, "trajectory time"],
    error: Float[Array, "trajectory time"],
    value: Float[Array, "trajectory time"],
    first: Float[Array, "trajectory #one"] | None = None,
) -> Float[Array, "trajectory time"]:
    """Contribution of every step of every trajectory to the weighted doubly robust estimate.

    Args:
        weights: ``W_{i,t}``.
        error: ``r_{i,t} - Q_{i,t}``.
        value: ``V_{i,t}``.
        first: ``W_{i,-1}``; equal weights if ``None``.
    """
    first = jnp.full_like(weights[:, :1], 1 / weights.shape[0]) if first is None else first
    before = jnp.concatenate([first, weights[:, :-1]], axis=1)
    return weights * error + before * value


def model(data: LoggedTrajectories) -> tuple[Array, Array]:
    """The two columns of the model, with zeros where masked."""
    if data.q_value is None or data.value is None:
        raise ValueError(
            "a doubly robust estimate needs q_value and value of a model, got None; "
            "fill both, or use an estimate without a model"
        )
    require_same_shape("q_value", data.q_value, "reward", data.reward)
    require_same_shape("value", data.value, "reward", data.reward)
    return masked(data.q_value, data.mask), masked(data.value, data.mask)
