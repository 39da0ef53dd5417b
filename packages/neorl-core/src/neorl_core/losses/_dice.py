"""Losses whose minimum gives the correction of a log's distribution: DualDICE and OptiDICE."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_same_shape,
)
from neorl_core.losses._divergences import DivergenceName, f_conjugate, f_ratio


def dual_dice_loss(
    value: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    initial_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    power: float | Float[Array, ""] = 2.0,
) -> Float[Array, "*batch"]:
    """The DualDICE loss for the ratio of a policy's discounted occupancy to the log, elementwise.

    ``|e|^power / power - (1 - discount) initial_value`` with the residual ``e = value - discount (1
    - terminated) next_value``. At the minimum of its mean over the log, ``sign(e) |e|^(power - 1)``
    is the ratio of the discounted occupancy of the policy to the distribution of the log. These are
    the weights for :func:`~neorl_core.off_policy_evaluation.marginalised_return`.

    Args:
        value: ``nu`` of each logged state and action.
        next_value: ``nu`` of the next observation and an action of the policy there.
        initial_value: ``nu`` of an initial observation and an action of the policy there, one
            sample for each row.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        power: Exponent, above one; with 2 the residual itself is the ratio. NaN results under
            ``jit`` if it is not above one.

    Returns:
        The loss of every row.

    Raises:
        ValueError: If the shapes differ, a concrete ``discount`` is outside [0, 1] or a concrete
            ``power`` is not above one.

    Example:
        >>> import jax.numpy as jnp
        >>> nu, later, first = jnp.array([3.0]), jnp.array([2.0]), jnp.array([1.0])
        >>> dual_dice_loss(nu, later, first, jnp.array([False]), discount=0.5).tolist()
        [1.5]

    Source: Nachum et al., DualDICE: behavior-agnostic estimation of discounted stationary
    distribution corrections, arXiv 1906.04733.
    """
    power = _above_one(checked_positive("power", power))
    value, follows, start = _rows(value, next_value, initial_value, terminated, discount)
    exponent = like(power, value)
    return jnp.power(jnp.abs(value - follows), exponent) / exponent - start


def opti_dice_loss(
    value: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    initial_value: Float[Array, "*batch"],
    reward: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
    divergence_weight: float | Float[Array, ""],
    divergence: DivergenceName = "soft_chi2",
) -> Float[Array, "*batch"]:
    """The OptiDICE loss for the value that defines the best occupancy near the log.

    ``(1 - discount) initial_value + a f*(e / a)``, elementwise, with ``a`` the divergence weight,
    ``e = reward + discount (1 - terminated) next_value - value`` and the conjugate
    :func:`f_conjugate`. It is the dual of ``max_w E[w r] - a E f(w)``, where ``w`` times the log
    must be an occupancy that the plant allows. The weights are :func:`opti_dice_weights` of ``e``.
    For COptiDICE subtract ``lambda cost`` from the reward.

    Args:
        value: ``nu`` of each logged observation.
        next_value: ``nu`` of the next observation.
        initial_value: ``nu`` of an initial observation, one sample for each row.
        reward: Reward of each row.
        terminated: Flags of the rows where the plant ended the episode.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.
        divergence_weight: ``alpha`` in the paper, in units of reward, positive; NaN results under
            ``jit`` if it is not.
        divergence: See :func:`f_divergence`; static.

    Returns:
        The loss of every row.

    Raises:
        ValueError: If the shapes differ, ``divergence`` is unknown, a concrete ``discount`` is
            outside [0, 1] or a concrete ``divergence_weight`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> zero, one = jnp.zeros(1), jnp.ones(1)
        >>> opti_dice_loss(
        ...     zero, zero, one, one, jnp.array([False]), discount=0.5, divergence_weight=1.0
        ... ).tolist()
        [2.0]

    Source: Lee et al., OptiDICE: offline policy optimization via stationary distribution
    correction estimation, arXiv 2106.10783.
    """
    require_same_shape("value", value, "reward", reward)
    divergence_weight = checked_positive("divergence_weight", divergence_weight)
    value, follows, start = _rows(value, next_value, initial_value, terminated, discount)
    weight = like(divergence_weight, value)
    residual = floats(reward) + follows - value
    return start + weight * f_conjugate(residual / weight, divergence=divergence)


def opti_dice_weights(
    residual: Float[Array, "*batch"],
    *,
    divergence_weight: float | Float[Array, ""],
    divergence: DivergenceName = "soft_chi2",
) -> Float[Array, "*batch"]:
    """The ratio of the best occupancy to the log: ``max(0, (f')^{-1}(residual / a))``.

    These weight the behaviour cloning that extracts the policy; ``a`` is the divergence weight.

    Args:
        residual: ``reward + discount (1 - terminated) next_value - value`` after
            :func:`opti_dice_loss` has been minimised.
        divergence_weight: ``alpha`` in the paper, in units of reward, positive; NaN results under
            ``jit`` if it is not.
        divergence: See :func:`f_divergence`; static.

    Returns:
        The weights, same shape, without gradient; they are not normalised.

    Raises:
        ValueError: If ``divergence`` is unknown, or a concrete ``divergence_weight`` is not
            positive.

    Example:
        >>> import jax.numpy as jnp
        >>> opti_dice_weights(jnp.array([0.0, 2.0]), divergence_weight=2.0).tolist()
        [1.0, 2.0]

    Source: as :func:`opti_dice_loss`.
    """
    divergence_weight = checked_positive("divergence_weight", divergence_weight)
    residual = floats(residual)
    ratio = f_ratio(residual / like(divergence_weight, residual), divergence=divergence)
    return jax.lax.stop_gradient(ratio)


def _above_one(power: float | Array) -> float | Array:
    """The exponent; one or less is an error if concrete and becomes NaN if traced."""
    if not is_concrete(power):
        return nan_unless(jnp.asarray(power) > 1, power)
    if power <= 1:
        raise ValueError(
            f"power must be above one, got {power}; at one or below the loss is not strictly "
            "convex, and 2 makes the residual equal to the ratio"
        )
    return power


def _rows(
    value: Array,
    next_value: Array,
    initial_value: Array,
    terminated: Array,
    discount: float | Array,
) -> tuple[Array, Array, Array]:
    """The value, the discounted next value, and the weighted initial value."""
    require_same_shape("value", value, "next_value", next_value)
    require_same_shape("value", value, "initial_value", initial_value)
    require_same_shape("value", value, "terminated", terminated)
    discount = checked_probability("discount", discount, closed=True)
    value = floats(value)
    gamma = like(discount, value)
    follows = gamma * jnp.where(booleans(terminated), 0, floats(next_value))
    return value, follows, (1 - gamma) * floats(initial_value)
