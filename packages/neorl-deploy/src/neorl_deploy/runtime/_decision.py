"""Inputs and outputs of one step of a bundle, and the events of a running one."""

import collections
import enum
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._manifest import ChannelEntry, Manifest

# Inputs and outputs of one step of a bundle.


class LastSent(enum.Enum):
    """Values that may be given instead of the last action."""

    AS_PROPOSED = "as proposed"
    """The plant received the last decision unchanged; use it only if this is certain."""
    UNKNOWN = "unknown"
    """The action is unknown: there was no read-back yet, or it was lost."""


OF_THE_ACTION = ("active", "rows_infeasible", "hand_over")
"""Parts of flag names that may depend on the last bit of an action."""


def findings(flags: Mapping[str, int]) -> int:
    """The bits that describe the inputs; those that report active limits are not included."""
    return sum(bit for name, bit in flags.items() if not any(p in name for p in OF_THE_ACTION))


AS_PROPOSED, UNKNOWN = LastSent.AS_PROPOSED, LastSent.UNKNOWN


class Decision(NamedTuple):
    """One step of a bundle.

    Attributes:
        action: Action to send to the plant, physical units, shape ``(act,)``.
        flags: Decisions of the filter, named by :meth:`Runtime.flag_names`.
        limits: Active limits of every channel, shape ``(act,)``.
        intervention: Distance by which each channel was moved, in its unit, shape ``(act,)``.
        alarms: Monitors that raise an alarm, named by :meth:`Runtime.alarm_names`.
    """

    action: np.ndarray
    flags: int
    limits: np.ndarray
    intervention: np.ndarray
    alarms: int


def no_decision(manifest: Manifest) -> Decision:
    """What stands for a decision that could not be computed: no action, and not by the policy."""
    width = len(manifest.action)
    nothing = np.full(width, np.nan, np.float32)
    flags = manifest.flags.get("fallback_used", 0)
    return Decision(nothing, flags, np.zeros(width, np.uint32), nothing, 0)


def vector(name: str, value: Any, channels: Sequence[ChannelEntry]) -> np.ndarray:
    """One number for each channel as float32.

    Args:
        name: Name of the argument, for messages.
        value: Numbers in the order of the channels, or a dictionary of them by channel.
        channels: Channels of the bundle.

    Raises:
        ValueError: If there are more or fewer numbers, a dictionary has other names, or a value is
            not a number; the channel is named.
    """
    width = len(channels)
    if isinstance(value, dict):
        names = [channel.name for channel in channels]
        if odd := set(value) ^ set(names):
            raise ValueError(
                f"{name} must name each of the channels {', '.join(names)} once (NaN where one is "
                f"not known); unknown or missing: {', '.join(sorted(map(str, odd)))}"
            )
        value = [value[channel] for channel in names]
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        vector = value
    else:
        try:
            with np.errstate(over="ignore"):
                vector = np.asarray(value, np.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(_no_number(name, value, channels)) from error
    if vector.shape != (width,):
        raise ValueError(f"{name} has shape {vector.shape}; expected ({width},)")
    return vector


def _no_number(name: str, value: Any, channels: Sequence[ChannelEntry]) -> str:
    """Names the value of an argument that is not a number."""
    if isinstance(value, list | tuple) and len(value) == len(channels):
        for channel, one in zip(channels, value, strict=True):
            try:
                float(one)
            except (TypeError, ValueError):
                return (
                    f"{name} must be numbers, got {one!r} for {channel.name}; give NaN where a "
                    "value is not known"
                )
    return f"{name} must be one number for each of the {len(channels)} channels, got {value!r:.80}"


# Events of a running bundle: stops, releases and take-overs, each with its reason.


LOGGER = logging.getLogger("neorl_deploy.runtime")
MAX_EVENTS = 10_000
"""Number of events that are kept; older ones are only in the log of the process."""

STOP, RELEASE, RESET, RESTART = "emergency stop", "release", "reset", "restart"
WITHOUT_STATE = "begins without the state of an earlier process"
"""Beginning of the reason for a stop that no person ordered."""
FALLBACK, POLICY = "fallback acts", "policy acts"


class Event(NamedTuple):
    """One event.

    Attributes:
        step: Number of decisions before the event.
        kind: ``"emergency stop"``, ``"release"``, ``"reset"``, ``"restart"``,
            ``"fallback acts"`` or ``"policy acts"``.
        reason: Its cause in words: a person, monitors that alarm, sentences of flags.
    """

    step: int
    kind: str
    reason: str


class Events:
    """The latest events in order, each also sent to the process's log."""

    def __init__(self) -> None:
        self._events: collections.deque[Event] = collections.deque(maxlen=MAX_EVENTS)

    def note(self, step: int, kind: str, reason: str) -> None:
        """Stores and logs an event."""
        event = Event(step, kind, " ".join(reason.split()))
        self._events.append(event)
        is_warning = kind in (STOP, FALLBACK)
        LOGGER.log(logging.WARNING if is_warning else logging.INFO, "step %d: %s (%s)", *event)

    def recall(self, earlier: tuple[Event, ...]) -> None:
        """Inserts the events of an earlier process at the front; its log already contains them."""
        self._events = collections.deque([*earlier, *self._events], maxlen=MAX_EVENTS)

    def list(self) -> tuple[Event, ...]:
        """The stored events, oldest first."""
        return tuple(self._events)
