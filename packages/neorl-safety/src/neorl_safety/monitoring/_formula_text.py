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
    start: int
    end: int


def read_formula(text: str, spec: Spec) -> Formula:
    """Reads a formula over observed channels, such as ``always[0 s, 600 s] (T_R <= 385 K)``.

    The text may contain comparisons ``channel <= number unit`` and ``>=`` (``<`` and ``>`` mean the
    same), the words ``not``, ``and``, ``or``, ``implies``, ``always[first, last]``,
    ``eventually[first, last]`` and ``(f) until[first, last] (g)``, and parentheses. Windows are
    times in ``s``, ``min`` or ``h`` and must be multiples of the control period. A channel whose
    name is not a plain word is written in single quotes. ``not`` and the temporal words bind most
    tightly, then ``until``, ``and``, ``or``, ``implies``.

    Args:
        text: The formula.
        spec: Specification that provides channels, units and the period.

    Returns:
        The formula, with windows in steps.

    Raises:
        InputError: If it cannot be read or is nested too deeply (the message shows the place), a
            channel is unknown, a unit differs from the channel's, or a window is not a multiple of
            the period.

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
    """Recursive-descent parser of one text."""

    def __init__(self, text: str, spec: Spec) -> None:
        self.text, self.spec, self.position, self.depth = text, spec, 0, 0

    def fail(self, fault: str) -> InputError:
        """An error that shows the place in the text."""
        return InputError(
            f"formula {self.text!r:.300}, at {self.text[self.position :].strip()[:30]!r}: {fault}; "
            f"for example {EXAMPLE!r}"
        )

    def peek(self) -> _Token:
        """The next token, without consuming it."""
        if self._after_blanks() == len(self.text):
            return _Token("end", "", len(self.text), len(self.text))
        match = TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            raise self.fail("this is not part of a formula")
        return _Token(match.lastgroup, match[match.lastgroup], match.start(), match.end())

    def _after_blanks(self) -> int:
        """The position of the next character that is not a blank."""
        match = BLANKS.match(self.text, self.position)
        return self.position if match is None else match.end()

    def take(self, *texts: str) -> bool:
        """Consumes the next token if it is one of these."""
        token = self.peek()
        if token.kind in ("name", "sign") and token.text in texts:
            self.position = token.end
            return True
        return False

    def expect(self, text: str) -> None:
        """Consumes a required symbol."""
        if not self.take(text):
            raise self.fail(f"expected {text!r}")

    def expect_end(self) -> None:
        """Raises an error if text is left over."""
        if self.peek().kind != "end":
            raise self.fail("expected 'and', 'or', 'until', 'implies' or the end")

    def implication(self) -> Formula:
        """``a implies b`` is ``not a or b``."""
        parts = [self.or_expression()]
        while self.take("implies"):
            parts.append(self.or_expression())
        formula = parts.pop()
        while parts:
            formula = disjunction(negation(parts.pop()), formula)
        return formula

    def or_expression(self) -> Formula:
        """Formulas joined by ``or``."""
        parts = [self.and_expression()]
        while self.take("or"):
            parts.append(self.and_expression())
        return disjunction(*parts) if len(parts) > 1 else parts[0]

    def and_expression(self) -> Formula:
        """Formulas joined by ``and``."""
        parts = [self.until_expression()]
        while self.take("and"):
            parts.append(self.until_expression())
        return conjunction(*parts) if len(parts) > 1 else parts[0]

    def until_expression(self) -> Formula:
        """A formula that may be joined to another by ``until[first, last]``."""
        first = self.unary_expression()
        if not self.take("until"):
            return first
        window = self.window()
        return until(first, self.unary_expression(), *window)

    def unary_expression(self) -> Formula:
        """A negation, a temporal operator, a formula in parentheses or a comparison."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise self.fail(f"this is nested more than {MOST_DEPTH} deep")
        formula = self._unary_expression()
        self.depth -= 1
        return formula

    def _unary_expression(self) -> Formula:
        if self.take("not"):
            return negation(self.unary_expression())
        for word, operator in TEMPORAL.items():
            if self.take(word):
                window = self.window()
                return operator(self.unary_expression(), *window)
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
        self.position = token.end
        sign = self.peek().text
        if not self.take("<", "<=", ">", ">="):
            raise self.fail("expected <= or >=")
        threshold = self.number()
        self.unit(channel)
        return (above if sign.startswith(">") else below)(channel.name, threshold)

    def channel(self, name: str) -> Channel:
        """The observed channel with a given name."""
        known = {channel.name: channel for channel in self.spec.obs}
        if name not in known:
            message = unknown_name("channel", name, known)
            raise InputError(f"formula {self.text!r}: {message}")
        return known[name]

    def number(self) -> float:
        """A required number."""
        token = self.peek()
        if token.kind != "number" or not math.isfinite(float(token.text)):
            raise self.fail("expected a number")
        self.position = token.end
        return float(token.text)

    def unit(self, channel: Channel) -> None:
        """The required unit of a channel; a dimensionless channel has none."""
        start = self._after_blanks()
        end = start + len(channel.unit)
        follows = self.text.startswith(channel.unit, start) and not WORD.match(self.text, end)
        if channel.unit == "?" and not follows:
            raise self.fail(
                f'the unit of {channel.name} is still "?"; complete its unit in plant.toml and '
                "convert the log again"
            )
        if channel.unit not in ("", "1") and not follows:
            raise self.fail(
                f"{channel.name} is in {channel.unit!r}; write the threshold in this unit, "
                "followed by the unit"
            )
        if follows:
            self.position = end

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
        """A time as a number of control periods, which must be an integer."""
        value = self.number()
        for unit, seconds in SECONDS.items():
            if self.take(unit):
                count = value * seconds / self.spec.dt
                break
        else:
            raise self.fail("write a time with its unit: s, min or h")
        if not (0 <= count <= MOST_STEPS and abs(count - round(count)) < 1e-6 * max(count, 1)):
            raise self.fail(
                f"a time must be a multiple of the control period of {self.spec.dt:g} s, from 0 to "
                f"{MOST_STEPS} periods"
            )
        return round(count)


def formula_text(formula: Formula, spec: Spec) -> str:
    """Writes a formula as text that :func:`read_formula` can read.

    Args:
        formula: A formula over channels of the specification.
        spec: Specification that provides units and the period.

    Returns:
        Text in which every compound part is in parentheses.
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
