"""Protocols for plants and clocks, implemented by anyone who connects one to the loop."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from neorl_deploy._errors import DeployError


class PlantError(DeployError):
    """The connection to the plant failed; one line."""


class Quality(enum.IntEnum):
    """Quality of a value, by the severity of its status code."""

    GOOD = 0
    UNCERTAIN = 1
    BAD = 2


class Reading(NamedTuple):
    """One value of a tag.

    Attributes:
        value: Value in the unit of the tag; NaN if it is not a number.
        quality: Its quality, as the plant reports it.
        stamp: When the source took it, in seconds since 1970 UTC; ``None`` if the source gives no
            time.
    """

    value: float
    quality: Quality = Quality.GOOD
    stamp: float | None = None


class Instant(NamedTuple):
    """One moment on two clocks.

    Attributes:
        monotonic: Seconds on a clock that is never set.
        wall: Seconds since 1970 UTC.
    """

    monotonic: float
    wall: float


class Plant(Protocol):
    """A connection to a plant. Every call must return within a control period."""

    def read(self, tags: Sequence[str]) -> Sequence[Reading]:
        """Reads the values of tags, in the given order.

        Args:
            tags: Addresses as in the tag map.

        Raises:
            PlantError: If there is no connection.
        """
        ...

    def write(self, values: Mapping[str, float]) -> Mapping[str, str]:
        """Writes values.

        Args:
            values: Number by tag, in the unit of the tag.

        Returns:
            The tags that were not written, with the reason; empty if all were written.

        Raises:
            PlantError: If the connection broke; it is then unknown what was written.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Clock(Protocol):
    """Time source of the loop, so that a test can control time."""

    def now(self) -> Instant:
        """The present time."""
        ...

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the monotonic clock reaches the given number of seconds."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        """The present time."""
        return Instant(time.monotonic(), time.time())

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the monotonic clock reaches the given number of seconds."""
        remaining = monotonic - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
