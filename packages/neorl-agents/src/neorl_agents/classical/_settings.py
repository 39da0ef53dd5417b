"""Checks of the settings of a classical controller, by name."""

import math
from collections.abc import Collection
from typing import Any

from neorl_core import InputError


def require_positive(owner: Any, *fields: str, or_zero: bool = False) -> None:
    """Refuses settings that are not positive finite numbers."""
    for field in fields:
        value = getattr(owner, field)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and (value > 0 or (or_zero and value == 0))):
            kind = "finite and not negative" if or_zero else "finite and positive"
            raise InputError(f"{type(owner).__name__}.{field} must be {kind}, got {value!r}")


def require_whole(owner: Any, least: int, *fields: str) -> None:
    """Refuses settings that are not integers of at least ``least``."""
    for field in fields:
        value = getattr(owner, field)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"{type(owner).__name__}.{field} must be an integer of at least {least}, "
                f"got {value!r}"
            )


def require_choice(owner: Any, field: str, choices: Collection[str]) -> None:
    """Refuses a setting that is not one of ``choices``."""
    value = getattr(owner, field)
    if value not in choices:
        raise InputError(
            f"{type(owner).__name__}.{field} must be one of {', '.join(choices)}, got {value!r}"
        )
