"""Runs the application until it is asked to end, and completes the last requests."""

from __future__ import annotations

import ipaddress
from typing import Any

from neorl_deploy._errors import DeployError, missing_extra
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.serving._app import application
from neorl_deploy.serving._limits import ServingLimits

GRACE = 5


def serve_http(
    runtime: Runtime,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "policy",
    limits: ServingLimits | None = None,
) -> None:
    """Serves a bundle until SIGINT or SIGTERM, then reports not ready and completes open requests.

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
    try:
        import uvicorn
    except ImportError as error:
        raise missing_extra("serving over HTTP", "http", error) from error

    class Server(uvicorn.Server):
        """Reports that it is not ready before it ends."""

        async def shutdown(self, sockets: Any = None) -> None:
            app.state.ready = False
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=5,
        limit_concurrency=64,
        h11_max_incomplete_event_size=16_384,
        server_header=False,
    )
    return Server(config)


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
