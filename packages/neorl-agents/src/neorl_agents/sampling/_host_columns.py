"""The columns of a log on the host, checked in unmasked rows."""

from collections.abc import Sequence

import numpy as np

from neorl_core import InputError, Transition


def row_flags(
    log: Transition, needed: Sequence[str], purpose: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which rows of a log are unmasked, and where its episodes end.

    Returns whether the plant ended the episode with a row, whether it ends there for any reason,
    and whether the row is unmasked, each of shape ``(row,)``. ``purpose`` says in the message why
    the columns are needed. Raises an ``InputError`` if a column is missing, flags have other
    shapes, or every row is masked.
    """
    for name in needed:
        if getattr(log, name) is None:
            raise InputError(f"column {name} of the log is missing; {purpose}")
    terminated = np.atleast_1d(np.asarray(log.terminated, bool))
    ends = terminated | np.asarray(log.truncated, bool)
    total = len(ends)
    keep = np.ones(total, bool) if log.mask is None else np.asarray(log.mask, bool)
    if ends.shape != (total,) or keep.shape != (total,):
        raise InputError(
            f"terminated, truncated and mask of the log must have the shape ({total},), got "
            f"{ends.shape} and {keep.shape}"
        )
    if not keep.any():
        raise InputError(f"all {total} rows of the log are masked; record more, or mask fewer")
    return terminated, ends, keep


def finite_column(
    log: Transition, name: str, shape: tuple[int, int], keep: np.ndarray
) -> np.ndarray:
    """The rows of a column that are kept, in float64.

    Raises an ``InputError`` if the shape is another, or a kept number is not finite; the message
    names row and channel.
    """
    column = np.asarray(getattr(log, name), np.float64)
    if column.shape != shape:
        raise InputError(
            f"column {name} of the log must have the shape {shape}, got {column.shape}; "
            "give the specification with which it was recorded"
        )
    not_finite = np.argwhere(~np.isfinite(column) & keep[:, None])
    if len(not_finite):
        row, channel = (int(i) for i in not_finite[0])
        raise InputError(
            f"column {name} of the log must be finite, got {column[row, channel]} in row {row}, "
            f"channel {channel}; repair it, or set the mask of the row to false"
        )
    return column[keep]
