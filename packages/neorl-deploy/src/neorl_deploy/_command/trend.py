"""A text-mode trend plot of the logged and the proposed actions."""

from collections.abc import Sequence

import numpy as np

LOGGED, SHADOW, BOTH = ".", "o", "@"


def trend(
    logged: np.ndarray, shadow: np.ndarray, *, width: int = 64, height: int = 7
) -> Sequence[str]:
    """Two curves of one channel over the same steps.

    Args:
        logged: Logged action, shape ``(step,)``, finite.
        shadow: Action that the bundle proposes, shape ``(step,)``, finite.
        width: Number of character columns; steps are averaged into them.
        height: Number of character rows.

    Returns:
        One string per plot row, top row first, each with its value at the left.
    """
    curves = [_columns(curve.astype(np.float64), width) for curve in (logged, shadow)]
    low = min(float(curve.min()) for curve in curves)
    high = max(float(curve.max()) for curve in curves)
    span = (high - low) or 1.0
    rows = [np.rint((curve - low) / span * (height - 1)).astype(int) for curve in curves]
    lines = []
    for level in reversed(range(height)):
        cells = [_cell(a == level, b == level) for a, b in zip(*rows, strict=True)]
        lines.append(f"{low + span * level / (height - 1):>12.5g} |{''.join(cells).rstrip()}")
    return lines


def _columns(curve: np.ndarray, width: int) -> np.ndarray:
    edges = np.linspace(0, len(curve), min(width, len(curve)) + 1).astype(int)
    return np.add.reduceat(curve, edges[:-1]) / np.diff(edges)


def _cell(logged: bool, shadow: bool) -> str:
    if logged and shadow:
        return BOTH
    return LOGGED if logged else SHADOW if shadow else " "


def typical_episode(starts: np.ndarray, difference: np.ndarray, rows: int) -> slice:
    """The rows of the episode whose mean ``difference``, one number per row, is the median."""
    ends = np.append(starts[1:], rows)
    means = np.add.reduceat(difference, starts) / (ends - starts)
    chosen = int(np.argsort(means, kind="stable")[len(means) // 2])
    return slice(int(starts[chosen]), int(ends[chosen]))
