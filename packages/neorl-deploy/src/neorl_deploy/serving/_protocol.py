"""Requests and responses of the Open Inference Protocol, version 2, for one bundle.

The step of a bundle is a function of its carry, one observation and the action that the plant
received. A request has the same form: ``carry`` goes in and comes out, and a server keeps nothing
between two requests. ``null`` represents a missing number, because JSON has no NaN.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.runtime._decision import Decision


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
        if name not in known or name in given:
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
    with np.errstate(over="ignore"):
        return np.array([math.nan if value is None else value for value in data], np.float32)


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
