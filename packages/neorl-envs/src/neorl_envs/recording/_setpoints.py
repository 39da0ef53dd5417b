"""Set points of controllers that have some."""

import dataclasses
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Policy, Spec

Controller = TypeVar("Controller", bound=Policy)


def setpoint_of(policy: Policy) -> Float[Array, " loop"]:
    """The set points of a controller, from its ``setpoint``; empty for one without."""
    held: Any = getattr(policy, "setpoint", None)
    return jnp.zeros(0) if held is None else held


def with_setpoint(policy: Controller, setpoint: Float[Array, " loop"]) -> Controller:
    """The same controller with other set points; itself where it has none.

    Its own ``with_setpoint(setpoint)`` where it has one, else its field ``setpoint`` is replaced.
    """
    if setpoint.size == 0:
        return policy
    made: Any = policy
    if hasattr(policy, "with_setpoint"):
        return made.with_setpoint(setpoint)
    return dataclasses.replace(made, setpoint=setpoint)


def setpoint_names(spec: Spec, n_loops: int) -> list[str]:
    """Names of the columns: the loops are in the order of the actions where there is one each."""
    if n_loops == spec.n_action:
        return [f"{channel.name}.SP" for channel in spec.action]
    return [f"loop{i}.SP" for i in range(n_loops)]
