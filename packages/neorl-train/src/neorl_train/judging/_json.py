"""Results as JSON: a head, units with the numbers, and a reader that names each fault."""

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
    """Converts dataclasses, tuples and arrays to JSON data.

    NaN becomes ``null``, and infinities become ``"inf"`` and ``"-inf"``, because JSON has no such
    numbers.
    """
    return _BINDER.plain(value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Inverse of :func:`to_plain` for a type made of dataclasses, tuples, arrays and scalars.

    Args:
        kind: The type to create.
        plain: Value as parsed from JSON.

    Returns:
        An instance of ``kind``.

    Raises:
        InputError: If a field is missing, unknown or of another type; the message names its path.
    """
    return _BINDER.bound(kind, plain)


def _array(hint: Any, plain: Any, where: str) -> Any:
    """Reads a value that is annotated as an array of a known rank."""
    if not hasattr(hint, "dtypes"):
        return NotImplemented
    dtype_name = str(hint.dtypes[0])
    dtype = np.float64 if "float" in dtype_name else np.bool_ if "bool" in dtype_name else np.int64
    try:
        array = np.array(_numbers(plain), dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where} must be an array of numbers with rows of equal length"
        ) from error
    rank = len(hint.dim_str.split())
    if not isinstance(plain, list) or (array.ndim != rank and array.size > 0):
        raise InputError(f"{where} must be an array with {rank} axes, got {array.ndim} axes")
    return array


def _numbers(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_numbers(entry) for entry in plain]
    if plain is None:
        return math.nan
    return float(plain) if plain in ("inf", "-inf") else plain


_BINDER = Binder(complete=True, number=_numbers, special=_array)


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The object in a file, whose head must be as given, without that head.

    Raises:
        InputError: If the file is missing, damaged or of another kind or version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file, because the run was not evaluated; resume the run"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({one_line(error)}); `neorl-train resume` evaluates the run again"
        ) from None
    return check_head(content, kind, version, str(path))


def decoded(path: Path, decode: Callable[..., T], *content: dict[str, Any]) -> T:
    """Applies ``decode`` to the content of a file; its errors name the file.

    Raises:
        InputError: As raised by ``decode``, preceded by the path.
    """
    try:
        return decode(*content)
    except InputError as error:
        raise InputError(f"{path}: {error}; `neorl-train resume` evaluates the run again") from None
