"""Computes the numbers of a safety report from the rows of many episodes, on the host."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
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
from neorl_train.evaluation._episodes import ACTED
from neorl_train.evaluation._estimates import fraction_estimates, mean_estimates
from neorl_train.evaluation._rollout import Rollout
from neorl_train.evaluation._summary import policy_rows
from neorl_train.results._episodes import Episodes
from neorl_train.results._results import PolicyResult
from neorl_train.results._tables import Estimate
from neorl_train.safety._findings import (
    WITH,
    Alarms,
    Constraint,
    Intervention,
    Metrics,
    Reason,
    Violations,
)

FLAG_WORDS = {
    Flag.REQUEST_NONFINITE: "the policy asked for something that is no number",
    Flag.OBSERVATION_NONFINITE: "a measurement was lost",
    Flag.BAD_CONSTRAINT: "a constraint was malformed",
    Flag.BAD_PERIOD: "the period was no positive number",
    Flag.PREVIOUS_UNKNOWN: "nobody had said what the plant received last",
    Flag.PREVIOUS_ASSUMED: "the last own action was assumed to have been received",
    Flag.PREVIOUS_OUT_OF_RANGE: "the last action lay where the actuator cannot be",
    Flag.PREVIOUS_OUTSIDE_BOX: "the last action lay outside of its range",
    Flag.FALLBACK_NONFINITE: "the fallback asked for something that is no number",
    Flag.FALLBACK_CLIPPED: "the fallback was clipped to the range of an action",
    Flag.FALLBACK_USED: "the fallback acted",
    Flag.BOX_ACTIVE: "the range of an action was kept",
    Flag.RATE_ACTIVE: "the rate of change was kept",
    Flag.INTERVAL_ACTIVE: "an interlock or another interval was kept",
    Flag.INTERVAL_EMPTY: "an interlock left nothing of the range",
    Flag.ROWS_ACTIVE: "a linear or barrier row was kept",
    Flag.ROWS_INFEASIBLE: "no action was found that keeps all rows",
    Flag.WEAR_ACTIVE: "a deadband or a rest held a channel",
    Flag.REQUEST_SUBNORMAL: "a request too small to be told from zero counted as zero",
    Flag.MONITOR_ALARM: "a monitor alarmed",
    Flag.FALLBACK_HELD: "the fallback stayed in charge",
    Flag.LATCHED: "the fallback was latched",
    Flag.HAND_OVER: "a hand-over was under way",
    Flag.EMERGENCY_STOP: "the emergency stop was pressed",
}
"""Description of every decision of a guard."""


class Judged(NamedTuple):
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
    broken: Any = excess > 0
    steps: Any = mask
    counted = violation_statistics(broken, steps, level=level)
    with jax.enable_x64(True):
        over: Any = np.where(np.isneginf(excess), -1.0, excess).astype(np.float64)
        depth = violation_depth(over, steps, dt=dt)
    share = counted.episode_fraction
    return Violations(
        steps=int(counted.steps),
        step_fraction=float(counted.step_fraction),
        longest=float(counted.longest) * dt,
        episodes=int(counted.episodes),
        episode_fraction=Estimate(*(float(end) for end in share)),
        largest=float(depth.largest),
        mean=float(depth.mean),
        integral=float(depth.integral),
    )


def constraints_of(
    checked: Sequence[CheckedConstraint], judged: Mapping[str, Judged], spec: Spec, level: float
) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Every constraint that was active in any step, and the names of the others."""
    constraints, quiet = [], []
    for j, one in enumerate(checked):
        columns = {name: part.excess[..., j] for name, part in judged.items()}
        binding = {
            name: column
            for name, column in columns.items()
            if not np.isneginf(column[judged[name].rows.mask]).all()
        }
        if not binding:
            quiet.append(one.name)
            continue
        violations = {
            name: violations_of(column, judged[name].rows.mask, dt=spec.dt, level=level)
            for name, column in binding.items()
        }
        constraints.append(
            Constraint(one.name, str(one.tier), one.unit, one.description, violations)
        )
    return tuple(constraints), tuple(quiet)


def metrics_of(
    label: str, checked: Sequence[CheckedConstraint], judged: Judged, spec: Spec, level: float
) -> Metrics:
    """The row of an evaluation for one set of episodes, with columns for the constraints.

    Args:
        label: Name of the case, such as ``"with the filter"``.
        checked: The constraints that were checked.
        judged: The episodes.
        spec: Cost channels with their limits.
        level: Confidence level of every interval.
    """
    result = PolicyResult(label, label, "learner", label == WITH, judged.episodes)
    (row,) = policy_rows([result], spec, reference="", level=level)
    broken = (judged.excess > 0) & judged.rows.mask[..., None]
    tiers = [str(one.tier) for one in checked]
    counts = broken[..., [tier != "preference" for tier in tiers]]
    each = counts.sum(axis=(1, 2)).astype(np.float64)
    within = ~counts.any(axis=(1, 2))
    return Metrics(
        episodes=row.n_episodes,
        return_mean=row.returns,
        return_std=row.return_std,
        return_min=row.return_min,
        return_max=row.return_max,
        length_mean=row.length,
        length_std=row.length_std,
        violations=int(each.sum()),
        violations_per_episode=mean_estimates(each[:, None], level=level)[0],
        critical_violations=int(broken[..., [tier == "hard" for tier in tiers]].sum()),
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
        happened = ((np.asarray(rows.flags) & int(flag)) != 0) & rows.mask
        if happened.any():
            share = float(happened[np.asarray(rows.mask)].mean())
            (name,), episodes = flag_names(int(flag)), int(happened.any(axis=1).sum())
            reasons.append(Reason(name, FLAG_WORDS[flag], share, episodes))
    return tuple(sorted(reasons, key=lambda one: -one.steps))


def acting_of(episodes: Episodes) -> tuple[float, float]:
    """Fractions of the steps in which the filter changed the action, and the fallback acted."""
    steps = int(episodes.length.sum())
    return int(episodes.filtered.sum()) / steps, int(episodes.fallback.sum()) / steps


def alarms_of(
    settings: GuardSettings,
    checked: Sequence[CheckedConstraint],
    judged: Judged,
    spec: Spec,
    level: float,
) -> tuple[Alarms, ...]:
    """Alarms of every monitor, and their lead time before a violation."""
    mask = np.asarray(judged.rows.mask)
    counts = [str(one.tier) != "preference" for one in checked]
    broken: Any = ((judged.excess > 0) & mask[..., None])[..., counts].any(axis=2)
    first_broken = np.where(broken.any(axis=1), broken.argmax(axis=1), broken.shape[1])
    alarms = []
    for i, watch in enumerate(settings.monitors):
        alarm: Any = ((np.asarray(judged.rows.alarms) >> i & 1) != 0) & mask
        first = np.where(alarm.any(axis=1), alarm.argmax(axis=1), alarm.shape[1] + 1)
        early = broken.any(axis=1) & (first < first_broken)
        lead = (first_broken - first)[early] * spec.dt
        share = fraction_estimates(alarm.any(axis=1)[:, None], level=level)[0]
        alarms.append(
            Alarms(
                name=watch.name,
                words=describe_monitor(watch, spec),
                promised=watch.false_alarms if watch.calibrated else None,
                episodes=share,
                before_violation=int(early.sum()),
                violating=int(broken.any(axis=1).sum()),
                lead=float(np.median(lead)) if len(lead) else None,
            )
        )
    return tuple(alarms)


def worst_starts(
    checked: Sequence[CheckedConstraint], judged: Mapping[str, Judged], names: tuple[str, str]
) -> dict[int, str]:
    """Starts worth looking at: the worst without the filter, the worst with it, the most changed.

    Args:
        checked: The constraints that were checked.
        judged: Rows for each case.
        names: Names in ``judged`` of the cases without and with the filter.

    Returns:
        Reason for each selected start, by its number.
    """
    chosen: dict[int, str] = {}
    counts = [str(one.tier) != "preference" for one in checked]
    scales = np.array([one.scale for one in checked])[counts]
    for name in names:
        part = judged[name]
        size = np.where(part.rows.mask[..., None], part.excess[..., counts], -np.inf) / scales
        flat = np.nan_to_num(size.reshape(len(size), -1).max(axis=1), posinf=1e30, neginf=-1e30)
        start = int(flat.argmax())
        which = int(np.unravel_index(size[start].argmax(), size[start].shape)[1])
        broken = [one for one, kept in zip(checked, counts, strict=True) if kept][which]
        place = f"beyond {broken.name}" if flat[start] > 0 else f"nearest to {broken.name}"
        chosen.setdefault(start, f"The worst {name}: farthest {place}")
    rows = judged[names[1]].rows
    acted = ((np.asarray(rows.flags) & (ACTED | int(Flag.FALLBACK_USED))) != 0) & rows.mask
    share: Any = acted.sum(axis=1) / np.maximum(np.asarray(rows.mask).sum(axis=1), 1)
    chosen.setdefault(int(np.argmax(share)), "The most interventions")
    return chosen
