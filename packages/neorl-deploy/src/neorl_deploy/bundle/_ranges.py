"""Compares numbers with declared ranges, of which both may have been rounded to float32."""

import numpy as np

RESOLUTION = float(np.finfo(np.float32).eps)
"""Relative distance of neighbouring float32 numbers."""


def outside(
    values: np.ndarray | float, low: np.ndarray | float, high: np.ndarray | float
) -> np.ndarray:
    """Whether numbers lie outside their range by more than the rounding of float32.

    A sensor at the end of its range may send 100.00001 for a limit of 100.

    Args:
        values: The numbers; NaN is not outside.
        low: Lower ends of the ranges, possibly minus infinity.
        high: Upper ends, possibly infinity.
    """
    ends = np.abs(np.stack(np.broadcast_arrays(low, high)).astype(np.float64))
    slack = RESOLUTION * np.where(np.isfinite(ends), ends, 0.0).max(axis=0)
    numbers = np.asarray(values, np.float64)
    return (numbers < low - slack) | (numbers > high + slack)
