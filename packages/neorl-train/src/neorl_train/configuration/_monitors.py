"""The monitors and the supervisor of a run: what watches, and when the fallback takes over."""

import dataclasses
import math
from typing import Literal, get_args

from neorl_core import InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_safety.guards import Supervision, supervision, usable_ages
from neorl_safety.monitoring import (
    Watch,
    formula_monitor,
    frozen_monitor,
    range_monitor,
    read_formula,
)

Novelty = Literal["mahalanobis", "neighbours"]
RANGE, FROZEN, DRIFT, DISAGREEMENT = "range", "frozen", "drift", "disagreement"
OWN_NAMES = (RANGE, FROZEN, *get_args(Novelty), DRIFT, DISAGREEMENT)
PERIODS = 10
"""Control periods in which the offset of a hand-over decays, where the run does not say."""


@dataclasses.dataclass(frozen=True)
class MonitorsConfig:
    """What watches the plant while a policy acts; an alarm calls for the fallback.

    Attributes:
        range: Part of its measuring range by which an observation may lie beyond it; ``inf`` for
            no such monitor.
        frozen: Seconds for which a measurement may stand still, by name of the channel.
        max_age: Seconds after which a measurement counts as lost, by name of the channel; the
            bundle then asks for the ages.
        formulas: Formulas of signal temporal logic that must hold, by a name for each, such as
            ``"always[0 s, 600 s] (T_R <= 385 K)"``.
        novelty: Distances from the log: ``"mahalanobis"``, ``"neighbours"`` or both.
        neighbours: Which nearest neighbour's distance counts.
        rows: Rows of the log that stand for all of it among the neighbours.
        drift: Whether moving means of the inputs are compared with the log's.
        disagreement: Whether the seeds of the candidate's learner are compared with one another.
        false_alarms: Promised part of the episodes, like the held-out ones, in which any of the
            calibrated monitors (novelty, drift, disagreement) raises a false alarm.
    """

    range: float = 0.05
    frozen: dict[str, float] = dataclasses.field(default_factory=dict)
    max_age: dict[str, float] = dataclasses.field(default_factory=dict)
    formulas: dict[str, str] = dataclasses.field(default_factory=dict)
    novelty: tuple[Novelty, ...] = ()
    neighbours: int = 5
    rows: int = 1000
    drift: bool = False
    disagreement: bool = False
    false_alarms: float = 0.05

    @property
    def calibrated(self) -> tuple[str, ...]:
        """Names of the monitors whose threshold comes from held-out episodes."""
        further = ((DRIFT, self.drift), (DISAGREEMENT, self.disagreement))
        return (*self.novelty, *(name for name, wanted in further if wanted))

    @property
    def share(self) -> float:
        """The part of ``false_alarms`` that each calibrated monitor may use."""
        return self.false_alarms / max(len(self.calibrated), 1)


@dataclasses.dataclass(frozen=True)
class SupervisorConfig:
    """When the fallback takes over and when it hands back, in control periods.

    Attributes:
        trip_after: Steps in a row with an alarm before the fallback takes over.
        reset_after: Steps in a row without fault and alarm before the policy may act again.
        dwell: Steps that the fallback stays in charge at least.
        latch_after: Take-overs after which it stays until a person releases it; zero for never.
        assume_for: Steps for which the last own action counts as received, where nobody says.
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
    """The settings of the supervisor for a period in seconds.

    Raises:
        InputError: If a number is out of range; it is named.
    """
    settings = dataclasses.asdict(supervisor)
    if settings["settle"] == -1:
        settings["settle"] = PERIODS * dt
    try:
        return supervision(**settings)
    except InputError as error:
        raise InputError(f"supervisor.{error}") from error


def check_monitors(monitors: MonitorsConfig, *, algorithms: tuple[str, ...], seeds: int) -> None:
    """Refuses what can be refused before any data is read.

    Raises:
        InputError: If a number is out of range, a formula has the name of another monitor, or
            disagreement is asked of a single seed.
    """
    _require(monitors.range >= 0, f"monitors.range must be zero or more, got {monitors.range}")
    _require(
        0 < monitors.false_alarms < 1,
        f"monitors.false_alarms must be above 0 and below 1, got {monitors.false_alarms}",
    )
    _require(
        1 <= monitors.neighbours <= monitors.rows,
        "monitors.neighbours must lie between 1 and monitors.rows: "
        f"{monitors.neighbours}, {monitors.rows}",
    )
    for name in monitors.novelty:
        if name not in get_args(Novelty):
            raise unknown_name("value of monitors.novelty", name, get_args(Novelty))
    _require(
        len(set(monitors.novelty)) == len(monitors.novelty), "monitors.novelty names one twice"
    )
    for name in monitors.formulas:
        _require(
            bool(name.strip()) and name not in OWN_NAMES,
            f"monitors.formulas has {name!r}, the name of another monitor; choose another",
        )
    _require(
        not monitors.disagreement or seeds > 1,
        f"monitors.disagreement compares seeds, and training.seeds has {seeds}; train two or more "
        f"seeds of {', '.join(algorithms)}",
    )


def given_watches(monitors: MonitorsConfig, spec: Spec) -> list[Watch]:
    """The monitors that need no log: ranges, standstill and formulas.

    Args:
        monitors: Configuration, checked.
        spec: Channels, units and the period.

    Returns:
        In the order of their names in the configuration.

    Raises:
        InputError: If a channel is unknown, a time is no period or a formula cannot be read; the
            field is named.
    """
    usable_ages(monitors.max_age, spec, "monitors.max_age")
    watches = []
    if not math.isinf(monitors.range):
        watches.append(Watch(RANGE, range_monitor(spec, tolerance=monitors.range)))
    if monitors.frozen:
        still = usable_ages(monitors.frozen, spec, "monitors.frozen")
        steps = {name: max(round(seconds / spec.dt), 1) for name, seconds in still.items()}
        watches.append(Watch(FROZEN, frozen_monitor(spec, steps)))
    for name, text in monitors.formulas.items():
        try:
            formula = read_formula(text, spec)
        except InputError as error:
            raise InputError(f"monitors.formulas.{name}: {error}") from error
        watches.append(Watch(name, formula_monitor(formula, spec)))
    return watches


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
