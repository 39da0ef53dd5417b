"""Targets of cost critics, and the cost limits converted to their units."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_members,
    require_same_shape,
)
from neorl_core.targets._td import td_target


def discounted_cost_target(
    cost: Float[Array, "*batch"],
    next_values: Float[Array, "ens *batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step target of a cost critic that uses the largest of several estimates.

    ``cost + discount (1 - terminated) max_i next_values[i]``: pessimistic about cost.

    Args:
        cost: Any shape.
        next_values: One estimate per member along the first axis, each with the shape of ``cost``.
        terminated: Shape of ``cost``; a truncated step bootstraps.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, with the shape of ``cost``.

    Raises:
        ValueError: If the shapes disagree, there is no member, or a concrete ``discount`` is
            outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([2.0, 4.0])
        >>> float(discounted_cost_target(jnp.array(1.0), values, jnp.array(False), discount=0.5))
        3.0
    """
    require_same_shape("cost", cost, "terminated", terminated)
    require_members("next_values", next_values, "cost", cost)
    worst = jnp.max(floats(next_values), axis=0)
    return td_target(floats(cost), worst, booleans(terminated), discount=discount)


def reachability_target(
    constraint: Float[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch"]:
    """The one-step target of a feasibility critic: the worst constraint value from here on.

    ``(1 - discount) h + discount max(h, next_value)``, and ``h`` where terminated, with ``h =
    constraint``. A state can be kept safe if its value at the fixed point is at most zero.

    Args:
        constraint: ``h``, positive where the constraint is violated.
        next_value: Value of the next observation, same shape; ignored where terminated.
        terminated: Same shape.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target, same shape.

    Raises:
        ValueError: If the shapes differ, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> h, value = jnp.array([-1.0, -1.0]), jnp.array([3.0, 3.0])
        >>> reachability_target(h, value, jnp.array([False, True]), discount=0.5).tolist()
        [1.0, -1.0]

    Source: Fisac et al., Bridging Hamilton-Jacobi safety analysis and reinforcement learning,
    2019; Zheng et al., Safe offline reinforcement learning with feasibility-guided diffusion
    model, arXiv 2401.10700, equation 6.
    """
    require_same_shape("constraint", constraint, "next_value", next_value)
    require_same_shape("constraint", constraint, "terminated", terminated)
    discount = checked_probability("discount", discount, closed=True)
    here, gamma = floats(constraint), like(discount, floats(constraint))
    following = jnp.where(booleans(terminated), here, floats(next_value))
    return (1 - gamma) * here + gamma * jnp.maximum(here, following)


def step_cost_limit(limit: ArrayLike, *, horizon: int | Int[Array, ""]) -> Array:
    """The mean cost per step at which an episode of ``horizon`` steps reaches its limit.

    ``limit / horizon``: the limit for a weighted mean of the costs of rows.

    Args:
        limit: Largest sum of costs over an episode, any shape, not negative; NaN under ``jit``
            where it is negative.
        horizon: Number of steps of an episode, at least one; NaN under ``jit`` if it is smaller or
            not an integer.

    Returns:
        The limit per step, same shape.

    Raises:
        ValueError: If ``horizon`` is not a positive integer, or a concrete limit is negative
            or not finite.

    Example:
        >>> float(step_cost_limit(10.0, horizon=4))
        2.5
    """
    horizon = _checked_horizon(horizon)
    limit = checked_positive("limit", limit, or_zero=True, many=True)
    return floats(limit) / horizon


def discounted_cost_limit(
    limit: ArrayLike, *, horizon: int | Int[Array, ""], discount: float | Float[Array, ""]
) -> Array:
    """The value of a discounted cost critic at which an episode reaches its limit.

    ``(limit / horizon) (1 - discount^horizon) / (1 - discount)``: the discounted sum of a cost that
    is spread evenly over the episode; ``limit`` itself if ``discount = 1``.

    Args:
        limit: Largest undiscounted sum of costs over an episode, any shape, not negative; NaN
            under ``jit`` where it is negative.
        horizon: Number of steps of an episode, at least one; NaN under ``jit`` if it is smaller or
            not an integer.
        discount: Discount factor of the critic, in [0, 1]; NaN under ``jit`` if it is outside.

    Returns:
        The limit for the critic's value, same shape as ``limit``.

    Raises:
        ValueError: If ``horizon`` is not a positive integer, a concrete limit is negative or
            not finite, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> round(float(discounted_cost_limit(10.0, horizon=300, discount=0.99)), 2)
        3.17

    Source: the conversion of the offline safe RL library OSRL and of FISOR.
    """
    discount = checked_probability("discount", discount, closed=True)
    horizon = _checked_horizon(horizon)
    per_step = step_cost_limit(limit, horizon=horizon)
    gamma = like(discount, per_step)
    inside = (gamma > 0) & (gamma < 1)
    safe = jnp.where(inside, gamma, 0.5)
    # expm1 keeps the digits of 1 - discount^horizon where the discount is near one.
    series = jnp.expm1(horizon * jnp.log(safe)) / jnp.expm1(jnp.log(safe))
    end = jnp.where(jnp.isnan(gamma), gamma, jnp.where(gamma > 0, horizon, 1))
    return per_step * jnp.where(inside, series, end)


def _checked_horizon(horizon: Any) -> Any:
    """The horizon as a positive integer; a traced number becomes NaN if it is not one."""
    if is_concrete(horizon):
        return checked_integer(
            "horizon", horizon, 1, "give the largest number of steps of an episode"
        )
    return nan_unless((horizon >= 1) & (horizon == jnp.floor(horizon)), horizon)
