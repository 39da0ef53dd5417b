"""The TD target of double Q-learning."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import booleans, floats, require_same_shape
from neorl_core.targets._td import td_target


def double_td_target(
    reward: Float[Array, "*batch"],
    next_online: Float[Array, "*batch choice"],
    next_target: Float[Array, "*batch choice"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap in which one network chooses the next action and another evaluates it.

    ``reward + discount (1 - terminated) next_target[argmax next_online]``.

    Args:
        reward: Any shape.
        next_online: Values of the next actions by the network being trained, along a last axis.
        next_target: Values of the same actions by the target network, same shape.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped, but none passes through
        the choice.

    Raises:
        ValueError: If the shapes disagree, there is no action to choose, or a concrete ``discount``
            is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> online, slow = jnp.array([1.0, 2.0]), jnp.array([9.0, 4.0])
        >>> reward, ended = jnp.array(1.0), jnp.array(False)
        >>> float(double_td_target(reward, online, slow, ended, discount=0.5))
        3.0

    Source: van Hasselt, Guez and Silver, Deep reinforcement learning with double Q-learning,
    arXiv 1509.06461.
    """
    require_same_shape("next_online", next_online, "next_target", next_target)
    online, target, reward = floats(next_online), floats(next_target), floats(reward)
    if online.ndim != reward.ndim + 1 or online.shape[-1] == 0:
        raise ValueError(
            "next_online needs the axes of reward and a last axis with at least one choice, got "
            f"{online.shape} for reward of {reward.shape}; put the choices last"
        )
    choice = jnp.argmax(online, axis=-1)[..., None]
    value = jnp.take_along_axis(target, choice, axis=-1)[..., 0]
    return td_target(reward, value, booleans(terminated), discount=discount)
