"""Inequalities between constants that ranges cannot express, such as slowest below fastest."""

import dataclasses
import operator
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from neorl_core.infrastructure import unknown_name
from neorl_envs.blocks._constants import named_constants

Side = str | float | tuple[float, ...]
ENTRY = re.compile(r"(?P<name>[\w.]+)(\[(?P<entry>\d+)\])?")
SIGNS = {"<": operator.lt, "<=": operator.le}
ROUNDING = 1e-6  # relative, of float32 sums; sides that are equal within it satisfy "<="


@dataclasses.dataclass(frozen=True)
class Relation:
    """An inequality that constants of a plant must satisfy.

    A side is a number (or a tuple of numbers, one for each entry), the name of a constant, an entry
    of one (``"field[0]"``), or a sum of such names (``"water + monomer"``). ``"initial"`` is the
    state at the start of an episode, and ``"initial.level"`` a part of it. Arrays must satisfy the
    relation entry by entry.

    Attributes:
        left: The smaller side.
        sign: ``"<"`` or ``"<="``.
        right: The larger side.
        because: Reason, with which the error message ends.

    Example:
        >>> str(Relation("slowest", "<", "fastest"))
        'slowest < fastest'
    """

    left: Side
    sign: Literal["<", "<="]
    right: Side
    because: str = ""

    def __str__(self) -> str:
        """The relation as text."""
        return f"{_side_text(self.left)} {self.sign} {_side_text(self.right)}"


Relations = tuple[Relation, ...]


class Number(NamedTuple):
    """Unit, declared shape and value of a constant or of a part of the initial state."""

    unit: str
    shape: tuple[int, ...]
    value: Any


def check_relations(
    relations: Relations, declared: Any, values: Any = None, *, initial: Any = (), start: Any = None
) -> None:
    """Raises for constants that violate a relation; traced values are not checked.

    Args:
        relations: The declared relations.
        declared: The declared constants.
        values: Constants in the same structure, with leading axes if there are several plants; the
            declared ones by default.
        initial: The declared state at the start of an episode.
        start: The initial state that belongs to ``values``.

    Raises:
        InputError: If a relation contains an unknown name; the message suggests the nearest one.
        ValueError: Naming the relation, the units and the given values; or if a relation compares
            different units.

    Example:
        >>> from neorl_envs.blocks import constant
        >>> speeds = {"slowest": constant(3.0, "m/s", "own choice"),
        ...     "fastest": constant(2.8, "m/s", "own choice")}
        >>> check_relations((Relation("slowest", "<", "fastest"),), speeds)
        Traceback (most recent call last):
            ...
        ValueError: constants must satisfy slowest < fastest, got 3 m/s and 2.8 m/s
    """
    known = _numbers(declared, values, initial, start)
    for relation in relations:
        left, right = (_side(side, known) for side in (relation.left, relation.right))
        unit = left.unit or right.unit
        if left.unit and right.unit and left.unit != right.unit:
            raise ValueError(f"relation {relation} compares {left.unit} with {right.unit}")
        if left.value is None or right.value is None:
            continue
        dimensions = max(len(left.shape), len(right.shape))
        low, high = np.broadcast_arrays(*(_pad(side, dimensions) for side in (left, right)))
        margin = ROUNDING * np.maximum(abs(low), abs(high)) if relation.sign == "<=" else 0.0
        satisfied = SIGNS[relation.sign](low, high + margin)
        if not satisfied.all():
            worst = [
                f"{float(side[~satisfied].ravel()[0]):g} {unit}".rstrip() for side in (low, high)
            ]
            reason = f": {relation.because}" if relation.because else ""
            raise ValueError(
                f"constants must satisfy {relation}, got {worst[0]} and {worst[1]}{reason}"
            )


def _numbers(declared: Any, values: Any, initial: Any, start: Any) -> dict[str, Number]:
    known = {
        name: Number(leaf.unit, np.shape(leaf.value), value)
        for name, leaf, value in named_constants(declared, values)
    }
    paths, structure = jax.tree_util.tree_flatten_with_path(initial)
    given = [leaf for _, leaf in paths] if start is None else structure.flatten_up_to(start)
    for (path, leaf), value in zip(paths, given, strict=True):
        name = ".".join(("initial", jax.tree_util.keystr(path, simple=True, separator=".")))
        known[name.rstrip(".")] = Number("", np.shape(leaf), value)
    return known


def _side(side: Side, known: Mapping[str, Number]) -> Number:
    if not isinstance(side, str):
        return Number("", np.shape(side), np.asarray(side, np.float64))
    terms = [_term(term, known) for term in side.split(" + ")]
    units = {term.unit for term in terms} - {""}
    if len(units) > 1:
        raise ValueError(f"{side} of a relation adds {' to '.join(sorted(units))}")
    unit = units.pop() if units else ""
    if any(term.value is None for term in terms):
        return Number(unit, terms[0].shape, None)
    dimensions = max(len(term.shape) for term in terms)
    shape = max((term.shape for term in terms), key=len)
    return Number(unit, shape, sum(_pad(term, dimensions) for term in terms))


def _term(text: str, known: Mapping[str, Number]) -> Number:
    """A named number or one entry of it; a traced value is returned as ``None``."""
    match = ENTRY.fullmatch(text)
    name = match["name"] if match else text
    if match is None or name not in known:
        raise unknown_name("constant in a relation", name, known)
    unit, shape, value = known[name]
    value = None if isinstance(value, Tracer) else np.asarray(value, np.float64)
    if match["entry"] is None:
        return Number(unit, shape, value)
    entry = int(match["entry"])
    if len(shape) != 1 or entry >= shape[0]:
        raise ValueError(f"relation names {text}, but {name} has shape {shape}")
    return Number(unit, (), None if value is None else value[..., entry])


def _pad(number: Number, dimensions: int) -> np.ndarray:
    """The value with unit axes inserted after those of the plants, so that entries align."""
    value = np.asarray(number.value)
    return value.reshape(value.shape + (1,) * (dimensions - len(number.shape)))


def _side_text(side: Side) -> str:
    if isinstance(side, str):
        return side
    return f"{side:g}" if not isinstance(side, tuple) else str(side)
