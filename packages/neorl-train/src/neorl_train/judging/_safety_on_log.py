"""A policy on a log: the actions it would have requested, and those its filter would have sent."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from neorl_core import Policy, Spec, as_arrays
from neorl_envs import Dataset
from neorl_safety.constraints import AnyConstraints, Requirement, describe_constraints
from neorl_safety.guards import GuardSettings, default_settings, guard_with
from neorl_train.configuration._sections import EvaluationConfig
from neorl_train.judging._rollouts import Rollout
from neorl_train.judging._safety_findings import LOGGED, WITH, WITHOUT, Assessment, Case
from neorl_train.judging._safety_on_plant import all_checks, assembled, case_trace, check_rows
from neorl_train.judging._safety_statistics import (
    CheckedRows,
    metrics_of,
    worst_starts,
)
from neorl_train.judging._shadow import shadow

MAX_EPISODES = 512


def assess_on_log(
    dataset: Dataset,
    policy: Policy,
    *,
    constraints: AnyConstraints,
    fallbacks: Mapping[str, Policy],
    name: str = "policy",
    judged_by: AnyConstraints | None = None,
    requirements: Sequence[Requirement] = (),
    settings: GuardSettings | None = None,
    spec: Spec | None = None,
    level: float = EvaluationConfig.level,
) -> Assessment:
    """Runs a policy in shadow on a log, with and without its filter, and checks all constraints.

    In each step policy and guard answer the logged observation, and the logged action is reported
    to them as the one that the plant received. Results on constraints of the action therefore hold
    in the logged situations, whatever the plant is. For costs, and for everything that follows from
    an action, only the logged values are available, because there is no plant.

    Args:
        dataset: The log; only its first 512 episodes are used.
        policy: Policy without its guard.
        constraints: Limits that the guard enforces.
        fallbacks: Fallbacks by name.
        name: Name of the policy.
        judged_by: Constraints to check; by default those of the guard.
        requirements: Additional functions of observation and action to check.
        settings: Monitors and supervisor; by default those of a guard with default settings.
        spec: Channels with the cost limits of the run; by default those of the log.
        level: Confidence level of every interval.

    Returns:
        The results; costs only as logged.

    Raises:
        ValueError: If the log has fewer than two episodes, or the constraints are of another plant.
    """
    if dataset.n_episodes < 2:
        raise ValueError(f"a safety report needs two episodes or more, got {dataset.n_episodes}")
    spec = dataset.spec if spec is None else spec
    guard = default_settings(spec) if settings is None else settings
    guarded = guard_with(guard, as_arrays(policy), constraints, fallbacks, spec)
    constraints_to_count = constraints if judged_by is None else judged_by
    logged = _logged(dataset)
    checked_rows = {LOGGED: check_rows(logged, constraints_to_count, requirements, spec)}
    # A log does not record how an episode ended.
    unknown = dataclasses.replace(checked_rows[LOGGED].episodes, success=None, trip=None)
    checked_rows[LOGGED] = checked_rows[LOGGED]._replace(episodes=unknown)
    for label, actor in ((WITHOUT, as_arrays(policy)), (WITH, as_arrays(guarded))):
        rows = _in_shadow(actor, logged)
        part = check_rows(rows, constraints_to_count, requirements, spec)
        costs = part.excess.shape[2] - spec.n_cost
        part.excess[..., costs:] = -np.inf  # what would have followed is unknown
        checked_rows[label] = part
    checks = all_checks(constraints_to_count, requirements, spec)
    return assembled(
        checks,
        checked_rows,
        guard,
        {LOGGED: metrics_of(LOGGED, checks, checked_rows[LOGGED], spec, level)},
        policy=name,
        where=str(dataset.attributes.get("name", "log")),
        simulated=False,
        spec=spec,
        level=level,
        unit="reward",
        demands=tuple(describe_constraints(constraints)),
        cases=_cases(checks, checked_rows, name),
        bands=(),
    )


def _logged(dataset: Dataset) -> Rollout:
    """The episodes of a log as rollouts, one per row."""
    rows, mask = dataset.padded_rows(slice(MAX_EPISODES))
    c: Any = dataset.transitions
    action: Any = np.asarray(c.action)[rows]
    flags: Any = np.zeros(rows.shape, np.uint32)
    columns: dict[str, Any] = dict(
        first_obs=np.asarray(c.obs)[rows[:, 0]],
        obs=np.asarray(c.next_obs)[rows],
        action=action,
        applied=action,
        reward=np.asarray(c.reward)[rows],
        cost=np.asarray(c.cost)[rows],
        terminated=np.asarray(c.terminated)[rows],
        success=np.zeros(rows.shape, bool),
        mask=mask,
        flags=flags,
        intervention=np.zeros_like(action),
        limits=np.zeros(action.shape, np.uint32),
        alarms=flags,
        terms=np.zeros((*rows.shape, 0)),
    )
    return Rollout(**columns)


def _in_shadow(policy: Policy, logged: Rollout) -> Rollout:
    """A policy's answers, with the logged action reported as received in each step."""
    obs = np.concatenate([logged.first_obs[:, None], logged.obs[:, :-1]], axis=1)
    action, report = jax.device_get(shadow(policy, obs, logged.applied))
    return logged._replace(
        action=action,
        flags=report.flags,
        intervention=report.intervention,
        limits=report.limits,
        alarms=report.alarms,
    )


def _cases(
    checks: Sequence[Any], checked_rows: Mapping[str, CheckedRows], name: str
) -> tuple[Case, ...]:
    starts = worst_starts(checks, checked_rows, (WITHOUT, WITH))
    cases = []
    for start, why in starts.items():
        rows = checked_rows[WITH].rows
        shown = rows._replace(applied=rows.action)
        ours = case_trace(shown, start, f"{name} in shadow", guarded=True)
        theirs = case_trace(checked_rows[LOGGED].rows, start, "the log", guarded=False)
        cases.append(Case(f"{why} (episode {start})", ours, theirs))
    return tuple(cases)
