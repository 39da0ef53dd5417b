"""A policy with and without its filter on a plant, from the same starts."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Policy, Spec, as_arrays
from neorl_envs.plants import Plant
from neorl_safety.constraints import (
    AnyConstraints,
    Requirement,
    describe_constraints,
    excess,
)
from neorl_safety.filters import Flag
from neorl_safety.guards import GuardSettings, describe_settings
from neorl_safety.monitoring import (
    CheckedConstraint,
    checked_constraints,
    constraint_excess,
    seconds_held,
)
from neorl_train.configuration._sections import PAIRED_STARTS_SEED, EvaluationConfig
from neorl_train.judging._episodes import Trace
from neorl_train.judging._rollout_episodes import episodes_of
from neorl_train.judging._rollouts import (
    Rollout,
    rollouts_in_chunks,
    starts_key,
)
from neorl_train.judging._safety_findings import WITH, WITHOUT, Assessment, Case, Metrics
from neorl_train.judging._safety_statistics import (
    CheckedRows,
    acting_of,
    alarms_of,
    constraints_of,
    cost_checks,
    cost_excess,
    interventions_of,
    metrics_of,
    reasons_of,
    worst_starts,
)
from neorl_train.judging._simulated import STARTS_AT_ONCE, bands_of, guard_parts
from neorl_train.judging._traces import trace_of


def assess_on_plant(
    environment: Plant,
    policy: Policy,
    *,
    name: str = "policy",
    constraints: AnyConstraints | None = None,
    judged_by: AnyConstraints | None = None,
    requirements: Sequence[Requirement] = (),
    fallbacks: Mapping[str, Policy] | None = None,
    settings: GuardSettings | None = None,
    spec: Spec | None = None,
    key: PRNGKeyArray | None = None,
    n_starts: int = EvaluationConfig.starts,
    level: float = EvaluationConfig.level,
    at_once: int = STARTS_AT_ONCE,
) -> Assessment:
    """Runs a policy with and without its filter from the same starts, and checks all constraints.

    Constraints of the action and cost limits per step are hard; limits per episode are soft;
    requirements declare their own tier. Each is checked on the actions sent, using only the
    definition of its kind and nothing from the filter. Every number refers to these starts of this
    simulator.

    Args:
        environment: A plant.
        policy: Policy without its guard, in physical units.
        name: Its name.
        constraints: Limits that the guard enforces; by default the ranges and rates of the plant.
        judged_by: Constraints to check; by default those of the guard.
        requirements: Additional functions of observation and action to check.
        fallbacks: Fallbacks by name; by default the plant's reference controller.
        settings: Monitors and supervisor; by default those of a guard with default settings.
        spec: Channels with the cost limits of the run; by default those of the plant.
        key: Key of the starts.
        n_starts: Number of starts; at least two.
        level: Confidence level of every interval.
        at_once: Number of starts that run in parallel; it affects no count, and other numbers only
            by rounding.

    Returns:
        The results.

    Raises:
        ValueError: If there are fewer than two starts, or the constraints are of another plant.
    """
    if n_starts < 2:
        raise ValueError(f"a safety report needs at least two starts, got {n_starts}")
    spec = environment.spec if spec is None else spec
    parts_of_guard = guard_parts(environment, spec, constraints, fallbacks, settings)
    guarded = parts_of_guard.guarded(as_arrays(policy), spec)
    constraints_to_count = parts_of_guard.constraints if judged_by is None else judged_by
    key = starts_key(PAIRED_STARTS_SEED) if key is None else key
    checked_rows = {}
    for label, actor in ((WITHOUT, as_arrays(policy)), (WITH, as_arrays(guarded))):
        parts = rollouts_in_chunks(environment, actor, key, np.arange(n_starts), at_once=at_once)
        rows = jax.tree.map(lambda *columns: np.concatenate(columns), *parts)
        checked_rows[label] = check_rows(rows, constraints_to_count, requirements, spec)
    checks = all_checks(constraints_to_count, requirements, spec)
    return assembled(
        checks,
        checked_rows,
        parts_of_guard.settings,
        {
            label: metrics_of(label, checks, part, spec, level)
            for label, part in checked_rows.items()
        },
        policy=name,
        where=str(getattr(environment, "name", type(environment).__name__)),
        simulated=True,
        spec=spec,
        level=level,
        unit=str(getattr(environment, "reward_unit", "reward")),
        demands=tuple(describe_constraints(parts_of_guard.constraints)),
        cases=_cases(checks, checked_rows, name),
        bands=bands_of(environment),
    )


def assembled(
    checks: Sequence[CheckedConstraint],
    checked_rows: Mapping[str, CheckedRows],
    settings: GuardSettings,
    metrics: dict[str, Metrics],
    **facts: Any,
) -> Assessment:
    """The results for judged rows, with the given facts about their source."""
    spec, level = facts["spec"], facts["level"]
    constraints, quiet = constraints_of(checks, checked_rows, spec, level)
    changed, fallback = acting_of(checked_rows[WITH].episodes)
    return Assessment(
        metrics=metrics,
        constraints=constraints,
        quiet=quiet,
        interventions=interventions_of(checked_rows[WITH].rows, spec),
        reasons=reasons_of(checked_rows[WITH].rows),
        changed=changed,
        fallback=fallback,
        monitors=alarms_of(settings, checks, checked_rows[WITH], spec, level),
        supervision=tuple(describe_settings(settings, spec)),
        **facts,
    )


def all_checks(
    constraints: AnyConstraints, requirements: Sequence[Requirement], spec: Spec
) -> list[CheckedConstraint]:
    """Everything that is checked: the action, the requirements and the costs."""
    requirement_checks = [
        CheckedConstraint(r.name, r.unit, r.tier, "at most zero", 1.0) for r in requirements
    ]
    return [*checked_constraints(constraints), *requirement_checks, *cost_checks(spec)]


def check_rows(
    rows: Rollout, constraints: AnyConstraints, requirements: Sequence[Requirement], spec: Spec
) -> CheckedRows:
    """Rows with the excess over every checked constraint, in the order of :func:`all_checks`."""
    before = np.concatenate([rows.first_obs[:, None], rows.obs[:, :-1]], axis=1)
    unknown = np.full_like(rows.applied[:, :1], np.nan)
    previous = np.concatenate([unknown, rows.applied[:, :-1]], axis=1)
    policy_acts_mask = (np.asarray(rows.flags) & np.uint32(Flag.FALLBACK_USED)) == 0
    held = jax.vmap(seconds_held, (0, None))(jnp.asarray(rows.applied), spec.dt)
    excess = _excess(
        constraints,
        tuple(requirements),
        before,
        previous,
        rows.action,
        held,
        policy_acts_mask,
        spec.dt,
    )
    costs = cost_excess(np.asarray(rows.cost), np.asarray(rows.mask), spec)
    both = np.concatenate([np.asarray(excess, np.float64), costs], axis=2)
    return CheckedRows(rows, episodes_of(rows, spec), np.where(rows.mask[..., None], both, -np.inf))


@jax.jit
def _excess(
    constraints: Any,
    requirements: Any,
    obs: Any,
    previous: Any,
    action: Any,
    held: Any,
    policy_acts_mask: Any,
    dt: Any,
) -> Any:
    def one(x: Any, v: Any, u: Any, since: Any, policy_acts: Any) -> Any:
        requirement_values = excess(requirements, x, u)
        constraint_values = constraint_excess(constraints, x, v, u, dt, since, policy_acts)
        return jnp.concatenate([constraint_values, requirement_values])

    return jax.vmap(jax.vmap(one))(obs, previous, action, held, policy_acts_mask)


def _cases(
    checks: Sequence[CheckedConstraint], checked_rows: Mapping[str, CheckedRows], name: str
) -> tuple[Case, ...]:
    starts = worst_starts(checks, checked_rows, (WITHOUT, WITH))
    return tuple(
        Case(
            f"{why} (start {start})",
            case_trace(checked_rows[WITH].rows, start, name, guarded=True),
            case_trace(checked_rows[WITHOUT].rows, start, f"{name} {WITHOUT}", guarded=False),
        )
        for start, why in starts.items()
    )


def case_trace(rows: Rollout, start: int, policy: str, *, guarded: bool) -> Trace:
    """One of many episodes, row by row."""
    return trace_of(rows, start, label="case", policy=policy, guarded=guarded, start=start)
