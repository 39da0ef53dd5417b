"""Events of a running bundle: stops, releases and take-overs, each with its reason."""

import collections
import logging
from typing import NamedTuple

LOGGER = logging.getLogger("neorl_deploy.runtime")
KEPT = 10_000
"""Number of events that are kept; older ones are only in the log of the process."""

STOP, RELEASE, RESET, RESTART = "emergency stop", "release", "reset", "restart"
WITHOUT_STATE = "begins without the state of an earlier process"
"""Beginning of the reason for a stop that no person ordered."""
FALLBACK, POLICY = "fallback acts", "policy acts"


class Event(NamedTuple):
    """One event.

    Attributes:
        step: Number of decisions before the event.
        what: ``"emergency stop"``, ``"release"``, ``"reset"``, ``"restart"``,
            ``"fallback acts"`` or ``"policy acts"``.
        reason: Its cause as text: a person, or names of flags and monitors.
    """

    step: int
    what: str
    reason: str


class Events:
    """The latest events in order, each also sent to the process's log."""

    def __init__(self) -> None:
        self._kept: collections.deque[Event] = collections.deque(maxlen=KEPT)

    def note(self, step: int, what: str, reason: str) -> None:
        """Stores and logs an event."""
        event = Event(step, what, " ".join(reason.split()))
        self._kept.append(event)
        serious = what in (STOP, FALLBACK)
        LOGGER.log(logging.WARNING if serious else logging.INFO, "step %d: %s (%s)", *event)

    def recall(self, earlier: tuple[Event, ...]) -> None:
        """Inserts the events of an earlier process at the front; its log already contains them."""
        self._kept = collections.deque([*earlier, *self._kept], maxlen=KEPT)

    def list(self) -> tuple[Event, ...]:
        """The stored events, oldest first."""
        return tuple(self._kept)
