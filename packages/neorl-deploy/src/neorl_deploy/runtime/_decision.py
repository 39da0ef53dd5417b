"""What goes into a step of a bundle, and what comes out of it."""

import enum
from typing import Any, NamedTuple

import numpy as np


class LastSent(enum.Enum):
    """What is said of the last action in place of its value."""

    AS_PROPOSED = "as proposed"
    """The plant received the last decision as it was; only where that is certain."""
    UNKNOWN = "unknown"
    """Nobody can say: no read-back yet, or it was lost."""


AS_PROPOSED, UNKNOWN = LastSent.AS_PROPOSED, LastSent.UNKNOWN


class Decision(NamedTuple):
    """One step of a bundle.

    Attributes:
        action: Action to send to the plant, physical units, shape ``(act,)``.
        flags: Decisions of the filter, named by :meth:`Runtime.flag_names`.
        limits: Active limits of every channel, shape ``(act,)``.
        intervention: Distance by which each channel was moved, in its unit, shape ``(act,)``.
        alarms: Monitors that alarm, named by :meth:`Runtime.alarm_names`.
    """

    action: np.ndarray
    flags: int
    limits: np.ndarray
    intervention: np.ndarray
    alarms: int


def vector(name: str, value: Any, width: int) -> np.ndarray:
    """Numbers of a stated width as float32.

    Raises:
        ValueError: If there are more or fewer.
    """
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        vector = value
    else:
        with np.errstate(over="ignore"):
            vector = np.asarray(value, np.float32)
    if vector.shape != (width,):
        raise ValueError(f"{name} has shape {vector.shape}; expected ({width},)")
    return vector
