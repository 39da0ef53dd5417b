"""How a plant's own controller is stored: by the names of plant and tuning, and its numbers.

A policy artefact holds arrays by their path; what is code in a :class:`FeedforwardPID` is found
again in the plant. Known to ``neorl_agents`` by the entry point ``neorl.policies``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from neorl_core import InputError, Policy, Spec
from neorl_envs.blocks import FeedforwardPID
from neorl_envs.plants._table import make
from neorl_envs.plants.robot_assembly._control import Insertion
from neorl_envs.plants.robot_assembly._env import RobotAssembly


class StoredKind(NamedTuple):
    """The three parts of ``neorl_agents.artefact.PolicyKind``, which this package does not import.

    Attributes:
        policy: Class of the policies.
        static: Function from a policy to what is not an array in it, as plain JSON.
        template: Function from a specification and that JSON to a policy of the same shapes.
    """

    policy: type
    static: Callable[[Any], dict[str, Any]]
    template: Callable[[Spec, dict[str, Any]], Policy]


def _static(policy: FeedforwardPID) -> dict[str, Any]:
    plant, controller = policy.origin
    return {"plant": plant, "controller": controller}


def _template(spec: Spec, static: dict[str, Any]) -> Policy:
    plant = make(static["plant"])
    if static["controller"] not in plant.tunings():
        raise InputError(f"{static['plant']} has no controller {static['controller']!r}")
    return plant.tunings()[static["controller"]]


def _numbers_only(policy: Insertion) -> dict[str, Any]:
    return {}


def _insertion(spec: Spec, static: dict[str, Any]) -> Policy:
    plant = RobotAssembly()
    return plant.tunings()[plant.reference]


FEEDFORWARD_PID = StoredKind(FeedforwardPID, _static, _template)
"""Loops with feed-forward of a plant that is known by name."""

INSERTION = StoredKind(Insertion, _numbers_only, _insertion)
"""The arm's search for the hole, which is numbers alone."""
