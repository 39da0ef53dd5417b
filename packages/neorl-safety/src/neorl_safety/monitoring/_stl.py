"""Signal temporal logic: how well a trajectory satisfies a formula, or how far it violates it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name

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
    reached, _ = _over((goal, part), first, last, _until_join)
    if not first:
        return reached
    (held,) = _over((part,), 0, first - 1, _least)
    return jnp.minimum(held, reached)


def _until_join(earlier: tuple[Array, ...], later: tuple[Array, ...]) -> tuple[Array, ...]:
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
