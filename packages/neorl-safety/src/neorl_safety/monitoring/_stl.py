"""Signal temporal logic: how well a trajectory satisfies a formula; formulas as text with units."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core import Channel, InputError, Spec
from neorl_core.infrastructure import unknown_name

# Signal temporal logic: how well a trajectory satisfies a formula, or how far it violates it.


MOST_DEPTH, MOST_PARTS = 50, 1000


@dataclasses.dataclass(frozen=True)
class Formula:
    """A formula over named channels; built by :func:`above`, :func:`below` and the operators.

    Attributes:
        operator: Name of the outermost operator.
        parts: Formulas to which the operator applies.
        channel: Channel of a comparison; empty otherwise.
        threshold: Threshold of a comparison, in the unit of the channel.
        window: First and last step, counted from now, of the window of a temporal operator.
        horizon: Number of steps ahead that decide the formula.
        depth: Depth of nesting of operators, including the formula itself.
        size: Number of comparisons and operators.

    Raises:
        InputError: If it is nested deeper than 50 operators, or has more than 1,000 of them.
    """

    operator: str
    parts: tuple["Formula", ...] = ()
    channel: str = ""
    threshold: float = 0.0
    window: tuple[int, int] = (0, 0)
    horizon: int = dataclasses.field(init=False, compare=False, repr=False)
    depth: int = dataclasses.field(init=False, compare=False, repr=False)
    size: int = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        depth = 1 + max((part.depth for part in self.parts), default=0)
        size = 1 + sum(part.size for part in self.parts)
        if depth > MOST_DEPTH:
            raise InputError(
                f"a formula may be nested at most {MOST_DEPTH} operators deep, got {depth}; split "
                "it"
            )
        if size > MOST_PARTS:
            raise InputError(
                f"a formula may have at most {MOST_PARTS} comparisons and operators, got {size}; "
                "split it into several, each with a monitor of its own"
            )
        ahead = self.window[1] + max((part.horizon for part in self.parts), default=0)
        for name, value in (("horizon", ahead), ("depth", depth), ("size", size)):
            object.__setattr__(self, name, value)


def above(channel: str, threshold: float) -> Formula:
    """``x >= threshold``, with robustness ``x - threshold``."""
    return Formula("above", channel=channel, threshold=float(threshold))


def below(channel: str, threshold: float) -> Formula:
    """``x <= threshold``, with robustness ``threshold - x``."""
    return Formula("below", channel=channel, threshold=float(threshold))


def negation(part: Formula) -> Formula:
    """Not ``part``: the robustness with the opposite sign."""
    return Formula("not", (part,))


def conjunction(*parts: Formula) -> Formula:
    """All of ``parts``: the smallest robustness."""
    return Formula("and", _require_parts(parts))


def disjunction(*parts: Formula) -> Formula:
    """At least one of ``parts``: the largest robustness."""
    return Formula("or", _require_parts(parts))


def always(part: Formula, first: int, last: int) -> Formula:
    """``part`` at every step of the window: its smallest robustness there."""
    return Formula("always", (part,), window=_window(first, last))


def eventually(part: Formula, first: int, last: int) -> Formula:
    """``part`` at some step of the window: its largest robustness there."""
    return Formula("eventually", (part,), window=_window(first, last))


def until(part: Formula, goal: Formula, first: int, last: int) -> Formula:
    """``goal`` at some step of the window, and ``part`` at every step from now until then."""
    return Formula("until", (part, goal), window=_window(first, last))


class Robustness(NamedTuple):
    """Margin by which a trajectory satisfies a formula, starting from every step.

    Attributes:
        value: Positive if satisfied, negative if violated, by the margin; NaN if the trajectory
            ends before that is decided, shape ``(time,)``.
        complete: Whether the trajectory is long enough, shape ``(time,)``.
    """

    value: Float[Array, " time"]
    complete: Bool[Array, " time"]


def robustness(formula: Formula, obs: Float[Array, "time obs"], names: Sequence[str]) -> Robustness:
    """Quantitative semantics of a formula over a trajectory in discrete time.

    ``rho(not f) = -rho(f)``, ``rho(f and g) = min``, ``rho(f or g) = max``,
    ``rho(G_[a,b] f)(t) = min_{t+a..t+b} rho(f)``, ``rho(F_[a,b] f)(t) = max_{t+a..t+b} rho(f)``,
    ``rho(f U_[a,b] g)(t) = max_{s in t+a..t+b} min(rho(g)(s), min_{t <= r < s} rho(f)(r))``.

    A NaN reading violates every comparison, negated or not, as far as possible.

    Args:
        formula: The formula.
        obs: Observations, one row per step, physical units.
        names: Names of the channels, in order.

    Returns:
        Value and completeness for every step.

    Raises:
        InputError: If a channel is unknown or there is not one name for each channel.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_safety.monitoring import always, below, robustness
        >>> cool = always(below("T", 10.0), 0, 1)
        >>> robustness(cool, jnp.array([[4.0], [8.0], [12.0]]), ["T"]).value.tolist()
        [2.0, -2.0, nan]

    Source: Donze and Maler, Robust satisfaction of temporal logic over real-valued signals, 2010.
    """
    if obs.ndim != 2 or obs.shape[1] != len(names):
        raise InputError(f"obs has shape {obs.shape}; expected (time, {len(names)})")
    value = _value(formula, obs, list(names), positive=True)
    complete = jnp.arange(obs.shape[0]) + formula.horizon < obs.shape[0]
    return Robustness(jnp.where(complete, value, jnp.nan), complete)


def _value(formula: Formula, obs: Array, names: list[str], *, positive: bool) -> Array:
    """Robustness of a formula; a lost reading counts against it if ``positive``, else for it."""
    if formula.operator in ("above", "below"):
        if formula.channel not in names:
            raise unknown_name("channel", formula.channel, names)
        margin = obs[:, names.index(formula.channel)] - formula.threshold
        margin = margin if formula.operator == "above" else -margin
        return jnp.where(jnp.isnan(margin), -jnp.inf if positive else jnp.inf, margin)
    if formula.operator == "not":
        return -_value(formula.parts[0], obs, names, positive=not positive)
    values = [_value(part, obs, names, positive=positive) for part in formula.parts]
    return OPERATORS[formula.operator](values, *formula.window)


def _ahead(value: Array, steps: int) -> Float[Array, " time"]:
    """The values ``steps`` steps later; the value of the last step is repeated at the end."""
    index = jnp.minimum(jnp.arange(value.shape[0]) + steps, value.shape[0] - 1)
    return value[index]


def _over(
    values: tuple[Array, ...], first: int, last: int, join: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Joins the values in every window, by repeatedly doubling the width of the windows.

    Overlapping windows may be joined too, because an element that is joined twice counts once.
    """
    width, span = last - first + 1, 1
    while 2 * span <= width:
        values = join(values, tuple(_ahead(value, span) for value in values))
        span *= 2
    if span < width:
        values = join(values, tuple(_ahead(value, width - span) for value in values))
    return tuple(_ahead(value, first) for value in values)


def _least(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    return (jnp.minimum(one[0], other[0]),)


def _largest(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    return (jnp.maximum(one[0], other[0]),)


def _until(values: list[Array], first: int, last: int) -> Array:
    part, goal = values
    reached, _ = _over((goal, part), first, last, until_join)
    if not first:
        return reached
    (held,) = _over((part,), 0, first - 1, _least)
    return jnp.minimum(held, reached)


def until_join(earlier: tuple[Array, ...], later: tuple[Array, ...]) -> tuple[Array, ...]:
    """Joins two runs: the best goal with the part held until then, and the part held throughout."""
    (reached, held), (then_reached, then_held) = earlier, later
    return jnp.maximum(reached, jnp.minimum(held, then_reached)), jnp.minimum(held, then_held)


OPERATORS: dict[str, Callable[[list[Array], int, int], Array]] = {
    "and": lambda values, *_: jnp.min(jnp.stack(values), axis=0),
    "or": lambda values, *_: jnp.max(jnp.stack(values), axis=0),
    "always": lambda values, first, last: _over((values[0],), first, last, _least)[0],
    "eventually": lambda values, first, last: _over((values[0],), first, last, _largest)[0],
    "until": _until,
}


def _require_parts(parts: tuple[Formula, ...]) -> tuple[Formula, ...]:
    if not parts:
        raise InputError("a conjunction or disjunction needs at least one formula")
    return parts


def _window(first: int, last: int) -> tuple[int, int]:
    are_integers = all(
        isinstance(step, int) and not isinstance(step, bool) for step in (first, last)
    )
    if not (are_integers and 0 <= first <= last):
        raise InputError(
            "a window must be two integers of at least 0, the first not above the second, "
            f"got {first} and {last}"
        )
    return first, last


# Signal-temporal-logic formulas as text, with units.


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
