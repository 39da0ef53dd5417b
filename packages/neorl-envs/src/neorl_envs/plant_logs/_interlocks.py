"""Interlocks that ``plant.toml`` declares: as functions, how often they acted, contradictions."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core import InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_envs.datasets._checks import blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.plant_logs._configuration import BEFORE, OBSERVED, PlantLog
from neorl_envs.plant_logs._expressions import Expression

# Expressions over tags as functions of arrays that can be compiled and differentiated.
#
# polars parses the text into a tree. Known nodes of the tree are translated one by one; any other
# node is refused. The format of the tree may change between versions of polars, so every use of a
# formula must first compare it with values computed by polars.


Formula = tuple[Any, ...]
"""The name of an operation followed by its arguments, nested and hashable."""


class UntranslatableError(Exception):
    """Raised for an expression that cannot be translated; the message gives the reason."""


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Plus": jnp.add, "Minus": jnp.subtract, "Multiply": jnp.multiply, "Mul": jnp.multiply,
    "Divide": jnp.divide, "TrueDivide": jnp.divide, "Div": jnp.divide,
    "Rem": jnp.fmod, "IntDiv": lambda x, y: jnp.trunc(x / y),
    "Eq": jnp.equal, "NotEq": jnp.not_equal, "Lt": jnp.less, "LtEq": jnp.less_equal,
    "Gt": jnp.greater, "GtEq": jnp.greater_equal,
    "And": jnp.logical_and, "LogicalAnd": jnp.logical_and,
    "Or": jnp.logical_or, "LogicalOr": jnp.logical_or, "Not": jnp.logical_not, "IsNull": jnp.isnan,
    "Abs": jnp.abs, "Sign": jnp.sign, "Exp": jnp.exp, "Floor": jnp.floor, "Ceil": jnp.ceil,
    "Log": lambda x, base: jnp.log(x) / jnp.log(base), "Log1p": jnp.log1p,
    "Sqrt": jnp.sqrt, "Cbrt": jnp.cbrt, "Generic": jnp.power,
    "Sin": jnp.sin, "Cos": jnp.cos, "Tan": jnp.tan, "Atan2": jnp.arctan2,
    "ToFloat": lambda x: x, "Where": lambda when, yes, no: jnp.where(when > 0, yes, no),
}  # fmt: skip
"""The function that each node of a polars tree computes."""
FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "MaxHorizontal": jnp.fmax, "MinHorizontal": jnp.fmin,
    "Coalesce": lambda x, y: jnp.where(jnp.isnan(x), y, x),
}  # fmt: skip
"""Binary operations that are folded over any number of arguments and skip unknown values."""


def formula_of(tree: Any) -> Formula:
    """Translates a polars expression tree.

    Raises an ``UntranslatableError`` naming the first unknown node.
    """
    match tree:
        case {"Column": str(name)}:
            return ("column", name)
        case {"Literal": {"Dyn": {"Int": value}} | {"Dyn": {"Float": value}}}:
            return ("number", float(value))
        case {"Literal": {"Scalar": scalar}}:
            return ("number", _scalar(scalar))
        case {"BinaryExpr": {"left": left, "op": op, "right": right}}:
            return (_known_name(op, op), formula_of(left), formula_of(right))
        case {"Ternary": {"predicate": when, "truthy": yes, "falsy": no}}:
            return ("Where", formula_of(when), formula_of(yes), formula_of(no))
        case {"Cast": {"expr": inside, "dtype": {"Literal": "Boolean" | "Float64" | "Float32"}}}:
            return formula_of(inside)
        case {"Function": {"input": list(given), "function": function}}:
            return (_known_name(_name(function), function), *map(formula_of, given))
    raise UntranslatableError(f"it holds {_short(tree)}, which cannot be compiled")


def evaluate(formula: Formula, columns: Mapping[str, Float[Array, "..."]]) -> Array:
    """Evaluates a formula."""
    operation, *arguments = formula
    if operation == "column":
        return columns[arguments[0]]
    if operation == "number":
        return jnp.asarray(arguments[0], jnp.float32)
    values = [evaluate(one, columns) for one in arguments]
    if operation in FOLDED:
        return functools.reduce(FOLDED[operation], values)
    # Conditions become 0 or 1, so that expressions may multiply by them.
    return OPERATIONS[operation](*values).astype(jnp.float32)


def _name(function: Any) -> Any:
    """The innermost name: ``"Mul"`` for ``{"Sql": {"Binary": "Mul"}}``."""
    while isinstance(function, dict) and len(function) == 1:
        (function,) = function.values()
    return function


def _known_name(name: Any, node: Any) -> str:
    if isinstance(name, str) and (name in OPERATIONS or name in FOLDED):
        return name
    raise UntranslatableError(f"it holds {_short(node)}, which cannot be compiled")


def _scalar(scalar: Any) -> float:
    match scalar:
        case {"Decimal": [int(digits), _, int(places)]}:
            return digits / 10**places
        case {"Boolean": bool(value)}:
            return float(value)
        case {"Null": _}:
            return math.nan
        case {"Float64": value} | {"Float32": value} | {"Int64": value} | {"Int32": value}:
            return float(value)
    raise UntranslatableError(f"it holds the constant {_short(scalar)}, which cannot be compiled")


def _short(part: Any) -> str:
    text = str(part)
    return text if len(text) < 60 else f"{text[:60]}..."


# Interlocks that ``plant.toml`` declares: checked, and as a function of observation and action.


CONDITIONS = frozenset(
    {"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "And", "LogicalAnd", "Or", "LogicalOr", "Not"}
)
"""Operations whose value is true or false."""
DRAWN = 2000
"""Number of logged rows, and of drawn ones, in which compiled expressions are compared."""
DIFFERING = 0.01
"""Largest fraction of these rows in which they may differ."""
COMPARISONS = frozenset({"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq"})


class Term(NamedTuple):
    """An expression of an interlock, as polars evaluates it and as a compiled function does."""

    expression: Expression
    formula: Formula


class CheckedInterlock(NamedTuple):
    """An interlock whose expressions are known to be usable.

    Attributes:
        name: Its name.
        when: The condition under which it acts.
        values: What it sets each manipulated variable to, by name.
        sentence: What it does, such as ``"valve = 0 % while level > 1.8"``.
    """

    name: str
    when: Term
    values: Mapping[str, Term]
    sentence: str


@dataclasses.dataclass(frozen=True)
class DeclaredInterlocks:
    """Interlocks as a function from observation and action to the action in force.

    Objects are hashable and compare by value, so they may be static arguments.

    Attributes:
        interlocks: Condition of every interlock, and the formula of each action that it sets, by
            the index of the action.
        obs: Names of the observations, in their order.
        action: Names of the actions, in their order.
    """

    interlocks: tuple[tuple[Formula, tuple[tuple[int, Formula], ...]], ...]
    obs: tuple[str, ...]
    action: tuple[str, ...]

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " act"]) -> Array:
        """The action after the interlocks, applied in their order.

        Args:
            obs: Observation at the beginning of the step.
            action: Action that the controller asks for.
        """
        measured = {name: obs[i] for i, name in enumerate(self.obs)}
        for when, values in self.interlocks:
            columns = measured | {name: action[i] for i, name in enumerate(self.action)}
            acts = evaluate(when, columns) > 0.5
            for index, formula in values:
                value = jnp.asarray(evaluate(formula, columns), action.dtype)
                # A formula without a value, such as a division by zero, sets nothing.
                value = jnp.where(acts & ~jnp.isnan(value), value, action[index])
                action = action.at[index].set(value)
        return action


def check_interlocks(config: PlantLog, source: str) -> None:
    """Raises an ``InputError`` unless every interlock of a configuration can be used."""
    observed, manipulated = config.of_role(*OBSERVED), config.of_role("manipulated")
    names = [one.name for one in config.interlocks]
    for name in names:
        if not name or names.count(name) > 1:
            raise InputError(
                f"{source}: two [[interlock]] tables are called {name!r}, or one has no name; "
                "give each its own name"
            )
    roles = {tag.name: tag.role for tag in config.tags if tag not in (*observed, *manipulated)}
    checked_interlocks(
        [(one.name, one.when, one.values) for one in config.interlocks],
        observed,
        manipulated,
        source,
        roles,
    )


def checked_interlocks(
    records: Sequence[tuple[str, str, Mapping[str, Any]]],
    observed: Sequence[Any],
    manipulated: Sequence[Any],
    source: str,
    roles: Mapping[str, str] | None = None,
) -> tuple[CheckedInterlock, ...]:
    """Parses interlocks.

    ``roles`` are those of all other tags, for messages.
    """
    ranges = {one.name: one for one in (*observed, *manipulated)}
    actions = [one.name for one in manipulated]
    checked = []
    for name, when, values in records:
        where = f"{source}: [[interlock]] {name!r}"
        if not values:
            raise InputError(
                f"{where}: set is empty; name a manipulated variable and its value, such as "
                f"set = {{ {actions[0]} = {ranges[actions[0]].low:g} }}"
            )
        condition = _term(when, ranges, f"{where}: when", roles or {})
        _require_condition(condition, ranges, f"{where}: when")
        terms = {}
        for tag, value in values.items():
            if tag not in actions:
                raise unknown_name(f"manipulated variable in {where}: set:", tag, actions)
            terms[tag] = _value(value, ranges[tag], ranges, f"{where}: set.{tag}", roles or {})
        words = ", ".join(_words(tag, value, ranges[tag].unit) for tag, value in values.items())
        checked.append(CheckedInterlock(name, condition, terms, f"{words} while {when}"))
    return tuple(checked)


def require_translation(
    checked: Sequence[CheckedInterlock],
    spec: Spec,
    obs: Float[np.ndarray, "row obs"],
    action: Float[np.ndarray, "row act"],
) -> None:
    """Raises an ``InputError`` unless compiled expressions have the values that polars computes.

    They are compared in logged rows and in rows drawn from the ranges of the channels, because an
    interlock may never have acted in the log.
    """
    random = np.random.default_rng(0)
    columns = {}
    for channels, logged in ((spec.obs, obs), (spec.action, action)):
        for i, channel in enumerate(channels):
            drawn = random.uniform(channel.low, channel.high, DRAWN).astype(np.float32)
            columns[channel.name] = np.concatenate([logged[:DRAWN, i], drawn])
    single = {name: jnp.asarray(column) for name, column in columns.items()}
    double = {name: np.asarray(column, np.float64) for name, column in columns.items()}
    for one in checked:
        for term in (one.when, *one.values.values()):
            exact = term.expression(double)
            compiled = np.asarray(evaluate(term.formula, single), np.float64)
            scale = float(np.nanmax(np.abs(exact), initial=1.0))
            close = np.isclose(compiled, exact, rtol=1e-3, atol=1e-5 * scale, equal_nan=True)
            # A comparison may differ in rows that lie on its threshold to single precision.
            if np.mean(~close) > DIFFERING:
                raise InputError(
                    f"{term.expression.source}: {term.expression.text!r} has other values as a "
                    f"part of a plant model than in polars, in {np.mean(~close):.1%} of rows; "
                    "write it with simple comparisons"
                )


def interlocks_of(
    checked: Sequence[CheckedInterlock], obs: Sequence[str], action: Sequence[str]
) -> DeclaredInterlocks:
    """The function of checked interlocks over the named observations and actions."""
    return DeclaredInterlocks(
        tuple(
            (
                one.when.formula,
                tuple((action.index(tag), term.formula) for tag, term in one.values.items()),
            )
            for one in checked
        ),
        tuple(obs),
        tuple(action),
    )


def _words(tag: str, value: Any, unit: str) -> str:
    return f"{tag} = {value}" if isinstance(value, str) else f"{tag} = {value:g} {unit}".rstrip()


def _term(text: Any, ranges: Mapping[str, Any], where: str, roles: Mapping[str, str]) -> Term:
    """An expression over the channels of a plant model."""
    if not isinstance(text, str):
        raise InputError(f"{where} must be an expression in quotes, got {text!r}")
    known = [*ranges, *roles]
    expression = Expression(text, [*known, *(BEFORE + name for name in known)], where)
    for name in expression.roots:
        if name in roles:
            raise InputError(
                f"{where}: {text!r} uses {name!r}, which has the role {roles[name]!r}; a plant "
                'model knows only observed and manipulated tags: give it the role "observation", '
                'or "disturbance" if no controller influences it'
            )
        if name not in ranges:
            raise InputError(
                f"{where}: {text!r} uses {name!r}, but an interlock reads only the values of the "
                f"time at which it acts; use {name.removeprefix(BEFORE)!r}"
            )
    try:
        return Term(expression, formula_of(expression.tree()))
    except UntranslatableError as error:
        raise InputError(
            f"{where}: {text!r} cannot be part of a plant model: {error}; write it with "
            "arithmetic, comparisons, AND, OR, NOT, CASE, least and greatest"
        ) from error


def _require_condition(term: Term, ranges: Mapping[str, Any], where: str) -> None:
    expression, formula = term
    if not expression.roots:
        raise InputError(f"{where}: {expression.text!r} names no tag, so it never changes")
    if formula[0] not in CONDITIONS:
        raise InputError(
            f"{where}: {expression.text!r} must be true or false; compare it with a number, such "
            f"as {expression.text + ' > 0.5'!r}"
        )
    for name, threshold in _thresholds(formula):
        one = ranges[name]
        if not one.low <= threshold <= one.high:
            raise InputError(
                f"{where}: {expression.text!r} compares {name} with {threshold:g} {one.unit}, "
                f"outside its range, {one.low:g} to {one.high:g} {one.unit}, so it never changes; "
                "check the unit"
            )


def _thresholds(formula: Formula) -> Iterator[tuple[str, float]]:
    """Every comparison of a tag with a number: the tag and the number."""
    operation, *arguments = formula
    match arguments:
        case [("column", name), ("number", value)] | [("number", value), ("column", name)]:
            if operation in COMPARISONS:
                yield name, value
        case _:
            for one in arguments:
                if isinstance(one, tuple):
                    yield from _thresholds(one)


def _value(
    value: Any, tag: Any, ranges: Mapping[str, Any], where: str, roles: Mapping[str, str]
) -> Term:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _term(value, ranges, where, roles)
    if not math.isfinite(value) or not tag.low <= value <= tag.high:
        raise InputError(
            f"{where} = {value:g} {tag.unit} is outside the range of {tag.name}, {tag.low:g} to "
            f"{tag.high:g} {tag.unit}; check the unit"
        )
    return _term(repr(float(value)), ranges, where, roles)


# How often declared interlocks acted in a log, and where the log contradicts them.


TOLERANCE = 0.005
"""Largest difference between a logged action and what an interlock sets, relative to the range."""


class Contradiction(NamedTuple):
    """Rows in which an interlock should have set an action to another value than the logged one.

    Attributes:
        action: Name of the action.
        unit: Its unit.
        rows: Number of these rows.
        first: The first of them.
        logged: The logged action in that row.
        declared: What the interlock sets there.
        largest: Largest difference.
    """

    action: str
    unit: str
    rows: int
    first: int
    logged: float
    declared: float
    largest: float


class Activity(NamedTuple):
    """What a log shows of one interlock; masked rows do not count.

    Attributes:
        name: Name of the interlock.
        sentence: What it does.
        rows: Number of rows.
        active: Number of rows in which its condition holds.
        episodes: Number of episodes with such a row.
        contradictions: One entry for each action whose logged value differs.
    """

    name: str
    sentence: str
    rows: int
    active: int
    episodes: int
    contradictions: tuple[Contradiction, ...]

    @property
    def always(self) -> bool:
        """Whether the condition holds in every row."""
        return self.rows > 0 and self.active == self.rows


def declared_interlocks(dataset: Dataset) -> tuple[CheckedInterlock, ...]:
    """The interlocks of a log, which ``plant.toml`` declared; none if it has no such attribute.

    Raises:
        InputError: If the log does not have the channels that they name, or the tables are damaged.
    """
    try:
        named = [
            (str(one["name"]), one["when"], dict(one["set"]))
            for one in dataset.attributes.get("interlocks", ())
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "the attribute interlocks of the dataset is damaged; convert the log again"
        ) from error
    return checked_interlocks(named, dataset.spec.obs, dataset.spec.action, "plant.toml")


def interlock_activity(
    dataset: Dataset, interlocks: Sequence[CheckedInterlock]
) -> tuple[Activity, ...]:
    """Compares interlocks with the rows of a log.

    A row contradicts an interlock if its condition holds and the logged action differs from what
    the interlock sets by more than 0.5 % of the range of the action, unless a later interlock sets
    the same action in that row.
    """
    if not interlocks:
        return ()
    rows: Any = dataset.transitions
    counted = [_Counted(one, dataset) for one in interlocks]
    for part in blocks(dataset.n_rows, rows.obs, rows.action):
        columns = _columns(dataset.spec, rows.obs[part], rows.action[part])
        known = np.asarray(rows.mask[part], bool)
        active = [one.when.expression(columns) == 1 for one in interlocks]
        overridden = dict.fromkeys(
            (channel.name for channel in dataset.spec.action), np.zeros(len(known), bool)
        )
        # From the last to the first, because a later interlock has the last word.
        for one, acts, entry in reversed(list(zip(interlocks, active, counted, strict=True))):
            entry.add(columns, acts & known, overridden, part.start)
            overridden |= {tag: overridden[tag] | acts for tag in one.values}
    n_rows = int(np.asarray(rows.mask, bool).sum())
    return tuple(entry.activity(n_rows) for entry in counted)


def always_active(one: Activity) -> str:
    """Says that a condition that always holds cannot be that of an interlock."""
    return (
        f"plant.toml: [[interlock]] {one.name!r}: its condition holds in all {one.rows} rows of "
        f"the log ({one.sentence}), so no controller ever acted and nothing can be learned about "
        "one; correct the condition or its unit, and convert the log again"
    )


class _Counted:
    """The counts of one interlock over the blocks of a log."""

    def __init__(self, one: CheckedInterlock, dataset: Dataset) -> None:
        self._one, self._starts = one, dataset.episode_starts
        self._channels = {channel.name: channel for channel in dataset.spec.action}
        self._active = 0
        self._episodes: set[int] = set()
        self._found: dict[str, Contradiction] = {}

    def add(
        self,
        columns: Mapping[str, np.ndarray],
        acts: Bool[np.ndarray, " row"],
        overridden: Mapping[str, Bool[np.ndarray, " row"]],
        start: int,
    ) -> None:
        """Counts the rows of a block that begins with row ``start``."""
        self._active += int(acts.sum())
        indices = np.flatnonzero(acts) + start
        episodes = np.searchsorted(self._starts, indices, side="right")
        self._episodes.update(np.unique(episodes).tolist())
        for tag, term in self._one.values.items():
            channel = self._channels[tag]
            value = np.clip(term.expression(columns), channel.low, channel.high)
            difference = np.where(acts & ~overridden[tag], np.abs(columns[tag] - value), 0.0)
            wrong = np.flatnonzero(difference > TOLERANCE * (channel.high - channel.low))
            if not len(wrong):
                continue
            first = wrong[0]
            at = (int(first) + start, float(columns[tag][first]), float(value[first]))
            before = self._found.get(tag, Contradiction(tag, channel.unit, 0, *at, 0.0))
            self._found[tag] = before._replace(
                rows=before.rows + len(wrong),
                largest=max(before.largest, float(difference[wrong].max())),
            )

    def activity(self, rows: int) -> Activity:
        """The result, for a log with so many rows that are not masked."""
        one = self._one
        found = tuple(self._found.values())
        return Activity(one.name, one.sentence, rows, self._active, len(self._episodes), found)


def _columns(spec: Spec, obs: Any, action: Any) -> dict[str, np.ndarray]:
    channels = (*spec.obs, *spec.action)
    values = np.concatenate([np.asarray(obs, np.float64), np.asarray(action, np.float64)], axis=1)
    return {channel.name: values[:, i] for i, channel in enumerate(channels)}
