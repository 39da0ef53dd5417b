"""The last step of the filter: whatever was proposed, what leaves it was checked."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_safety.filters._lowering import clip


class Admissible(NamedTuple):
    """The set that an action must lie in.

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
    """The proposal where it passes the check, else the nearest that does on a line to an anchor.

    The answers are tried in order: the proposal; for every anchor ``s`` that passes, the point
    ``s + t (proposal - s)`` with the largest ``t`` that the rows allow; the anchors themselves;
    each clipped to the ends. The first that passes the check is returned. Where none does, it is
    the clipped ``backup``, and the flag is false.

    *Why this is total.* Every answer is the output of the same clip, so it lies in ``[low, high]``
    exactly, in the dtype that is written, and is finite since the ends are. (NaN compares false,
    so a NaN answer would pass through the clip, but fails the check; the backup is replaced by the
    lower end where it is NaN.) An answer other than the backup has passed the check itself,
    evaluated on the very numbers that are returned: whatever the proposal, the anchors and the rows
    were, a true flag says that ``rows @ u <= bounds - c`` came out true in floating point, where
    ``c`` bounds the rounding error of the sum, so that ``rows @ u <= bounds`` holds in real
    arithmetic. A sum that overflows or is NaN fails the comparison. Nothing after the check
    changes the action.

    Args:
        admissible: The set, with finite ends in order; rows may be anything.
        proposal: Any action, NaN and infinities included.
        anchors: Actions that are thought to satisfy the rows; any.
        backup: Action to take where no answer passes; any numbers.

    Returns:
        The action, and whether it satisfies the rows.
    """
    low, high = admissible.low, admissible.high
    tighter = tightened(admissible)[1]
    first = clip(proposal, low, high)
    answers = [first]
    clipped = [clip(anchor, low, high) for anchor in anchors]
    answers += [clip(_retracted(admissible, tighter, s, first), low, high) for s in clipped]
    answers += clipped
    action = clip(jnp.where(jnp.isnan(backup), low, backup), low, high)
    certified = jnp.zeros((), jnp.bool_)
    for answer in reversed(answers):
        good = passes(admissible, answer)
        action = jnp.where(good, answer, action)
        certified = certified | good
    return action, certified


def passes(admissible: Admissible, action: Float[Array, " act"]) -> Bool[Array, ""]:
    """The check of the last step: finite, and every row holds with room for its rounding."""
    holds = weighted(admissible.rows, action) <= tightened(admissible)[0]
    return jnp.all(jnp.isfinite(action)) & jnp.all(holds)


def tightened(admissible: Admissible) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """Right sides less the rounding error of the sums: once for the check, twice to aim at."""
    error = rounding(admissible)
    return admissible.bounds - error, admissible.bounds - 2 * error


def rounding(admissible: Admissible) -> Float[Array, " row"]:
    """A bound of the rounding error of ``rows @ u - bounds`` between the ends."""
    a = admissible
    eps = jnp.finfo(a.low.dtype).eps
    largest = jnp.maximum(jnp.abs(a.low), jnp.abs(a.high))
    size = jnp.sum(jnp.abs(a.rows) * largest[None], axis=-1) + jnp.abs(a.bounds)
    return (a.rows.shape[1] + 3) * eps * size


def weighted(rows: Float[Array, "row act"], action: Float[Array, " act"]) -> Float[Array, " row"]:
    """``rows @ action`` as a plain sum: no accelerator rounds its products to fewer bits."""
    return jnp.sum(rows * action[None], axis=-1)


def _retracted(admissible: Admissible, bounds: Array, anchor: Array, proposal: Array) -> Array:
    """``anchor + t (proposal - anchor)``, ``t`` the largest in [0, 1] that the rows allow."""
    step = proposal - anchor
    along = weighted(admissible.rows, step)
    left = jnp.maximum(bounds - weighted(admissible.rows, anchor), 0)
    towards = along > 0
    share = jnp.where(towards, left / jnp.where(towards, along, 1), 1)
    return anchor + jnp.clip(jnp.min(share, initial=1), 0, 1) * step
