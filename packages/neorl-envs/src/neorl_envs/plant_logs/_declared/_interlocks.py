"""Interlocks that ``plant.toml`` declares: checked, and as a function of observation and action."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError, Spec
from neorl_core.infrastructure import unknown_name
from neorl_envs.plant_logs._configuration import BEFORE, OBSERVED, PlantLog
from neorl_envs.plant_logs._declared._formula import (
    Formula,
    UntranslatableError,
    evaluate,
    formula_of,
)
from neorl_envs.plant_logs._expressions import Expression

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
