"""Stored form of the specification; equal specifications give equal text."""

import json
from collections.abc import Mapping
from typing import Any

from neorl_core import Spec, spec_from_dict, spec_to_dict
from neorl_envs.datasets._checks import DatasetError

REALS = ("low", "high", "limit", "dt")


def plain_spec(spec: Spec) -> dict[str, Any]:
    """The specification as JSON values: real numbers as floats, and zero without a sign."""
    return _plain(spec_to_dict(spec))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: float(item) + 0.0 if name in REALS else _plain(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def check_spec(spec: Spec, source: str) -> None:
    """Raises a ``DatasetError`` unless names and units are text."""
    for kind in ("obs", "action", "cost"):
        for channel in getattr(spec, kind):
            for field in ("name", "unit"):
                value = getattr(channel, field)
                if not isinstance(value, str):
                    raise DatasetError(
                        f"{source}: the {field} of a channel of '{kind}': expected text, got "
                        f"{value!r}"
                    )


def read_spec(text: str, source: str) -> Spec:
    """Parses the specification of a file.

    Raises a ``DatasetError`` if the text is not JSON with the published layout.
    """
    plain = json_object(text, "spec", source)
    try:
        _require_numbers(plain)
        spec = spec_from_dict(plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(
            f"{source}: attribute 'spec' must be JSON of the published layout: {error}"
        ) from error
    check_spec(spec, source)
    return spec


def _require_numbers(value: Any) -> None:
    """Refuses text and booleans in place of numbers, which Python would convert silently."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _require_numbers(item)
    for name in REALS if isinstance(value, dict) else ():
        if name in value and type(value[name]) not in (int, float):
            raise ValueError(f"{name} must be a number, got {value[name]!r}")


def json_object(text: str, name: str, source: str) -> dict[str, Any]:
    """Parses an attribute that must hold one JSON object.

    Raises a ``DatasetError`` if it does not hold one.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{source}: attribute '{name}' must be JSON of the published layout: {error}"
        ) from error
    if not isinstance(value, dict):
        raise DatasetError(
            f"{source}: attribute '{name}' must be a JSON object, got {type(value).__name__}"
        )
    return value
