"""Marginalised estimates, which weight states and actions instead of whole histories."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import (
    booleans,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    require_length,
    require_rank,
    require_series,
)
from neorl_core._internal.float_widths import narrowed, widened


def marginalised_return(
    density_ratio: Float[ArrayLike, " sample"],
    reward: Float[ArrayLike, " sample"],
    *,
    discount: float | Float[Array, ""],
    normalise: bool = False,
) -> Float[Array, ""]:
    """Marginalised importance sampling: ``mean(zeta r) / (1 - discount)``.

    ``zeta = d_pi / d_D`` is the discounted state-action occupancy of the evaluated policy divided
    by the distribution of the log. There is no product over time, hence no curse of the horizon.

    Args:
        density_ratio: ``zeta`` of every logged state and action, finite and not negative; NaN
            results under ``jit`` if one is not.
        reward: Same shape.
        discount: Discount factor in [0, 1); NaN results under ``jit`` if it is outside.
        normalise: Whether to divide by the mean of ``zeta`` (which is one for the true ratio).

    Returns:
        The estimated discounted return from the initial states; NaN if ``normalise`` is true and
        all ratios are zero.

    Raises:
        ValueError: If shapes differ, there is not exactly one axis with at least one sample, a
            concrete ratio is negative or not finite, or a concrete ``discount`` is outside [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> float(marginalised_return(jnp.ones(3), jnp.array([1.0, 2.0, 3.0]), discount=0.5))
        4.0

    Source: Liu et al., Breaking the curse of horizon, arXiv 1810.12429.
    """
    require_series(density_ratio=density_ratio, reward=reward)
    dtype, reward = floats(reward).dtype, widened(reward)
    density_ratio = _ratio(density_ratio)
    _, rest = _discount_and_rest(discount, reward)
    scale = jnp.mean(density_ratio) if normalise else 1
    return narrowed(jnp.mean(density_ratio * reward) / (scale * rest), dtype)


def marginalised_doubly_robust(
    initial_value: Float[ArrayLike, " start"],
    density_ratio: Float[ArrayLike, " sample"],
    reward: Float[ArrayLike, " sample"],
    q_value: Float[ArrayLike, " sample"],
    next_value: Float[ArrayLike, " sample"],
    terminated: Bool[ArrayLike, " sample"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, ""]:
    """Double reinforcement learning: a value model corrected by marginalised weights.

    ``mean V(s_0) + mean[zeta (r + discount (1 - terminated) V(s') - Q)] / (1 - discount)``. It is
    correct if either the ratio or the values are.

    Args:
        initial_value: ``V(s_0)`` at the starts of episodes.
        density_ratio: ``zeta`` of every logged state and action, finite and not negative; NaN
            results under ``jit`` if one is not.
        reward: Same shape.
        q_value: ``Q(s, a)`` of the model.
        next_value: ``V(s')`` of the model, from the row's own ``next_obs``.
        terminated: Flags of the rows where the plant ended the episode; a truncated row keeps
            its ``V(s')``.
        discount: Discount factor in [0, 1); NaN results under ``jit`` if it is outside.

    Returns:
        The estimated discounted return from the initial states.

    Raises:
        ValueError: If shapes differ, the starts or the samples do not lie along one axis or are
            empty, a concrete ratio is negative or not finite, or a concrete ``discount`` is outside
            [0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> one, ended = jnp.ones(1), jnp.array([True])
        >>> log = one, 3 * one, 2 * one, one, ended
        >>> float(marginalised_doubly_robust(5 * one, *log, discount=0.5))
        7.0

    Source: Kallus and Uehara, Efficiently breaking the curse of horizon in off-policy evaluation
    with double reinforcement learning, arXiv 1909.05850.
    """
    require_rank("initial_value", initial_value, 1, "start")
    require_length("initial_value", initial_value, 1)
    require_series(
        density_ratio=density_ratio,
        reward=reward,
        q_value=q_value,
        next_value=next_value,
        terminated=terminated,
    )
    dtype, reward = floats(reward).dtype, widened(reward)
    density_ratio = _ratio(density_ratio)
    discount, rest = _discount_and_rest(discount, reward)
    following = jnp.where(booleans(terminated), 0, widened(next_value))
    error = reward + discount * following - widened(q_value)
    correction = jnp.mean(density_ratio * error) / rest
    return narrowed(jnp.mean(widened(initial_value)) + correction, dtype)


def _ratio(density_ratio: ArrayLike) -> Array:
    return widened(checked_positive("density_ratio", density_ratio, or_zero=True, many=True))


def _discount_and_rest(discount: float | Array, data: Array) -> tuple[Array, Array]:
    """The discount and one minus the discount; NaN if it is traced and outside [0, 1)."""
    discount = checked_probability("discount", discount, closed=True)
    if is_concrete(discount) and np.any(np.asarray(discount) >= 1):
        raise ValueError(
            f"discount must be in [0, 1) for a discounted occupancy, got {discount}; "
            "for discount 1 use an estimate along trajectories"
        )
    discount = like(discount, data)
    rest = 1 - discount
    return discount, jnp.where(rest > 0, rest, jnp.nan)
