"""Points that a filter proposes to its last step, as near to the request as they can be.

A candidate owes nothing: one that is wrong costs distance, never safety.
"""

import functools
import itertools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_safety.filters._certify import Admissible, tightened, weighted

MOST_SETS = 3000
SWEEPS = 200
TOLERANCE = 4
"""Roundings of a sum by which a corner may miss the other rows and still count."""


class Candidate(Protocol):
    """Proposes a point of the set near to a target; a function at the top of a module."""

    def __call__(
        self, admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """A point of the set near to the target, distances in units of ``scale``."""
        ...


def nearest(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The nearest point of the set.

    By enumeration where there are few enough sets of active constraints, else by dual ascent.

    Args:
        admissible: The set.
        target: A point between its ends.
        scale: Size of each channel, positive.

    Returns:
        The proposal; NaN where none was found.
    """
    n_rows, n_action = admissible.rows.shape
    if not n_rows:
        return target
    few = _count(n_rows, n_action) <= MOST_SETS
    search = nearest_by_enumeration if few else nearest_by_dual_ascent
    return search(admissible, target, scale)


def nearest_by_enumeration(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The nearest point of a polytope, exactly: the best of all its faces' nearest points.

    For every set of at most ``act`` constraints the point of their common face nearest to the
    target is found by Gram-Schmidt; the nearest one that satisfies all others is the answer.

    Args:
        admissible: The set.
        target: Any point.
        scale: Size of each channel, positive.

    Returns:
        The nearest point; NaN where no face has one.
    """
    rows, right = scaled(admissible, target, scale)
    n_action = target.shape[0]
    points = [jnp.zeros((1, n_action), target.dtype)]
    for chosen in _sets(admissible.rows.shape[0], n_action):
        points.append(_on_faces(rows[chosen], right[chosen]))
    z = jnp.concatenate(points)
    products = rows[None] * z[:, None]
    sizes = jnp.sum(jnp.abs(products), axis=-1) + jnp.abs(right)[None]
    slack = TOLERANCE * jnp.finfo(target.dtype).eps * sizes
    inside = jnp.all(jnp.sum(products, axis=-1) <= right[None] + slack, axis=1)
    inside = inside & jnp.all(jnp.isfinite(z), axis=1)
    distance = jnp.where(inside, jnp.sum(z * z, axis=1), jnp.inf)
    best = jnp.argmin(distance)
    return jnp.where(jnp.isfinite(distance[best]), target + scale * z[best], jnp.nan)


def nearest_by_dual_ascent(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The nearest point of a polytope, approached by one multiplier at a time.

    Args:
        admissible: The set.
        target: Any point.
        scale: Size of each channel, positive.

    Returns:
        A point near the nearest one; how near depends on the angles between the constraints.

    Source: Hildreth, A quadratic programming procedure, 1957.
    """
    rows, right = scaled(admissible, target, scale)

    def one(state: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], None]:
        z, multipliers = state
        wanted = multipliers[index] + jnp.sum(rows[index] * z) - right[index]
        new = jnp.maximum(wanted, 0)
        z = z - (new - multipliers[index]) * rows[index]
        return (z, multipliers.at[index].set(new)), None

    def sweep(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.lax.scan(one, state, jnp.arange(rows.shape[0]))[0]

    start = jnp.zeros_like(target), jnp.zeros_like(right)
    return target + scale * jax.lax.fori_loop(0, SWEEPS, sweep, start)[0]


def scaled(admissible: Admissible, target: Array, scale: Array) -> tuple[Array, Array]:
    """All constraints on ``z = (u - target) / scale``, every row of length one."""
    a = admissible
    right = tightened(a)[1] - weighted(a.rows, target)
    rows = a.rows * scale[None]
    length = jnp.sqrt(jnp.sum(rows * rows, axis=-1))
    usable = length > 0
    length = jnp.where(usable, length, 1)
    ends = jnp.eye(target.shape[0], dtype=target.dtype)
    return (
        jnp.concatenate([rows / length[:, None], ends, -ends]),
        jnp.concatenate([right / length, (a.high - target) / scale, (target - a.low) / scale]),
    )


def _on_faces(rows: Array, right: Array) -> Array:
    """The point nearest to zero with ``rows z = right``, for many sets of rows at once."""
    directions: list[Array] = []
    offsets: list[Array] = []
    for k in range(rows.shape[1]):
        row, offset = rows[:, k], right[:, k]
        for direction, before in zip(directions, offsets, strict=True):
            part = jnp.sum(row * direction, axis=-1, keepdims=True)
            row, offset = row - part * direction, offset - part[:, 0] * before
        length = jnp.sqrt(jnp.sum(row * row, axis=-1))
        directions.append(row / length[:, None])
        offsets.append(offset / length)
    return sum(
        (
            offset[:, None] * direction
            for direction, offset in zip(directions, offsets, strict=True)
        ),
        start=jnp.zeros_like(rows[:, 0]),
    )


@functools.lru_cache(maxsize=64)
def _sets(n_rows: int, n_action: int) -> tuple[np.ndarray, ...]:
    """All sets of at most ``n_action`` constraints, without both ends of one channel."""
    total = n_rows + 2 * n_action
    sets = []
    for size in range(1, n_action + 1):
        chosen = [
            one
            for one in itertools.combinations(range(total), size)
            if not any(i >= n_rows and i + n_action in one for i in one)
        ]
        sets.append(np.asarray(chosen, np.int32).reshape(-1, size))
    return tuple(sets)


def _count(n_rows: int, n_action: int) -> int:
    if n_action > 4:  # counting alone would take long
        return MOST_SETS + 1
    return 1 + sum(len(one) for one in _sets(n_rows, n_action))
