"""Formats times and numbers for readers."""

from datetime import UTC, datetime
from typing import Any

EPOCH = "1970-01-01T00:00:00Z"


def duration(seconds: float) -> str:
    """A readable duration in seconds, minutes, hours or days."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


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
