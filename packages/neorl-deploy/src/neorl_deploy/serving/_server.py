"""Runs the application until it is asked to end, and completes the last requests."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Any

from neorl_deploy._errors import DeployError, needs
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.serving._app import application
from neorl_deploy.serving._limits import ServingLimits

GRACE = 5
"""Seconds in which open requests are completed at the end."""
ARRIVAL = 5
"""Seconds within which a request must have arrived, once its connection is open or it has begun."""
WAITING = 32
"""Connections without a whole request that one client may keep; the oldest ones are closed."""
BURST = 0.5
"""Seconds for which a connection is not closed for the sake of others."""
CONNECTIONS = 256
"""Connections beyond which requests are answered with 503."""


def serve_http(
    runtime: Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "policy",
    limits: ServingLimits | None = None,
) -> None:
    """Serves a bundle until SIGINT or SIGTERM, then accepts no connection and completes requests.

    Args:
        runtime: A loaded bundle.
        host: Address to listen on.
        port: Port to listen on.
        name: Name of the model.
        limits: Token, size and rate.

    Raises:
        DeployError: If other machines could connect and no token is required, the port is taken, or
            the extra ``http`` is not installed.
    """
    bounds = ServingLimits() if limits is None else limits
    require_token_beyond_this_machine(host, bounds)
    server = make_server(runtime, host=host, port=port, name=name, limits=bounds)
    try:
        server.run()
    except SystemExit as error:  # how uvicorn reports that it could not listen
        raise DeployError(f"cannot listen on {host}:{port}; is it taken?") from error


def make_server(runtime: Runtime, *, host: str, port: int, name: str, limits: ServingLimits) -> Any:
    """The server of a bundle, not yet started."""
    return server_of(application(runtime, name=name, limits=limits), host, port)


def server_of(app: Any, host: str, port: int) -> Any:
    """The server of an application, not yet started."""
    with needs("serving over HTTP", "http"):
        import uvicorn

    class Server(uvicorn.Server):
        """Reports on its open connections that it is not ready before it ends."""

        async def shutdown(self, sockets: Any = None) -> None:
            app.state.ready = False
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        http=_protocol(),
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=5,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=16_384,
        server_header=False,
    )
    return Server(config)


def _protocol() -> type[asyncio.Protocol]:
    """The protocol of a connection: that of uvicorn, with limits on requests that do not arrive.

    Without them, clients that send half a request take all connections, and a supervisor that asks
    for the health of a loop is turned away.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """One connection."""

        opened_at = 0.0
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.opened_at = self.loop.time()
            self.deadline = self.loop.call_later(ARRIVAL, self.expire)
            for other in _surplus(self, self.connections):
                other.transport.close()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if _waits(self):
                # Not later because of more data: a client may send a byte a second.
                self.deadline = self.deadline or self.loop.call_later(ARRIVAL, self.expire)
            else:
                self.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            self.cancel()
            super().connection_lost(exc)

        def expire(self) -> None:
            """Closes the connection if its request has still not arrived."""
            self.deadline = None
            if _waits(self):
                self.transport.close()

        def cancel(self) -> None:
            """Ends the wait for a request."""
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

    return Protocol


def _waits(connection: Any) -> bool:
    """Whether the next request of a connection has not arrived whole."""
    cycle = connection.cycle  # None before the first request
    return cycle is None or cycle.response_complete or cycle.more_body


def _surplus(newest: Any, connections: Iterable[Any]) -> list[Any]:
    """The connections to close because one client keeps too many that wait, oldest first."""
    address = newest.client and newest.client[0]
    waiting = [
        one for one in connections if _waits(one) and (one.client and one.client[0]) == address
    ]
    waiting.sort(key=lambda one: one.opened_at)
    return [one for one in waiting[:-WAITING] if newest.opened_at - one.opened_at > BURST]


def require_token_beyond_this_machine(host: str, limits: ServingLimits) -> None:
    """Refuses to listen to other machines without a token."""
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    if not own and not limits.token:
        raise DeployError(
            f"{host} can be reached from other machines; require a token with --token-file, and "
            "put TLS in front of it"
        )
