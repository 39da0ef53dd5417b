"""The last step of the filter: whatever was proposed, only a checked action leaves it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_safety.filters._lowering import clip


class Admissible(NamedTuple):
    """The set in which an action must lie.

    Attributes:
        low: Lower ends, shape ``(act,)``, finite.
        high: Upper ends, shape ``(act,)``, finite, not below ``low``.
        rows: Linear inequalities ``rows @ u <= bounds``, shape ``(row, act)``.
        bounds: Right sides, shape ``(row,)``.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]
    rows: Float[Array, "row act"]
    bounds: Float[Array, " row"]


def certify(
    admissible: Admissible,
    proposal: Float[Array, " act"],
    anchors: Sequence[Float[Array, " act"]],
    backup: Float[Array, " act"],
) -> tuple[Float[Array, " act"], Bool[Array, ""]]:
    """The proposal if it passes the check, else the nearest passing point on a line to an anchor.

    The candidates are tried in this order: the proposal; for every anchor ``s`` that passes, the
    point ``s + t (proposal - s)`` with the largest ``t`` that the rows allow; the anchors
    themselves. Each is clipped to the ends. The first one that passes the check is returned. If
    none does, the clipped ``backup`` is returned and the flag is false.

    *Why this always works.* Every result is the output of the same clip, so it lies in ``[low,
    high]`` exactly, in the dtype that is written, and is finite since the ends are. (Comparisons
    with NaN are false, so NaN passes through the clip but fails the check; where the backup is NaN
    it is replaced by the lower end.) A result other than the backup has passed the check itself,
    evaluated on the very numbers that are returned. Whatever the proposal, the anchors and the rows
    were, a true flag means that ``rows @ u <= bounds - c`` was true in floating point, where ``c``
    bounds the rounding error of the sum. So ``rows @ u <= bounds`` holds in real arithmetic. A sum
    that overflows or is NaN fails the comparison. Nothing after the check changes the action.

    Args:
        admissible: The set, with finite ends in order; rows may hold anything.
        proposal: Any action, NaN and infinities included.
        anchors: Actions that are expected to satisfy the rows; may hold anything.
        backup: Action to use if no candidate passes; may hold anything.

    Returns:
        The action, and whether it satisfies the rows.
    """
    low, high = admissible.low, admissible.high
    tighter = tightened_bounds(admissible)[1]
    first = clip(proposal, low, high)
    candidates = [first]
    clipped = [clip(anchor, low, high) for anchor in anchors]
    candidates += [clip(_retract(admissible, tighter, s, first), low, high) for s in clipped]
    candidates += clipped
    # NaN compares false with both ends, so it would pass through the clip.
    action = clip(jnp.where(jnp.isnan(backup), low, backup), low, high)
    certified = jnp.zeros((), jnp.bool_)
    # In reverse, so that the first candidate that passes has the last word.
    for answer in reversed(candidates):
        passed = passes(admissible, answer)
        action = jnp.where(passed, answer, action)
        certified = certified | passed
    return action, certified


def passes(admissible: Admissible, action: Float[Array, " act"]) -> Bool[Array, ""]:
    """The check of the last step: finite, and every row holds with a margin for its rounding."""
    holds = row_sums(admissible.rows, action) <= tightened_bounds(admissible)[0]
    return jnp.all(jnp.isfinite(action)) & jnp.all(holds)


def tightened_bounds(admissible: Admissible) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """Right sides minus the rounding error of the sums: once for the check, twice as a target."""
    error = rounding(admissible)
    return admissible.bounds - error, admissible.bounds - 2 * error


def rounding(admissible: Admissible) -> Float[Array, " row"]:
    """A bound on the rounding error of ``rows @ u - bounds`` between the ends."""
    a = admissible
    eps = jnp.finfo(a.low.dtype).eps
    largest = jnp.maximum(jnp.abs(a.low), jnp.abs(a.high))
    size = jnp.sum(jnp.abs(a.rows) * largest[None], axis=-1) + jnp.abs(a.bounds)
    # At most one rounding of eps / 2 for each channel reaches a product; the rest is a margin for
    # the rounding of the bounds less this number, and of this number itself.
    return (a.rows.shape[1] + 3) * eps * size


def row_sums(rows: Float[Array, "row act"], action: Float[Array, " act"]) -> Float[Array, " row"]:
    """``rows @ action`` as a plain sum, because accelerators round products to fewer bits."""
    return jnp.sum(rows * action[None], axis=-1)


def _retract(admissible: Admissible, bounds: Array, anchor: Array, proposal: Array) -> Array:
    """``anchor + t (proposal - anchor)`` with the largest ``t`` in [0, 1] that the rows allow."""
    step = proposal - anchor
    along = row_sums(admissible.rows, step)
    distance = jnp.maximum(bounds - row_sums(admissible.rows, anchor), 0)
    approaches = along > 0
    fractions = jnp.where(approaches, distance / jnp.where(approaches, along, 1), 1)
    return anchor + jnp.clip(jnp.min(fractions, initial=1), 0, 1) * step
