"""The safety report: constraint columns of the episodes of an evaluation, and of a log."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from neorl_core import Policy, Spec, as_arrays
from neorl_core.costs import limit_kind
from neorl_envs import Dataset
from neorl_envs.plants import Plant
from neorl_safety.constraints import (
    AnyConstraints,
    Requirement,
    Tier,
    describe_constraints,
    excess,
)
from neorl_safety.filters import Flag, Limit, flag_names
from neorl_safety.guards import (
    GuardSettings,
    default_settings,
    describe_settings,
    guard_with,
)
from neorl_safety.monitoring import (
    CheckedConstraint,
    checked_constraints,
    constraint_excess,
    describe_monitor,
    seconds_held,
    violation_depth,
    violation_statistics,
)
from neorl_train.configuration._sections import PAIRED_STARTS_SEED, EvaluationConfig
from neorl_train.judging._evaluate import bands_of, guard_parts
from neorl_train.judging._results import LOG, Episodes, PolicyResult, Trace
from neorl_train.judging._rollouts import (
    GUARD_ACTED,
    EpisodeRows,
    all_rollouts,
    episodes_of,
    starts_key,
    trace_of,
)
from neorl_train.judging._safety_findings import (
    FLAG_TEXTS,
    LOGGED,
    WITH,
    WITHOUT,
    Alarms,
    Assessment,
    Case,
    ConstraintColumn,
    Intervention,
    Reason,
    SafetyRow,
    Violations,
)
from neorl_train.judging._shadow import shadow
from neorl_train.judging._summary import fraction_estimates, mean_estimates, policy_rows
from neorl_train.judging._tables import Estimate

MAX_EPISODES = 512
"""Number of episodes of a log that are used."""


class CheckedRows(NamedTuple):
    """Rows of many episodes, their sums, and the excess over every constraint.

    Attributes:
        rows: Rows on the host; the first axis is the start.
        episodes: Their sums, as in every evaluation.
        excess: Shape ``(start, time, constraint)``; positive if broken, -inf if the constraint is
            inactive.
    """

    rows: Any
    episodes: Episodes
    excess: Float[np.ndarray, "start time constraint"]


class _Checks(NamedTuple):
    """Everything that is checked, for one report.

    Attributes:
        constraints: Constraints of the action.
        requirements: Further functions of observation and action.
        spec: Channels, with the limits of the costs.
        level: Confidence level of every interval.
    """

    constraints: AnyConstraints
    requirements: tuple[Requirement, ...]
    spec: Spec
    level: float

    @property
    def all(self) -> list[CheckedConstraint]:
        """The action, the requirements and the costs, in the order of every ``excess``.

        The limits of the costs are hard per step, and soft per episode.
        """
        requirements = [
            CheckedConstraint(r.name, r.unit, r.tier, "at most zero", 1.0)
            for r in self.requirements
        ]
        costs = [
            CheckedConstraint(
                f"cost {channel.name}",
                channel.unit,
                Tier.HARD if limit_kind(channel).bounds_largest else Tier.SOFT,
                f"at most {limit_kind(channel).limit_words(channel.limit, channel.unit)}",
                float(channel.limit) or 1.0,
            )
            for channel in self.spec.cost
        ]
        return [*checked_constraints(self.constraints), *requirements, *costs]

    def tier(self, *tiers: Tier) -> list[bool]:
        """Which of the constraints have one of these tiers."""
        return [check.tier in tiers for check in self.all]

    def of(self, rows: EpisodeRows) -> CheckedRows:
        """Rows with their excess over every constraint."""
        before = np.concatenate([rows.first_obs[:, None], rows.obs[:, :-1]], axis=1)
        unknown = np.full_like(rows.applied[:, :1], np.nan)
        previous = np.concatenate([unknown, rows.applied[:, :-1]], axis=1)
        policy_acts = (np.asarray(rows.flags) & np.uint32(Flag.FALLBACK_USED)) == 0
        held = jax.vmap(seconds_held, (0, None))(jnp.asarray(rows.applied), self.spec.dt)
        columns = (before, previous, rows.action, held, policy_acts)
        of_action = _excess(self.constraints, self.requirements, *columns, self.spec.dt)
        of_cost = _cost_excess(np.asarray(rows.cost), np.asarray(rows.mask), self.spec)
        both = np.concatenate([np.asarray(of_action, np.float64), of_cost], axis=2)
        both = np.where(rows.mask[..., None], both, -np.inf)
        return CheckedRows(rows, episodes_of(rows, self.spec), both)


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


def _cost_excess(
    cost: np.ndarray, mask: np.ndarray, spec: Spec
) -> Float[np.ndarray, "start time cost"]:
    """Cost, or its running sum, minus its limit."""
    excess = np.full(cost.shape, -np.inf)
    inside = np.where(mask[..., None], cost.astype(np.float64), 0.0)
    for j, channel in enumerate(spec.cost):
        kind = limit_kind(channel)
        for i in range(len(cost)):
            excess[i, :, j] = kind.along(inside[i, :, j]) - channel.limit
    return np.where(np.isnan(excess), np.inf, excess)


def _constraints(
    checks: _Checks, checked_rows: Mapping[str, CheckedRows]
) -> tuple[tuple[ConstraintColumn, ...], tuple[str, ...]]:
    """Every constraint that was active in any step, and the names of the others."""
    constraints, quiet = [], []
    for j, check in enumerate(checks.all):
        violations = {}
        for label, part in checked_rows.items():
            column, mask = part.excess[..., j], part.rows.mask
            if np.isneginf(column[mask]).all():
                continue
            counted = violation_statistics(column > 0, mask, level=checks.level)
            depth = violation_depth(column, mask, dt=checks.spec.dt)
            violations[label] = Violations(
                steps=counted.steps,
                step_fraction=counted.step_fraction,
                longest=counted.longest * checks.spec.dt,
                episodes=counted.episodes,
                episode_fraction=Estimate(*map(float, counted.episode_fraction)),
                largest=depth.largest,
                mean=depth.mean,
                integral=depth.integral,
            )
        if violations:
            description = check.name, str(check.tier), check.unit, check.description
            constraints.append(ConstraintColumn(*description, violations))
        else:
            quiet.append(check.name)
    return tuple(constraints), tuple(quiet)


def _safety_row(label: str, checks: _Checks, checked_rows: CheckedRows) -> SafetyRow:
    """The row of an evaluation for one set of episodes, with columns for the constraints."""
    role = LOG if label == LOGGED else "learner"
    result = PolicyResult(label, label, role, label == WITH, checked_rows.episodes)
    (row,) = policy_rows([result], checks.spec, reference="", level=checks.level)
    violated = (checked_rows.excess > 0) & checked_rows.rows.mask[..., None]
    counts = violated[..., checks.tier(Tier.HARD, Tier.SOFT)]
    per_episode = counts.sum(axis=(1, 2)).astype(np.float64)
    kept = ~counts.any(axis=(1, 2))
    return SafetyRow(
        **vars(row),
        violations=int(per_episode.sum()),
        violations_per_episode=mean_estimates(per_episode[:, None], level=checks.level)[0],
        critical_violations=int(violated[..., checks.tier(Tier.HARD)].sum()),
        satisfaction=fraction_estimates(kept[:, None], level=checks.level)[0],
    )


def _interventions(rows: EpisodeRows, spec: Spec) -> tuple[Intervention, ...]:
    """Frequency, size and cause of the filter's changes of every channel."""
    interventions = []
    for i, channel in enumerate(spec.action):
        size = np.asarray(rows.intervention, np.float64)[..., i][rows.mask]
        limits = np.asarray(rows.limits)[..., i][rows.mask]
        moved = size[size > 0]
        active = {
            (limit.name or "").lower(): float(((limits & int(limit)) != 0).mean())
            for limit in Limit
            if ((limits & int(limit)) != 0).any()
        }
        interventions.append(
            Intervention(
                channel=channel.name,
                unit=channel.unit,
                changed=float((size > 0).mean()),
                mean=float(moved.mean()) if len(moved) else 0.0,
                p95=float(np.quantile(moved, 0.95)) if len(moved) else 0.0,
                largest=float(moved.max()) if len(moved) else 0.0,
                span=float(channel.high - channel.low),
                limits=active,
            )
        )
    return tuple(interventions)


def _reasons(rows: EpisodeRows) -> tuple[Reason, ...]:
    """The decisions of the guard that occurred, most frequent first."""
    reasons = []
    for flag in Flag:
        raised = ((np.asarray(rows.flags) & int(flag)) != 0) & rows.mask
        if raised.any():
            fraction = float(raised[np.asarray(rows.mask)].mean())
            (name,), episodes = flag_names(int(flag)), int(raised.any(axis=1).sum())
            reasons.append(Reason(name, FLAG_TEXTS[flag], fraction, episodes))
    return tuple(sorted(reasons, key=lambda reason: -reason.steps))


def _alarms(
    settings: GuardSettings, checks: _Checks, checked_rows: CheckedRows
) -> tuple[Alarms, ...]:
    """Alarms of every monitor, and their lead time before a violation."""
    mask = np.asarray(checked_rows.rows.mask)
    counts = checks.tier(Tier.HARD, Tier.SOFT)
    violated: Any = ((checked_rows.excess > 0) & mask[..., None])[..., counts].any(axis=2)
    first_violation = np.where(violated.any(axis=1), violated.argmax(axis=1), violated.shape[1])
    alarms = []
    for i, watch in enumerate(settings.monitors):
        alarm: Any = ((np.asarray(checked_rows.rows.alarms) >> i & 1) != 0) & mask
        first = np.where(alarm.any(axis=1), alarm.argmax(axis=1), alarm.shape[1] + 1)
        early = violated.any(axis=1) & (first < first_violation)
        lead = (first_violation - first)[early] * checks.spec.dt
        fraction = fraction_estimates(alarm.any(axis=1)[:, None], level=checks.level)[0]
        alarms.append(
            Alarms(
                name=watch.name,
                text=describe_monitor(watch, checks.spec),
                promised=watch.false_alarms if watch.calibrated else None,
                episodes=fraction,
                before_violation=int(early.sum()),
                violating=int(violated.any(axis=1).sum()),
                lead=float(np.median(lead)) if len(lead) else None,
            )
        )
    return tuple(alarms)


def _worst_starts(checks: _Checks, checked_rows: Mapping[str, CheckedRows]) -> dict[int, str]:
    """Starts worth looking at: the worst without the filter, the worst with it, the most changed.

    The reason for each, by its number.
    """
    chosen: dict[int, str] = {}
    counted = checks.tier(Tier.HARD, Tier.SOFT)
    listed = [check for check, counts in zip(checks.all, counted, strict=True) if counts]
    scales = np.array([check.scale for check in listed])
    for name in (WITHOUT, WITH):
        part = checked_rows[name]
        size = np.where(part.rows.mask[..., None], part.excess[..., counted], -np.inf) / scales
        flat = np.nan_to_num(size.reshape(len(size), -1).max(axis=1), posinf=1e30, neginf=-1e30)
        start = int(flat.argmax())
        index = int(np.unravel_index(size[start].argmax(), size[start].shape)[1])
        location = f"{'beyond' if flat[start] > 0 else 'nearest to'} {listed[index].name}"
        chosen.setdefault(start, f"The worst {name}: farthest {location}")
    rows = checked_rows[WITH].rows
    acted = ((np.asarray(rows.flags) & (GUARD_ACTED | int(Flag.FALLBACK_USED))) != 0) & rows.mask
    fraction: Any = acted.sum(axis=1) / np.maximum(np.asarray(rows.mask).sum(axis=1), 1)
    chosen.setdefault(int(np.argmax(fraction)), "The most interventions")
    return chosen


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

    Returns:
        The results.

    Raises:
        ValueError: If there are fewer than two starts, or the constraints are of another plant.
    """
    if n_starts < 2:
        raise ValueError(f"a safety report needs at least two starts, got {n_starts}")
    spec = environment.spec if spec is None else spec
    parts_of_guard = guard_parts(environment, spec, constraints, fallbacks, settings)
    guarded = parts_of_guard.wrap(as_arrays(policy), spec)
    constraints_to_count = parts_of_guard.constraints if judged_by is None else judged_by
    key = starts_key(PAIRED_STARTS_SEED) if key is None else key
    checks = _Checks(constraints_to_count, tuple(requirements), spec, level)
    checked_rows = {
        label: checks.of(all_rollouts(environment, as_arrays(actor), key, np.arange(n_starts)))
        for label, actor in ((WITHOUT, policy), (WITH, guarded))
    }
    shown = (checked_rows[WITH].rows, name), (checked_rows[WITHOUT].rows, f"{name} {WITHOUT}")
    return _assessment(
        checks,
        checked_rows,
        parts_of_guard.settings,
        policy=name,
        where=str(getattr(environment, "name", type(environment).__name__)),
        simulated=True,
        unit=str(getattr(environment, "reward_unit", "reward")),
        demands=tuple(describe_constraints(parts_of_guard.constraints)),
        cases=_cases(_worst_starts(checks, checked_rows), *shown, counted="start"),
        bands=bands_of(environment),
    )


def _assessment(
    checks: _Checks,
    checked_rows: Mapping[str, CheckedRows],
    settings: GuardSettings,
    **facts: Any,
) -> Assessment:
    """The results for checked rows, with the given facts about their source."""
    constraints, quiet = _constraints(checks, checked_rows)
    labels = (WITHOUT, WITH) if facts["simulated"] else (LOGGED,)
    rows, episodes = checked_rows[WITH].rows, checked_rows[WITH].episodes
    steps = int(episodes.length.sum())
    return Assessment(
        metrics={label: _safety_row(label, checks, checked_rows[label]) for label in labels},
        constraints=constraints,
        quiet=quiet,
        interventions=_interventions(rows, checks.spec),
        reasons=_reasons(rows),
        changed=int(episodes.filtered.sum()) / steps,
        fallback=int(episodes.fallback.sum()) / steps,
        monitors=_alarms(settings, checks, checked_rows[WITH]),
        supervision=tuple(describe_settings(settings, checks.spec)),
        spec=checks.spec,
        level=checks.level,
        **facts,
    )


def _cases(
    starts: Mapping[int, str],
    guarded: tuple[EpisodeRows, str],
    other: tuple[EpisodeRows, str],
    *,
    counted: str,
) -> tuple[Case, ...]:
    """Episodes row by row: with the filter, and what each is compared with."""

    def trace(shown: tuple[EpisodeRows, str], start: int, *, guarded: bool) -> Trace:
        rows, policy = shown
        return trace_of(rows, start, label="case", policy=policy, guarded=guarded, start=start)

    return tuple(
        Case(
            f"{why} ({counted} {start})",
            trace(guarded, start, guarded=True),
            trace(other, start, guarded=False),
        )
        for start, why in starts.items()
    )


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
    checked = constraints if judged_by is None else judged_by
    checks = _Checks(checked, tuple(requirements), spec, level)
    logged = _log_rollout(dataset)
    checked_rows = {LOGGED: checks.of(logged)}
    # A log does not record how an episode ended.
    unknown = dataclasses.replace(checked_rows[LOGGED].episodes, success=None, trip=None)
    checked_rows[LOGGED] = checked_rows[LOGGED]._replace(episodes=unknown)
    for label, actor in ((WITHOUT, policy), (WITH, guarded)):
        part = checks.of(_shadow_rows(as_arrays(actor), logged))
        costs = part.excess.shape[2] - spec.n_cost
        part.excess[..., costs:] = -np.inf  # what would have followed is unknown
        checked_rows[label] = part
    rows = checked_rows[WITH].rows
    shown = (rows._replace(applied=rows.action), f"{name} in shadow"), (logged, "the log")
    return _assessment(
        checks,
        checked_rows,
        guard,
        policy=name,
        where=str(dataset.attributes.get("name", "log")),
        simulated=False,
        unit="reward",
        demands=tuple(describe_constraints(constraints)),
        cases=_cases(_worst_starts(checks, checked_rows), *shown, counted="episode"),
        bands=(),
    )


def _log_rollout(dataset: Dataset) -> EpisodeRows:
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
    return EpisodeRows(**columns)


def _shadow_rows(policy: Policy, logged: EpisodeRows) -> EpisodeRows:
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
