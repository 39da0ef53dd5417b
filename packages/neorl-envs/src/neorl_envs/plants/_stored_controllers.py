"""Stores a plant's own controller: the names of plant and tuning, and its numbers.

A policy artefact stores arrays by their path in the policy. The functions that a
:class:`FeedforwardPID` contains are looked up again in the plant. ``neorl_agents`` finds this
module through the entry point ``neorl.policies``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from neorl_core import InputError, Policy, Spec
from neorl_envs.blocks import FeedforwardPID
from neorl_envs.plants._table import make
from neorl_envs.plants.robot_assembly._env import Insertion, RobotAssembly


class StoredKind(NamedTuple):
    """The three parts of ``neorl_agents.artefact.PolicyKind``, which this package does not import.

    Attributes:
        policy: Class of the policies.
        static: Function that returns the non-array parts of a policy as plain JSON.
        template: Function that builds a policy of the same shapes from a specification and that
            JSON.
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
"""PID loops with feed-forward of a registered plant."""

INSERTION = StoredKind(Insertion, _numbers_only, _insertion)
"""The insertion law of the robot arm, which consists only of numbers."""
