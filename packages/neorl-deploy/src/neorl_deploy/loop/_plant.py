"""Protocols for plants and clocks, and the connection that a tag map names."""

from __future__ import annotations

import enum
import importlib
import ipaddress
import math
import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple, Protocol

from neorl_deploy._errors import DeployError
from neorl_deploy.loop._tags import TagMap

# Protocols for plants and clocks, implemented by anyone who connects one to the loop.


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
    """A connection to a plant. Every call must return within a control period.

    One that connects again within a call counts its connections in an attribute ``session``, since
    a mode tag of a server that has restarted is no order.
    """

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


# Creates a connection from the table ``[connection]`` of a tag map.


GROUP = "neorl.connections"
"""Group of the entry points by which packages offer kinds of connection."""


def connect(tags: TagMap) -> Plant:
    """Creates the connection that a tag map names.

    A kind is the name of an entry point in the group ``neorl.connections``, or ``MODULE:CLASS``. It
    is called with the tag map as ``tags`` and with all other entries of the table.

    Raises:
        DeployError: If the kind is unknown, cannot be imported, refuses its settings, or lacks a
            method of :class:`Plant`.
    """
    settings = dict(tags.connection)
    kind = settings.pop("kind")
    make = _maker(kind)
    try:
        plant = make(tags=tags, **settings)
    except TypeError as error:
        raise DeployError(f"[connection] of kind {kind!r}: {error}") from error
    except OSError as error:
        raise DeployError(f"[connection] of kind {kind!r} cannot be opened: {error}") from error
    for method in ("read", "write", "close"):
        if not callable(getattr(plant, method, None)):
            raise DeployError(
                f"[connection] of kind {kind!r}: a {type(plant).__name__} lacks the method "
                f"{method}; see neorl_deploy.loop.Plant"
            )
    return plant


def readings_of(plant: Plant, tags: Sequence[str]) -> Sequence[Reading]:
    """Reads tags; what a connection of others does wrong is one line.

    Raises:
        PlantError: If there is no connection.
        DeployError: If it fails in another way, or gives no :class:`Reading` for each tag.
    """
    try:
        readings = plant.read(tags)
    except DeployError:
        raise
    except Exception as error:
        raise DeployError(
            f"[connection]: read fails with {type(error).__name__}: {error}"
        ) from error
    if len(readings) != len(tags) or not all(isinstance(one, Reading) for one in readings):
        given = ", ".join(sorted({type(one).__name__ for one in readings}))
        raise DeployError(
            f"[connection]: read must return a Reading for each of {len(tags)} tags, "
            f"got {len(readings)} ({given})"
        )
    return readings


def require_timeout(timeout: float) -> None:
    """Requires that the timeout of a connection is a positive time."""
    if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise DeployError(f"[connection]: timeout must be a time above zero, got {timeout!r}")


def require_address(
    address: str, example: str, *, trusted: bool, advice: str
) -> urllib.parse.SplitResult:
    """The parts of an address; another machine is accepted only if the connection is secured.

    Args:
        address: Address in the tag map.
        example: An address of the same scheme, for the message.
        trusted: Whether the connection to another machine is secured or known to be safe.
        advice: Advice for connecting to another machine, other than ``insecure = true``.

    Raises:
        DeployError: If it is not an address, or names another machine that is not trusted.
    """
    scheme = example.partition(":")[0]
    try:
        parts = urllib.parse.urlsplit(address)
        valid = parts.scheme == scheme and bool(parts.hostname) and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        parts, valid = urllib.parse.urlsplit(""), False
    if not valid:
        raise DeployError(f"[connection]: address must look like {example}, got {address!r}")
    if not (trusted or _of_this_machine(parts.hostname or "")):
        raise DeployError(
            f"[connection]: {address} is another machine; {advice}, or write insecure = true, "
            "which lets anybody on the network path write to your actuators"
        )
    return parts


def _of_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _maker(kind: str) -> Any:
    offered = metadata.entry_points(group=GROUP)
    module, colon, name = kind.partition(":")
    if not colon and kind not in offered.names:
        known = ", ".join(sorted(offered.names)) or "none are installed"
        raise DeployError(f"[connection] kind {kind!r} must be one of {known}, or MODULE:CLASS")
    if "" not in sys.path:
        sys.path.insert(0, "")  # finds a module beside the tag map, as other commands do
    try:
        if kind in offered.names:
            return offered[kind].load()
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a module of others may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise DeployError(f"[connection] kind {kind!r} cannot be imported: {reason}") from error
