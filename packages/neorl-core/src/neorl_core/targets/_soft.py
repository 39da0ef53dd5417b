"""The target of soft actor-critic: the expectation over the next action."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    like,
    require_members,
    require_same_shape,
)
from neorl_core.targets._td import td_target


def soft_td_target(
    reward: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    next_log_prob: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    temperature: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The bootstrap of soft actor-critic: the smallest estimate plus the next action's entropy.

    ``reward + discount (1 - terminated) (min_i next_values[i] - temperature next_log_prob)``.

    Args:
        reward: Any shape.
        next_values: Values of an action sampled from the policy at the next observation, one
            estimate per member along the first axis: two for SAC, many for SAC-N and EDAC.
        next_log_prob: Log-density of that action, with the shape of ``reward``.
        terminated: Shape of ``reward``.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        temperature: Reward per nat of entropy, not negative; 0 leaves the entropy out of the
            target. NaN results under ``jit`` if it is negative.

    Returns:
        The target, with the shape of ``reward``. Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, there is no member, a concrete ``discount`` is outside
            [0, 1] or a concrete ``temperature`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> values, log_prob = jnp.array([[4.0], [6.0]]), jnp.array([-2.0])
        >>> soft_td_target(
        ...     jnp.ones(1), values, log_prob, jnp.array([False]), discount=0.5, temperature=1.0
        ... ).tolist()
        [4.0]

    Source: Haarnoja et al., Soft actor-critic algorithms and applications, arXiv 1812.05905,
    equations 2 and 3; the ensemble as in An et al., arXiv 2110.01548.
    """
    require_members("next_values", next_values, "reward", reward)
    require_same_shape("reward", reward, "next_log_prob", next_log_prob)
    temperature = checked_positive("temperature", temperature, or_zero=True)
    log_prob = floats(next_log_prob)
    entropy = like(temperature, log_prob) * log_prob
    soft = jnp.min(floats(next_values), axis=0) - entropy
    # Also without a bootstrap: a temperature out of range must not give a valid target.
    reward = floats(reward) + 0 * like(temperature, log_prob)
    return td_target(reward, soft, terminated, discount=discount)
