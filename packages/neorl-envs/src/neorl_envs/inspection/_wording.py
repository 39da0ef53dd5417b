"""Formats times and numbers for readers."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

EPOCH = "1970-01-01T00:00:00Z"


UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def durations(seconds: Sequence[float]) -> list[str]:
    """Durations that a reader compares, in one unit if it suits all of them.

    The unit is the largest in which the shortest duration is at least 0.5 and the longest below
    1000. If there is none, each duration has a unit of its own.

    Example:
        >>> durations([600.0, 9_000.0])
        ['10 min', '150 min']
    """
    known = [value for value in seconds if 0 < value < math.inf]
    for size, unit in UNITS if known else ():
        if min(known) >= 0.5 * size and max(known) < 1000 * size and max(known) >= 2 * size:
            return [_with_unit(value, size, unit) for value in seconds]
    return [duration(value) for value in seconds]


def duration(seconds: float) -> str:
    """A readable duration in seconds, minutes, hours or days."""
    size, unit = next((one for one in UNITS if seconds >= 2 * one[0]), UNITS[-1])
    return _with_unit(seconds, size, unit)


def _with_unit(seconds: float, size: int, unit: str) -> str:
    return f"{seconds / size:.3g} {unit}" if math.isfinite(seconds) else f"{seconds:g}"


def moment(seconds: float, origin: str | None) -> str:
    """A readable time: a date if it counts from 1970, otherwise seconds."""
    if origin != EPOCH:
        return f"{seconds:g} s"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def began(event: dict[str, Any], time: dict[str, Any] | None) -> str:
    """The time at which an event begins in a log, or its row if the log has no times."""
    return f"row {event['row']}" if time is None else moment(event["start"], time["origin"])


def figures(value: float) -> str:
    """A readable number: four significant digits, without an exponent if possible."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"
