"""Rewards divided by the running spread of their discounted sum, as PPO is usually trained."""

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
        discounted: Discounted sum of the rewards of the running episode, shape ``(*env)``.
        moments: Moments of all such sums so far, over steps and environments, scalars.
    """

    discounted: Float[Array, "*env"]
    moments: Moments


def reward_normaliser(
    shape: tuple[int, ...] = (), dtype: DTypeLike = jnp.float32
) -> RewardNormaliser:
    """A normaliser that has seen nothing.

    Args:
        shape: Shape of the rewards of one step: ``()``, or ``(env,)`` for parallel environments.
        dtype: Dtype of what it carries, float32 or float64, whatever that of the rewards.

    Returns:
        Zeros.

    Raises:
        ValueError: If ``dtype`` is shorter than float32.

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
    """One step: takes the rewards in and scales them, a step for ``scan``.

    ``R = discount R + r`` enters the running moments, the result is
    ``clip(r / sqrt(var(R) + epsilon mean(R^2)), -clip, clip)``, and behind an episode's end ``R``
    begins at zero. The mean is not taken off, so that the sign of a reward and the best policy
    stay. Before two sums were seen, ``mean(R^2)`` takes the place of the variance. So the unit of
    the reward cancels, from the first step on; rewards of zero stay zero.

    A reward that is not finite is answered with NaN and leaves the state as it was, but for an
    episode's end, behind which ``R`` begins at zero all the same. Other environments go on.

    Args:
        normaliser: The state so far; :func:`reward_normaliser` at first.
        reward: Rewards of this step; NaN where one is missing.
        ended: Whether the episode ends with this step, terminated or truncated; same shape.
        discount: Discount factor in [0, 1]; NaN under ``jit`` where it is outside.
        clip: Largest absolute value of the result, positive; NaN under ``jit`` where it is not.
        epsilon: Share of the mean square of the sums that is added to their variance, positive;
            NaN under ``jit`` where it is not.

    Returns:
        The new normaliser and the scaled rewards.

    Raises:
        ValueError: If shapes differ or a known hyperparameter is out of range.

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
    there = jnp.isfinite(reward)
    reward = jnp.where(there, reward, 0)
    before = normaliser.discounted
    discounted = jnp.where(there, like(discount, reward) * before + reward, before)
    seen = sample_moments(discounted.reshape(-1), there.reshape(-1))
    moments = merge_moments(normaliser.moments, seen)
    spread = _spread(moments, like(epsilon, reward))
    limit = like(clip, reward)
    scaled = jnp.where(there, jnp.clip(reward / spread, -limit, limit), jnp.nan)
    running = jnp.where(jnp.asarray(ended, bool), 0, discounted)
    return RewardNormaliser(running, moments), narrowed(scaled, dtype)


def _spread(moments: Moments, epsilon: Array) -> Array:
    """What rewards are divided by, in their unit; one while every sum was zero."""
    spread = moments.m2 / jnp.maximum(moments.count, 1)
    mean_square = spread + jnp.square(moments.mean)
    square = jnp.where(moments.count < 2, mean_square, spread + epsilon * mean_square)
    return jnp.sqrt(jnp.where(square == 0, 1, square))
