"""Reads and replaces the setpoints of controllers."""

import dataclasses
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Policy, Spec

Controller = TypeVar("Controller", bound=Policy)


def setpoint_of(policy: Policy) -> Float[Array, " loop"]:
    """The setpoints of a controller from its field ``setpoint``; empty if it has none."""
    setpoints: Any = getattr(policy, "setpoint", None)
    return jnp.zeros(0) if setpoints is None else setpoints


def with_setpoint(policy: Controller, setpoint: Float[Array, " loop"]) -> Controller:
    """The controller with other setpoints; unchanged if it has none.

    Calls the controller's method ``with_setpoint(setpoint)`` if there is one; otherwise replaces
    its field ``setpoint``.
    """
    if setpoint.size == 0:
        return policy
    controller: Any = policy
    if hasattr(policy, "with_setpoint"):
        return controller.with_setpoint(setpoint)
    return dataclasses.replace(controller, setpoint=setpoint)


def setpoint_names(spec: Spec, n_loops: int) -> list[str]:
    """Names of the setpoint columns, those of the actions if there is one loop per action."""
    if n_loops == spec.n_action:
        return [f"{channel.name}.SP" for channel in spec.action]
    return [f"loop{i}.SP" for i in range(n_loops)]
