"""Losses of stochastic policies, elementwise and not reduced."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    like,
    require_members,
    require_same_shape,
)


def ppo_clipped_loss(
    log_prob: Float[Array, "*batch"],
    old_log_prob: Float[Array, "*batch"],
    advantage: Float[Array, "*batch"],
    *,
    epsilon: float | Float[Array, ""] = 0.2,
) -> Float[Array, "*batch"]:
    """The clipped surrogate of PPO as a loss, elementwise.

    ``-min(ratio A, clamp(ratio, 1 - epsilon, 1 + epsilon) A)`` with
    ``ratio = exp(log_prob - old_log_prob)``.

    Args:
        log_prob: Log-probability of each action under the policy being trained.
        old_log_prob: Log-probability of each action under the policy that acted; no gradient passes
            through it.
        advantage: ``A``; no gradient passes through it.
        epsilon: Half-width of the trusted interval of ratios, positive; NaN results under ``jit``
            if it is not.

    Returns:
        The loss of every element. If the advantage is not negative, it is finite however far apart
        the log-probabilities are. If it is negative, the loss grows with the ratio without bound
        and overflows with it (log-probabilities 88 apart in float32).

    Raises:
        ValueError: If the shapes differ, or a concrete ``epsilon`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> old, gain = jnp.zeros(2), jnp.array([1.0, -1.0])
        >>> new = jnp.log(jnp.array([2.0, 2.0]))
        >>> [round(loss, 3) for loss in ppo_clipped_loss(new, old, gain, epsilon=0.25).tolist()]
        [-1.25, 2.0]

    Source: Schulman et al., Proximal policy optimization algorithms, arXiv 1707.06347, equation 7.
    """
    require_same_shape("log_prob", log_prob, "old_log_prob", old_log_prob)
    require_same_shape("log_prob", log_prob, "advantage", advantage)
    epsilon = checked_positive("epsilon", epsilon)
    log_prob = floats(log_prob)
    gain = jax.lax.stop_gradient(floats(advantage))
    log_ratio = log_prob - jax.lax.stop_gradient(floats(old_log_prob))
    width = like(epsilon, log_prob)
    gains = gain >= 0
    # A positive advantage is clipped before the exponential is taken, which may overflow.
    ratio = jnp.exp(jnp.minimum(log_ratio, jnp.where(gains, jnp.log1p(width), jnp.inf)))
    return -jnp.where(gains, ratio, jnp.maximum(ratio, 1 - width)) * gain


def sac_policy_loss(
    log_prob: Float[Array, "*batch"],
    values: Float[Array, "ens *batch"],
    *,
    temperature: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The policy loss of soft actor-critic: ``temperature log_prob - min_i values[i]``.

    Args:
        log_prob: Log-density of an action sampled from the policy with a gradient, as by
            :func:`~neorl_core.distributions.tanh_gaussian_sample`.
        values: Values of that action, one estimate per member along the first axis; the gradient
            passes through the action.
        temperature: Reward per nat of entropy, not negative; no gradient passes through it. NaN
            results under ``jit`` if it is negative.

    Returns:
        The loss of every element, with the shape of ``log_prob``.

    Raises:
        ValueError: If the shapes disagree, there is no member, or a concrete ``temperature`` is
            negative.

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([[3.0], [4.0]])
        >>> sac_policy_loss(jnp.array([2.0]), values, temperature=0.5).tolist()
        [-2.0]

    Source: Haarnoja et al., Soft actor-critic algorithms and applications, arXiv 1812.05905,
    equation 9.
    """
    require_members("values", values, "log_prob", log_prob)
    temperature = checked_positive("temperature", temperature, or_zero=True)
    log_prob = floats(log_prob)
    weight = jax.lax.stop_gradient(like(temperature, log_prob))
    return weight * log_prob - jnp.min(floats(values), axis=0)
