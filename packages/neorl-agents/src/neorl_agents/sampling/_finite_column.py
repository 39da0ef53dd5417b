"""A column of a log on the host, checked where it counts."""

import numpy as np

from neorl_core import InputError, Transition


def finite_column(
    log: Transition, name: str, shape: tuple[int, int], keep: np.ndarray
) -> np.ndarray:
    """The rows of a column that are kept, in float64.

    Args:
        log: Flat columns.
        name: Name of the column.
        shape: Rows and channels that it must have.
        keep: True for every row that counts; the others may hold anything.

    Raises:
        InputError: If the shape is another, or a kept number is not finite; row and channel named.
    """
    column = np.asarray(getattr(log, name), np.float64)
    if column.shape != shape:
        raise InputError(
            f"column {name} of the log must have the shape {shape}, got {column.shape}; "
            "give the specification that it was recorded with"
        )
    wrong = np.argwhere(~np.isfinite(column) & keep[:, None])
    if len(wrong):
        row, channel = (int(i) for i in wrong[0])
        raise InputError(
            f"column {name} of the log must be finite, got {column[row, channel]} in row {row}, "
            f"channel {channel}; repair it, or set the mask of the row to false"
        )
    return column[keep]
