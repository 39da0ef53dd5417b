"""First stage of an export: loads a run's policies and limits and checks that they fit together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neorl_deploy._errors import DeployError, missing_extra
from neorl_deploy.bundle._manifest import ChannelEntry
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.runtime._runtime import SELF_TEST_TOLERANCE
from neorl_deploy.training_run._names import CONSTRAINTS, GUARD
from neorl_deploy.training_run._run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neorl_agents import PolicyArtefact
    from neorl_core import Channel, Spec
    from neorl_safety.constraints import Constraints
    from neorl_safety.guards import GuardedPolicy, GuardSettings


class GuardedParts(NamedTuple):
    """A policy wrapped in the limits of its run.

    Attributes:
        policy: The guarded policy, which is the one exported.
        candidate: Artefact of the learned policy.
        fallback: Artefact of the controller that takes over.
        constraints: The hard limits.
        settings: Supervisor, monitors, ages and the order of the fallbacks.
    """

    policy: GuardedPolicy
    candidate: PolicyArtefact
    fallback: PolicyArtefact
    constraints: Constraints
    settings: GuardSettings

    @property
    def spec(self) -> Spec:
        """The control problem that candidate and fallback share."""
        return self.candidate.spec


def guarded_policy(run: Run) -> GuardedParts:
    """Loads candidate, fallback and constraints of a run and wraps them in the guard.

    Raises:
        DeployError: If a part is damaged, belongs to another plant or is not the one that the run
            judged, or a policy acts differently here than where it was trained.
    """
    try:
        from neorl_agents import ArtefactError, load_policy
        from neorl_safety.constraints import constraints_from_dict
        from neorl_safety.guards import guard_with, settings_from_dict
    except ImportError as error:
        raise missing_extra("an export", "export", error) from error
    try:
        candidate, fallback = load_policy(run.candidate), load_policy(run.fallback)
        constraints = constraints_from_dict(run.constraints)
        watched = {name: load_policy(run.policy(name)) for name in _watched_policies(run)}
        further = {name: load_policy(run.policy(name)) for name in _fallbacks(run)}
    except (ArtefactError, OSError) as error:
        raise DeployError(f"cannot use a policy of {run.path}: {error}") from error
    except ValueError as error:
        raise DeployError(f"{run.path / CONSTRAINTS}: {error}") from error
    if candidate.spec != fallback.spec:
        raise DeployError(f"{run.candidate} and {run.fallback} are for different plants")
    _require_channels(run, candidate, constraints)
    for artefact, path in ((candidate, run.candidate), (fallback, run.fallback)):
        _require_judged(run, artefact, path)
        _require_same_actions(artefact, path)
    for name, artefact in {**watched, **further}.items():
        _require_judged(run, artefact, run.policy(name))
    policies = {name: artefact.policy for name, artefact in watched.items()}
    fallbacks = {name: artefact.policy for name, artefact in further.items()}
    try:
        settings = settings_from_dict(run.guard, candidate.spec, policies, str(run.path / GUARD))
        policy = guard_with(settings, candidate.policy, constraints, fallbacks, candidate.spec)
    except ValueError as error:
        raise DeployError(str(error)) from error
    return GuardedParts(policy, candidate, fallback, constraints, settings)


def _watched_policies(run: Run) -> list[str]:
    """The policies whose disagreement a monitor watches."""
    try:
        monitors = run.guard["monitors"]["monitors"]
        return sorted({str(name) for monitor in monitors for name in monitor.get("policies", ())})
    except (KeyError, TypeError, AttributeError) as error:
        raise DeployError(f"{run.path / GUARD} is damaged: it lists no monitors") from error


def _fallbacks(run: Run) -> list[str]:
    names = run.guard.get("fallbacks")
    return [str(name) for name in names] if isinstance(names, list) else []


def entries(channels: Sequence[Channel]) -> tuple[ChannelEntry, ...]:
    """The channels of a specification, in the layout of a manifest."""
    return tuple(ChannelEntry(c.name, c.unit, float(c.low), float(c.high)) for c in channels)


def _require_channels(run: Run, candidate: PolicyArtefact, constraints: Constraints) -> None:
    channels = [(channel.name, channel.unit) for channel in candidate.spec.action]
    limited = list(zip(constraints.names, constraints.units, strict=True))
    if channels != limited:
        raise DeployError(
            f"{run.path / CONSTRAINTS} limits the channels {limited}; the policy sets {channels}"
        )


def _require_judged(run: Run, artefact: PolicyArtefact, path: Path) -> None:
    if run.policy_digest(path) not in (None, artefact.digest):
        raise DeployError(f"{path} is not the policy that the run trained and judged")


def _require_same_actions(artefact: PolicyArtefact, path: Path) -> None:
    """Requires that the artefact's parity observations reproduce their stored actions here."""
    from neorl_agents.artefact import policy_actions

    actions = np.asarray(policy_actions(artefact.policy, artefact.parity_obs))
    difference = relative_difference(
        entries(artefact.spec.action), actions, artefact.parity_actions
    )
    if not difference <= SELF_TEST_TOLERANCE:
        raise DeployError(
            f"{path} gives other actions here than where it was trained (difference "
            f"{difference:.1e} of a channel's size on its parity observations); export with the "
            "package versions of the training"
        )
