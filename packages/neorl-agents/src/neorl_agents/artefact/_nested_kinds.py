"""Taking apart and putting together policies that are dataclasses of arrays and of one another."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_agents.controllers._estimator import Estimator, SteadyTarget
from neorl_agents.controllers._linear_quadratic import LinearQuadraticPolicy
from neorl_agents.controllers._predictive import Plan, PredictivePolicy
from neorl_agents.controllers._quadratic_program import QuadraticProgram
from neorl_agents.controllers._smith_predictor import SmithPredictor
from neorl_agents.controllers._tracking_pid import TrackingPID
from neorl_core import Affine, Policy, Spec
from neorl_core.control import PID, BaseStock, StateFeedback

PARTS: dict[str, type] = {
    part.__name__: part
    for part in (
        Affine,
        BaseStock,
        Estimator,
        LinearQuadraticPolicy,
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
"""The classes that a file may name; no other is made from one."""


def nested_static(policy: Any) -> dict[str, Any]:
    """Shapes, dtypes and static fields of a dataclass, and of the dataclasses in it."""
    return {
        field.name: _described(getattr(policy, field.name)) for field in dataclasses.fields(policy)
    }


def nested_template(kind: type) -> Callable[[Spec, dict[str, Any]], Policy]:
    """The function that makes a template of this class from its static part."""

    def template(spec: Spec, static: dict[str, Any]) -> Any:
        return _made(kind, static)

    return template


def _described(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {"part": type(value).__name__, "fields": nested_static(value)}
    if hasattr(value, "dtype"):
        return {"shape": list(np.shape(value)), "dtype": value.dtype.name}
    return {"value": list(value) if isinstance(value, tuple) else value}


def _made(kind: type, static: dict[str, Any]) -> Any:
    return kind(**{field.name: _part(static[field.name]) for field in dataclasses.fields(kind)})


def _part(described: dict[str, Any]) -> Any:
    if "part" in described:
        return _made(PARTS[described["part"]], described["fields"])
    if "shape" in described:
        return jnp.zeros(tuple(int(n) for n in described["shape"]), described["dtype"])
    value = described["value"]
    return tuple(value) if isinstance(value, list) else value
