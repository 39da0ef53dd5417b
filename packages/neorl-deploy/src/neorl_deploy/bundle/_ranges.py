"""Compares numbers with declared ranges, of which both may have been rounded to float32."""

import math

import numpy as np

RESOLUTION = float(np.finfo(np.float32).eps)
"""Relative distance of neighbouring float32 numbers."""


def rounding(low: float, high: float) -> float:
    """How far rounding to float32 may take a number beyond its range; an end may be infinite."""
    # A sensor at the end of its range may send 100.00001 for a limit of 100.
    return RESOLUTION * max((abs(end) for end in (low, high) if math.isfinite(end)), default=0.0)


def outside(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether numbers lie outside their ranges by more than float32 rounding; NaN does not."""
    slack = np.array([rounding(*ends) for ends in zip(low, high, strict=True)])
    numbers = np.asarray(values, np.float64)
    return (numbers < low - slack) | (numbers > high + slack)
