"""A guard that lets no connection leave the machine; it imports the standard library alone."""

import ipaddress
import sys
from typing import Any

_GUARDED = False
_ADDRESSED = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_NAMED = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}


class OutboundConnectionError(RuntimeError):
    """Something tried to reach another machine."""


def refuse_connections() -> None:
    """Makes every attempt of this process to reach another machine raise, until it ends.

    Works below the socket module, by an audit hook: connecting, sending a datagram and resolving a
    name all count. Loopback addresses and Unix sockets stay free. Child processes and libraries
    that call the system without Python are not seen; an end-to-end test runs those in a network
    namespace without an interface. Calling it twice is calling it once.

    Raises:
        OutboundConnectionError: Later, in whatever tries; it names the address.
    """
    global _GUARDED
    if not _GUARDED:
        sys.addaudithook(_refuse)
        _GUARDED = True


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _ADDRESSED:
        address = arguments[_ADDRESSED[event]]
        host = address[0] if isinstance(address, tuple) else None
    elif event in _NAMED:
        host = arguments[0]
    else:
        return
    if host is not None and not _is_local(host):
        raise OutboundConnectionError(
            f"{event} to {host!r}: neither the library nor its tests may reach another machine "
            "(loopback is allowed); switch off the telemetry or the download that did"
        )


def _is_local(host: str | bytes) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
