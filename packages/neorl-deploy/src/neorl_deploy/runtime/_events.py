"""Events of a running bundle: stops, releases and take-overs, each with its reason."""

import collections
import logging
from typing import NamedTuple

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
        reason: Its cause as text: a person, or names of flags and monitors.
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
