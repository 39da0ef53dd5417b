"""One-step temporal-difference targets."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_probability,
    floats,
    require_members,
    require_same_shape,
)


def td_target(
    reward: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step bootstrap ``reward + discount (1 - terminated) next_value``.

    Only a termination stops the bootstrap; a truncated step continues from the value of its own
    next observation. A next value that is not finite is ignored where ``terminated`` is true.

    Args:
        reward: Any shape.
        next_value: Value of the next observation, same shape.
        terminated: Same shape.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, same shape. Gradients are not stopped.

    Raises:
        ValueError: If the shapes differ, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> ended = jnp.array([False, True])
        >>> td_target(jnp.ones(2), jnp.full(2, 10.0), ended, discount=0.5).tolist()
        [6.0, 1.0]

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 6.2.
    """
    require_same_shape("reward", reward, "next_value", next_value)
    require_same_shape("reward", reward, "terminated", terminated)
    discount = checked_probability("discount", discount, closed=True)
    next_value = floats(next_value)
    follows = jnp.where(booleans(terminated), 0, next_value)
    return floats(reward) + (discount * follows).astype(follows.dtype)


def clipped_double_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap from the smallest of several value estimates.

    ``reward + discount (1 - terminated) min_i next_values[i]``.

    Args:
        reward: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of
            ``reward``.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``reward``.

    Raises:
        ValueError: If the shapes disagree, there is no member, or ``discount`` is outside [0, 1].

    Source: Fujimoto, van Hoof and Meger, Addressing function approximation error in actor-critic
    methods, arXiv 1802.09477.
    """
    require_members("next_values", next_values, "reward", reward)
    return td_target(reward, jnp.min(floats(next_values), axis=0), terminated, discount=discount)
