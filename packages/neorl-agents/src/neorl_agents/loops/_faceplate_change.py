"""Old and new numbers of a loop as its faceplate shows them, with digits enough to type."""

import math
from typing import NamedTuple

import jax

from neorl_core import InputError
from neorl_core.loops import Faceplate, PIDForm, PIDGains, faceplate, pid_gains

DIGITS = 4
"""Significant digits of a number that somebody types."""


class FaceplateChange(NamedTuple):
    """What to type, and what to type to go back.

    Attributes:
        form: What the numbers mean; it holds the direction, which does not change.
        before: Today's numbers; to roll back, type these.
        after: The proposed numbers, with four significant digits; those that do not change as they
            are shown.
        gains_before: The loop that ``before`` makes.
        gains_after: The loop that ``after`` makes: this one, not that of a search, is judged.
    """

    form: PIDForm
    before: Faceplate
    after: Faceplate
    gains_before: PIDGains
    gains_after: PIDGains


def gains_of(shown: Faceplate, form: PIDForm) -> PIDGains:
    """:func:`neorl_core.loops.pid_gains` in double precision, as Python numbers.

    Raises:
        InputError: If the form does not take the numbers.
    """
    try:
        with jax.enable_x64(True):  # Ten digits of a faceplate stay ten digits.
            return PIDGains(*map(float, pid_gains(shown, form=form)))
    except ValueError as error:
        raise InputError(f"the numbers of the faceplate: {error}") from None


def shown_by(gains: PIDGains, form: PIDForm) -> Faceplate:
    """:func:`neorl_core.loops.faceplate` in double precision, as Python numbers.

    Raises:
        InputError: If the form has no numbers for the gains.
    """
    try:
        with jax.enable_x64(True):
            wide = PIDGains(*(float(number) for number in gains))
            return Faceplate(*map(float, faceplate(wide, form=form)))
    except ValueError as error:
        raise InputError(f"the faceplate of these gains: {error}") from None


def faceplate_change(before: Faceplate, gains: PIDGains, form: PIDForm) -> FaceplateChange:
    """The numbers to type for new gains, beside the old ones.

    Args:
        before: Today's numbers, exactly as they are shown.
        gains: The proposed loop, in engineering units and parallel form.
        form: The form of the controller.

    Raises:
        InputError: If the gains have another direction than the controller, or the form cannot
            show them.

    Example:
        >>> form = PIDForm(integral="minutes", measurement_span=30.0)
        >>> proposed = PIDGains(0.464234, 0.464234 / 1103.04, 0.0, 0.0)
        >>> change = faceplate_change(Faceplate(0.1, 20.0, 0.0, 10.0), proposed, form)
        >>> [change.after.proportional, change.after.integral]
        [0.1393, 18.38]
    """
    sign = 1.0 if form.direction == "reverse" else -1.0
    if sign * float(gains.kp) < 0 or sign * float(gains.ki) < 0:
        raise InputError(
            f"the proposed gain {float(gains.kp):g} has another sign than a "
            f"{form.direction}-acting controller; check the direction that is declared"
        )
    exact = shown_by(gains, form)
    pairs = zip(map(float, before), map(float, exact), strict=True)
    # A number that did not change, but for the seven digits of a policy, stays as it is shown.
    after = Faceplate(
        *(old if math.isclose(old, new, rel_tol=2e-6) else rounded(new) for old, new in pairs)
    )
    if exact.derivative == 0:  # The filter of no derivative stays as it is shown.
        after = after._replace(derivative_filter=before.derivative_filter)
    return FaceplateChange(form, before, after, gains_of(before, form), gains_of(after, form))


def rounded(number: float, digits: int = DIGITS) -> float:
    """A number with so many significant digits."""
    return float(f"{number:.{digits}g}") if math.isfinite(number) else number


_PARTS = {
    "gain": ("gain", {"percent": "%/%", "engineering": ""}),
    "band": ("proportional band", {"percent": "%", "engineering": ""}),
}
_INTEGRAL = {
    "seconds": ("reset", "s"),
    "minutes": ("reset", "min"),
    "per_second": ("reset", "repeats/s"),
    "per_minute": ("reset", "repeats/min"),
}
_PARALLEL_INTEGRAL = {**_INTEGRAL, "per_second": ("integral gain", "1/s"),
                      "per_minute": ("integral gain", "1/min")}  # fmt: skip
_DERIVATIVE = {"seconds": "s", "minutes": "min"}
_FILTER = {
    "divisor": ("derivative filter N", ""),
    "ratio": ("derivative filter", ""),
    "seconds": ("derivative filter", "s"),
    "minutes": ("derivative filter", "min"),
}


class FaceplateRow(NamedTuple):
    """One number of a faceplate before and after.

    Attributes:
        name: What it is, such as ``"reset"``.
        unit: Its unit as the faceplate has it; empty if it has none.
        before: Today.
        after: Proposed.
    """

    name: str
    unit: str
    before: float
    after: float

    @property
    def text(self) -> tuple[str, str]:
        """Both numbers as somebody types them."""
        return typed(self.before), typed(self.after)


def typed(number: float) -> str:
    """A number as somebody types it: all its digits, without an exponent."""
    if math.isinf(number):
        return "off"
    text = f"{number:.10f}".rstrip("0").rstrip(".") if abs(number) < 1e9 else f"{number:g}"
    return text if float(text) == number or number == 0 else repr(number)


def faceplate_rows(
    change: FaceplateChange, *, measurement_unit: str = "", output_unit: str = ""
) -> tuple[FaceplateRow, ...]:
    """The numbers that a loop has, one row each; a derivative only if either loop has one."""
    form = change.form
    name, units = _PARTS[form.proportional]
    unit = units[form.units]
    if not unit and form.proportional == "gain":
        unit = f"{output_unit} per {measurement_unit}" if output_unit and measurement_unit else ""
    elif not unit:
        unit = measurement_unit
    integrals = _PARALLEL_INTEGRAL if form.structure == "parallel" else _INTEGRAL
    named = [(name, unit), integrals[form.integral]]
    if change.before.derivative or change.after.derivative:
        derivative = "derivative gain" if form.structure == "parallel" else "derivative"
        named += [(derivative, _DERIVATIVE[form.derivative]), _FILTER[form.derivative_filter]]
    return tuple(
        FaceplateRow(*words, float(before), float(after))
        for words, before, after in zip(named, change.before, change.after, strict=False)
    )


def faceplate_sentence(name: str, rows: tuple[FaceplateRow, ...], direction: str) -> str:
    """A change in one line.

    Example:
        >>> gain, reset = FaceplateRow("gain", "%/%", 0.1, 0.1393), ("reset", "min", 20, 18.38)
        >>> faceplate_sentence("AIC-401", (gain, FaceplateRow(*reset)), "reverse")
        'AIC-401: gain 0.1 to 0.1393 %/%, reset 20 to 18.38 min, reverse (unchanged)'
    """
    parts = []
    for row in rows:
        before, after = row.text
        numbers = before if before == after else f"{before} to {after}"
        parts.append(f"{row.name} {numbers} {row.unit}".rstrip())
    return f"{name}: {', '.join(parts)}, {direction} (unchanged)"
