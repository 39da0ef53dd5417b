"""A monitor with its name, its description and its guarantee."""

import dataclasses
import math
from typing import Any

from neorl_core import Spec
from neorl_safety.monitoring._calibration import alarms_per_day
from neorl_safety.monitoring._drift import DriftMonitor
from neorl_safety.monitoring._formula_text import formula_text
from neorl_safety.monitoring._learned import EnsembleMonitor
from neorl_safety.monitoring._monitor import Monitor
from neorl_safety.monitoring._novelty import MahalanobisMonitor, NeighbourMonitor
from neorl_safety.monitoring._sensors import FrozenMonitor, RangeMonitor
from neorl_safety.monitoring._stl_monitor import FormulaMonitor

NEVER = 2**30
"""Number of steps that stands for a channel that is not monitored for standstill."""

LONG_OPERATION = 1.9
"""Largest measured ratio of actual to guaranteed false alarms of a drift monitor in long operation.

The largest ratio among eleven simulated, healthy plants, whose thresholds were set on episodes and
which then ran for twenty times as long (``tools/studies/tables/drift_alarms.py``).
"""


@dataclasses.dataclass(frozen=True)
class NamedMonitor:
    """One monitor of a guard, with what people and documents need to know about it.

    Attributes:
        name: Name, unique in its guard.
        monitor: The monitor.
        false_alarms: Guaranteed fraction of operating stretches with a false alarm; NaN if its
            threshold is given and not calibrated.
        episodes: Number of held-out stretches that set its threshold; zero for a given threshold.
        policies: Names of the policies whose disagreement it monitors; empty for other kinds.
        stretch: Length of a stretch in seconds; NaN if unknown.
    """

    name: str
    monitor: Monitor
    false_alarms: float = math.nan
    episodes: int = 0
    policies: tuple[str, ...] = ()
    stretch: float = math.nan

    @property
    def calibrated(self) -> bool:
        """Whether its threshold comes from held-out episodes."""
        return not math.isnan(self.false_alarms)

    @property
    def per_day(self) -> float:
        """Guaranteed maximum of false alarms per day of operation; NaN without a guarantee."""
        return alarms_per_day(self.false_alarms, self.stretch)


def describe_monitor(named: NamedMonitor, spec: Spec) -> str:
    """Describes in words when a monitor alarms, with units and its guarantee.

    Args:
        named: A monitor with its name, with concrete numbers.
        spec: Specification that provides channels and units.

    Returns:
        A sentence without full stop.
    """
    text = f"{named.name}: {_condition(named, spec)}"
    if not named.calibrated:
        return text
    if math.isnan(named.stretch):
        return (
            f"{text}; guaranteed: a false alarm in at most {100 * named.false_alarms:.3g} % of "
            f"episodes like the {named.episodes} held-out ones that set its threshold"
        )
    sentence = (
        f"{text}; guaranteed: at most {named.per_day:.3g} false alarms in a day of operation like "
        f"the {named.episodes} held-out stretches of {named.stretch:g} s that set its threshold "
        f"(in {100 * named.false_alarms:.3g} % of them)"
    )
    if isinstance(named.monitor, DriftMonitor):
        sentence += (
            "; a plant that runs for much longer than one stretch may drift further: simulated "
            f"plants raised up to {LONG_OPERATION:g} times as many alarms"
        )
    return sentence


def _condition(named: NamedMonitor, spec: Spec) -> str:
    monitor: Any = named.monitor
    limit = f"above {float(monitor.threshold):.4g}" if hasattr(monitor, "threshold") else ""
    if isinstance(monitor, RangeMonitor):
        return (
            "an observation beyond its measuring range by more than "
            f"{100 * float(monitor.tolerance):g} % of it"
        )
    if isinstance(monitor, FrozenMonitor):
        frozen = [
            f"{channel.name} for more than {float(steps) * spec.dt:g} s"
            for channel, steps in zip(spec.obs, monitor.max_steps.tolist(), strict=True)
            if steps < NEVER
        ]
        return f"a measurement that does not move: {', '.join(frozen)}"
    if isinstance(monitor, FormulaMonitor):
        return f"not {formula_text(monitor.formula, spec)}"
    if isinstance(monitor, MahalanobisMonitor):
        return f"an observation far from the log, squared Mahalanobis distance {limit}"
    if isinstance(monitor, NeighbourMonitor):
        return (
            f"an observation far from the log, distance {limit} standard deviations to the nearest "
            f"{monitor.neighbours} of {len(monitor.rows)} representative rows"
        )
    if isinstance(monitor, DriftMonitor):
        return f"inputs that drift from the log, moving mean {limit} of its standard deviations"
    if isinstance(monitor, EnsembleMonitor):
        return (
            f"policies that disagree ({', '.join(named.policies)}), standard deviation {limit} of "
            "an actuator's range"
        )
    return f"{type(monitor).__name__} {limit}".strip()
