"""Results as JSON: a head, units beside the numbers, and a reader that names the fault."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import check_head
from neorl_core.infrastructure.command_line import one_line

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and arrays as what JSON can hold.

    NaN becomes ``null`` and the infinities ``"inf"`` and ``"-inf"``: JSON has no such numbers.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if isinstance(value, float):
        return _finite(value)
    return value


def _finite(value: float) -> Any:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def from_plain(kind: Any, plain: Any, where: str = "") -> Any:
    """Inverse of :func:`to_plain` for a type made of dataclasses, tuples, arrays and scalars.

    Args:
        kind: Type, or an annotation such as ``tuple[float, ...]`` or ``Estimate | None``.
        plain: Value as parsed from JSON.
        where: Path to the value, for the error.

    Returns:
        An instance.

    Raises:
        InputError: If a field is missing, unknown or of another type; its path is named.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, plain, where)
    if origin is tuple:
        _expect(isinstance(plain, list), where, "a list", plain)
        inner = arguments[0]
        return tuple(from_plain(inner, entry, f"{where}[{i}]") for i, entry in enumerate(plain))
    if origin in (types.UnionType, typing.Union):
        inner = next(part for part in arguments if part is not type(None))
        return None if plain is None else from_plain(inner, plain, where)
    if origin is typing.Literal:
        _expect(plain in arguments, where, f"one of {arguments}", plain)
        return plain
    if hasattr(kind, "dtypes"):
        return _array(kind, plain, where)
    return _scalar(kind, plain, where)


def _dataclass(kind: Any, plain: Any, where: str) -> Any:
    _expect(isinstance(plain, dict), where, f"the fields of {kind.__name__}", plain)
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    missing, unknown = sorted(set(names) - set(plain)), sorted(set(plain) - set(names))
    if missing or unknown:
        fault = f"lacks {', '.join(missing)}" if missing else f"has unknown {', '.join(unknown)}"
        raise InputError(f"{where or kind.__name__} {fault}")
    prefix = f"{where}." if where else ""
    return kind(**{name: from_plain(hints[name], plain[name], f"{prefix}{name}") for name in names})


def _array(kind: Any, plain: Any, where: str) -> np.ndarray:
    of = str(kind.dtypes[0])
    dtype = np.float64 if "float" in of else np.bool_ if "bool" in of else np.int64
    _expect(isinstance(plain, list), where, "a list of numbers", plain)
    try:
        array = np.array(_numbers(plain), dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: expected an array of numbers of equal rows") from error
    rank = len(kind.dim_str.split())
    _expect(array.ndim == rank or array.size == 0, where, f"{rank} axes", f"{array.ndim} axes")
    return array


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(entry) for entry in plain]
    if plain is None:
        return math.nan
    return float(plain) if plain in ("inf", "-inf") else plain


def _scalar(kind: Any, plain: Any, where: str) -> Any:
    if kind is float:
        number = _numbers(plain)
        _expect(isinstance(number, int | float) and plain is not True, where, "a number", plain)
        return float(number)
    _expect(type(plain) is kind, where, f"{kind.__name__}", plain)
    return plain


def _expect(condition: bool, where: str, expected: str, got: Any) -> None:
    if not condition:
        shown = repr(got)
        shown = shown if len(shown) < 60 else f"{shown[:57]}..."
        raise InputError(f"{where or 'result'}: expected {expected}, got {shown}")


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The object in ``path``, whose head must be as given; the head is left out.

    Raises:
        InputError: If the file is missing, damaged or of another kind or version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; resume the run, it was not evaluated") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: damaged ({one_line(error)}); `neorl-train resume` evaluates the run again"
        ) from None
    return check_head(content, kind, version, str(path))


def decoded(path: Path, decode: Callable[..., T], *content: dict[str, Any]) -> T:
    """What ``decode`` makes of the content of a file; its errors name the file.

    Raises:
        InputError: As ``decode`` does, with the path in front.
    """
    try:
        return decode(*content)
    except InputError as error:
        raise InputError(f"{path}: {error}; `neorl-train resume` evaluates the run again") from None
