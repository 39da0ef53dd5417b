"""HTTP interface of a running loop: readiness, metrics, a page and a stop (extra ``http``)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from neorl_deploy._errors import BundleError, DeployError, needs
from neorl_deploy.bundle._strict_json import parse_strict
from neorl_deploy.dashboard import live_page
from neorl_deploy.loop import Board, Mode
from neorl_deploy.serving._limits import Bucket, ServingLimits, refusal, too_large
from neorl_deploy.serving._server import require_token_beyond_this_machine, server_of

OPEN = frozenset({"/", "/health", "/ready"})
"""Routes that need no token: the page without its data, and the checks of a supervisor."""

URGENT = frozenset({"/stop"})
"""Routes that are taken at any rate of requests."""

SILENT = 3
"""Periods without a step after which the loop is not ready."""


def loop_application(
    board: Board,
    dt: float,
    *,
    limits: ServingLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
    stop: Callable[[str], None] | None = None,
):
    """An ASGI application beside a loop, which shows its state and can stop it.

    ``GET /health`` reports that the process is alive, ``/ready`` that the loop runs (503 before its
    first step, and after three periods without one), ``/metrics`` gives counts in the Prometheus
    format, ``/state.json`` gives the whole state, and ``/`` is the page that shows it. ``POST
    /stop`` with ``{"by": "NAME: REASON"}`` is an emergency stop; it needs a token, and nothing
    here closes the loop or releases a stop.

    Args:
        board: The state that the loop publishes.
        dt: Control period in seconds.
        limits: Token, size and rate; ``None`` for the defaults.
        clock: Returns seconds on the clock of the loop's cycles.
        stop: Stops the loop for a person, named with the reason; ``None`` for a server that only
            shows it. Called in a thread of the server.

    Returns:
        A FastAPI application.

    Raises:
        DeployError: If the extra ``http`` is not installed.
    """
    with needs("serving over HTTP", "http"):
        import fastapi
        import prometheus_client
        from fastapi.responses import HTMLResponse, JSONResponse, Response
    bounds = ServingLimits() if limits is None else limits
    bucket = Bucket(bounds.rate, bounds.burst)
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Metrics(board, dt, clock))
    page = live_page()
    app = fastapi.FastAPI(title="neorl loop", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.ready = True

    async def guarded(request: Any, forward: Callable[[Any], Awaitable[Any]]) -> Any:
        turned_away = refusal(request, bounds, bucket, OPEN, URGENT)
        if turned_away is not None:
            return JSONResponse({"error": turned_away[1]}, turned_away[0])
        return await forward(request)

    async def health(_: Any) -> Any:
        return JSONResponse({"live": True})

    async def ready(_: Any) -> Any:
        turning = app.state.ready and _silence(board, clock) <= SILENT * dt
        return JSONResponse({"ready": turning}, 200 if turning else 503)

    async def metrics(_: Any) -> Any:
        text = prometheus_client.generate_latest(registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def state(_: Any) -> Any:
        return JSONResponse(board.snapshot())

    async def shown(_: Any) -> Any:
        return HTMLResponse(page)

    app.middleware("http")(guarded)
    app.add_route("/stop", _stopping(stop, bounds, JSONResponse), methods=["POST"])
    routes = {"/": shown, "/health": health, "/ready": ready, "/metrics": metrics}
    for path, function in {**routes, "/state.json": state}.items():
        app.add_route(path, function, methods=["GET"])
    return app


def _stopping(
    stop: Callable[[str], None] | None, limits: ServingLimits, answer: Callable[..., Any]
) -> Callable[[Any], Awaitable[Any]]:
    """The route of an emergency stop; without a token, any page in a browser could ask for it."""

    async def stopped(request: Any) -> Any:
        if stop is None:
            return answer({"error": "this server only shows the loop"}, 403)
        if not limits.token:
            return answer({"error": "a stop needs a token; serve with --token-file"}, 403)
        body = b""
        async for chunk in request.stream():  # the stated length may be missing
            body += chunk
            if len(body) > limits.largest:
                return answer({"error": too_large(limits)}, 413)
        try:
            document = parse_strict(body, "the request")
        except BundleError as error:
            return answer({"error": str(error)}, 422)
        by = document.get("by") if isinstance(document, dict) else None
        if not isinstance(by, str) or not by.strip():
            return answer({"error": 'say who stops it and why: {"by": "NAME: REASON"}'}, 422)
        await asyncio.to_thread(stop, f"{by.strip()} (over HTTP)")  # it may wait for a disk
        return answer({"ordered": "stop"}, 202)

    return stopped


@contextlib.contextmanager
def beside(
    board: Board,
    dt: float,
    *,
    host: str,
    port: int,
    limits: ServingLimits,
    clock: Callable[[], float] = time.monotonic,
    stop: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Serves the application in its own thread while a loop runs."""
    require_token_beyond_this_machine(host, limits)
    app = loop_application(board, dt, limits=limits, clock=clock, stop=stop)
    server = server_of(app, host, port)
    thread = threading.Thread(target=_run, args=(server,), daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    if not server.started:
        raise DeployError(f"cannot listen on {host}:{port}; is it taken?")
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(10)


def _run(server: Any) -> None:
    with contextlib.suppress(SystemExit):  # how uvicorn reports that it could not listen
        server.run()


def _silence(board: Board, clock: Callable[[], float]) -> float:
    last = board.last
    return float("inf") if last is None else clock() - last.at.monotonic


class _Metrics:
    """The metrics behind ``/metrics``, built from the board on request."""

    def __init__(self, board: Board, dt: float, clock: Callable[[], float]) -> None:
        self._board, self._dt, self._clock = board, dt, clock

    def collect(self) -> Iterator[Any]:
        """Families of metrics, for the Prometheus client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = dict(self._board.counts)
        texts = {
            "periods": "Control periods",
            "missed": "Periods that passed without a step",
            "faults": "Periods in which a measurement was lost",
            "alarms": "Periods in which a monitor alarmed",
            "fallback": "Periods in which the fallback would act or acted",
            "refused": "Periods in which a write was refused",
        }
        for name, text in texts.items():
            yield CounterMetricFamily(f"neorl_loop_{name}", text, value=counts.get(name, 0))
        by_mode = CounterMetricFamily("neorl_loop_mode_periods", "Periods by mode", labels=["mode"])
        for mode in Mode:
            by_mode.add_metric([str(mode)], counts.get(f"mode {mode}", 0))
        yield by_mode
        last = self._board.last
        now = GaugeMetricFamily("neorl_loop_mode", "One for the present mode", labels=["mode"])
        for mode in Mode:
            now.add_metric([str(mode)], float(last is not None and last.mode is mode))
        yield now
        silence = "Seconds since the last period began"
        yield GaugeMetricFamily(
            "neorl_loop_silence_seconds", silence, value=_silence(self._board, self._clock)
        )
        yield GaugeMetricFamily("neorl_loop_period_seconds", "Control period", value=self._dt)
