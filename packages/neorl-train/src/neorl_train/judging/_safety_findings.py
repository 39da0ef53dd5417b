"""Results of a safety report, as numbers."""

import dataclasses

from neorl_core import Spec
from neorl_safety.filters import Flag
from neorl_train.judging._results import Band, Trace
from neorl_train.judging._tables import Estimate, PolicyRow

FLAG_TEXTS = {
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
    Flag.AUTHORITY_ACTIVE: "the policy reached the limit of its authority",
    Flag.REQUEST_SUBNORMAL: "a request too small to be distinguished from zero was set to zero",
    Flag.MONITOR_ALARM: "a monitor alarmed",
    Flag.FALLBACK_HELD: "the fallback stayed in charge",
    Flag.LATCHED: "the fallback was latched",
    Flag.HAND_OVER: "a hand-over was under way",
    Flag.EMERGENCY_STOP: "the emergency stop was pressed",
}
"""Description of every decision of a guard."""

LOGGED, WITHOUT, WITH = "as logged", "without the filter", "with the filter"


@dataclasses.dataclass(frozen=True)
class Violations:
    """Frequency, duration and size of the violations of one constraint.

    Attributes:
        steps: Steps in which it was broken.
        step_fraction: Fraction of all steps.
        longest: Longest uninterrupted violation in seconds.
        episodes: Episodes with a violation.
        episode_fraction: Fraction of the episodes, with its exact (Clopper-Pearson) interval.
        largest: Largest excess, in the unit of the constraint.
        mean: Mean excess over the violating steps.
        integral: Time integral of the excess, averaged over the episodes, in the unit times
            seconds.
    """

    steps: int
    step_fraction: float
    longest: float
    episodes: int
    episode_fraction: Estimate
    largest: float
    mean: float
    integral: float


@dataclasses.dataclass(frozen=True)
class ConstraintColumn:
    """One constraint and how often it was violated.

    Attributes:
        name: For example ``"feed: rate"`` or ``"cost pressure"``.
        tier: ``"hard"``, ``"soft"`` or ``"preference"``.
        unit: Unit of its excess.
        text: Description of the constraint.
        violations: Violations without the filter, with it, and as logged, by these labels.
    """

    name: str
    tier: str
    unit: str
    text: str
    violations: dict[str, Violations]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SafetyRow(PolicyRow):
    """The row of an evaluation, with columns for all its constraints.

    Attributes:
        violations: Violating steps of all constraints except preferences.
        violations_per_episode: Their mean per episode.
        critical_violations: Violating steps of hard constraints.
        satisfaction: Fraction of the episodes in which only preferences were broken, if anything.
    """

    violations: int
    violations_per_episode: Estimate
    critical_violations: int
    satisfaction: Estimate


@dataclasses.dataclass(frozen=True)
class Intervention:
    """Changes that the filter made to one action channel.

    Attributes:
        channel: Name of the channel.
        unit: Its unit.
        changed: Fraction of the steps in which it was changed.
        mean: Mean size of a change.
        p95: 95 % quantile of the size of the changes.
        largest: Largest change.
        span: Range of the actuator, as a scale for the sizes.
        limits: Fraction of the steps in which each limit was active, by name.
    """

    channel: str
    unit: str
    changed: float
    mean: float
    p95: float
    largest: float
    span: float
    limits: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Reason:
    """One decision of the guard.

    Attributes:
        flag: Its name.
        text: Its meaning.
        steps: Fraction of the steps.
        episodes: Number of episodes with it.
    """

    flag: str
    text: str
    steps: float
    episodes: int


@dataclasses.dataclass(frozen=True)
class Alarms:
    """Alarms of one monitor.

    Attributes:
        name: Name of the monitor.
        text: Condition of its alarm.
        promised: Promised fraction of the episodes with a false alarm; ``None`` if nothing is
            promised.
        episodes: Fraction of the episodes with an alarm, with its exact interval.
        before_violation: Number of episodes with a violated hard or soft constraint in which the
            alarm came before the violation.
        violating: Number of episodes with such a violation.
        lead: Median time from its first alarm to the violation in seconds; ``None`` if there is
            none.
    """

    name: str
    text: str
    promised: float | None
    episodes: Estimate
    before_violation: int
    violating: int
    lead: float | None


@dataclasses.dataclass(frozen=True)
class Case:
    """One episode worth looking at.

    Attributes:
        title: Why it was chosen, and which constraint was broken in it.
        guarded: The episode with the filter.
        other: The same start without it; for a log, the episode as logged.
    """

    title: str
    guarded: Trace
    other: Trace | None


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Everything that a safety report shows.

    Attributes:
        policy: Name of the policy.
        where: Name of the plant or of the log.
        simulated: Whether the policy ran on the plant.
        spec: Channels, control period and cost limits.
        level: Confidence level of every interval.
        unit: Unit of the return.
        metrics: The row of metrics for each case, with and without the filter.
        constraints: Every constraint that was active in any step.
        quiet: Names of the constraints that were never active.
        interventions: Interventions of the filter, channel by channel.
        reasons: Decisions of the guard that occurred.
        changed: Fraction of the steps in which the filter changed the action.
        fallback: Fraction of the steps in which the fallback acted.
        monitors: Results for the monitors.
        demands: Limits that the guard enforces, as text.
        supervision: Monitors, and conditions for the fallback, as text.
        cases: Episodes worth looking at.
        bands: Soft limits of measurements, for the figures.
    """

    policy: str
    where: str
    simulated: bool
    spec: Spec
    level: float
    unit: str
    metrics: dict[str, SafetyRow]
    constraints: tuple[ConstraintColumn, ...]
    quiet: tuple[str, ...]
    interventions: tuple[Intervention, ...]
    reasons: tuple[Reason, ...]
    changed: float
    fallback: float
    monitors: tuple[Alarms, ...]
    demands: tuple[str, ...]
    supervision: tuple[str, ...]
    cases: tuple[Case, ...]
    bands: tuple[Band, ...]

    @property
    def broken(self) -> tuple[ConstraintColumn, ...]:
        """Hard constraints that were broken with the filter on; if there are any, it failed."""
        return tuple(
            constraint
            for constraint in self.constraints
            if constraint.tier == "hard"
            and WITH in constraint.violations
            and constraint.violations[WITH].steps
        )
