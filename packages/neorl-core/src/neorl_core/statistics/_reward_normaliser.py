"""Rewards divided by the running spread of their discounted sum, as is usual for PPO."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float

from neorl_core._internal.checks import (
    checked_positive,
    checked_probability,
    floats,
    like,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.statistics._moments import (
    Moments,
    empty_moments,
    merge_moments,
    sample_moments,
)


class RewardNormaliser(NamedTuple):
    """State of :func:`normalise_reward`.

    Attributes:
        discounted: Discounted sum of the rewards of the current episode, shape ``(*env)``.
        moments: Moments of all such sums so far, over steps and environments, scalars.
    """

    discounted: Float[Array, "*env"]
    moments: Moments


def reward_normaliser(
    shape: tuple[int, ...] = (), dtype: DTypeLike = jnp.float32
) -> RewardNormaliser:
    """A normaliser before the first reward.

    Args:
        shape: Shape of the rewards of one step: ``()``, or ``(env,)`` for parallel environments.
        dtype: Dtype of the state, float32 or float64, independent of the rewards' dtype.

    Returns:
        A state that is all zeros.

    Raises:
        ValueError: If ``dtype`` is narrower than float32.

    Example:
        >>> float(reward_normaliser().moments.count)
        0.0
    """
    return RewardNormaliser(jnp.zeros(shape, dtype), empty_moments((), dtype))


def normalise_reward(
    normaliser: RewardNormaliser,
    reward: Float[ArrayLike, "*env"],
    ended: Bool[ArrayLike, "*env"],
    *,
    discount: float | Float[Array, ""],
    clip: float | Float[Array, ""] = 10.0,
    epsilon: float | Float[Array, ""] = 1e-8,
) -> tuple[RewardNormaliser, Float[Array, "*env"]]:
    """Updates the normaliser with the rewards of one step and scales them; a step for ``scan``.

    ``R = discount R + r`` enters the running moments, and the result is ``clip(r / sqrt(var(R) +
    epsilon mean(R^2)), -clip, clip)``. After the end of an episode ``R`` restarts at zero. The mean
    is not subtracted, which preserves the signs of rewards and the best policy. Before the second
    sum, ``mean(R^2)`` replaces the variance. So the unit of the reward cancels from the first step
    on, and rewards of zero stay zero.

    A reward that is not finite gives NaN and leaves the state unchanged, except that ``R`` still
    restarts at zero after the end of an episode. Other environments are not affected.

    Args:
        normaliser: The state so far; initially from :func:`reward_normaliser`.
        reward: Rewards of this step; NaN if one is missing.
        ended: Whether the episode ends with this step, terminated or truncated; same shape.
        discount: Discount factor in [0, 1]; NaN under ``jit`` if it is outside.
        clip: Largest absolute value of the result, positive; NaN under ``jit`` if it is not.
        epsilon: Fraction of the mean square of the sums that is added to their variance, positive;
            NaN under ``jit`` if it is not.

    Returns:
        The new normaliser and the scaled rewards.

    Raises:
        ValueError: If shapes differ or a concrete hyperparameter is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> state = reward_normaliser((2,))
        >>> reward, ended = jnp.array([2.0, 4.0]), jnp.array([False, True])
        >>> state, scaled = normalise_reward(state, reward, ended, discount=0.9)
        >>> scaled.tolist(), state.discounted.tolist()
        ([2.0, 4.0], [2.0, 0.0])

    Source: Engstrom et al., Implementation matters in deep policy gradients, arXiv 2005.12729,
    section 2 (reward scaling).
    """
    discount = checked_probability("discount", discount, closed=True)
    clip = checked_positive("clip", clip)
    epsilon = checked_positive("epsilon", epsilon)
    require_same_shape("reward", reward, "normaliser.discounted", normaliser.discounted)
    require_same_shape("reward", reward, "ended", ended)
    dtype, reward = floats(reward).dtype, widened(reward).astype(normaliser.discounted.dtype)
    known = jnp.isfinite(reward)
    reward = jnp.where(known, reward, 0)
    before = normaliser.discounted
    discounted = jnp.where(known, like(discount, reward) * before + reward, before)
    batch_moments = sample_moments(discounted.reshape(-1), known.reshape(-1))
    moments = merge_moments(normaliser.moments, batch_moments)
    spread = _spread(moments, like(epsilon, reward))
    limit = like(clip, reward)
    scaled = jnp.where(known, jnp.clip(reward / spread, -limit, limit), jnp.nan)
    running = jnp.where(jnp.asarray(ended, bool), 0, discounted)
    return RewardNormaliser(running, moments), narrowed(scaled, dtype)


def _spread(moments: Moments, epsilon: Array) -> Array:
    """The divisor of the rewards, in their unit; one while every sum has been zero."""
    spread = moments.m2 / jnp.maximum(moments.count, 1)
    mean_square = spread + jnp.square(moments.mean)
    square = jnp.where(moments.count < 2, mean_square, spread + epsilon * mean_square)
    return jnp.sqrt(jnp.where(square == 0, 1, square))
