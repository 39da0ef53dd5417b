"""Rewards divided by the running spread of their discounted sum, as PPO is usually trained."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float

from neorl_core._internal.checks import (
    floats,
    like,
    require_positive,
    require_probability,
    require_same_shape,
)
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.statistics._moments import (
    Moments,
    empty_moments,
    merge_moments,
    sample_moments,
    variance,
)


class RewardNormaliser(NamedTuple):
    """What :func:`normalise_reward` carries from step to step.

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

    ``R = discount R + r`` enters the running variance, the result is
    ``clip(r / sqrt(var(R) + epsilon), -clip, clip)``, and behind an episode's end ``R`` begins at
    zero. The mean is not taken off, so that the sign of a reward and the best policy stay. A reward
    is not divided before two sums were seen.

    Args:
        normaliser: So far; :func:`reward_normaliser` at first.
        reward: Rewards of this step.
        ended: Whether the episode ends with this step, terminated or truncated; same shape.
        discount: Discount factor in [0, 1]; NaN under ``jit`` where it is outside.
        clip: Largest absolute value of the result, positive; NaN under ``jit`` where it is not.
        epsilon: Added to the variance, positive; NaN under ``jit`` where it is not.

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
    discount = require_probability("discount", discount, closed=True)
    clip = require_positive("clip", clip)
    epsilon = require_positive("epsilon", epsilon)
    require_same_shape("reward", reward, "normaliser.discounted", normaliser.discounted)
    require_same_shape("reward", reward, "ended", ended)
    dtype, reward = floats(reward).dtype, widened(reward).astype(normaliser.discounted.dtype)
    discounted = like(discount, reward) * normaliser.discounted + reward
    moments = merge_moments(normaliser.moments, sample_moments(discounted.reshape(-1)))
    spread = jnp.sqrt(variance(moments) + like(epsilon, reward))
    spread = jnp.where(moments.count < 2, 1, spread)
    limit = like(clip, reward)
    scaled = jnp.clip(reward / spread, -limit, limit)
    running = jnp.where(jnp.asarray(ended, bool), 0, discounted)
    return RewardNormaliser(running, moments), narrowed(scaled, dtype)
