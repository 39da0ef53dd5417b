"""The TD target of ReBRAC, which penalises next actions that differ from the log."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_positive,
    floats,
    like,
    require_members,
    require_same_shape,
)
from neorl_core.targets._td import td_target


def regularised_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    next_policy_action: Float[Array, "*batch act"],
    next_logged_action: Float[Array, "*batch act"],
    terminated: Bool[Array, "*batch"],
    truncated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    weight: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The clipped double target minus a penalty for leaving the log at the next step.

    ``reward + discount (1 - terminated) (min_i next_values[i] - weight d)`` with ``d = sum_c
    (next_policy_action_c - next_logged_action_c)^2``, the sum over the action channels. At a
    ``truncated`` step the log has no next action: ``d = 0`` there, but the target still bootstraps.

    Args:
        reward: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of
            ``reward``.
        next_policy_action: Next action of the target policy, in [-1, 1].
        next_logged_action: Next action of the same episode; ignored at the end of an episode.
        terminated: Shape of ``reward``.
        truncated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        weight: Penalty weight of the squared distance, not negative; NaN results under ``jit`` if
            it is negative.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, there is no member, a concrete ``discount`` is outside
            [0, 1] or a concrete ``weight`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> no, yes = jnp.array([False, False]), jnp.array([False, True])
        >>> policy, log = jnp.ones((2, 1)), jnp.zeros((2, 1))
        >>> regularised_td_target(
        ...     jnp.ones(2), jnp.full((2, 2), 4.0), policy, log, no, yes, discount=0.5, weight=2.0
        ... ).tolist()
        [2.0, 3.0]

    Source: Tarasov et al., Revisiting the minimalist approach to offline reinforcement learning,
    arXiv 2305.09836, equation 3.
    """
    require_same_shape(
        "next_policy_action", next_policy_action, "next_logged_action", next_logged_action
    )
    require_same_shape("reward", reward, "terminated", terminated)
    require_same_shape("reward", reward, "truncated", truncated)
    require_members("next_values", next_values, "reward", reward)
    weight = checked_positive("weight", weight, or_zero=True)
    policy, log = floats(next_policy_action), floats(next_logged_action)
    if policy.shape[:-1] != np.shape(reward) or policy.ndim == 0:
        raise ValueError(
            "the next actions need the axes of reward and a last axis of channels, got "
            f"{policy.shape} for reward of {np.shape(reward)}; "
            "give the actions of every row of reward"
        )
    boundary = (booleans(terminated) | booleans(truncated))[..., None]
    # Both sides are replaced: the values at an episode boundary may be anything, including NaN.
    distance = jnp.where(boundary, 0, policy - jnp.where(boundary, 0, log))
    penalty = like(weight, policy) * jnp.sum(jnp.square(distance), axis=-1)
    # The minimum first: its gradient compares the values again, and XLA may round equal differences
    # differently the second time, which gives NaN.
    next_value = jnp.min(floats(next_values), axis=0) - penalty
    # Also without a bootstrap: a weight out of range must not give a valid target.
    reward = jnp.where(jnp.isnan(weight), jnp.nan, floats(reward))
    return td_target(reward, next_value, booleans(terminated), discount=discount)
