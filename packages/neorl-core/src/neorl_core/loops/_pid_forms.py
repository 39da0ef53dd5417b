"""Tuning numbers as a faceplate shows them, and the gains of the loop that they make."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    is_concrete,
    nan_unless,
    require_choice,
)
from neorl_core._internal.precision import narrow, widen

Structure = Literal["standard", "parallel", "series"]
ProportionalUnit = Literal["gain", "band"]
IntegralUnit = Literal["seconds", "minutes", "per_second", "per_minute"]
DerivativeUnit = Literal["seconds", "minutes"]
FilterUnit = Literal["divisor", "ratio", "seconds", "minutes"]
GainUnit = Literal["percent", "engineering"]
Direction = Literal["reverse", "direct"]
_SECONDS = {"seconds": 1.0, "minutes": 60.0, "per_second": 1.0, "per_minute": 60.0}


class PIDGains(NamedTuple):
    """A PID loop in parallel form and engineering units, as :class:`neorl_core.control.PID`.

    ``u = kp e + ki integral(e) dt - kd dy_f/dt`` with ``e = setpoint - y`` and ``tau dy_f/dt + y_f
    = y``. The gains are negative if a larger output lowers the measurement.

    Attributes:
        kp: Proportional gain, output units per measured unit.
        ki: Integral gain, output units per measured unit and second.
        kd: Derivative gain, output units times seconds per measured unit.
        tau: Time constant of the derivative's filter in seconds, not negative.
    """

    kp: float | Float[Array, ""]
    ki: float | Float[Array, ""]
    kd: float | Float[Array, ""]
    tau: float | Float[Array, ""]


class Faceplate(NamedTuple):
    """The numbers of a loop as its controller shows them; a :class:`PIDForm` says what they mean.

    Attributes:
        proportional: Gain or proportional band.
        integral: Integral time, or its inverse; infinite time or a rate of zero for none.
        derivative: Derivative time or gain; zero for none.
        derivative_filter: Filter of the derivative; without a derivative it has no effect.
    """

    proportional: float | Float[Array, ""]
    integral: float | Float[Array, ""]
    derivative: float | Float[Array, ""]
    derivative_filter: float | Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class PIDForm:
    """What the numbers of a faceplate mean; hashable and static.

    With the gain ``K``, the integral rate ``R`` per second, the derivative time ``D`` and the
    filter ``F`` in seconds, and ``s`` the Laplace variable, a structure is

    - ``standard`` (ideal, non-interacting, dependent): ``K (1 + R / s + D s / (1 + F s))``,
    - ``parallel`` (independent): ``K + R / s + D s / (1 + F s)``,
    - ``series`` (interacting, classical): ``K (1 + R / s) (1 + D s) / (1 + F s)``.

    Attributes:
        structure: ``"standard"``, ``"parallel"`` or ``"series"``.
        proportional: ``"gain"``, or ``"band"``: ``100 / K`` in percent of the measurement's span,
            or in engineering units the change of the measurement that moves the output over its
            span.
        integral: ``"seconds"`` or ``"minutes"`` (per repeat), or the rate ``"per_second"`` or
            ``"per_minute"`` (repeats per minute; in the parallel structure the integral gain).
        derivative: ``"seconds"`` or ``"minutes"``.
        derivative_filter: ``"divisor"`` (``N`` with ``F = D / N``), ``"ratio"`` (``F / D``),
            ``"seconds"`` or ``"minutes"``. In the parallel structure ``D / K`` stands for ``D``.
        units: ``"percent"`` of span per percent of span, or ``"engineering"`` units.
        measurement_span: Upper minus lower end of the measuring range, positive.
        output_span: Upper minus lower end of the output's range, positive.
        direction: ``"reverse"`` if the controller lowers its output when the measurement rises, the
            usual case; ``"direct"`` if it raises it. The gains of the loop are then negative.

    Raises:
        ValueError: If a word is not among the listed ones or a span is not positive.
    """

    structure: Structure = "standard"
    proportional: ProportionalUnit = "gain"
    integral: IntegralUnit = "seconds"
    derivative: DerivativeUnit = "seconds"
    derivative_filter: FilterUnit = "divisor"
    units: GainUnit = "percent"
    measurement_span: float = 100.0
    output_span: float = 100.0
    direction: Direction = "reverse"

    def __post_init__(self) -> None:
        choices = {
            "structure": Structure,
            "proportional": ProportionalUnit,
            "integral": IntegralUnit,
            "derivative": DerivativeUnit,
            "derivative_filter": FilterUnit,
            "units": GainUnit,
            "direction": Direction,
        }
        for name, known in choices.items():
            require_choice(name, getattr(self, name), get_args(known))
        checked_positive("measurement_span", self.measurement_span)
        checked_positive("output_span", self.output_span)


def pid_gains(faceplate: Faceplate, *, form: PIDForm) -> PIDGains:
    """The loop that the numbers of a faceplate make, in engineering units and parallel form.

    Args:
        faceplate: Numbers of one loop; Python floats or arrays of one shape.
        form: What they mean.

    Returns:
        The gains. A number outside its range gives NaN under ``jit``.

    Raises:
        ValueError: If a concrete band or integral time or divisor is not positive, or a rate, a
            derivative or another filter is negative.

    Example:
        >>> form = PIDForm(integral="minutes", measurement_span=30.0)
        >>> gains = pid_gains(Faceplate(0.1, 20.0, 0.0, 10.0), form=form)
        >>> [round(float(number), 6) for number in (gains.kp, 1 / (gains.ki / gains.kp))]
        [0.333333, 1200.0]

    Source: Astrom and Hagglund, Advanced PID control, 2006, section 3.2; Smith and Corripio,
    Principles and practice of automatic process control, 2006, chapter 5.
    """
    (shown, integral, derivative, filtered), dtype = _numbers(faceplate)
    shown = _within("proportional", shown, sign=form.proportional == "gain")
    is_rate = form.integral.startswith("per_")
    integral = _within("integral", integral, zero=is_rate, infinite=not is_rate)
    derivative = _within("derivative", derivative, zero=True)
    divides = form.derivative_filter == "divisor"
    filtered = _within("derivative_filter", filtered, zero=not divides, infinite=divides)
    gain = shown if form.proportional == "gain" else 100 / shown
    rate = (integral if is_rate else 1 / integral) / _SECONDS[form.integral]
    time = derivative * _SECONDS[form.derivative]
    scale = _scale(form)
    if form.structure == "parallel":
        kp, ki, kd = gain, rate, time
        lead = jnp.where(gain != 0, time / jnp.where(gain != 0, gain, 1), 0)
        tau = _filter_time(form, filtered, jnp.abs(lead), time)
    else:
        tau = _filter_time(form, filtered, time, time)
        if form.structure == "standard":
            kp, ki, kd = gain, gain * rate, gain * time
        else:
            kp, ki = gain * (1 + (time - tau) * rate), gain * rate
            kd = gain * time - kp * tau
    return narrow(PIDGains(kp * scale, ki * scale, kd * scale, tau), dtype)


def faceplate(gains: PIDGains, *, form: PIDForm) -> Faceplate:
    """The numbers that make a controller of this form the given loop; inverse of :func:`pid_gains`.

    The filter of a loop without a derivative comes back as none: an infinite divisor, or zero. Of
    the two series settings that make the same loop it is the one with the longer integral time.

    Args:
        gains: Gains of one loop; Python floats or arrays of one shape.
        form: The form of the controller.

    Returns:
        The numbers. NaN under ``jit`` if the form has none for these gains.

    Raises:
        ValueError: If the form cannot show concrete gains: their sign contradicts ``direction`` for
            a band, a parallel or series loop; the integral time is below four derivative times in
            the series form; the integral gain of a standard loop has no proportional gain.

    Example:
        >>> form = PIDForm("series", "band", "per_minute", "minutes")
        >>> shown = faceplate(PIDGains(2.0, 0.02, 20.0, 0.0), form=form)
        >>> [round(float(number), 4) for number in shown[:3]]
        [56.3508, 0.6762, 0.1878]

    Source: as :func:`pid_gains`.
    """
    (kp, ki, kd, tau), dtype = _numbers(gains)
    scale = _scale(form)
    kp, ki, kd = kp / scale, ki / scale, kd / scale
    tau = jnp.where(kd == 0, 0, tau)
    if form.structure == "series":
        gain, rate, time = _series(kp, ki, kd, tau)
    elif form.structure == "standard":
        _require("a proportional gain, since its integral acts through it", (kp != 0) | (ki == 0))
        whole = jnp.where(kp != 0, kp, jnp.where((ki == 0) & (kd == 0), 1, jnp.nan))
        gain, rate, time = kp, ki / whole, kd / whole
    else:
        gain, rate, time = kp, ki, kd
    signs = (rate >= 0) & (time >= 0)
    if form.proportional == "band":
        signs &= gain > 0
    _require("numbers that are not negative; check direction", signs)
    gain, rate, time = (jnp.where(signs, number, jnp.nan) for number in (gain, rate, time))
    shown = gain if form.proportional == "gain" else 100 / gain
    unit = _SECONDS[form.integral]
    integral = rate * unit if form.integral.startswith("per_") else 1 / (rate * unit)
    lead = time
    if form.structure == "parallel":
        lead = jnp.abs(jnp.where(gain != 0, time / jnp.where(gain != 0, gain, 1), 0))
    filters = {
        "divisor": jnp.where(tau > 0, lead / jnp.where(tau > 0, tau, 1), jnp.inf),
        "ratio": jnp.where(lead > 0, tau / jnp.where(lead > 0, lead, 1), 0),
        "seconds": tau,
        "minutes": tau / 60,
    }
    values = shown, integral, time / _SECONDS[form.derivative], filters[form.derivative_filter]
    return narrow(Faceplate(*values), dtype)


def _series(kp: Array, ki: Array, kd: Array, tau: Array) -> tuple[Array, Array, Array]:
    """Gain, rate and time that solve ``(kp s + ki)(tau s + 1) + kd s^2 = K (s + R)(D s + 1)``."""
    square, linear = kp * tau + kd, kp + ki * tau
    discriminant = linear**2 - 4 * ki * square
    # Equal times make it zero, and rounding must not turn them into a loop without a series form.
    slack = 16 * jnp.finfo(kp.dtype).eps * linear**2
    _require("an integral time of four derivative times or more", discriminant >= -slack)
    root = jnp.sqrt(jnp.where(discriminant > slack, discriminant, 0))
    gain = (linear + jnp.where(linear < 0, -root, root)) / 2
    gain = jnp.where(discriminant >= -slack, gain, jnp.nan)
    safe = jnp.where(gain == 0, 1, gain)
    return gain, ki / safe, square / safe


def _scale(form: PIDForm) -> float:
    """Engineering units of a gain of one as the form shows it, with the sign of the loop."""
    size = form.output_span / form.measurement_span if form.units == "percent" else 1.0
    if form.units == "engineering" and form.proportional == "band":
        size = form.output_span / 100
    return size if form.direction == "reverse" else -size


def _filter_time(form: PIDForm, shown: Array, lead: Array, derivative: Array) -> Array:
    """The filter's time constant in seconds; zero without a derivative."""
    seconds = {
        "divisor": lead / shown,
        "ratio": lead * shown,
        "seconds": shown,
        "minutes": 60 * shown,
    }[form.derivative_filter]
    return jnp.where(derivative == 0, 0, seconds)


def _numbers(numbers: Any) -> tuple[tuple[Array, ...], Any]:
    """The four numbers as floats of one dtype, at least float32, and the dtype to return."""
    widened = [widen(number) for number in numbers]
    dtype = jnp.result_type(*(floats(number) for number in numbers))
    one = jnp.result_type(*widened)
    return tuple(number.astype(one) for number in widened), dtype


def _within(
    name: str, number: Array, *, zero: bool = False, infinite: bool = False, sign: bool = False
) -> Array:
    """The number; an error if it is concrete and out of range, NaN where it is traced."""
    concrete = is_concrete(number)
    # While another program is traced, comparing known numbers with JAX would hide them.
    size = np.asarray(number) if concrete else number
    if sign:
        valid, kind = abs(size) < np.inf, "finite"
    else:
        least = size >= 0 if zero else size > 0
        valid, kind = least & (infinite | (size < np.inf)), "not negative" if zero else "positive"
    if concrete and not np.all(valid):
        advice = "check which form the controller has, and its direction"
        if infinite:
            advice = "what is switched off is infinite here"
        raise ValueError(f"{name} must be {kind}, got {number}; {advice}")
    return nan_unless(valid, number)


def _require(what: str, valid: Array) -> None:
    """Raises an error for concrete gains that the form has no numbers for."""
    if is_concrete(valid) and not np.all(np.asarray(valid)):
        raise ValueError(f"this form needs {what}; choose another form, or other gains")


class VendorForm(NamedTuple):
    """The form of a controller on the market.

    Attributes:
        form: Its form, for spans of 100 and reverse action; set those of the loop with
            ``dataclasses.replace``.
        manual: The manual that states it.
    """

    form: PIDForm
    manual: str


_PIDE = (
    "Rockwell Automation, Logix 5000 controllers process control instructions, 1756-RM006K, 2018"
)
_LOGIX = "Rockwell Automation, FactoryTalk Design Studio, Using PID instructions"
_FIELDBUS = "Emerson, Rosemount OCX8800 FOUNDATION fieldbus manual, 00809-0500-4880, 2022"
_SIEMENS = "Siemens, SIMATIC S7-1200, S7-1500 PID control function manual, A5E35300227"
_GE = "GE Energy, FVP 110 fieldbus valve positioner manual, table 47"

VENDOR_FORMS: Mapping[str, VendorForm] = types.MappingProxyType(
    {
        "Rockwell PIDE, dependent gains": VendorForm(
            PIDForm("standard", "gain", "minutes", "minutes"), _PIDE
        ),
        "Rockwell PIDE, independent gains": VendorForm(
            PIDForm("parallel", "gain", "per_minute", "minutes"), _PIDE
        ),
        "Rockwell PID, dependent gains": VendorForm(
            PIDForm("standard", "gain", "minutes", "minutes"), _LOGIX
        ),
        "Rockwell PID, independent gains": VendorForm(
            PIDForm("parallel", "gain", "per_second", "seconds"), _LOGIX
        ),
        # The gain multiplies the measurement in its physical unit.
        "Siemens PID_Compact": VendorForm(
            PIDForm("standard", "gain", "seconds", "seconds", "ratio", "engineering"), _SIEMENS
        ),
        # The block scales measurement and output by PV_SCALE and OUT_SCALE; its other structure,
        # series, stands in the manual as a picture that could not be read, so it is left out.
        "Emerson fieldbus PID, standard": VendorForm(
            PIDForm("standard", "gain", "seconds", "seconds", "ratio"), _FIELDBUS
        ),
        "GE fieldbus PID": VendorForm(PIDForm("standard", "gain", "seconds", "seconds"), _GE),
    }
)
"""Forms whose manuals are public, by the name of the controller's instruction or block.

Where a manual states no filter of the derivative, the form has a divisor: infinite for none.
"""
