"""The columns of a log that a fit reads: checked, in float64, without masked rows."""

from typing import NamedTuple

import numpy as np

from neorl_agents.sampling._host_columns import finite_column, row_flags
from neorl_core import Spec, Transition


class Log(NamedTuple):
    """Rows of many episodes in order of time, float64 in physical units.

    Attributes:
        obs: Shape ``(row, obs)``.
        action: Shape ``(row, act)``.
        next_obs: Shape ``(row, obs)``.
        start: First row of the piece that each row belongs to, shape ``(row,)``. A piece ends with
            its episode, and before a masked row.
        last: Whether a row is the last of its piece, shape ``(row,)``.
    """

    obs: np.ndarray
    action: np.ndarray
    next_obs: np.ndarray
    start: np.ndarray
    last: np.ndarray

    @property
    def age(self) -> np.ndarray:
        """Number of rows before each row in its piece."""
        return np.arange(len(self.start)) - self.start


def checked_log(log: Transition, spec: Spec) -> Log:
    """The columns of a flat log, checked.

    Reads ``next_obs``, ``terminated``, ``truncated``, and ``mask`` if given. Raises an
    ``InputError`` if a column is missing, has another shape than ``spec`` requires, holds a number
    that is not finite, or no row is left.
    """
    _, ends, keep = row_flags(log, ("next_obs", "terminated", "truncated"), "a fit needs it")
    total = len(ends)
    # The row before a masked one is the last of its piece.
    ends = ends | np.append(~keep[1:], True)
    widths = {"obs": spec.n_obs, "action": spec.n_action, "next_obs": spec.n_obs}
    columns = {name: finite_column(log, name, (total, n), keep) for name, n in widths.items()}
    last, n_kept = ends[keep], int(keep.sum())
    first = np.append(True, last[:-1])
    start = np.maximum.accumulate(np.where(first, np.arange(n_kept), 0))
    return Log(**columns, start=start, last=last)


def leading(log: Log, rows: int) -> Log:
    """The first ``rows`` rows of the log."""
    leading_rows = Log(*(column[:rows] for column in log))
    leading_rows.last[-1:] = True
    return leading_rows
