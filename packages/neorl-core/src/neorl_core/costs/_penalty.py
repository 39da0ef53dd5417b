"""Reward minus the weighted costs."""

import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive, floats, is_concrete


def penalised_reward(
    reward: Float[Array, "*batch"],
    cost: Float[Array, "*batch cost"],
    penalty: Float[Array, " cost"],
) -> Float[Array, "*batch"]:
    """The reward minus ``penalty[i]`` for every unit of cost ``i``.

    ``reward - sum_i penalty[i] cost[i]``: the reward for learners that do not handle constraints.

    Args:
        reward: Any shape.
        cost: The shape of ``reward`` plus a last axis of cost channels, which may have length zero.
        penalty: Reward per unit of each cost, not negative, shape ``(cost,)``; NaN results under
            ``jit`` if one is negative.

    Returns:
        The penalised reward, with the shape of ``reward``; a NumPy array if both arguments are, so
        that the columns of a log stay on the host.

    Raises:
        ValueError: If the shapes disagree or a concrete ``penalty`` is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> float(penalised_reward(jnp.array(1.0), jnp.array([2.0, 0.0]), jnp.array([0.25, 9.0])))
        0.5
    """
    if np.shape(cost) != (*np.shape(reward), *np.shape(penalty)) or np.ndim(penalty) != 1:
        raise ValueError(
            "cost must have the shape of reward and one last axis as long as penalty, got "
            f"reward {np.shape(reward)}, cost {np.shape(cost)}, penalty {np.shape(penalty)}; "
            "give one penalty weight for each cost channel"
        )
    penalty = checked_positive("penalty", penalty, or_zero=True, many=True)
    if not (isinstance(reward, np.ndarray) and isinstance(cost, np.ndarray)):
        reward, cost = floats(reward), floats(cost)
    weights = np.asarray(penalty, reward.dtype) if is_concrete(penalty) else penalty
    for i in range(np.shape(weights)[0]):
        # Added term by term, so that any block size gives the same sums on the host and compiled.
        reward = reward - (weights[i] * cost[..., i]).astype(reward.dtype)
    return reward
