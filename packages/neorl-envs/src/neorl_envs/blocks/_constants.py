"""Physical constants with unit, source and uncertainty, declared once for all uses.

A plant lists them as the defaults of a ``NamedTuple``::

    class Constants(NamedTuple):
        volume: Scalar = constant(50.0, "m3", "own choice")
        rate: Scalar = constant(7.0, "1/h", "Lucia et al. 2014", spread=1.0)

``Constants()`` then holds the declarations, and :func:`constant_values` returns the same tuple with
arrays.
"""

import dataclasses
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import PRNGKeyArray

from neorl_core.infrastructure import unknown_name

Tree = TypeVar("Tree")
Domain = Literal["positive", "not negative", "fraction", "real"]
PRESETS = ("plant", "clean")


@dataclasses.dataclass(frozen=True)
class Constant:
    """A physical constant, or an array of constants of the same kind.

    Attributes:
        value: Nominal value in ``unit``; a (nested) tuple for an array.
        unit: Physical unit, ``"1"`` for none.
        source: Publication, or ``"own choice"``.
        spread: Width of its domain randomisation, as a multiple of the requested spread; 0 for a
            constant that is not randomised.
        clean: Value in the preset ``"clean"``, such as 0 for the size of a disturbance; ``None``
            for the same value.
        domain: Physically possible values.
    """

    value: Any
    unit: str
    source: str
    spread: float = 0.0
    clean: Any = None
    domain: Domain = "positive"


def constant(
    value: Any,
    unit: str,
    source: str,
    *,
    spread: float = 0.0,
    clean: Any = None,
    domain: Domain = "positive",
) -> Any:
    """Declares a :class:`Constant`, typed so that it may be the default of an array field.

    Example:
        >>> constant(7.0, "1/h", "Lucia et al. 2014", spread=1.0).unit
        '1/h'
    """
    return Constant(value, unit, source, spread, clean, domain)


def constant_values(declared: Tree, preset: str = "plant", *, dtype: DTypeLike) -> Tree:
    """The declared constants as arrays, in the same structure.

    Args:
        declared: A tree with :class:`Constant` leaves.
        preset: ``"plant"``, or ``"clean"`` for the values without disturbances.
        dtype: Dtype of every array.

    Raises:
        ValueError: If the preset is unknown.
    """
    require_preset(preset)

    def value(leaf: Constant) -> Any:
        clean = preset == "clean" and leaf.clean is not None
        return jnp.asarray(leaf.clean if clean else leaf.value, dtype)

    return jax.tree.map(value, declared)


def sampled_constants(declared: Any, values: Tree, key: PRNGKeyArray, *, spread: float) -> Tree:
    """Samples randomised constants, uniformly and independently.

    Every entry of a constant with a spread ``s`` is multiplied by a number from ``[1 - s spread,
    1 + s spread]``.

    Args:
        declared: The declarations.
        values: Centre of the distribution, in the same structure.
        key: Random key.
        spread: Requested relative half-width.

    Raises:
        ValueError: If ``spread`` is outside [0, 1), or so large that a factor could reach zero.
    """
    leaves, structure = jax.tree.flatten(declared)
    widest = max((leaf.spread for leaf in leaves), default=0.0)
    if not (0 <= spread < 1 and spread * widest < 1):
        raise ValueError(f"spread must be in [0, {1 / max(widest, 1.0):g}), got {spread}")
    drawn = []
    for i, (leaf, value) in enumerate(zip(leaves, structure.flatten_up_to(values), strict=True)):
        if leaf.spread:
            width = spread * leaf.spread
            factor = jax.random.uniform(
                jax.random.fold_in(key, i), value.shape, value.dtype, 1 - width, 1 + width
            )
            value = value * factor
        drawn.append(value)
    return structure.unflatten(drawn)


def check_constants(declared: Any, values: Any) -> None:
    """Raises for physically impossible constants; traced values are unknown and not checked.

    Raises:
        ValueError: Naming the constant, its unit, and the allowed and given values.
    """
    for name, leaf, value in named_constants(declared, values):
        if isinstance(value, Tracer):
            continue
        given = np.asarray(value)
        if given.shape[-np.ndim(leaf.value) or None :] != np.shape(leaf.value) and np.ndim(
            leaf.value
        ):
            raise ValueError(
                f"constant {name!r} ({leaf.unit}) has shape {np.shape(leaf.value)}, "
                f"got {given.shape}"
            )
        bad = ~np.isfinite(given)
        if leaf.domain == "positive":
            bad = bad | (given <= 0)
        elif leaf.domain == "not negative":
            bad = bad | (given < 0)
        elif leaf.domain == "fraction":
            bad = bad | (given < 0) | (given > 1)
        if bad.any():
            worst = float(given[bad].ravel()[0])
            allowed = {"real": "finite", "fraction": "from 0 to 1"}.get(
                leaf.domain, f"finite and {leaf.domain}"
            )
            raise ValueError(f"constant {name!r} must be {allowed}, got {worst:g} {leaf.unit}")


def named_constants(declared: Any, values: Any = None) -> Iterator[tuple[str, Constant, Any]]:
    """Yields every constant with its name and its value.

    Args:
        declared: Constants of a plant, as a PyTree of :class:`Constant`.
        values: Their values in the same form; the declared ones by default.

    Yields:
        Name with dots between the levels, constant, and value in the constant's unit.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(declared)
    for path, leaf in paths:
        if not isinstance(leaf, Constant):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise TypeError(f"{name!r} must be constant(value, unit, source), got {leaf!r}")
    given = [c.value for _, c in paths] if values is None else structure.flatten_up_to(values)
    for (path, leaf), value in zip(paths, given, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        yield name, leaf, value


def require_preset(preset: str) -> None:
    """Raises for an unknown preset."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be 'plant' or 'clean', got {preset!r}")


# Inequalities between constants that ranges cannot express, such as slowest below fastest.


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
