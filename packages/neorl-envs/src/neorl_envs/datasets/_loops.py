"""Loops of today's controller, with the numbers that its faceplate shows."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax

from neorl_core.loops import Faceplate, PIDForm, pid_gains
from neorl_envs.datasets._dataset import Dataset

UNNAMED = "PID of plant.toml"
"""Name of a controller whose loops have no tags."""


@dataclasses.dataclass(frozen=True)
class FaceplateLoop:
    """One PID loop of the control system; :class:`neorl_core.loops.PIDForm` says what its form is.

    Attributes:
        controlled: Name of the tag that the loop controls.
        manipulated: Name of the manipulated tag that it moves.
        direction: ``"reverse"`` if the output falls when the measurement rises, ``"direct"`` if it
            rises.
        structure: ``"standard"``, ``"parallel"`` or ``"series"``.
        gain: Size of the gain, positive; ``None`` if ``proportional_band`` is given.
        gain_unit: ``"engineering"`` for units of the output per unit of the measurement, or
            ``"percent"`` for percent of the output's range per percent of the measurement's.
        proportional_band: Percent of the measurement's range that moves the output over its whole
            range: 100 divided by the gain in percent per percent.
        integral: Integral time or rate, in ``integral_unit``; infinite for a loop without one.
        integral_unit: ``"seconds"`` or ``"minutes"`` (per repeat), ``"per_second"`` or
            ``"per_minute"`` (repeats).
        derivative: Derivative time, in ``derivative_unit``.
        derivative_unit: ``"seconds"`` or ``"minutes"``.
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
    structure: Literal["standard", "parallel", "series"] = "standard"
    gain: float | None = None
    gain_unit: Literal["engineering", "percent"] = "engineering"
    proportional_band: float | None = None
    integral: float = math.inf
    integral_unit: Literal["seconds", "minutes", "per_second", "per_minute"] = "seconds"
    derivative: float = 0.0
    derivative_unit: Literal["seconds", "minutes"] = "seconds"
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

    def form(self, measurement: float, output: float) -> PIDForm:
        """What the numbers mean.

        Args:
            measurement: Range of the measurement, its high end minus its low end.
            output: Range of the output.
        """
        banded = self.proportional_band is not None
        return PIDForm(
            self.structure,
            "band" if banded else "gain",
            self.integral_unit,
            self.derivative_unit,
            units="percent" if banded else self.gain_unit,
            measurement_span=measurement,
            output_span=output,
            direction=self.direction,
        )

    @property
    def shown(self) -> Faceplate:
        """The numbers.

        Raises:
            ValueError: If both or neither of ``gain`` and ``proportional_band`` are given.
        """
        shown = self.gain if self.proportional_band is None else self.proportional_band
        if shown is None or (self.proportional_band is not None and self.gain is not None):
            raise ValueError("give either gain or proportional_band")
        rate = self.integral_unit.startswith("per_")
        integral = 0.0 if rate and math.isinf(self.integral) else self.integral
        return Faceplate(shown, integral, self.derivative, self.derivative_filter)

    def standard(self, measurement: float, output: float) -> dict[str, float]:
        """The same loop in the standard form, engineering units and seconds.

        Args:
            measurement: Range of the measurement, its high end minus its low end.
            output: Range of the output.

        Returns:
            ``gain``, positive, and where the loop has them ``integral_time``, ``derivative_time``
            and ``derivative_filter``.

        Raises:
            ValueError: If a number is out of its range, or both ``gain`` and ``proportional_band``
                are given.
        """
        shown = self.shown
        form = dataclasses.replace(self.form(measurement, output), direction="reverse")
        with jax.enable_x64(True):  # Ten digits of a faceplate stay ten digits.
            kp, ki, kd, tau = map(float, pid_gains(shown, form=form))
        if kp <= 0:
            raise ValueError(
                f"gain must be above 0, got {shown.proportional}; direction gives its sign"
            )
        standard = {"gain": kp}
        if ki > 0:
            standard["integral_time"] = kp / ki
        if kd > 0:
            standard["derivative_time"] = kd / kp
            if tau > 0:
                standard["derivative_filter"] = kd / kp / tau
        return standard

    def faceplate(self, spans: tuple[float, float], units: tuple[str, str]) -> "TodaysFaceplate":
        """What the faceplate shows, and which loop that is.

        Args:
            spans: Range of the measurement and of the output, high end minus low end.
            units: Their units.

        Raises:
            ValueError: As :meth:`standard`.
        """
        record = self.standard(*spans)
        integral, derivative = record.get("integral_time"), record.get("derivative_time")
        per = " per ".join(reversed(units)) if all(units) else ""
        parts = [
            f"gain {record['gain']:.4g} {per}".rstrip(),
            f"integral time {integral:g} s" if integral else "no integral",
            *([f"derivative time {derivative:g} s"] if derivative else []),
            f"{self.direction} acting",
        ]
        return TodaysFaceplate(
            self.label,
            self.controlled,
            self.manipulated,
            self.setpoint_channel,
            self.setpoint,
            units,
            self.form(*spans),
            self.shown,
            ", ".join(parts),
        )


class TodaysFaceplate(NamedTuple):
    """The faceplate of one loop of the controller that runs today.

    Attributes:
        name: Tag of the loop, such as ``"AIC-401"``; a sentence if it has none.
        controlled: Name of the measured tag.
        manipulated: Name of the manipulated tag.
        setpoint_channel: Name of the tag that carries the setpoint; empty if it is constant.
        setpoint: Constant setpoint; ``None`` if a tag carries it.
        units: Units of the measurement and of the output.
        form: What the numbers mean, with the spans of the loop.
        shown: The numbers.
        words: Which loop they make, in engineering units and seconds.
    """

    name: str
    controlled: str
    manipulated: str
    setpoint_channel: str
    setpoint: float | None
    units: tuple[str, str]
    form: PIDForm
    shown: Faceplate
    words: str


class TodaysController(NamedTuple):
    """The controller that recorded a log, as its ``plant.toml`` declares it.

    Attributes:
        name: The tags of its loops, such as ``"AIC-401 + TIC-402"``.
        loops: For each loop its numbers in engineering units and seconds, with the names of the
            fields of ``neorl_agents.classical.DeclaredLoop``; empty if none is declared.
        faceplates: What the faceplate of each loop shows.
    """

    name: str
    loops: tuple[dict[str, Any], ...]
    faceplates: tuple[TodaysFaceplate, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What each loop is in engineering units and seconds."""
        return tuple(f"{one.name}: {one.words}" for one in self.faceplates)


def todays_controller(dataset: Dataset) -> TodaysController:
    """Reads the loops that the ``plant.toml`` of a converted log declares.

    Args:
        dataset: Any dataset; one that was not converted from a historian's export has no loops.
    """
    configuration = dataset.attributes.get("provenance", {}).get("configuration", {})
    if not isinstance(configuration, Mapping):
        configuration = {}
    declared: Sequence[Mapping[str, Any]] = configuration.get("loop", ())
    tags = {tag["name"]: tag for tag in configuration.get("tag", ())}
    loops = [FaceplateLoop(**{key: _number(x) for key, x in one.items()}) for one in declared]
    names = [loop.name for loop in loops]
    return TodaysController(
        " + ".join(names) if all(names) else UNNAMED,
        tuple(_record(loop, tags) for loop in loops),
        tuple(loop.faceplate(_spans(loop, tags), _units(loop, tags)) for loop in loops),
    )


def _number(value: Any) -> Any:
    """Infinity is stored as text, because JSON has no number for it."""
    return float(value) if value in ("inf", "-inf") else value


def _record(loop: FaceplateLoop, tags: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    measurement, output = _spans(loop, tags)
    given = {key: getattr(loop, key) for key in ("setpoint", "bias", "low", "high")}
    return {
        **{key: getattr(loop, key) for key in ("controlled", "manipulated", "direction")},
        **loop.standard(measurement, output),
        **{key: value for key, value in given.items() if value is not None},
        **({"setpoint_channel": loop.setpoint_channel} if loop.setpoint_channel else {}),
    }


def _spans(loop: FaceplateLoop, tags: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
    measurement, output = (
        float(tags[name]["high"]) - float(tags[name]["low"])
        for name in (loop.controlled, loop.manipulated)
    )
    return measurement, output


def _units(loop: FaceplateLoop, tags: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    measurement, output = (
        tags[name].get("unit", "") for name in (loop.controlled, loop.manipulated)
    )
    return measurement, output
