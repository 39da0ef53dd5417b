"""The monitors and the supervisor of a run: what is watched, and when the fallback takes over."""

import dataclasses
import math
from typing import Literal, get_args

from neorl_core import InputError, Spec
from neorl_core.infrastructure import setting, unknown_name
from neorl_safety.guards import Supervision, supervision, usable_ages
from neorl_safety.monitoring import (
    NamedMonitor,
    formula_monitor,
    frozen_monitor,
    range_monitor,
    read_formula,
)

Novelty = Literal["mahalanobis", "neighbours"]
RANGE, FROZEN, DRIFT, DISAGREEMENT = "range", "frozen", "drift", "disagreement"
BUILT_IN_NAMES = (RANGE, FROZEN, *get_args(Novelty), DRIFT, DISAGREEMENT)
PERIODS = 10
"""Default number of control periods in which the offset of a hand-over decays."""


@dataclasses.dataclass(frozen=True)
class MonitorsConfig:
    """Monitors that watch the plant while a policy acts; an alarm activates the fallback.

    Attributes:
        range: Fraction of its measuring range by which an observation may lie outside that range;
            ``inf`` for no such monitor.
        frozen: Seconds for which a measurement may stay unchanged, by channel name.
        max_age: Seconds after which a measurement counts as lost, by channel name; the bundle then
            requires the ages.
        formulas: Formulas of signal temporal logic that must hold, each under a name, such as
            ``"always[0 s, 600 s] (T_R <= 385 K)"``.
        novelty: Measures of distance from the log: ``"mahalanobis"``, ``"neighbours"`` or both.
        neighbours: Which nearest neighbour's distance is used.
        rows: Number of rows of the log among which neighbours are searched.
        drift: Whether moving means of the inputs are compared with those of the log.
        disagreement: Whether the seeds of the candidate's learner are compared with one another.
        false_alarms: Promised fraction of episodes similar to the held-out ones in which any of the
            calibrated monitors (novelty, drift, disagreement) raises a false alarm.
    """

    range: float = setting(0.05, low=0, also=math.inf)
    frozen: dict[str, float] = dataclasses.field(default_factory=dict)
    max_age: dict[str, float] = dataclasses.field(default_factory=dict)
    formulas: dict[str, str] = dataclasses.field(default_factory=dict)
    novelty: tuple[Novelty, ...] = ()
    neighbours: int = setting(5, low=1)
    rows: int = setting(1000, low=1)
    drift: bool = False
    disagreement: bool = False
    false_alarms: float = setting(0.05, above=0, below=1)

    @property
    def calibrated(self) -> tuple[str, ...]:
        """Names of the monitors whose threshold comes from held-out episodes."""
        further = ((DRIFT, self.drift), (DISAGREEMENT, self.disagreement))
        return (*self.novelty, *(name for name, wanted in further if wanted))

    @property
    def false_alarms_each(self) -> float:
        """The share of ``false_alarms`` that each calibrated monitor may use."""
        return self.false_alarms / max(len(self.calibrated), 1)


@dataclasses.dataclass(frozen=True)
class SupervisorConfig:
    """Conditions under which the fallback takes over and hands back, in control periods.

    Attributes:
        trip_after: Consecutive steps with an alarm before the fallback takes over.
        reset_after: Consecutive steps without a fault or an alarm before the policy may act again.
        dwell: Smallest number of steps for which the fallback stays in charge.
        latch_after: Number of take-overs after which the fallback stays in charge until a person
            releases it; zero for never.
        assume_for: Steps for which the policy's last action counts as received if no read-back is
            available.
        settle: Seconds in which the offset of a hand-over decays to 37 %; zero for no offset, -1
            for ten control periods.
    """

    trip_after: int = 1
    reset_after: int = 5
    dwell: int = 5
    latch_after: int = 0
    assume_for: int = 3
    settle: float = -1.0


def supervision_of(supervisor: SupervisorConfig, dt: float) -> Supervision:
    """The settings of the supervisor for a control period in seconds."""
    settings = dataclasses.asdict(supervisor)
    if settings["settle"] == -1:
        settings["settle"] = PERIODS * dt
    try:
        return supervision(**settings)
    except InputError as error:
        raise InputError(f"supervisor.{error}") from error


def check_monitors(monitors: MonitorsConfig, *, algorithms: tuple[str, ...], seeds: int) -> None:
    """Refuses invalid settings before any data is read.

    Raises:
        InputError: If there are fewer rows than neighbours, a formula has the name of another
            monitor, or disagreement is requested for a single seed.
    """
    _require(
        monitors.neighbours <= monitors.rows,
        f"monitors.neighbours must be at most monitors.rows = {monitors.rows}, got "
        f"{monitors.neighbours}",
    )
    for name in monitors.novelty:
        if name not in get_args(Novelty):
            raise unknown_name("value of monitors.novelty", name, get_args(Novelty))
    _require(
        len(set(monitors.novelty)) == len(monitors.novelty),
        "monitors.novelty names a monitor twice; name each monitor once",
    )
    for name in monitors.formulas:
        _require(
            bool(name.strip()) and name not in BUILT_IN_NAMES,
            f"monitors.formulas has {name!r}, which is the name of another monitor; choose another "
            "name",
        )
    _require(
        not monitors.disagreement or seeds > 1,
        f"monitors.disagreement compares seeds, and training.seeds has {seeds}; train two or more "
        f"seeds of {', '.join(algorithms)}",
    )


def declared_watches(monitors: MonitorsConfig, spec: Spec) -> list[NamedMonitor]:
    """The monitors that need no log: ranges, standstill and formulas.

    Raises:
        InputError: If a channel is unknown, a time is not positive or a formula cannot be
            parsed; the message names the field.
    """
    usable_ages(monitors.max_age, spec, "monitors.max_age")
    watches = []
    if not math.isinf(monitors.range):
        watches.append(NamedMonitor(RANGE, range_monitor(spec, tolerance=monitors.range)))
    if monitors.frozen:
        frozen_seconds = usable_ages(monitors.frozen, spec, "monitors.frozen")
        steps = {name: max(round(seconds / spec.dt), 1) for name, seconds in frozen_seconds.items()}
        watches.append(NamedMonitor(FROZEN, frozen_monitor(spec, steps)))
    for name, text in monitors.formulas.items():
        try:
            formula = read_formula(text, spec)
        except InputError as error:
            raise InputError(f"monitors.formulas.{name}: {error}") from error
        watches.append(NamedMonitor(name, formula_monitor(formula, spec)))
    return watches


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
