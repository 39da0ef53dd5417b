"""Signal-temporal-logic formulas as text, with units."""

import math
import re
from typing import NamedTuple

from neorl_core import Channel, InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_safety.monitoring._stl import (
    MOST_DEPTH,
    Formula,
    above,
    always,
    below,
    conjunction,
    disjunction,
    eventually,
    negation,
    until,
)

TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)"
    r"|'(?P<quoted>[^']+)'|(?P<sign><=|>=|<|>|[()\[\],]))"
)
BLANKS, WORD = re.compile(r"\s*"), re.compile(r"\w")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
TEMPORAL = {"always": always, "eventually": eventually}
WORDS = {"and", "or", "not", "until", "implies", *TEMPORAL}
EXAMPLE = "always[0 s, 600 s] (T_R <= 385 K)"
COMPARISONS = ("above", "below")
MOST_STEPS = 10_000


class _Token(NamedTuple):
    kind: str
    text: str
    begin: int
    end: int


def read_formula(text: str, spec: Spec) -> Formula:
    """A formula over observed channels, from text such as ``always[0 s, 600 s] (T_R <= 385 K)``.

    Comparisons ``channel <= number unit`` and ``>=`` (``<`` and ``>`` mean the same), the words
    ``not``, ``and``, ``or``, ``implies``, ``always[first, last]``, ``eventually[first, last]`` and
    ``(f) until[first, last] (g)``, parentheses. Windows are times in ``s``, ``min`` or ``h``, whole
    multiples of the control period. A channel whose name is no word stands between single quotes.
    ``not`` and the temporal words bind closest, then ``until``, ``and``, ``or``, ``implies``.

    Args:
        text: The formula.
        spec: Specification that gives channels, units and the period.

    Returns:
        The formula, windows in steps.

    Raises:
        InputError: Where it cannot be read or is nested too deep, with the place; where a channel
            is unknown, a unit is another than the channel's, or a window is no multiple of the
            period.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.monitoring import read_formula
        >>> level, valve = Channel("level", "m", 0.0, 2.0), Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((level,), (valve,), (), dt=60.0, horizon=100)
        >>> read_formula("eventually[0 s, 5 min] (level <= 1.5 m)", spec).window
        (0, 5)
    """
    reader = _Reader(text, spec)
    formula = reader.implication()
    reader.expect_end()
    return formula


class _Reader:
    """Recursive descent over one text."""

    def __init__(self, text: str, spec: Spec) -> None:
        self.text, self.spec, self.place, self.depth = text, spec, 0, 0

    def fail(self, fault: str) -> InputError:
        """An error that shows where in the text it is."""
        return InputError(
            f"formula {self.text!r:.300}, at {self.text[self.place :].strip()[:30]!r}: {fault}; "
            f"for example {EXAMPLE!r}"
        )

    def peek(self) -> _Token:
        """The next token, without taking it."""
        if self._behind_blanks() == len(self.text):
            return _Token("end", "", len(self.text), len(self.text))
        match = TOKEN.match(self.text, self.place)
        if match is None or match.lastgroup is None:
            raise self.fail("this is not part of a formula")
        return _Token(match.lastgroup, match[match.lastgroup], match.start(), match.end())

    def _behind_blanks(self) -> int:
        """The place of the next character that is no blank."""
        match = BLANKS.match(self.text, self.place)
        return self.place if match is None else match.end()

    def take(self, *texts: str) -> bool:
        """Takes the next token where it is one of these."""
        token = self.peek()
        if token.kind in ("name", "sign") and token.text in texts:
            self.place = token.end
            return True
        return False

    def expect(self, text: str) -> None:
        """Takes a sign that must come."""
        if not self.take(text):
            raise self.fail(f"expected {text!r}")

    def expect_end(self) -> None:
        """Raises where text is left over."""
        if self.peek().kind != "end":
            raise self.fail("expected 'and', 'or', 'until', 'implies' or the end")

    def implication(self) -> Formula:
        """``a implies b`` is ``not a or b``."""
        parts = [self.either()]
        while self.take("implies"):
            parts.append(self.either())
        formula = parts.pop()
        while parts:
            formula = disjunction(negation(parts.pop()), formula)
        return formula

    def either(self) -> Formula:
        """Formulas joined by ``or``."""
        parts = [self.both()]
        while self.take("or"):
            parts.append(self.both())
        return disjunction(*parts) if len(parts) > 1 else parts[0]

    def both(self) -> Formula:
        """Formulas joined by ``and``."""
        parts = [self.lasting()]
        while self.take("and"):
            parts.append(self.lasting())
        return conjunction(*parts) if len(parts) > 1 else parts[0]

    def lasting(self) -> Formula:
        """Perhaps ``a until[first, last] b``."""
        first = self.single()
        if not self.take("until"):
            return first
        window = self.window()
        return until(first, self.single(), *window)

    def single(self) -> Formula:
        """A negation, a temporal operator, a formula in parentheses or a comparison."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise self.fail(f"this is nested more than {MOST_DEPTH} deep")
        formula = self._single()
        self.depth -= 1
        return formula

    def _single(self) -> Formula:
        if self.take("not"):
            return negation(self.single())
        for word, operator in TEMPORAL.items():
            if self.take(word):
                window = self.window()
                return operator(self.single(), *window)
        if self.take("("):
            inner = self.implication()
            self.expect(")")
            return inner
        return self.comparison()

    def comparison(self) -> Formula:
        """``channel <= number unit``."""
        token = self.peek()
        if token.kind not in ("name", "quoted") or token.text in WORDS:
            raise self.fail("expected a channel")
        channel = self.channel(token.text)
        self.place = token.end
        sign = self.peek().text
        if not self.take("<", "<=", ">", ">="):
            raise self.fail("expected <= or >=")
        threshold = self.number()
        self.unit(channel)
        return (above if sign.startswith(">") else below)(channel.name, threshold)

    def channel(self, name: str) -> Channel:
        """The observed channel of that name."""
        known = {channel.name: channel for channel in self.spec.obs}
        if name not in known:
            message = unknown_name("channel", name, known)
            raise InputError(f"formula {self.text!r}: {message}")
        return known[name]

    def number(self) -> float:
        """A number that must come."""
        token = self.peek()
        if token.kind != "number" or not math.isfinite(float(token.text)):
            raise self.fail("expected a number")
        self.place = token.end
        return float(token.text)

    def unit(self, channel: Channel) -> None:
        """The unit of a channel, which must follow; a pure number has none."""
        begin = self._behind_blanks()
        end = begin + len(channel.unit)
        follows = self.text.startswith(channel.unit, begin) and not WORD.match(self.text, end)
        if channel.unit == "?" and not follows:
            raise self.fail(
                f'the unit of {channel.name} is still "?"; complete its unit in plant.toml and '
                "convert the log again"
            )
        if channel.unit not in ("", "1") and not follows:
            raise self.fail(f"{channel.name} is in {channel.unit!r}; write the unit, converted")
        if follows:
            self.place = end

    def window(self) -> tuple[int, int]:
        """``[first, last]`` in steps."""
        self.expect("[")
        first = self.steps()
        self.expect(",")
        last = self.steps()
        self.expect("]")
        if first > last:
            raise self.fail("the first time of the window is later than the last")
        return first, last

    def steps(self) -> int:
        """A time as a whole number of control periods."""
        value = self.number()
        for unit, seconds in SECONDS.items():
            if self.take(unit):
                count = value * seconds / self.spec.dt
                break
        else:
            raise self.fail("write the unit of a time: s, min or h")
        if not (0 <= count <= MOST_STEPS and abs(count - round(count)) < 1e-6 * max(count, 1)):
            raise self.fail(
                f"a time is a multiple of the control period of {self.spec.dt:g} s, from 0 to "
                f"{MOST_STEPS} periods"
            )
        return round(count)


def formula_text(formula: Formula, spec: Spec) -> str:
    """The formula as :func:`read_formula` reads it.

    Args:
        formula: A formula over channels of the specification.
        spec: Specification that gives units and the period.

    Returns:
        Text in which everything that is joined stands in parentheses.
    """
    if formula.operator in COMPARISONS:
        units = {channel.name: channel.unit for channel in spec.obs}
        name = formula.channel
        quoted = (
            name if re.fullmatch(r"[A-Za-z_][\w.]*", name) and name not in WORDS else f"'{name}'"
        )
        sign = ">=" if formula.operator == "above" else "<="
        unit = units[name] if units[name] not in ("", "1") else ""
        return f"{quoted} {sign} {formula.threshold:.17g} {unit}".rstrip()
    parts = [f"({formula_text(part, spec)})" for part in formula.parts]
    if formula.operator == "not":
        return f"not {parts[0]}"
    if formula.operator in ("and", "or"):
        return f" {formula.operator} ".join(parts)
    first, last = (f"{step * spec.dt:.17g} s" for step in formula.window)
    if formula.operator == "until":
        return f"{parts[0]} until[{first}, {last}] {parts[1]}"
    return f"{formula.operator}[{first}, {last}] {parts[0]}"
