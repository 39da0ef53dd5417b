"""Points that a filter proposes to its last step, as close to the request as possible.

A candidate need not be valid: a wrong one costs distance, never safety.

Model predictive control has its own solver in neorl_agents, which this package may not import and
which computes in double precision. The active-set method here needs only single precision, like
everything in a guard, and a bounded number of changes; a test compares it with Clarabel.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_safety.filters._certify import Admissible, rounding, row_sums

FURTHEST = 100.0
"""Targets further outside the ends than this, in spans, are moved in without any effect."""
PARALLEL = 3e-5
"""A row of length one counts as spanned by the rows before it if this length or less remains."""
CHANGES = 8
"""The search stops after this number of changes of the active set, times the number of rows."""


class Candidate(Protocol):
    """Proposes a point of the set close to a target; a module-level function."""

    def __call__(
        self, admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
    ) -> Float[Array, " act"]:
        """A point of the set close to the target, with distances in units of ``scale``."""
        ...


class Polytope(NamedTuple):
    """The set in coordinates ``z = (u - centre) / scale`` in which every row has length one.

    Attributes:
        rows: Rows and both ends of every channel, ``rows @ z <= right``, shape ``(row, act)``.
        right: Right sides, less twice the rounding error that the last step allows for.
        slack: Excess of a row that still counts as zero: a fraction of that error, shape
            ``(row,)``.
        centre: The point between the ends that is nearest to the target, shape ``(act,)``.
        target: The target, shape ``(act,)``, at most ``FURTHEST`` away.
    """

    rows: Float[Array, "row act"]
    right: Float[Array, " row"]
    slack: Float[Array, " row"]
    centre: Float[Array, " act"]
    target: Float[Array, " act"]


def nearest(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The point of a polytope that is nearest to a target.

    Minimises ``|z - g|^2 / 2`` over ``rows @ z <= right``, where ``z`` and ``g`` are the point and
    the target in units of ``scale``. The dual active-set method starts from the target. The row
    that is violated most becomes active, and rows whose multiplier would become negative are
    dropped, until no row is violated. The point of every active set is recomputed by
    orthogonalising its rows, so that rounding errors do not accumulate.

    Args:
        admissible: The set of admissible actions.
        target: Any finite point, between the ends or outside.
        scale: Size of each channel, positive.

    Returns:
        The nearest point; if the set is empty, some point close to it.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_safety.filters import Admissible, nearest
        >>> half = Admissible(-jnp.ones(2), jnp.ones(2), jnp.ones((1, 2)), jnp.array([1.0]))
        >>> bool(jnp.allclose(nearest(half, jnp.array([3.0, 0.5]), jnp.ones(2)),
        ...                   jnp.array([1.0, 0.0]), atol=1e-5))
        True

    Source: Goldfarb and Idnani, A numerically stable dual method for solving strictly convex
    quadratic programs, Mathematical Programming 27, 1983.
    """
    if not admissible.rows.shape[0]:
        return jnp.clip(target, admissible.low, admissible.high)
    polytope = in_spans(admissible, target, scale)
    return polytope.centre + scale * _search(polytope)


def in_spans(admissible: Admissible, target: Array, scale: Array) -> Polytope:
    """The set and the target in units of ``scale``, every row of length one."""
    a = admissible
    centre = jnp.clip(target, a.low, a.high)
    offset = (target - centre) / scale
    furthest = jnp.max(jnp.abs(offset))
    offset = offset * jnp.where(furthest > FURTHEST, FURTHEST / furthest, 1)
    error = rounding(a)
    rows = a.rows * scale[None]
    length = jnp.sqrt(jnp.sum(rows * rows, axis=-1))
    length = jnp.where(length > 0, length, 1)  # an empty or excluded row: 0 z <= right
    right = a.bounds - 2 * error - row_sums(a.rows, centre)
    one = jnp.eye(target.shape[0], dtype=target.dtype)
    ends = (a.high - centre) / scale, (centre - a.low) / scale
    eps = jnp.finfo(target.dtype).eps
    return Polytope(
        rows=jnp.concatenate([rows / length[:, None], one, -one]),
        right=jnp.concatenate([right / length, *ends]),
        slack=jnp.concatenate([error / length / 2, *(eps * (1 + end) for end in ends)]),
        centre=centre,
        target=jnp.where(jnp.isfinite(offset), offset, 0),
    )


class _Active(NamedTuple):
    """The active constraints, in slots, and the one that is about to join them.

    Attributes:
        members: Index of the constraint in each slot, shape ``(act,)``.
        used: Whether a slot holds a constraint, shape ``(act,)``.
        joining: Index of the constraint that is about to join.
        force: Its multiplier so far.
        complete: Whether no constraint is about to join, so that the next one must be chosen.
        point: The current point, shape ``(act,)``.
        searching: Whether a violated row remains that may still be satisfied.
        changes: Number of changes of the active set so far.
    """

    members: Int[Array, " act"]
    used: Bool[Array, " act"]
    joining: Int[Array, ""]
    force: Float[Array, ""]
    complete: Bool[Array, ""]
    point: Float[Array, " act"]
    searching: Bool[Array, ""]
    changes: Int[Array, ""]


def _search(p: Polytope) -> Float[Array, " act"]:
    """The nearest point, in the coordinates of the polytope."""
    n, true = p.target.shape[0], jnp.ones((), jnp.bool_)
    none, zero = jnp.zeros((), jnp.int32), jnp.zeros((), p.target.dtype)
    slots = jnp.zeros((n,), jnp.int32), jnp.zeros((n,), jnp.bool_)
    start = _Active(*slots, none, zero, true, p.target, true, none)
    max_changes = CHANGES * p.rows.shape[0]
    final = jax.lax.while_loop(
        lambda state: state.searching & (state.changes < max_changes),
        lambda state: _pivot(p, state),
        start,
    )
    return final.point


def _pivot(p: Polytope, state: _Active) -> _Active:
    """Adds one row to the active set, or drops one to make room."""
    members, used = state.members, state.used
    basis, lower = _orthogonal(jnp.where(used[:, None], p.rows[members], 0), used)
    shifted = p.target - state.force * p.rows[state.joining]
    on_face = _solve(lower, jnp.where(used, p.right[members], 0))
    point = _orthogonal_part(basis, shifted) + jnp.sum(basis * on_face[:, None], axis=0)
    multipliers = _solve_transposed(lower, jnp.sum(basis * shifted[None], axis=1) - on_face)

    excess = jnp.sum(p.rows * point[None], axis=-1) - p.right
    # An active row holds up to rounding by construction; choosing it again would cause a cycle.
    active = jnp.where(used, members, p.rows.shape[0])
    violation = (excess - p.slack).at[active].set(-jnp.inf, mode="drop")
    joining = jnp.where(state.complete, jnp.argmax(violation), state.joining)
    nothing_left = state.complete & (violation[joining] <= 0)

    row = p.rows[joining]
    normal = _orthogonal_part(basis, row)
    size = jnp.sum(normal * normal)
    along = _solve_transposed(lower, jnp.sum(basis * row[None], axis=1))
    leaves = used & (along > 0)
    step_to_leave = jnp.where(
        leaves, jnp.maximum(multipliers, 0) / jnp.where(leaves, along, 1), jnp.inf
    )
    leaving = jnp.argmin(step_to_leave)
    step_to_face = jnp.where(size > PARALLEL**2, jnp.maximum(excess[joining], 0) / size, jnp.inf)
    face_first = step_to_face <= step_to_leave[leaving]
    infeasible = ~jnp.isfinite(jnp.minimum(step_to_face, step_to_leave[leaving]))
    index = jnp.where(face_first, jnp.argmin(used), leaving)
    return _Active(
        members=members.at[index].set(jnp.where(face_first, joining, members[index])),
        used=used.at[index].set(face_first),
        joining=joining,
        force=jnp.where(face_first, 0, state.force + step_to_leave[leaving]),
        complete=face_first,
        point=point,
        searching=~(nothing_left | infeasible),
        changes=state.changes + 1,
    )


def _orthogonal(
    rows: Array, used: Array
) -> tuple[Float[Array, "act act"], Float[Array, "act act"]]:
    """Factors ``rows = lower @ basis`` with orthonormal rows in ``basis``, zero in unused slots."""
    basis = jnp.zeros_like(rows)
    for i in range(rows.shape[0]):
        row = _orthogonal_part(basis, rows[i])
        length = jnp.sqrt(jnp.sum(row * row))
        # The inner `where` keeps an unused slot, of length zero, from giving 0 / 0.
        basis = basis.at[i].set(jnp.where(used[i], row / jnp.where(used[i], length, 1), 0))
    lower = jnp.sum(rows[:, None] * basis[None], axis=-1)
    return basis, jnp.where(used[:, None], lower, jnp.eye(len(rows), dtype=rows.dtype))


def _orthogonal_part(basis: Array, vector: Array) -> Float[Array, " act"]:
    """The part of a vector orthogonal to the basis; done twice to remove the rounding error."""
    for _ in range(2):
        parts = jnp.sum(basis * vector[None], axis=1)
        vector = vector - jnp.sum(basis * parts[:, None], axis=0)
    return vector


def _solve(lower: Array, right: Array) -> Float[Array, " act"]:
    """Solves ``lower @ x = right`` by forward substitution."""
    x = jnp.zeros_like(right)
    for i in range(len(right)):
        x = x.at[i].set((right[i] - jnp.sum(lower[i] * x)) / lower[i, i])
    return x


def _solve_transposed(lower: Array, right: Array) -> Float[Array, " act"]:
    """Solves ``lower.T @ x = right`` by back substitution."""
    x = jnp.zeros_like(right)
    for i in reversed(range(len(right))):
        x = x.at[i].set((right[i] - jnp.sum(lower[:, i] * x)) / lower[i, i])
    return x
