"""Computes the numbers of a safety report from the rows of many episodes, on the host."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from neorl_core import Spec
from neorl_core.costs import limit_kind
from neorl_safety.filters import Flag, Limit, flag_names
from neorl_safety.guards import GuardSettings
from neorl_safety.monitoring import (
    CheckedConstraint,
    describe_monitor,
    violation_depth,
    violation_statistics,
)
from neorl_train.judging._results import Episodes, PolicyResult
from neorl_train.judging._rollouts import GUARD_ACTED, Rollout
from neorl_train.judging._safety_findings import (
    WITH,
    Alarms,
    Constraint,
    Intervention,
    Metrics,
    Reason,
    Violations,
)
from neorl_train.judging._summary import fraction_estimates, mean_estimates, policy_rows
from neorl_train.judging._tables import Estimate

FLAG_WORDS = {
    Flag.REQUEST_NONFINITE: "the policy requested a value that is not a number",
    Flag.OBSERVATION_NONFINITE: "a measurement was lost",
    Flag.BAD_CONSTRAINT: "a constraint was malformed",
    Flag.BAD_PERIOD: "the period was not a positive number",
    Flag.PREVIOUS_UNKNOWN: "the action that the plant received last was not reported",
    Flag.PREVIOUS_ASSUMED: "the plant was assumed to have received the last action",
    Flag.PREVIOUS_OUT_OF_RANGE: "the last action lay outside the range of the actuator",
    Flag.PREVIOUS_OUTSIDE_BOX: "the last action lay outside the declared limits",
    Flag.FALLBACK_NONFINITE: "the fallback requested a value that is not a number",
    Flag.FALLBACK_CLIPPED: "the fallback was clipped to the range of an action",
    Flag.FALLBACK_USED: "the fallback acted",
    Flag.BOX_ACTIVE: "the range of an action was kept",
    Flag.RATE_ACTIVE: "the rate of change was kept",
    Flag.INTERVAL_ACTIVE: "an interlock or another interval was kept",
    Flag.INTERVAL_EMPTY: "an interlock left no allowed value in the range",
    Flag.ROWS_ACTIVE: "a linear or barrier row was kept",
    Flag.ROWS_INFEASIBLE: "no action was found that keeps all linear and barrier rows",
    Flag.WEAR_ACTIVE: "a deadband or a minimum rest time held a channel",
    Flag.REQUEST_SUBNORMAL: "a request too small to be distinguished from zero was set to zero",
    Flag.MONITOR_ALARM: "a monitor alarmed",
    Flag.FALLBACK_HELD: "the fallback stayed in charge",
    Flag.LATCHED: "the fallback was latched",
    Flag.HAND_OVER: "a hand-over was under way",
    Flag.EMERGENCY_STOP: "the emergency stop was pressed",
}
"""Description of every decision of a guard."""


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


def cost_checks(spec: Spec) -> list[CheckedConstraint]:
    """The limits of the costs: hard per step, soft per episode."""
    from neorl_safety.constraints import Tier

    return [
        CheckedConstraint(
            f"cost {channel.name}",
            channel.unit,
            Tier.HARD if limit_kind(channel).bounds_largest else Tier.SOFT,
            f"at most {limit_kind(channel).limit_words(channel.limit, channel.unit)}",
            float(channel.limit) or 1.0,
        )
        for channel in spec.cost
    ]


def cost_excess(
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


def violations_of(
    excess: Float[np.ndarray, "start time"], mask: Bool[np.ndarray, "start time"], *, dt: float,
    level: float,
) -> Violations:  # fmt: skip
    """Count, duration and size of the violations of one constraint."""
    counted = violation_statistics(excess > 0, mask, level=level)
    depth = violation_depth(excess, mask, dt=dt)
    return Violations(
        steps=counted.steps,
        step_fraction=counted.step_fraction,
        longest=counted.longest * dt,
        episodes=counted.episodes,
        episode_fraction=Estimate(*map(float, counted.episode_fraction)),
        largest=depth.largest,
        mean=depth.mean,
        integral=depth.integral,
    )


def constraints_of(
    checks: Sequence[CheckedConstraint],
    checked_rows: Mapping[str, CheckedRows],
    spec: Spec,
    level: float,
) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Every constraint that was active in any step, and the names of the others."""
    constraints, quiet = [], []
    for j, check in enumerate(checks):
        columns = {name: part.excess[..., j] for name, part in checked_rows.items()}
        binding = {
            name: column
            for name, column in columns.items()
            if not np.isneginf(column[checked_rows[name].rows.mask]).all()
        }
        if not binding:
            quiet.append(check.name)
            continue
        violations = {
            name: violations_of(column, checked_rows[name].rows.mask, dt=spec.dt, level=level)
            for name, column in binding.items()
        }
        constraints.append(
            Constraint(check.name, str(check.tier), check.unit, check.description, violations)
        )
    return tuple(constraints), tuple(quiet)


def metrics_of(
    label: str,
    checks: Sequence[CheckedConstraint],
    checked_rows: CheckedRows,
    spec: Spec,
    level: float,
) -> Metrics:
    """The row of an evaluation for one set of episodes, with columns for the constraints."""
    result = PolicyResult(label, label, "learner", label == WITH, checked_rows.episodes)
    (row,) = policy_rows([result], spec, reference="", level=level)
    violated = (checked_rows.excess > 0) & checked_rows.rows.mask[..., None]
    tiers = [str(check.tier) for check in checks]
    counts = violated[..., [tier != "preference" for tier in tiers]]
    per_episode = counts.sum(axis=(1, 2)).astype(np.float64)
    within = ~counts.any(axis=(1, 2))
    return Metrics(
        episodes=row.n_episodes,
        return_mean=row.returns,
        return_std=row.return_std,
        return_min=row.return_min,
        return_max=row.return_max,
        length_mean=row.length,
        length_std=row.length_std,
        violations=int(per_episode.sum()),
        violations_per_episode=mean_estimates(per_episode[:, None], level=level)[0],
        critical_violations=int(violated[..., [tier == "hard" for tier in tiers]].sum()),
        shutdowns=row.trips,
        satisfaction=fraction_estimates(within[:, None], level=level)[0],
        success=row.success,
    )


def interventions_of(rows: Rollout, spec: Spec) -> tuple[Intervention, ...]:
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


def reasons_of(rows: Rollout) -> tuple[Reason, ...]:
    """The decisions of the guard that occurred, most frequent first."""
    reasons = []
    for flag in Flag:
        raised = ((np.asarray(rows.flags) & int(flag)) != 0) & rows.mask
        if raised.any():
            fraction = float(raised[np.asarray(rows.mask)].mean())
            (name,), episodes = flag_names(int(flag)), int(raised.any(axis=1).sum())
            reasons.append(Reason(name, FLAG_WORDS[flag], fraction, episodes))
    return tuple(sorted(reasons, key=lambda reason: -reason.steps))


def acting_of(episodes: Episodes) -> tuple[float, float]:
    """Fractions of the steps in which the filter changed the action, and the fallback acted."""
    steps = int(episodes.length.sum())
    return int(episodes.filtered.sum()) / steps, int(episodes.fallback.sum()) / steps


def alarms_of(
    settings: GuardSettings,
    checks: Sequence[CheckedConstraint],
    checked_rows: CheckedRows,
    spec: Spec,
    level: float,
) -> tuple[Alarms, ...]:
    """Alarms of every monitor, and their lead time before a violation."""
    mask = np.asarray(checked_rows.rows.mask)
    counts = [str(check.tier) != "preference" for check in checks]
    violated: Any = ((checked_rows.excess > 0) & mask[..., None])[..., counts].any(axis=2)
    first_violation = np.where(violated.any(axis=1), violated.argmax(axis=1), violated.shape[1])
    alarms = []
    for i, watch in enumerate(settings.monitors):
        alarm: Any = ((np.asarray(checked_rows.rows.alarms) >> i & 1) != 0) & mask
        first = np.where(alarm.any(axis=1), alarm.argmax(axis=1), alarm.shape[1] + 1)
        early = violated.any(axis=1) & (first < first_violation)
        lead = (first_violation - first)[early] * spec.dt
        fraction = fraction_estimates(alarm.any(axis=1)[:, None], level=level)[0]
        alarms.append(
            Alarms(
                name=watch.name,
                text=describe_monitor(watch, spec),
                promised=watch.false_alarms if watch.calibrated else None,
                episodes=fraction,
                before_violation=int(early.sum()),
                violating=int(violated.any(axis=1).sum()),
                lead=float(np.median(lead)) if len(lead) else None,
            )
        )
    return tuple(alarms)


def worst_starts(
    checks: Sequence[CheckedConstraint],
    checked_rows: Mapping[str, CheckedRows],
    names: tuple[str, str],
) -> dict[int, str]:
    """Starts worth looking at: the worst without the filter, the worst with it, the most changed.

    The reason for each, by its number.
    """
    chosen: dict[int, str] = {}
    counted = [str(check.tier) != "preference" for check in checks]
    scales = np.array([check.scale for check in checks])[counted]
    for name in names:
        part = checked_rows[name]
        size = np.where(part.rows.mask[..., None], part.excess[..., counted], -np.inf) / scales
        flat = np.nan_to_num(size.reshape(len(size), -1).max(axis=1), posinf=1e30, neginf=-1e30)
        start = int(flat.argmax())
        index = int(np.unravel_index(size[start].argmax(), size[start].shape)[1])
        violated = [check for check, ok in zip(checks, counted, strict=True) if ok][index]
        location = f"beyond {violated.name}" if flat[start] > 0 else f"nearest to {violated.name}"
        chosen.setdefault(start, f"The worst {name}: farthest {location}")
    rows = checked_rows[names[1]].rows
    acted = ((np.asarray(rows.flags) & (GUARD_ACTED | int(Flag.FALLBACK_USED))) != 0) & rows.mask
    fraction: Any = acted.sum(axis=1) / np.maximum(np.asarray(rows.mask).sum(axis=1), 1)
    chosen.setdefault(int(np.argmax(fraction)), "The most interventions")
    return chosen
