"""Protocols of a plant and of a clock, for whoever connects one to the loop."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from neorl_deploy._errors import DeployError


class PlantError(DeployError):
    """The connection to the plant failed; one line."""


class Quality(enum.IntEnum):
    """Quality of a value by the severity of its status code."""

    GOOD = 0
    UNCERTAIN = 1
    BAD = 2


class Reading(NamedTuple):
    """One value of a tag.

    Attributes:
        value: Value in the unit of the tag; NaN where it is no number.
        quality: Its quality, as the plant reports it.
        stamp: When the source took it, in seconds since 1970 UTC; ``None`` where it does not say.
    """

    value: float
    quality: Quality = Quality.GOOD
    stamp: float | None = None


class Instant(NamedTuple):
    """One moment on two clocks.

    Attributes:
        monotonic: Seconds of a clock that nobody sets.
        wall: Seconds since 1970 UTC.
    """

    monotonic: float
    wall: float


class Plant(Protocol):
    """A connection to a plant. Every call ends in less than a control period."""

    def read(self, tags: Sequence[str]) -> Sequence[Reading]:
        """Values of tags, in their order.

        Args:
            tags: Addresses as the tag map has them.

        Raises:
            PlantError: If there is no connection.
        """
        ...

    def write(self, values: Mapping[str, float]) -> Mapping[str, str]:
        """Writes values.

        Args:
            values: A number by tag, in the unit of the tag.

        Returns:
            The tags that were not written, with the reason; empty where all were.

        Raises:
            PlantError: If the connection broke; then nobody knows what was written.
        """
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class Clock(Protocol):
    """Source of the time of the loop, so that a test can set it."""

    def now(self) -> Instant:
        """The moment."""
        ...

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the monotonic clock shows so many seconds."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        """The moment."""
        return Instant(time.monotonic(), time.time())

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the monotonic clock shows so many seconds."""
        remaining = monotonic - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
