"""Results as JSON: a head, units beside the numbers, and a reader that names the fault."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import Binder, check_head
from neorl_core.infrastructure.command_line import one_line

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and arrays as what JSON can hold.

    NaN becomes ``null`` and the infinities ``"inf"`` and ``"-inf"``: JSON has no such numbers.
    """
    return _BINDER.plain(value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of :func:`to_plain` for a type made of dataclasses, tuples, arrays and scalars.

    Args:
        kind: Type.
        plain: Value as parsed from JSON.

    Returns:
        An instance.

    Raises:
        InputError: If a field is missing, unknown or of another type; its path is named.
    """
    return _BINDER.bound(kind, plain)


def _array(hint: Any, plain: Any, where: str) -> Any:
    """What is annotated as an array of a known rank."""
    if not hasattr(hint, "dtypes"):
        return NotImplemented
    of = str(hint.dtypes[0])
    dtype = np.float64 if "float" in of else np.bool_ if "bool" in of else np.int64
    try:
        array = np.array(_numbers(plain), dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where} must be an array of numbers of equal rows") from error
    rank = len(hint.dim_str.split())
    if not isinstance(plain, list) or (array.ndim != rank and array.size > 0):
        raise InputError(f"{where} must be an array of {rank} axes, got {array.ndim} axes")
    return array


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(entry) for entry in plain]
    if plain is None:
        return math.nan
    return float(plain) if plain in ("inf", "-inf") else plain


_BINDER = Binder(complete=True, number=_numbers, special=_array)


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
    """Result of ``decode`` on the content of a file; its errors name the file.

    Raises:
        InputError: As ``decode`` does, with the path in front.
    """
    try:
        return decode(*content)
    except InputError as error:
        raise InputError(f"{path}: {error}; `neorl-train resume` evaluates the run again") from None
