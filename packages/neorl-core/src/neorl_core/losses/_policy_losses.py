"""Losses of policies, and the weights of advantage-weighted regression."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    checked_mask,
    checked_positive,
    floats,
    like,
    require_members,
    require_same_shape,
)
from neorl_core._internal.precision import narrow, widen
from neorl_core.losses._regression import masked_mean

# Weights of advantage-weighted regression.


def advantage_weights(
    advantage: Float[Array, "*batch"],
    *,
    inverse_temperature: float | Float[Array, ""],
    max_weight: float | Float[Array, ""] = 100.0,
) -> Float[Array, "*batch"]:
    """The clipped exponential ``min(exp(inverse_temperature * advantage), max_weight)``.

    Args:
        advantage: Any shape.
        inverse_temperature: ``beta`` in implicit Q-learning and ``1 / lambda`` in AWAC, per unit of
            advantage, not negative; 0 gives plain regression. NaN results under ``jit`` if it is
            negative.
        max_weight: Largest weight, positive; NaN results under ``jit`` if it is not.

    Returns:
        The weights, same shape, without gradient. They are finite for every advantage but NaN; for
        an infinite one the weight is 0 or ``max_weight``, or 1 if ``inverse_temperature`` is 0.

    Raises:
        ValueError: If a concrete ``inverse_temperature`` is negative or a concrete ``max_weight``
            is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> advantage_weights(jnp.array([0.0, 1e6]), inverse_temperature=3.0).tolist()
        [1.0, 100.0]

    Source: Peng et al., Advantage-weighted regression, arXiv 1910.00177; the largest weight as
    in implicit Q-learning, arXiv 2110.06169.
    """
    inverse_temperature = checked_positive("inverse_temperature", inverse_temperature, or_zero=True)
    max_weight = checked_positive("max_weight", max_weight)
    advantage = floats(advantage)
    beta, largest = like(inverse_temperature, advantage), like(max_weight, advantage)
    plain = (beta == 0) & ~jnp.isnan(advantage)
    exponent = jnp.minimum(beta * jnp.where(plain, 0, advantage), jnp.log(largest))
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(exponent), largest))


def scaled_advantage(
    advantage: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    min_std: float = 1e-6,
) -> Float[Array, " batch"]:
    """The advantage divided by its standard deviation in the batch: ``advantage / std(advantage)``.

    The mean is not subtracted, so the sign keeps its meaning. An inverse temperature then means the
    same for every scale of reward.

    Args:
        advantage: Advantages of one batch.
        mask: Rows to include; all if ``None``.
        min_std: Lower bound on the standard deviation, positive; NaN results under ``jit`` if it is
            not.

    Returns:
        The scaled advantage, same shape and dtype, zero where ``mask`` is false. No gradient
        through the standard deviation.

    Raises:
        ValueError: If the shapes differ, or ``min_std`` is not positive.
    """
    min_std = checked_positive("min_std", min_std)
    dtype, advantage = floats(advantage).dtype, widen(advantage)
    if mask is not None:
        require_same_shape("advantage", advantage, "mask", mask)
        advantage = jnp.where(checked_mask("mask", mask), advantage, 0)
    # Divided by a power of two near the largest number, so that no square overflows. The division
    # does not round, and the reciprocal is in range.
    fixed = jax.lax.stop_gradient(advantage)
    _, exponent = jnp.frexp(jnp.max(jnp.abs(fixed), initial=0))
    limit = jnp.finfo(fixed.dtype).minexp
    unit = jnp.ldexp(jnp.ones((), fixed.dtype), jnp.clip(exponent, limit, -limit))
    fixed = fixed / unit
    std = jnp.sqrt(masked_mean(jnp.square(fixed - masked_mean(fixed, mask)), mask))
    return narrow(advantage / unit / jnp.maximum(std, like(min_std, advantage) / unit), dtype)


# Losses of stochastic policies, elementwise and not reduced.


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


# The policy objective of TD3+BC.


def td3_bc_policy_loss(
    q: Float[Array, " batch"],
    action: Float[Array, "batch act"],
    logged_action: Float[Array, "batch act"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    alpha: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Minus the value, scaled to its mean size, plus the squared distance to the logged action.

    ``-lam mean(q) + mean((action - logged_action)^2)`` with ``lam = alpha / mean(|q|)``. Both means
    are over the batch, the second also over the action channels. ``lam`` carries no gradient, so
    the loss is invariant to ``q -> c q`` for ``c > 0``; ``alpha = 0`` gives behaviour cloning.

    Args:
        q: Value of ``action`` according to one critic.
        action: Action of the policy, in [-1, 1].
        logged_action: Logged action, in [-1, 1].
        mask: Rows to include; all if ``None``. The others may hold NaN, which reaches neither the
            loss nor its gradient.
        alpha: Weight of the value, not negative; NaN results under ``jit`` if it is negative.

    Returns:
        Scalar. If every ``q`` is zero, the first term and its gradient are zero.

    Raises:
        ValueError: If the shapes disagree, ``mask`` consists of floats, or a concrete ``alpha`` is
            negative.

    Source: Fujimoto and Gu, A minimalist approach to offline reinforcement learning,
    arXiv 2106.06860, equation 5.
    """
    require_same_shape("action", action, "logged_action", logged_action)
    if np.ndim(action) != 2 or np.shape(action)[:1] != np.shape(q):
        raise ValueError(
            "q must be one value for each row of action, got shapes "
            f"{np.shape(q)} and {np.shape(action)}; give the values of one critic as (batch,)"
        )
    alpha = checked_positive("alpha", alpha, or_zero=True)
    q, action, logged_action = floats(q), floats(action), floats(logged_action)
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q), mask))
    sized = size > jnp.finfo(q.dtype).tiny
    value = jnp.where(sized, masked_mean(q, mask) / jnp.where(sized, size, 1), 0)
    if mask is not None:
        # Before the square: a NaN masked after it would come back as 0 * NaN in the gradient.
        counts = checked_mask("mask", mask)[:, None]
        action, logged_action = jnp.where(counts, action, 0), jnp.where(counts, logged_action, 0)
    distance = jnp.mean(jnp.square(action - logged_action), axis=-1)
    return masked_mean(distance, mask) - (alpha * value).astype(q.dtype)
