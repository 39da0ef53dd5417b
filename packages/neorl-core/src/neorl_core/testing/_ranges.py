"""A law of settings: every number declares its range, and what is outside of it is refused."""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

import numpy as np

from neorl_core.infrastructure import Range, range_of, require_settings


def check_ranges(
    options: Any, validate: Callable[[Any], None], *, free: Collection[str] = ()
) -> None:
    """Checks that an object refuses values that its fields may not have, and accepts all others.

    Every field that is a number or has numbers must declare a range with
    ``neorl_core.infrastructure.setting``. Numbers just outside the range, NaN, text and booleans
    must be refused, as well as infinity and fractions where the range excludes them; the ends and
    numbers just inside open ends must be accepted. Flags must refuse 1, and choices other words.

    Args:
        options: A dataclass, possibly with others in its fields.
        validate: Function that refuses a bad object with a ``ValueError`` that names the field. It
            is not asked about good values, which may not fit the other fields.
        free: Fields, with dots, that need no range.

    Raises:
        AssertionError: The message names the field.

    Example:
        >>> import dataclasses
        >>> from neorl_core.infrastructure import require_settings, setting
        >>> @dataclasses.dataclass(frozen=True)
        ... class Search:
        ...     step: float = setting(0.5, above=0)
        >>> check_ranges(Search(), require_settings)
    """
    for path, kind, range_ in _fields(options):
        name = f"{type(options).__name__}.{path}"
        numbers = kind if typing.get_origin(kind) is not tuple else typing.get_args(kind)[0]
        if numbers in (int, float) and range_ is None and path not in free:
            raise AssertionError(f"declare the range of {name} with setting(...)")
        accepted, refused = _values(kind, numbers, range_)
        for value in accepted:
            require_settings(_replaced(options, path, value))
        for value in refused:
            _require_refusal(validate, _replaced(options, path, value), f"{name} = {value!r}", path)


def _require_refusal(validate: Callable[[Any], None], options: Any, case: str, path: str) -> None:
    try:
        validate(options)
    except ValueError as error:
        if not re.search(rf"{re.escape(path)} must be .*, got ", str(error)):
            raise AssertionError(f"{case} is refused with another message: {error}") from error
    else:
        raise AssertionError(f"{case} is accepted")


def _fields(options: Any, prefix: str = "") -> Iterator[tuple[str, Any, Range | None]]:
    hints = typing.get_type_hints(type(options))
    for field in dataclasses.fields(options):
        value, path = getattr(options, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{path}.")
        else:
            yield path, hints[field.name], range_of(type(options), field.name)


def _values(kind: Any, numbers: Any, range_: Range | None) -> tuple[list[Any], list[Any]]:
    """Values that a field must accept, and those that it must refuse."""
    if kind is bool:
        return [True, False], [1, "yes", None]
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind)), ["no such choice", "", None]
    if numbers not in (int, float):
        return [], []
    refused: list[Any] = ["text", True, None] + ([1.5] if numbers is int else [math.nan])
    accepted, outside = ([], []) if range_ is None else _edges(range_, numbers)
    refused += outside
    if kind is numbers:
        return accepted, refused
    return [(value,) for value in accepted], [(value,) for value in refused] + [3, "text"]


def _edges(range_: Range, kind: Any) -> tuple[list[Any], list[Any]]:
    """The numbers at the ends of a range that are in it, and those that are not."""
    accepted, refused = [], [math.inf, -math.inf] if kind is float else []
    inwards = {"low": math.inf, "above": math.inf, "high": -math.inf, "below": -math.inf}
    for end, towards in inwards.items():
        if (limit := getattr(range_, end)) is not None:
            at, closed = kind(limit), end in ("low", "high")
            accepted.append(at if closed else _next(at, towards))
            refused.append(_next(at, -towards) if closed else at)
    if range_.also is not None:
        accepted.append(range_.also)
    return accepted, [value for value in refused if value != range_.also]


def _next(number: Any, towards: float) -> Any:
    """The nearest other number of the same kind."""
    if isinstance(number, int):
        return number + (1 if towards > 0 else -1)
    return float(np.nextafter(number, towards))


def _replaced(options: Any, path: str, value: Any) -> Any:
    head, _, rest = path.partition(".")
    inner = _replaced(getattr(options, head), rest, value) if rest else value
    return dataclasses.replace(options, **{head: inner})
