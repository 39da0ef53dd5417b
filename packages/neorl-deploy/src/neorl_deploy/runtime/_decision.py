"""Inputs and outputs of one step of a bundle, the events of a running one, and both in words."""

from __future__ import annotations

import collections
import enum
import logging
import types
from collections.abc import Iterable, Mapping, Sequence
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


# What the guard's flags mean for whoever watches the plant, in plain words.


FLAG_SENTENCES: Mapping[str, str] = types.MappingProxyType(
    {
        "request_nonfinite": "the policy proposes no valid number",
        "observation_nonfinite": "a measurement is missing",
        "bad_constraint": "a limit is not valid",
        "bad_period": "the length of the period is not valid, so nothing with a rate limit moves",
        "previous_unknown": "it is not known what the plant received last",
        "previous_assumed": "the plant did not say what it received, so the last output is assumed",
        "previous_out_of_range": "the plant received a value outside an actuator's range",
        "previous_outside_box": "an actuator is outside its limits and returns at the allowed rate",
        "fallback_nonfinite": "the fallback has no valid number for an actuator, which holds",
        "fallback_clipped": "the fallback is held within the limits",
        "fallback_used": "the fallback acts",
        "box_active": "an actuator is at its limit",
        "rate_active": "an actuator moves as fast as it may",
        "interval_active": "an interlock or a further limit holds an actuator",
        "interval_empty": "limits of an actuator exclude one another and were ignored",
        "rows_active": "a limit on several actuators together changes the action",
        "rows_infeasible": "no action satisfies the limits on several actuators together",
        "wear_active": "an actuator rests to spare it",
        "request_subnormal": "a proposed number is so small that it counts as zero",
        "monitor_alarm": "a monitor alarms",
        "fallback_held": "the fallback stays until there has been no fault for some time",
        "latched": "the fallback stays until somebody releases the loop",
        "hand_over": "control is being handed over without a jump",
        "emergency_stop": "the emergency stop was pressed",
        "authority_active": "the policy may not move an actuator further",
    }
)
"""A sentence for every flag, by the name that a manifest gives it."""

NO_CAUSES = frozenset({"fallback_used", "hand_over", "fallback_clipped", "monitor_alarm"})
"""Flags of a take-over that are not its cause, or that the monitors' names describe better."""

OF_A_LOST_MEASUREMENT = frozenset({"observation_nonfinite", "request_nonfinite"})
"""Flags that say nothing more where a measurement is lost."""


def flag_sentences(flags: Iterable[str], *, lost: bool = False) -> list[str]:
    """The flags in words, in their order.

    Args:
        flags: Names of flags.
        lost: Whether a lost measurement is named already, from which some of them follow.

    Example:
        >>> flag_sentences(["request_nonfinite", "fallback_held"], lost=True)
        ['the fallback stays until there has been no fault for some time']
    """
    return [
        FLAG_SENTENCES.get(name, name.replace("_", " "))
        for name in flags
        if not (lost and name in OF_A_LOST_MEASUREMENT)
    ]


def causes_in_words(manifest: Manifest, decision: Decision, *, lost: bool = False) -> list[str]:
    """Why policy or fallback acts in a decision: the monitors that alarm, then the flags."""
    alarms = [f"monitor {name} alarms" for name in manifest.alarm_names(decision.alarms)]
    flags = [name for name in manifest.flag_names(decision.flags) if name not in NO_CAUSES]
    return alarms + flag_sentences(flags, lost=lost)
