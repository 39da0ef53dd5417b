"""Limits of a server on requests: size, rate, and the token."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import stat
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_deploy._errors import DeployError

MIN_TOKEN = 20


@dataclasses.dataclass(frozen=True)
class ServingLimits:
    """Limits of a server.

    Attributes:
        token: Token that a client must send as ``Authorization: Bearer TOKEN``; empty for none.
        largest: Largest request in bytes.
        rate: Average number of requests allowed per second.
        burst: Number of requests allowed at the same time.
        names: Names by which clients may address the server, besides ``localhost`` and IP
            addresses. Another name is refused, because a page of a browser may have made it point
            to this machine (DNS rebinding).
    """

    token: str = ""
    largest: int = 65_536
    rate: float = 200.0
    burst: int = 200
    names: tuple[str, ...] = ()

    def answers_to(self, host: str) -> bool:
        """Whether a client may address the server as in this ``Host`` header."""
        name = urllib.parse.urlsplit(f"//{host}").hostname if host else "localhost"
        try:
            ipaddress.ip_address(name or "")
        except ValueError:
            return name in ("localhost", *(known.lower() for known in self.names))
        return True

    def admits(self, authorization: str | None) -> bool:
        """Whether a header contains the token; compared in constant time."""
        if not self.token:
            return True
        given = (authorization or "").encode("utf-8", "replace")
        # In constant time: how long ``==`` takes tells how much of a guess is right.
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())


def read_token(path: Path) -> str:
    """The token in a file; refused if it is too short or others can read the file."""
    try:
        mode, token = path.stat().st_mode, path.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise DeployError(f"cannot read the token {path}: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DeployError(f"others can read the token {path}: chmod 600 {path}")
    if len(token) < MIN_TOKEN or not token.isascii() or any(c.isspace() for c in token):
        raise DeployError(
            f"{path} must hold a token of at least {MIN_TOKEN} ASCII characters without spaces"
        )
    return token


class Bucket:
    """Admits a limited number of requests per second, and a limited number at once.

    Args:
        rate: Requests per second.
        burst: Largest number of requests at the same time.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._tokens, self._updated_at = float(burst), clock()

    def take(self) -> bool:
        """Whether one more request may pass now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._updated_at))
        self._updated_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def too_large(limits: ServingLimits) -> str:
    """Response to a client whose request is too large."""
    return f"a request has at most {limits.largest} bytes"


def refusal(
    request: Any,
    limits: ServingLimits,
    bucket: Bucket,
    free: frozenset[str],
    urgent: frozenset[str] = frozenset(),
) -> tuple[int, str] | None:
    """Status and reason for refusing a request, before its body is read.

    Paths in ``free`` need no token and do not count towards the rate; those in ``urgent`` need a
    token, and are taken at any rate.
    """
    try:
        known = limits.answers_to(request.headers.get("host", ""))
    except ValueError:  # it is no host at all
        known = False
    if not known:
        return 421, "this server has another name; declare further ones with --host-name"
    if request.url.path in free:
        return None
    if not limits.admits(request.headers.get("authorization")):
        return 401, "send the token: Authorization: Bearer TOKEN"
    if request.url.path not in urgent and not bucket.take():
        return 429, f"at most {limits.rate:g} requests a second"
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.largest:
        return 413, too_large(limits)
    return None
