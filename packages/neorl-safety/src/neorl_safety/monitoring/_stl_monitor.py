"""Formulas evaluated while the plant runs, at a constant amortised cost per step."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_core import InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_safety.monitoring._monitor import MonitorInput, Score
from neorl_safety.monitoring._stl import Formula, negation, until_join

# Formulas evaluated as readings arrive, at a constant amortised cost per step.
#
# A *stream* takes one observation per step and returns the robustness of one earlier step,
# ``delay`` steps ago: the latest one for which all deciding readings have arrived. Every stream is
# a frozen object with separate state. Numbers stay finite, because a guard keeps infinities out of
# its carry and would change them.


LARGEST = float(np.finfo(np.float32).max)
"""Represents infinity."""
Join = Callable[[Any, Any], Any]


class Stream(Protocol):
    """The values of a formula, step by step."""

    @property
    def delay(self) -> int:
        """Number of steps by which the value of a step is delayed."""
        ...

    def initial(self) -> Any:
        """The state before the first reading."""
        ...

    def __call__(self, state: Any, obs: Float[Array, " obs"]) -> tuple[Any, Float[Array, ""]]:
        """The next state, and the value ``delay`` steps ago."""
        ...


class Window(NamedTuple):
    """The last elements of a sequence, stored so that they can be joined in order.

    Attributes:
        buffer: Elements of the current block up to ``position``. After it, for every place of the
            previous block, the join of its elements from there on; leading axis of the width.
        prefix: Join of the elements of the current block.
        position: Number of elements in the current block.
    """

    buffer: Any
    prefix: Any
    position: Int[Array, ""]


def empty_window(neutral: Any, width: int) -> Window:
    """A window filled with neutral elements."""
    buffer = jax.tree.map(lambda leaf: jnp.full((width,), leaf, jnp.float32), neutral)
    prefix = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), neutral)
    return Window(buffer, prefix, jnp.zeros((), jnp.int32))


def slide(window: Window, element: Any, join: Join, neutral: Any) -> tuple[Window, Any]:
    """Moves the window on by one element and joins all its elements, the oldest first.

    The elements come in blocks of the window's width, so the window is the end of one block and the
    beginning of the next. The beginning is joined as its elements arrive. The end is joined for all
    places together when a block is full. So an element costs three joins on average, whatever the
    width.

    Args:
        window: Window from :func:`empty_window` or from the last step.
        element: Next element, a PyTree of scalars.
        join: Associative function of two elements, the earlier one first.
        neutral: Neutral element of ``join``.

    Returns:
        The new window and the join.

    Source: van Herk, A fast algorithm for local minimum and maximum filters on rectangular and
    octagonal kernels, Pattern Recognition Letters 13, 1992.
    """
    width, index = len(jax.tree.leaves(window.buffer)[0]), window.position
    prefix = join(window.prefix, element)
    last = index + 1 == width
    # After the last place of a block nothing older is left; the index stays inside for `where`.
    older = jax.tree.map(
        lambda leaf, none: jnp.where(last, none, leaf[jnp.minimum(index + 1, width - 1)]),
        window.buffer,
        neutral,
    )
    joined = join(older, prefix)
    buffer = jax.tree.map(lambda leaf, x: leaf.at[index].set(x), window.buffer, element)
    # A reverse scan passes the later element first.
    buffer = jax.lax.cond(
        last,
        lambda b: jax.lax.associative_scan(lambda x, y: join(y, x), b, reverse=True),
        lambda b: b,
        buffer,
    )
    prefix = jax.tree.map(lambda x, none: jnp.where(last, none, x), prefix, neutral)
    return Window(buffer, prefix, jnp.where(last, 0, index + 1)), joined


@dataclasses.dataclass(frozen=True)
class _Comparison:
    """``sign (x - threshold)``; ``nan_value`` if the reading is not a number."""

    index: int
    threshold: float
    sign: float
    nan_value: float
    delay: int = 0

    def initial(self) -> Any:
        return ()

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        margin = self.sign * (obs[self.index].astype(jnp.float32) - jnp.float32(self.threshold))
        # The clip keeps NaN and bounds infinities, which a guard would replace in its carry.
        margin = jnp.clip(margin, -LARGEST, LARGEST)
        return state, jnp.where(jnp.isnan(margin), self.nan_value, margin)


@dataclasses.dataclass(frozen=True)
class _Negated:
    part: Stream

    @property
    def delay(self) -> int:
        return self.part.delay

    def initial(self) -> Any:
        return self.part.initial()

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        state, value = self.part(state, obs)
        return state, -value


def _empty_queue(length: int) -> tuple[Array, Array]:
    """The last values of a sequence, and the place of the oldest; the largest number at first."""
    return jnp.full((length,), LARGEST, jnp.float32), jnp.zeros((), jnp.int32)


def _through(values: Array, oldest: Array, value: Array) -> tuple[Array, Array]:
    """A queue in which a value has taken the place of the oldest."""
    following = jnp.where(oldest + 1 == len(values), 0, oldest + 1)
    return values.at[oldest].set(value), following


@dataclasses.dataclass(frozen=True)
class _Delayed:
    """The values of a stream, delayed by some steps; the largest number before the first."""

    part: Stream
    steps: int

    @property
    def delay(self) -> int:
        return self.part.delay + self.steps

    def initial(self) -> Any:
        return self.part.initial(), *_empty_queue(self.steps)

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        inner, waiting, index = state
        inner, value = self.part(inner, obs)
        return (inner, *_through(waiting, index, value)), waiting[index]


@dataclasses.dataclass(frozen=True)
class _Combined:
    """The smallest or largest of several values for the same step."""

    parts: tuple[Stream, ...]
    least: bool
    delay: int

    def initial(self) -> Any:
        return tuple(part.initial() for part in self.parts)

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        pairs = [part(own, obs) for part, own in zip(self.parts, state, strict=True)]
        values = jnp.stack([value for _, value in pairs])
        return tuple(own for own, _ in pairs), (jnp.min if self.least else jnp.max)(values)


@dataclasses.dataclass(frozen=True)
class _Sliding:
    """The smallest or largest of the last values of a stream."""

    part: Stream
    width: int
    least: bool
    delay: int

    def initial(self) -> Any:
        return self.part.initial(), empty_window(self._neutral, self.width)

    @property
    def _neutral(self) -> float:
        return LARGEST if self.least else -LARGEST

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        inner, window = state
        inner, value = self.part(inner, obs)
        join = jnp.minimum if self.least else jnp.maximum
        window, joined = slide(window, value, join, self._neutral)
        return (inner, window), joined


@dataclasses.dataclass(frozen=True)
class _Until:
    """``part until[first, last] goal``, where both refer to the same step.

    A run of steps maps the value ``z`` of what follows it to ``max(reached, min(held, z))``. Here
    ``reached`` is the best goal with the part held until then, and ``held`` is the part over the
    whole run. Joining such maps is associative.
    """

    part: Stream
    goal: Stream
    first: int
    last: int

    @property
    def delay(self) -> int:
        return self.part.delay + self.last

    @property
    def _width(self) -> int:
        return self.last - self.first + 1

    def initial(self) -> Any:
        before: Any = ()
        if self.first:
            before = empty_window(LARGEST, self.first), *_empty_queue(self._width)
        window = empty_window((-LARGEST, LARGEST), self._width)
        return self.part.initial(), self.goal.initial(), window, before

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        part_state, goal_state, window, before = state
        part_state, held = self.part(part_state, obs)
        goal_state, reached = self.goal(goal_state, obs)
        window, (value, _) = slide(window, (reached, held), until_join, (-LARGEST, LARGEST))
        if self.first:
            swept, waiting, index = before
            swept, least = slide(swept, waiting[index], jnp.minimum, LARGEST)
            value = jnp.minimum(value, least)
            before = swept, *_through(waiting, index, held)
        return (part_state, goal_state, window, before), value


@dataclasses.dataclass(frozen=True)
class _Started:
    """The values of a stream; the largest number for steps before the first valid one."""

    part: Stream
    offset: int

    @property
    def delay(self) -> int:
        return self.part.delay

    def initial(self) -> Any:
        return self.part.initial(), jnp.zeros((), jnp.int32)

    def __call__(self, state: Any, obs: Array) -> tuple[Any, Array]:
        inner, count = state
        inner, value = self.part(inner, obs)
        first = self.delay + self.offset
        value = jnp.where(count >= first, value, LARGEST)
        # The count stops where it is decided, so that it never wraps round.
        return (inner, jnp.minimum(count + 1, first)), value


def exact(formula: Formula, names: Sequence[str], *, positive: bool = True) -> Stream:
    """The robustness of a formula from every step on, delayed by its horizon.

    A lost reading counts against the formula if ``positive``, otherwise for it.
    """
    if formula.operator in ("above", "below"):
        if formula.channel not in names:
            raise unknown_name("channel", formula.channel, list(names))
        sign = 1.0 if formula.operator == "above" else -1.0
        nan_value = -LARGEST if positive else LARGEST
        return _Comparison(list(names).index(formula.channel), formula.threshold, sign, nan_value)
    if formula.operator == "not":
        return _Negated(exact(formula.parts[0], names, positive=not positive))
    parts = [exact(part, names, positive=positive) for part in formula.parts]
    first, last = formula.window
    delay = max(part.delay for part in parts)
    if formula.operator in ("always", "eventually"):
        least = formula.operator == "always"
        return _Sliding(parts[0], last - first + 1, least=least, delay=delay + last)
    aligned = tuple(_delay(part, delay - part.delay) for part in parts)
    if formula.operator == "until":
        part, goal = aligned
        return _Until(part, goal, first, last)
    return _Combined(aligned, formula.operator == "and", delay)


def worst(formula: Formula, names: Sequence[str], starts: int) -> Stream:
    """The smallest robustness of a formula from any of the last steps on, as far as decided.

    Steps that are not decided yet count as satisfied; steps before the first reading are ignored.
    The first violating reading decides a violated ``always``.

    Args:
        formula: The formula.
        names: Names of the observed channels, in order.
        starts: Number of past steps from which the formula is evaluated, at least its horizon.

    Returns:
        The stream, which is not delayed.
    """
    return _worst(normal_form(formula), names, starts, 0)


def _worst(formula: Formula, names: Sequence[str], starts: int, offset: int) -> Stream:
    """Like :func:`worst`, from the step ``offset`` on, counted from the first reading."""
    first, last = formula.window
    if formula.operator == "always":
        return _worst(formula.parts[0], names, starts - first, offset + first)
    if formula.operator == "and":
        parts = tuple(_worst(part, names, starts, offset) for part in formula.parts)
        return _Combined(parts, True, 0)
    lasting = [part for part in formula.parts if part.operator == "always"]
    if formula.operator == "or" and len(lasting) == 1 < len(formula.parts):
        # `a or always[first, last] b` from every step t on means for every step s: `b`, or `a` at
        # all steps from s - last to s - first. So it is decided as soon as `b` is.
        (first, last), (goal,) = lasting[0].window, lasting[0].parts
        others = tuple(part for part in formula.parts if part is not lasting[0])
        other = exact(Formula("or", others), names)
        all_of = _Sliding(
            _Started(other, offset), last - first + 1, least=True, delay=other.delay - first
        )
        inner = exact(goal, names)
        delay = max(inner.delay, all_of.delay)
        aligned = tuple(_delay(one, delay - one.delay) for one in (inner, all_of))
        either = _Combined(aligned, False, delay)
        return _Sliding(either, starts - first - delay + 1, least=True, delay=0)
    whole = exact(formula, names)
    return _Sliding(_Started(whole, offset), starts - whole.delay + 1, least=True, delay=0)


def normal_form(formula: Formula, *, negated: bool = False) -> Formula:
    """The same formula with negations only of comparisons and of ``until``."""
    if formula.operator == "not":
        return normal_form(formula.parts[0], negated=not negated)
    if formula.operator == "until":
        return negation(formula) if negated else formula
    operator = DUAL[formula.operator] if negated else formula.operator
    parts = tuple(normal_form(part, negated=negated) for part in formula.parts)
    return dataclasses.replace(formula, operator=operator, parts=parts)


DUAL = {
    "above": "below",
    "below": "above",
    "and": "or",
    "or": "and",
    "always": "eventually",
    "eventually": "always",
}


def _delay(part: Stream, steps: int) -> Stream:
    return _Delayed(part, steps) if steps else part


# A formula monitored while the plant runs.


MOST_HORIZON = 100_000
"""Largest number of steps that a formula may look ahead, all its windows together."""


class FormulaCarry(NamedTuple):
    """Carry of a :class:`FormulaMonitor`.

    Attributes:
        streams: State of the parts of the formula: at most two numbers for every step of a window.
    """

    streams: Any


class FormulaMonitor(eqx.Module):
    """Alarms once a formula has been violated; see :func:`formula_monitor`.

    Attributes:
        formula: The formula.
        names: Names of the observed channels.
    """

    formula: Formula = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def initial_carry(self) -> FormulaCarry:
        """A carry before the first observation."""
        return FormulaCarry(_stream(self.formula, self.names).initial())

    def __call__(self, carry: FormulaCarry, inputs: MonitorInput) -> tuple[FormulaCarry, Score]:
        """Minus the smallest robustness from any step within the horizon.

        Steps that are not decided yet count as satisfied. If no step is decided, the value is minus
        infinity, without an alarm.
        """
        streams, worst_margin = _stream(self.formula, self.names)(carry.streams, inputs.obs)
        value = jnp.where(
            jnp.abs(worst_margin) < LARGEST,
            -worst_margin,
            jnp.where(worst_margin > 0, -jnp.inf, jnp.inf),
        )
        return FormulaCarry(streams), Score(value, worst_margin < 0)


def formula_monitor(formula: Formula, spec: Spec) -> FormulaMonitor:
    """Monitors a formula over the observed channels, starting from every step.

    It alarms in the first step which decides that the formula is violated from some earlier step,
    and as long as that earlier step lies within the formula's horizon. ``always`` is violated
    immediately, ``eventually`` when its time is over. The average cost of a step does not depend on
    the length of the windows.

    Args:
        formula: Formula with windows in control periods.
        spec: Specification that provides the channels.

    Returns:
        The monitor.

    Raises:
        InputError: If the formula names a channel that is not observed, or looks ahead by more than
            100,000 steps.
    """
    if formula.horizon > MOST_HORIZON:
        raise InputError(
            f"a formula may look at most {MOST_HORIZON} control periods ahead, got "
            f"{formula.horizon}; shorten its windows"
        )
    names = tuple(channel.name for channel in spec.obs)
    _stream(formula, names)
    return FormulaMonitor(formula, names)


@functools.lru_cache(maxsize=64)
def _stream(formula: Formula, names: tuple[str, ...]) -> Stream:
    return worst(formula, names, formula.horizon)
