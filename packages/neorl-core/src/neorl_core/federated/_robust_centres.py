"""Aggregation rules that find a centre iteratively."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_integer, checked_positive, like, require_same_shape
from neorl_core._internal.float_widths import widen
from neorl_core.federated._client_updates import (
    Aggregate,
    count_true,
    distances,
    require_updates,
    usable,
    weighted_average,
    weighted_sum,
    widest,
    zero_unusable,
)
from neorl_core.federated._coordinate_rules import masked_median


def geometric_median(updates: Any, *, iterations: int = 64) -> Aggregate:
    """The point with the smallest total distance to the clients; robust if under half are faulty.

    Weiszfeld's iteration from the coordinate median, with the step of Vardi and Zhang where it
    meets a client. It is equivariant under rotations, unlike the coordinate median.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        iterations: Fixed number of steps.

    Returns:
        The median over the clients with finite numbers. Not differentiable.

    Raises:
        ValueError: If there is no client, leaves disagree about their number, or ``iterations``
            is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> corners = jnp.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1.0, 1.0]])
        >>> geometric_median(corners).value.tolist()
        [1.0, 1.0]

    Source: Vardi and Zhang, The multivariate L1-median and associated data depth, 2000; Pillutla,
    Kakade and Harchaoui, Robust aggregation for federated learning, arXiv 1912.13445.
    """
    require_updates(updates, 1, "a geometric median needs")
    iterations = checked_integer("iterations", iterations, 1, "give the number of steps")
    valid = usable(updates)
    wide = jax.tree.map(widen, zero_unusable(updates, valid))
    count = count_true(valid)
    centre = jax.tree.map(lambda leaf: masked_median(leaf, valid, count), wide)
    start = (centre, wide, valid)
    (centre, _, _), _ = jax.lax.scan(_towards_median, start, None, length=iterations)
    return Aggregate(jax.tree.map(like, centre, updates), valid)


def _towards_median(state: tuple, _: None) -> tuple[tuple, None]:
    centre, updates, valid = state
    distance = distances(updates, centre)
    coincident = valid & (distance == 0)
    weights = jnp.where(valid & ~coincident, 1 / jnp.where(distance > 0, distance, 1), 0)
    total = jnp.sum(weights)
    goal = weighted_average(updates, jnp.where(total > 0, weights, valid.astype(weights.dtype)))
    # Compares the pull of the other clients with the weight of those at this point.
    pull = jnp.sum(distances(jax.tree.map(lambda leaf: leaf[None], goal), centre)) * total
    n_coincident = count_true(coincident).astype(pull.dtype)
    stay = jnp.where(
        n_coincident > 0, jnp.minimum(1, n_coincident / jnp.where(pull > 0, pull, 1)), 0
    )
    stay = jnp.where((n_coincident > 0) & (pull <= 0), 1, stay)
    updated = jax.tree.map(
        lambda new, old: (1 - stay.astype(new.dtype)) * new + stay.astype(new.dtype) * old,
        goal,
        centre,
    )
    return (updated, updates, valid), None


def centred_clipping(
    updates: Any,
    centre: Any,
    *,
    radius: float | Float[Array, ""],
    iterations: int = 3,
) -> Aggregate:
    """Adds to a centre the mean of the clients' differences from it, each clipped to a length.

    ``v <- v + mean_i (u_i - v) min(1, radius / |u_i - v|)``: a client moves the centre by no more
    than ``radius / n`` in one step, whatever it sends.

    Args:
        updates: A PyTree with the clients along the first axis of every leaf.
        centre: Starting point, such as the last aggregate, shaped like one client's update.
        radius: Length to which a difference is clipped, positive; choose the spread of honest
            clients. NaN results under ``jit`` if it is not positive.
        iterations: Number of steps.

    Returns:
        The centre after the last step; the start itself if no client was usable.

    Raises:
        ValueError: If there is no client, leaves disagree about their number or with ``centre``, a
            concrete ``radius`` is not positive or ``iterations`` is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> updates = jnp.array([1.0, 1.0, 1e30])
        >>> centred_clipping(updates, jnp.array(0.0), radius=1.0, iterations=1).value
        Array(1., dtype=float32)

    Source: Karimireddy, He and Jaggi, Learning from history for Byzantine robust optimization,
    arXiv 2012.10333.
    """
    require_updates(updates, 1, "clipping needs")
    radius = checked_positive("radius", radius)
    iterations = checked_integer("iterations", iterations, 1, "give the number of steps")
    _require_centre(updates, centre)
    valid = usable(updates)
    wide = jax.tree.map(widen, zero_unusable(updates, valid))
    radius = jnp.asarray(radius).astype(widest(updates))
    start = (jax.tree.map(like, centre, wide), wide, valid, radius)
    (last, *_), _ = jax.lax.scan(_clipped_step, start, None, length=iterations)
    return Aggregate(jax.tree.map(like, last, updates), valid)


def _clipped_step(state: tuple, _: None) -> tuple[tuple, None]:
    centre, updates, valid, radius = state
    distance = distances(updates, centre)
    step_size = jnp.where(distance > radius, radius / jnp.where(distance > radius, distance, 1), 1)
    step_size = step_size / jnp.maximum(count_true(valid), 1).astype(step_size.dtype)
    step_size = jnp.where(jnp.isnan(radius), radius, jnp.where(valid, step_size, 0))
    updated = jax.tree.map(lambda leaf, old: old + _blend(leaf, old, step_size), updates, centre)
    return (updated, updates, valid, radius), None


def _blend(leaf: Array, centre: Array, step_size: Float[Array, " client"]) -> Array:
    return weighted_sum(leaf - centre[None], step_size)


def _require_centre(updates: Any, centre: Any) -> None:
    if jax.tree.structure(updates) != jax.tree.structure(centre):
        raise ValueError(
            f"centre must have the structure of one update, {jax.tree.structure(updates)}, "
            f"got {jax.tree.structure(centre)}; take the last aggregate's value"
        )
    for leaf, middle in zip(jax.tree.leaves(updates), jax.tree.leaves(centre), strict=True):
        require_same_shape("one update", leaf[0], "centre", middle)
