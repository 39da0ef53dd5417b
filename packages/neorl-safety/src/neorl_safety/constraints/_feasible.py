"""Checks on the host, before anything runs, that some action satisfies the declared constraints."""

import itertools
from typing import NamedTuple

import numpy as np

from neorl_core import InputError
from neorl_safety.constraints._constraints import KINDS, Constraints, channels_of
from neorl_safety.constraints._interlock import Interlock
from neorl_safety.constraints._linear import Linear
from neorl_safety.constraints._protocol import require

INFEASIBLE = 2
"""Status that SciPy's linear programme returns for an infeasible problem."""
SLACK = 1e-9
"""Allowance for float64 rounding, relative to the size of a row."""


class _LinearRow(NamedTuple):
    """One inequality ``coefficients @ u <= bound``, with its description."""

    text: str
    coefficients: np.ndarray
    bound: float


def require_feasible(constraints: Constraints) -> None:
    """Raises an error unless some action satisfies the declared constraints.

    Checks each tripped interlock with the actuator ranges, and all linear rows together with the
    boxes, with right sides at the most generous observation within the measuring range. Barriers
    are not checked, since they depend on the state; a flag reports their conflicts at run time.

    Args:
        constraints: Constraints with concrete numbers.

    Raises:
        InputError: If there is no such action; the message names two conflicting constraints, or
            the fewest conflicting rows.
    """
    low = np.asarray(constraints.action.low, np.float64)
    high = np.asarray(constraints.action.high, np.float64)
    _require_interlocks(constraints, low, high)
    rows = _rows(constraints)
    for row in rows:
        require(
            _least_excess([row], low, high) <= 0,
            f"no action satisfies both the box and the constraint {row.text!r}",
        )
    for first, second in itertools.combinations(rows, 2):
        require(
            _least_excess([first, second], low, high) <= 0,
            f"no action in the box satisfies both {first.text!r} and {second.text!r}",
        )
    if len(rows) > 2 and _none_satisfies(rows, low, high):
        minimal = list(rows)
        for row in rows:
            without = [other for other in minimal if other is not row]
            if _none_satisfies(without, low, high):
                minimal = without
        texts = ", ".join(repr(row.text) for row in minimal)
        raise InputError(
            f"no action in the box satisfies all of {texts}; relax or remove one of them"
        )


def _none_satisfies(rows: list[_LinearRow], low: np.ndarray, high: np.ndarray) -> bool:
    """Whether a linear programme shows that the rows have no common point in the box.

    Actions and rows are scaled to one first; rows may be violated by ``SLACK`` of their size.
    """
    from scipy.optimize import linprog  # slow to import, and needed only for declarations

    span = np.where(high > low, high - low, 1.0)  # an actuator that is held has no span
    sizes = np.array(
        [
            np.abs(r.coefficients) @ np.maximum(np.abs(low), np.abs(high)) + abs(r.bound)
            for r in rows
        ]
    )
    matrix = np.array([row.coefficients * span for row in rows])
    bounds = np.array([row.bound - row.coefficients @ low for row in rows]) + SLACK * sizes
    row_size = np.abs(matrix).max(axis=1)
    # The solver has absolute tolerances, so actions and rows are scaled to one.
    matrix, bounds = matrix / row_size[:, None], bounds / row_size
    result = linprog(
        np.zeros(len(low)), matrix, bounds, bounds=np.stack([0 * low, (high - low) / span], 1)
    )
    return bool(result.status == INFEASIBLE)


def _require_interlocks(constraints: Constraints, low: np.ndarray, high: np.ndarray) -> None:
    locks = constraints.further.get("interlock")
    if not isinstance(locks, Interlock):
        return
    texts = KINDS.find("interlock").describe(channels_of(constraints), locks)
    ends = [
        (int(act), float(lowest), float(highest))
        for act, lowest, highest in zip(locks.act, locks.low, locks.high, strict=True)
    ]
    for (act, lowest, highest), sentence in zip(ends, texts, strict=True):
        name = constraints.names[act]
        least = float(constraints.action.actuator_low[act])
        most = float(constraints.action.actuator_high[act])
        require(
            max(lowest, least) <= min(highest, most),
            f"no action satisfies both the actuator of {name} ({least:g} to {most:g}) and the "
            f"interlock {sentence!r}",
        )
    for (i, first), (j, second) in itertools.combinations(enumerate(ends), 2):
        disjoint = max(first[1], second[1]) > min(first[2], second[2])
        require(
            first[0] != second[0] or not disjoint or _never_together(locks, i, j),
            f"no action satisfies both interlocks {texts[i]!r} and {texts[j]!r}",
        )


def _never_together(locks: Interlock, i: int, j: int) -> bool:
    """Whether two interlocks on one measurement trip on opposite sides of it."""
    if int(locks.measured[i]) != int(locks.measured[j]):
        return False
    below, above = np.asarray(locks.below), np.asarray(locks.above)
    low_high = np.isinf(above[i]) and np.isinf(below[j]) and below[i] <= above[j]
    high_low = np.isinf(below[i]) and np.isinf(above[j]) and above[i] >= below[j]
    return bool(low_high or high_low)


def _rows(constraints: Constraints) -> list[_LinearRow]:
    linear = constraints.further.get("linear")
    if not isinstance(linear, Linear):
        return []
    text = KINDS.find("linear").describe(channels_of(constraints), linear)
    low = np.array([channel.low for channel in constraints.obs])
    high = np.array([channel.high for channel in constraints.obs])
    rows, by_obs = np.asarray(linear.rows, np.float64), np.asarray(linear.by_obs, np.float64)
    most = np.asarray(linear.at_most, np.float64) + np.maximum(by_obs * low, by_obs * high).sum(1)
    return [_LinearRow(*row) for row in zip(text, rows, most, strict=True)]


def _least_excess(rows: list[_LinearRow], low: np.ndarray, high: np.ndarray) -> float:
    """``min_u max_i (G_i u - h_i)`` over the box, from its dual; zero or less if feasible.

    For two rows the dual ``max_t min_u (t (G_1 u - h_1) + (1 - t) (G_2 u - h_2))`` is concave and
    piecewise linear in ``t``, with its kinks where a coefficient of ``u`` changes sign.
    """
    first, second = rows[0], rows[-1]
    kinks = [0.0, 1.0]
    for a, b in zip(first.coefficients, second.coefficients, strict=True):
        if a * b < 0:
            kinks.append(float(b / (b - a)))
    best = -np.inf
    for t in kinks:
        mixed = t * first.coefficients + (1 - t) * second.coefficients
        least = np.where(mixed > 0, mixed * low, mixed * high).sum()
        best = max(best, float(least - t * first.bound - (1 - t) * second.bound))
    size = max(
        float(np.abs(row.coefficients) @ np.maximum(np.abs(low), np.abs(high))) + abs(row.bound)
        for row in rows
    )
    return 0.0 if best <= SLACK * size else best
