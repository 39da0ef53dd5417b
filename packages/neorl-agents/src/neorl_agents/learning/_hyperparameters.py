"""Checks of hyperparameters by name; values that are being traced are not checked.

A name may be a path into nested settings, such as ``"networks.hidden"``.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def require(owner: Any, field: str, valid: bool, expected: str) -> None:
    """Raises a ``ValueError`` that names ``field`` of ``owner`` unless ``valid``."""
    if not valid:
        name = f"{type(owner).__name__}.{field}"
        raise ValueError(f"{name} must be {expected}, got {attrgetter(field)(owner)!r}")


def require_number(
    owner: Any, *fields: str, low: float, high: float = math.inf, open_low: bool = False,
    open_high: bool = False,
) -> None:  # fmt: skip
    """Refuses values of ``fields`` that are not finite numbers between ``low`` and ``high``.

    Args:
        owner: The object that has the fields.
        *fields: Their names; a path such as ``"steps.n_step"`` names a field of nested settings.
        low: Smallest value.
        high: Largest value.
        open_low: Whether ``low`` itself is refused.
        open_high: Whether ``high`` itself is refused.

    Raises:
        ValueError: If a field is out of range; the message names the first one.
    """
    expected = _interval(low, high, open_low, open_high)
    joined = f"of {expected}" if expected.startswith("at least") else expected
    for field in fields:
        value = attrgetter(field)(owner)
        if isinstance(value, Tracer):
            continue
        require(owner, field, _is_numeric(value), f"a number {joined}")
        x = np.asarray(value)
        above = (x > low) if open_low else (x >= low)
        below = (x < high) if open_high else (x <= high)
        finite = bool(np.all(np.isfinite(x)))
        require(owner, field, finite, f"a finite number {joined}")
        require(owner, field, bool(np.all(above & below)), expected)


def require_numbers_of_fields(owner: Any) -> None:
    """Refuses text or NaN in a field whose default is a float; ``check`` tests its range."""
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        if type(field.default) is not float or isinstance(value, Tracer):
            continue
        valid = _is_numeric(value) and not np.isnan(np.asarray(value, float)).any()
        require(owner, field.name, bool(valid), "a number")


def require_count(owner: Any, *fields: str, least: int = 1) -> None:
    """Refuses ``fields`` that are not integers of at least ``least``."""
    for field in fields:
        value = attrgetter(field)(owner)
        if isinstance(value, Tracer):
            continue
        integer = _is_numeric(value) and np.issubdtype(np.asarray(value).dtype, np.integer)
        valid = bool(integer and np.all(np.asarray(value) >= least))
        require(owner, field, valid, f"an integer of at least {least}")


def as_widths(value: Any) -> Any:
    """Layer widths as a tuple; a single number is kept, so that :func:`require_widths` names it."""
    return tuple(value) if isinstance(value, Iterable) else value


def as_strings(value: Any) -> Any:
    """Strings as a tuple; a single one is kept, so that :func:`require_strings` names it."""
    return value if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)


def require_strings(owner: Any, field: str) -> None:
    """Refuses a field that is not a tuple of strings."""
    value = attrgetter(field)(owner)
    valid = isinstance(value, tuple) and all(isinstance(word, str) for word in value)
    require(owner, field, valid, "a list of strings")


def require_widths(owner: Any, field: str) -> None:
    """Refuses a field that is not a tuple of positive integers."""
    value = attrgetter(field)(owner)
    valid = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    valid = valid and all(isinstance(width, int) and width > 0 for width in value)
    require(owner, field, valid, "one or more positive integers, such as (64, 64)")


def require_choice(owner: Any, field: str, choices: Collection[str]) -> None:
    """Refuses a field that is not one of ``choices``."""
    # The membership test only looks up one name; listing a registry would read the files of every
    # distribution.
    if attrgetter(field)(owner) not in choices:
        require(owner, field, False, f"one of {', '.join(choices)}")


def require_flag(owner: Any, *fields: str) -> None:
    """Refuses ``fields`` that are neither true nor false."""
    for field in fields:
        require(owner, field, isinstance(getattr(owner, field), bool), "true or false")


def _is_numeric(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float | np.number | np.ndarray | jax.Array)


def _interval(low: float, high: float, open_low: bool, open_high: bool) -> str:
    if math.isinf(high):
        return f"{'above' if open_low else 'at least'} {low:g}"
    return f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
