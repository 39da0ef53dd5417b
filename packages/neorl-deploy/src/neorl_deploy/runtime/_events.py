"""Events while a bundle ran: stops, releases, take-overs, each with its reason."""

import collections
import logging
from typing import NamedTuple

LOGGER = logging.getLogger("neorl_deploy.runtime")
KEPT = 10_000
"""Events that are kept; older ones are in the log of the process alone."""

STOP, RELEASE, RESET, RESTART = "emergency stop", "release", "reset", "restart"
WITHOUT_STATE = "begins without the state of an earlier process"
"""How the reason of a stop begins that no person pressed."""
FALLBACK, POLICY = "fallback acts", "policy acts"


class Event(NamedTuple):
    """One event.

    Attributes:
        step: Number of decisions before it.
        what: ``"emergency stop"``, ``"release"``, ``"reset"``, ``"restart"``,
            ``"fallback acts"`` or ``"policy acts"``.
        reason: Its cause in words: a person, or names of flags and monitors.
    """

    step: int
    what: str
    reason: str


class Events:
    """The last events in order, each also sent to the process's log."""

    def __init__(self) -> None:
        self._kept: collections.deque[Event] = collections.deque(maxlen=KEPT)

    def note(self, step: int, what: str, reason: str) -> None:
        """Keeps and logs an event."""
        event = Event(step, what, " ".join(reason.split()))
        self._kept.append(event)
        serious = what in (STOP, FALLBACK)
        LOGGER.log(logging.WARNING if serious else logging.INFO, "step %d: %s (%s)", *event)

    def recall(self, earlier: tuple[Event, ...]) -> None:
        """Puts the events of an earlier process in front; they are in its log already."""
        self._kept = collections.deque([*earlier, *self._kept], maxlen=KEPT)

    def list(self) -> tuple[Event, ...]:
        """The events that are kept, oldest first."""
        return tuple(self._kept)
