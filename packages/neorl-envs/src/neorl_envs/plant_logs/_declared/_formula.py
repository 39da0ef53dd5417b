"""Expressions over tags as functions of arrays that can be compiled and differentiated.

polars parses the text into a tree. Known nodes of the tree are translated one by one; any other
node is refused. The format of the tree may change between versions of polars, so every use of a
formula must first compare it with values computed by polars.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

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
