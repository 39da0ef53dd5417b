"""Creates a connection from the table ``[connection]`` of a tag map."""

from __future__ import annotations

import importlib
import ipaddress
import math
import sys
import urllib.parse
from importlib import metadata
from typing import Any

from neorl_deploy._errors import DeployError
from neorl_deploy.loop._plant import Plant
from neorl_deploy.loop._tags import TagMap

GROUP = "neorl.connections"
"""Group of the entry points by which packages offer kinds of connection."""


def connect(tags: TagMap) -> Plant:
    """Creates the connection that a tag map names.

    A kind is the name of an entry point in the group ``neorl.connections``, or ``MODULE:CLASS``. It
    is called with the tag map as ``tags`` and with all other entries of the table.

    Raises:
        DeployError: If the kind is unknown, cannot be imported, or refuses its settings.
    """
    settings = dict(tags.connection)
    kind = settings.pop("kind")
    make = _maker(kind)
    try:
        return make(tags=tags, **settings)
    except TypeError as error:
        raise DeployError(f"[connection] of kind {kind!r}: {error}") from error
    except OSError as error:
        raise DeployError(f"[connection] of kind {kind!r} cannot be opened: {error}") from error


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
    if kind in offered.names:
        return offered[kind].load()
    module, colon, name = kind.partition(":")
    if not colon:
        known = ", ".join(sorted(offered.names)) or "none are installed"
        raise DeployError(f"[connection] kind {kind!r} must be one of {known}, or MODULE:CLASS")
    if "" not in sys.path:
        sys.path.insert(0, "")  # finds a module beside the tag map, as other commands do
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DeployError(f"[connection] kind {kind!r} cannot be imported: {error}") from error
