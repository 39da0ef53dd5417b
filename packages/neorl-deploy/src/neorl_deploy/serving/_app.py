"""The Open Inference Protocol for one bundle: requests, responses, and the routes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError, needs
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._strict_json import parse_strict
from neorl_deploy.runtime._decision import Decision
from neorl_deploy.runtime._runtime import Runtime
from neorl_deploy.serving._limits import Bucket, ServingLimits, refusal, too_large

# Requests and responses of the Open Inference Protocol, version 2, for one bundle.
#
# The step of a bundle is a function of its carry, one observation and the action that the plant
# received. A request has the same form: ``carry`` goes in and comes out, and a server keeps
# nothing between two requests. ``null`` represents a missing number, because JSON has no NaN.


class RequestError(ValueError):
    """A request that does not fit the bundle; one line."""


class InferenceRequest(NamedTuple):
    """A parsed request.

    Attributes:
        id: Identifier that the client chose; ``None`` if it chose none.
        obs: The observation, NaN where a measurement is missing.
        last_sent: Action that the plant received, NaN if unknown.
        ages: Seconds since each measurement was taken; ``None`` if the client does not give them.
        carry: State of the bundle after the last step; ``None`` for a fresh one.
    """

    id: str | None
    obs: np.ndarray
    last_sent: np.ndarray
    ages: np.ndarray | None
    carry: np.ndarray | None


def metadata(name: str, manifest: Manifest, digest: str, n_words: int) -> dict[str, Any]:
    """Metadata of a model: tensors of the protocol, channels with units, and names of all bits."""
    observed, width = len(manifest.obs), len(manifest.action)
    channels = {
        side: [{"name": c.name, "unit": c.unit, "low": c.low, "high": c.high} for c in entries]
        for side, entries in (("obs", manifest.obs), ("action", manifest.action))
    }
    return {
        "name": name,
        "versions": [digest],
        "platform": "neorl_bundle",
        "inputs": [
            {"name": "obs", "datatype": "FP32", "shape": [1, observed]},
            {"name": "last_sent", "datatype": "FP32", "shape": [1, width]},
            {"name": "ages", "datatype": "FP32", "shape": [1, observed]},
            {"name": "carry", "datatype": "UINT32", "shape": [1, n_words]},
        ],
        "outputs": [
            {"name": "action", "datatype": "FP32", "shape": [1, width]},
            {"name": "flags", "datatype": "UINT32", "shape": [1, 1]},
            {"name": "limits", "datatype": "UINT32", "shape": [1, width]},
            {"name": "intervention", "datatype": "FP32", "shape": [1, width]},
            {"name": "alarms", "datatype": "UINT32", "shape": [1, 1]},
            {"name": "carry", "datatype": "UINT32", "shape": [1, n_words]},
        ],
        "parameters": {
            "channels": channels,
            "dt": manifest.dt,
            "verdict": manifest.verdict,
            "flags": dict(manifest.flags),
            "limits": dict(manifest.limits),
            "alarms": {name: 1 << bit for bit, name in enumerate(manifest.monitors)},
        },
    }


def parse_request(document: Any, manifest: Manifest, n_words: int) -> InferenceRequest:
    """Parses a request; every tensor must be known, of its shape and type, and contain numbers."""
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise RequestError("a request must be an object with a list of inputs")
    if document.get("outputs"):
        raise RequestError("leave outputs out: all of them are returned")
    identity = document.get("id")
    if not isinstance(identity, str | None):
        raise RequestError("id must be text")
    observed, width = len(manifest.obs), len(manifest.action)
    known = {
        "obs": ("FP32", observed),
        "last_sent": ("FP32", width),
        "ages": ("FP32", observed),
        "carry": ("UINT32", n_words),
    }
    given: dict[str, np.ndarray] = {}
    for tensor in document["inputs"]:
        name = tensor.get("name") if isinstance(tensor, dict) else None
        if not isinstance(name, str) or name not in known or name in given:
            raise RequestError(
                f"the input {name!r} is unknown or given twice; the inputs are {', '.join(known)}"
            )
        given[name] = _tensor(tensor, name, *known[name])
    if "obs" not in given:
        raise RequestError("the input obs is missing")
    if manifest.max_age and "ages" not in given:
        aged = ", ".join(manifest.max_age)
        raise RequestError(f"this bundle refuses old measurements of {aged}; give ages")
    unknown = np.full(width, np.nan, np.float32)
    return InferenceRequest(
        identity,
        given["obs"],
        given.get("last_sent", unknown),
        given.get("ages"),
        given.get("carry"),
    )


def _tensor(tensor: dict[str, Any], name: str, datatype: str, width: int) -> np.ndarray:
    if tensor.get("datatype") != datatype:
        raise RequestError(f"{name} must be {datatype}, got {tensor.get('datatype')!r}")
    if tensor.get("shape") not in ([1, width], [width]):
        raise RequestError(f"{name} must have the shape [1, {width}], got {tensor.get('shape')!r}")
    data = tensor.get("data")
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], list):
        data = data[0]
    if not isinstance(data, list) or len(data) != width:
        raise RequestError(f"{name} must have {width} numbers")
    if datatype == "UINT32":
        if not all(type(value) is int and 0 <= value < 2**32 for value in data):
            raise RequestError(f"{name} must hold integers of 32 bits")
        return np.array(data, np.uint32)
    if not all(value is None or type(value) in (int, float) for value in data):
        raise RequestError(f"{name} must hold numbers, with null where one is missing")
    try:
        with np.errstate(over="ignore"):
            return np.array([math.nan if value is None else value for value in data], np.float32)
    except OverflowError as error:  # JSON bounds no integer
        raise RequestError(f"{name} holds an integer that no float can represent") from error


def inference_response(
    name: str, digest: str, request: InferenceRequest, decision: Decision, carry: np.ndarray
) -> dict[str, Any]:
    """The response to a request."""
    floats = {"action": decision.action, "intervention": decision.intervention}
    integers = {
        "flags": [decision.flags],
        "limits": [int(bits) for bits in decision.limits],
        "alarms": [decision.alarms],
        "carry": [int(word) for word in carry],
    }
    outputs: list[dict[str, Any]] = [
        {
            "name": output,
            "datatype": "FP32",
            "shape": [1, len(values)],
            "data": [float(value) if math.isfinite(value) else None for value in values],
        }
        for output, values in floats.items()
    ]
    outputs += [
        {"name": output, "datatype": "UINT32", "shape": [1, len(values)], "data": values}
        for output, values in integers.items()
    ]
    response = {"model_name": name, "model_version": digest, "outputs": outputs}
    return response if request.id is None else {**response, "id": request.id}


# The routes: inference, health, readiness, metrics.


OPEN = frozenset({"/health", "/ready", "/v2/health/live", "/v2/health/ready"})
"""Routes that need no token, for machine supervisors."""


def application(runtime: Runtime, *, name: str = "policy", limits: ServingLimits | None = None):
    """An ASGI application for one bundle.

    ``POST /v2/models/NAME/infer`` decides one step; nothing is kept between two requests and
    nothing is written to a plant. ``GET /v2`` and ``/v2/models/NAME`` describe the server and the
    model, ``/health`` reports that the process is alive, ``/ready`` that it accepts requests, and
    ``/metrics`` gives counts in the Prometheus format.

    Args:
        runtime: A loaded runtime, which only the application may use from then on.
        name: Name of the model in the URLs.
        limits: Token, size and rate; ``None`` for the defaults.

    Returns:
        A FastAPI application; ``app.state.ready`` states whether it accepts requests.

    Raises:
        DeployError: If the extra ``http`` is not installed.
    """
    with needs("serving over HTTP", "http"):
        import fastapi
        import prometheus_client
    bounds = ServingLimits() if limits is None else limits
    app = fastapi.FastAPI(title="neorl bundle", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.ready = True
    app.state.model = _Model(runtime, name)
    service = _Service(app, app.state.model, _Counts(prometheus_client), bounds)
    app.middleware("http")(service.guarded)
    routes = {
        "/health": service.live,
        "/v2/health/live": service.live,
        "/ready": service.ready,
        "/v2/health/ready": service.ready,
        "/metrics": service.metrics,
        "/v2": service.server,
        f"/v2/models/{name}": service.model,
        f"/v2/models/{name}/ready": service.ready,
    }
    for path, function in routes.items():
        app.add_route(path, function, methods=["GET"])
    app.add_route(f"/v2/models/{name}/infer", service.infer, methods=["POST"])
    return app


class _Service:
    """The routes, each a function of a request."""

    def __init__(self, app: Any, model: _Model, counts: _Counts, limits: ServingLimits) -> None:
        from fastapi.responses import JSONResponse, Response

        self._json, self._response = JSONResponse, Response
        self._app, self._model, self._counts, self._limits = app, model, counts, limits
        self._bucket = Bucket(limits.rate, limits.burst)

    async def guarded(self, request: Any, forward: Callable[[Any], Awaitable[Any]]) -> Any:
        """Refuses clients without a token, over the rate or over the size; counts every request."""
        turned_away = refusal(request, self._limits, self._bucket, OPEN)
        if turned_away is None:
            response = await forward(request)
        else:
            response = self._json({"error": turned_away[1]}, turned_away[0])
        self._counts.requests.labels(str(response.status_code)).inc()
        return response

    async def live(self, _: Any) -> Any:
        """Reports that the process is alive."""
        return self._json({"live": True})

    async def ready(self, _: Any) -> Any:
        """Reports whether it accepts requests."""
        ready = self._app.state.ready
        return self._json({"ready": ready}, 200 if ready else 503)

    async def server(self, _: Any) -> Any:
        """The server metadata that the protocol defines."""
        return self._json({"name": "neorl-deploy", "version": "2", "extensions": []})

    async def model(self, _: Any) -> Any:
        """The model metadata that the protocol defines."""
        return self._json(self._model.metadata)

    async def metrics(self, _: Any) -> Any:
        """Counts in the Prometheus format."""
        return self._response(self._counts.text(), media_type=self._counts.media_type)

    async def infer(self, request: Any) -> Any:
        """One step of the bundle."""
        if not self._app.state.ready:
            return self._json({"error": "the server is ending"}, 503)
        body = b""
        async for chunk in request.stream():  # the stated length may be missing
            body += chunk
            if len(body) > self._limits.largest:
                return self._json({"error": too_large(self._limits)}, 413)
        started = time.perf_counter()
        try:
            response, flags = await self._model.decide(body)
        except (RequestError, BundleError) as error:
            return self._json({"error": str(error)}, 422)
        self._counts.count_decision(time.perf_counter() - started, flags)
        return self._json(response)


class _Model:
    """The bundle as a function of a request; one decision at a time."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime, self._name = runtime, name
        runtime.release("served over HTTP: nothing is written to a plant")
        runtime.reset()
        self._fresh = runtime.words
        self._digest, self._lock = runtime.bundle.digest, asyncio.Lock()
        self.metadata = metadata(name, runtime.manifest, self._digest, len(self._fresh))

    async def decide(self, body: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The response to the body of a request, and the names of the decision's flags."""
        runtime = self._runtime
        request = parse_request(
            parse_strict(body, "the request"), runtime.manifest, len(self._fresh)
        )
        async with self._lock:
            runtime.restore_words(self._fresh if request.carry is None else request.carry)
            # JSON holds no infinity, so an age that is not known comes as null.
            ages = None if request.ages is None else np.nan_to_num(request.ages, nan=np.inf)
            decision = runtime.step(request.obs, request.last_sent, ages=ages)
            response = inference_response(
                self._name, self._digest, request, decision, runtime.words
            )
        return response, runtime.flag_names(decision.flags)


class _Counts:
    """The counts behind ``/metrics``, in their own registry."""

    def __init__(self, prometheus: Any) -> None:
        self.registry, self._prometheus = prometheus.CollectorRegistry(), prometheus
        self.media_type = prometheus.CONTENT_TYPE_LATEST
        self.requests = prometheus.Counter(
            "neorl_requests", "Requests by status code", ["code"], registry=self.registry
        )
        self._seconds = prometheus.Histogram(
            "neorl_decision_seconds",
            "Seconds from the body of a request to its response",
            buckets=[1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0],
            registry=self.registry,
        )
        self._flags = prometheus.Counter(
            "neorl_decision_flags", "Decisions with a flag", ["flag"], registry=self.registry
        )

    def text(self) -> bytes:
        """All counts as text."""
        return self._prometheus.generate_latest(self.registry)

    def count_decision(self, seconds: float, flags: tuple[str, ...]) -> None:
        """Counts one decision."""
        self._seconds.observe(seconds)
        for flag in flags:
            self._flags.labels(flag).inc()
