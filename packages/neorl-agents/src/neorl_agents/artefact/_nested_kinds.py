"""Conversion of nested dataclasses of arrays to static JSON and back."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_agents.calibration import MonotoneMap
from neorl_agents.controllers._estimator import Estimator, SteadyTarget
from neorl_agents.controllers._linear_quadratic import LinearQuadraticPolicy
from neorl_agents.controllers._predictive import Plan, PredictivePolicy
from neorl_agents.controllers._quadratic_program import QuadraticProgram
from neorl_agents.controllers._smith_predictor import SmithPredictor
from neorl_agents.controllers._tracking_pid import TrackingPID
from neorl_agents.networks import ACTIVATIONS, MLP, activation_name
from neorl_core import Affine, Spec
from neorl_core.control import PID, BaseStock, StateFeedback

PARTS: dict[str, type] = {
    part.__name__: part
    for part in (
        Affine,
        BaseStock,
        Estimator,
        LinearQuadraticPolicy,
        MLP,
        MonotoneMap,
        PID,
        Plan,
        PredictivePolicy,
        QuadraticProgram,
        SmithPredictor,
        StateFeedback,
        SteadyTarget,
        TrackingPID,
    )
}
"""The classes that a file may name; no other class is instantiated from one."""


def nested_static(tree: Any) -> dict[str, Any]:
    """Shapes, dtypes and static fields of a dataclass, and of the dataclasses in it."""
    return {field.name: _describe(getattr(tree, field.name)) for field in dataclasses.fields(tree)}


def nested_template(kind: type) -> Callable[[Spec, dict[str, Any]], Any]:
    """The function that makes a template of this class from its static part."""

    def template(spec: Spec, static: dict[str, Any]) -> Any:
        return _build(kind, static)

    return template


def _describe(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {"part": type(value).__name__, "fields": nested_static(value)}
    if hasattr(value, "dtype"):
        return {"shape": list(np.shape(value)), "dtype": value.dtype.name}
    if isinstance(value, tuple) and any(hasattr(item, "dtype") for item in value):
        return {"tuple": [_describe(item) for item in value]}
    if callable(value):
        return {"activation": activation_name(value)}
    return {"value": list(value) if isinstance(value, tuple) else value}


def _build(kind: type, static: dict[str, Any]) -> Any:
    return kind(
        **{field.name: _build_part(static[field.name]) for field in dataclasses.fields(kind)}
    )


def _build_part(description: dict[str, Any]) -> Any:
    if "part" in description:
        return _build(PARTS[description["part"]], description["fields"])
    if "shape" in description:
        return jnp.zeros(tuple(int(n) for n in description["shape"]), description["dtype"])
    if "tuple" in description:
        return tuple(_build_part(item) for item in description["tuple"])
    if "activation" in description:
        return ACTIVATIONS.find(description["activation"])
    value = description["value"]
    return tuple(value) if isinstance(value, list) else value
