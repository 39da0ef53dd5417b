"""Results of a safety report, as numbers."""

import dataclasses

from neorl_core import Spec
from neorl_train.results._episodes import Trace
from neorl_train.results._results import Band
from neorl_train.results._tables import Estimate

LOGGED, WITHOUT, WITH = "as logged", "without the filter", "with the filter"


@dataclasses.dataclass(frozen=True)
class Violations:
    """Frequency, duration and size of the violations of one constraint.

    Attributes:
        steps: Steps in which it was broken.
        step_fraction: Part of all steps.
        longest: Longest uninterrupted violation in seconds.
        episodes: Episodes with a violation.
        episode_fraction: Part of the episodes, with its exact (Clopper-Pearson) interval.
        largest: Largest excess, in the unit of the constraint.
        mean: Mean excess of the violating steps.
        integral: Excess summed over time, mean of the episodes, in the unit times seconds.
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
class Constraint:
    """One constraint and how often it was violated.

    Attributes:
        name: Such as ``"feed: rate"`` or ``"cost pressure"``.
        tier: ``"hard"``, ``"soft"`` or ``"preference"``.
        unit: Unit of its excess.
        words: The demand in words.
        violations: Violations without the filter, with it, and as logged, by these labels.
    """

    name: str
    tier: str
    unit: str
    words: str
    violations: dict[str, Violations]


@dataclasses.dataclass(frozen=True)
class Metrics:
    """An evaluation with safety in one row; every mean and fraction with its interval.

    Attributes:
        episodes: Number of episodes.
        return_mean: Mean return.
        return_std: Standard deviation of the return.
        return_min: Least return.
        return_max: Largest return.
        length_mean: Mean length in steps.
        length_std: Standard deviation of the length.
        violations: Violating steps of all constraints but preferences.
        violations_per_episode: Their mean per episode.
        critical_violations: Violating steps of hard constraints.
        shutdowns: Episodes that the plant ended by a trip, as a part of all.
        satisfaction: Part of the episodes in which no constraint but a preference was broken.
        success: Part of the episodes that ended as the plant wants; ``None`` where it does not say.
    """

    episodes: int
    return_mean: Estimate
    return_std: float
    return_min: float
    return_max: float
    length_mean: Estimate
    length_std: float
    violations: int
    violations_per_episode: Estimate
    critical_violations: int
    shutdowns: Estimate | None
    satisfaction: Estimate
    success: Estimate | None


@dataclasses.dataclass(frozen=True)
class Intervention:
    """Changes by the filter of one action channel.

    Attributes:
        channel: Name of the channel.
        unit: Its unit.
        changed: Part of the steps in which it was moved.
        mean: Mean size of a move.
        p95: Size that 95 % of the moves stay below.
        largest: Largest move.
        span: Range of the actuator, to read the sizes on.
        limits: Part of the steps in which each limit was active, by name.
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
        words: Meaning of it.
        steps: Part of the steps.
        episodes: Episodes with it.
    """

    flag: str
    words: str
    steps: float
    episodes: int


@dataclasses.dataclass(frozen=True)
class Alarms:
    """Alarms of one monitor.

    Attributes:
        name: Name of the monitor.
        words: Condition of its alarm.
        promised: Promised part of the episodes with a false alarm; ``None`` where none is.
        episodes: Part of the episodes with an alarm, with its exact interval.
        before_violation: Number of the episodes with a violated hard or soft constraint in which
            it alarmed before the violation.
        violating: Those episodes.
        lead: Median time from its first alarm to the violation in seconds; ``None`` where none.
    """

    name: str
    words: str
    promised: float | None
    episodes: Estimate
    before_violation: int
    violating: int
    lead: float | None


@dataclasses.dataclass(frozen=True)
class Case:
    """One episode worth looking at.

    Attributes:
        title: Why it was chosen, and what was broken in it.
        ours: The episode with the filter.
        other: The same start without it; of a log the episode as it was logged.
    """

    title: str
    ours: Trace
    other: Trace | None


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Everything that a safety report shows.

    Attributes:
        policy: Name of the policy.
        where: Name of the plant or of the log.
        simulated: Whether the policy ran on the plant.
        spec: Channels, period and cost limits.
        level: Confidence level of every interval.
        unit: Unit of the return.
        metrics: The row of metrics by what acted.
        constraints: Every constraint that bound in any step.
        quiet: Names of the constraints that bound nowhere.
        interventions: Interventions of the filter, channel by channel.
        reasons: Decisions of the guard that occurred.
        changed: Part of the steps in which the filter changed the action.
        fallback: Part of the steps in which the fallback acted.
        monitors: Findings of the monitors.
        demands: Limits that the guard keeps, in words.
        supervision: Monitors, and conditions for the fallback, in words.
        cases: Episodes to look at.
        bands: Soft limits of measurements, for the pictures.
    """

    policy: str
    where: str
    simulated: bool
    spec: Spec
    level: float
    unit: str
    metrics: dict[str, Metrics]
    constraints: tuple[Constraint, ...]
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
    def broken(self) -> tuple[Constraint, ...]:
        """Hard constraints that were broken with the filter on: where there is one, it fails."""
        return tuple(
            one
            for one in self.constraints
            if one.tier == "hard" and WITH in one.violations and one.violations[WITH].steps
        )
