"""Loops of today's controller, with the numbers that its faceplate shows."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from neorl_envs.datasets._dataset import Dataset

UNNAMED = "PID of plant.toml"
"""Name of a controller whose loops have no tags."""
MINUTE = 60.0
SECONDS = {"s": 1.0, "min": MINUTE}
"""Units of times on a faceplate."""


@dataclasses.dataclass(frozen=True)
class FaceplateLoop:
    """One PID loop of the control system, in standard form.

    Attributes:
        controlled: Name of the tag that the loop controls.
        manipulated: Name of the manipulated tag that it moves.
        direction: ``"reverse"`` if the output falls when the measurement rises, ``"direct"`` if it
            rises.
        gain: Size of the gain, positive; ``None`` if ``proportional_band`` is given.
        gain_unit: ``"engineering"`` for units of the output per unit of the measurement, or
            ``"percent"`` for percent of the output's range per percent of the measurement's.
        proportional_band: Percent of the measurement's range that moves the output over its whole
            range: 100 divided by the gain in percent per percent.
        integral: Integral time or rate, in ``integral_unit``; infinite for a loop without one.
        integral_unit: ``"s"``, ``"min"`` or ``"repeats per min"``.
        derivative: Derivative time, in ``derivative_unit``.
        derivative_unit: ``"s"`` or ``"min"``.
        derivative_filter: ``N``: the derivative is filtered with its time divided by ``N``.
        setpoint: Constant setpoint, in the unit of the measurement.
        setpoint_channel: Name of the tag that carries the setpoint, in place of ``setpoint``.
        bias: Output at zero error with an empty integral, in the unit of the output.
        low: Lower limit of the output; the low end of its range by default.
        high: Upper limit of the output.
        name: Tag of the controller, such as ``"AIC-401"``, for texts.
    """

    controlled: str
    manipulated: str
    direction: Literal["reverse", "direct"]
    gain: float | None = None
    gain_unit: Literal["engineering", "percent"] = "engineering"
    proportional_band: float | None = None
    integral: float = math.inf
    integral_unit: Literal["s", "min", "repeats per min"] = "s"
    derivative: float = 0.0
    derivative_unit: Literal["s", "min"] = "s"
    derivative_filter: float = 10.0
    setpoint: float | None = None
    setpoint_channel: str = ""
    bias: float | None = None
    low: float | None = None
    high: float | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """The loop in messages."""
        return self.name or f"the loop of {self.controlled} by {self.manipulated}"

    @property
    def integral_seconds(self) -> float:
        """The integral time in seconds; infinite without an integral."""
        if self.integral_unit == "repeats per min":
            return MINUTE / self.integral if self.integral > 0 else math.inf
        return self.integral * SECONDS[self.integral_unit]

    def gain_in_units(self, measurement: float, output: float) -> float:
        """The gain in units of the output per unit of the measurement.

        Args:
            measurement: Range of the measurement, its high end minus its low end.
            output: Range of the output.
        """
        if self.proportional_band is not None:
            return 100.0 / self.proportional_band * output / measurement
        assert self.gain is not None  # one of the two was checked
        return self.gain * (output / measurement if self.gain_unit == "percent" else 1.0)


class TodaysController(NamedTuple):
    """The controller that recorded a log, as its ``plant.toml`` declares it.

    Attributes:
        name: The tags of its loops, such as ``"AIC-401 + TIC-402"``.
        loops: For each loop its numbers in engineering units and seconds, with the names of the
            fields of ``neorl_agents.classical.DeclaredLoop``; empty if none is declared.
        sentences: What each loop is in these units.
    """

    name: str
    loops: tuple[dict[str, Any], ...]
    sentences: tuple[str, ...]


def todays_controller(dataset: Dataset) -> TodaysController:
    """Reads the loops that the ``plant.toml`` of a converted log declares.

    Args:
        dataset: Any dataset; one that was not converted from a historian's export has no loops.
    """
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    if not isinstance(configuration, Mapping):
        configuration = {}
    records: Sequence[Mapping[str, Any]] = configuration.get("loop", ())
    tags = {tag["name"]: tag for tag in configuration.get("tag", ())}
    loops = [FaceplateLoop(**{key: _number(x) for key, x in one.items()}) for one in records]
    names = [loop.name for loop in loops]
    return TodaysController(
        " + ".join(names) if all(names) else UNNAMED,
        tuple(_record(loop, tags) for loop in loops),
        tuple(_sentence(loop, tags) for loop in loops),
    )


def _sentence(loop: FaceplateLoop, tags: Mapping[str, Mapping[str, Any]]) -> str:
    units = [tags[name].get("unit", "") for name in (loop.manipulated, loop.controlled)]
    record = _record(loop, tags)
    integral = record.get("integral_time")
    time = f"integral time {integral:g} s" if integral else "no integral"
    gain = f"gain {record['gain']:.4g} {' per '.join(units)}"
    return f"{loop.label}: {gain}, {time}, {loop.direction} acting"


def _number(value: Any) -> Any:
    """Infinity is stored as text, because JSON has no number for it."""
    return float(value) if value in ("inf", "-inf") else value


def _record(loop: FaceplateLoop, tags: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    measurement, output = (
        float(tags[name]["high"]) - float(tags[name]["low"])
        for name in (loop.controlled, loop.manipulated)
    )
    record = {
        "controlled": loop.controlled,
        "manipulated": loop.manipulated,
        "gain": loop.gain_in_units(measurement, output),
        "direction": loop.direction,
        "derivative_time": loop.derivative * SECONDS[loop.derivative_unit],
        "derivative_filter": loop.derivative_filter,
    }
    if math.isfinite(loop.integral_seconds):
        record["integral_time"] = loop.integral_seconds
    for key in ("setpoint", "bias", "low", "high"):
        if getattr(loop, key) is not None:
            record[key] = getattr(loop, key)
    if loop.setpoint_channel:
        record["setpoint_channel"] = loop.setpoint_channel
    return record
