"""Doubly robust estimates: a value model corrected by importance sampling."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import require_same_shape
from neorl_core.off_policy_evaluation._importance_sampling import (
    LoggedTrajectories,
    check_log,
    discounts,
    like_reward,
    zero_masked,
)


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
