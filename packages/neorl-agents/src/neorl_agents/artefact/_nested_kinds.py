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
    return {field.name: _described(getattr(tree, field.name)) for field in dataclasses.fields(tree)}


def nested_template(kind: type) -> Callable[[Spec, dict[str, Any]], Any]:
    """The function that makes a template of this class from its static part."""

    def template(spec: Spec, static: dict[str, Any]) -> Any:
        return _made(kind, static)

    return template


def _described(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {"part": type(value).__name__, "fields": nested_static(value)}
    if hasattr(value, "dtype"):
        return {"shape": list(np.shape(value)), "dtype": value.dtype.name}
    if isinstance(value, tuple) and any(hasattr(one, "dtype") for one in value):
        return {"tuple": [_described(one) for one in value]}
    if callable(value):
        return {"activation": activation_name(value)}
    return {"value": list(value) if isinstance(value, tuple) else value}


def _made(kind: type, static: dict[str, Any]) -> Any:
    return kind(**{field.name: _part(static[field.name]) for field in dataclasses.fields(kind)})


def _part(described: dict[str, Any]) -> Any:
    if "part" in described:
        return _made(PARTS[described["part"]], described["fields"])
    if "shape" in described:
        return jnp.zeros(tuple(int(n) for n in described["shape"]), described["dtype"])
    if "tuple" in described:
        return tuple(_part(one) for one in described["tuple"])
    if "activation" in described:
        return ACTIVATIONS.find(described["activation"])
    value = described["value"]
    return tuple(value) if isinstance(value, list) else value
