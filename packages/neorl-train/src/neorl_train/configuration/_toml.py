"""Strict TOML: every key must be a field, every value of the field's type."""

import dataclasses
import os
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure import unknown_name

T = TypeVar("T")


def load_toml(path: Path, default: T) -> T:
    """Reads a configuration; what the file does not say keeps its default.

    Args:
        path: The file.
        default: A frozen dataclass, possibly nested.

    Returns:
        The same type as ``default``.

    Raises:
        InputError: If the file is missing or no TOML, a key is unknown (with the nearest name)
            or a value is of another type than its field; file and key are named.
    """
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such configuration file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None
    try:
        return updated(default, _with_constraints(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _with_constraints(data: dict[str, Any]) -> dict[str, Any]:
    """Tables ``[[constraint]]``, as documents and plant.toml have them, where the limits lie."""
    if "constraint" not in data:
        return data
    listed, limits = data["constraint"], data.get("limits", {})
    if not isinstance(listed, list) or not isinstance(limits, Mapping):
        raise InputError("write each constraint as [[constraint]], with two brackets")
    rest = {key: value for key, value in data.items() if key != "constraint"}
    return {**rest, "limits": {**limits, "further": [*limits.get("further", []), *listed]}}


def dump_toml(data: Mapping[str, Any]) -> str:
    """The inverse: nested plain dictionaries as TOML text."""
    import tomli_w

    return tomli_w.dumps(data)


def updated(default: T, data: Mapping[str, Any], *, where: str = "") -> T:
    """A dataclass with the values of ``data`` in place of its own.

    Args:
        default: A frozen dataclass, possibly nested.
        data: Nested mapping by field name.
        where: Dotted name of ``default``, for messages.

    Returns:
        A new instance.

    Raises:
        InputError: For an unknown key or a value of another type.
    """
    hints = typing.get_type_hints(type(default))
    fields = [field.name for field in dataclasses.fields(default)]  # pyright: ignore[reportArgumentType]
    values = {}
    for key, value in data.items():
        if key not in fields:
            if where == "algorithms" and key in ALGORITHMS:
                ALGORITHMS.find(key)  # raises with the reason why it has no section
            kind = f"section or key in [{where}]" if where else "section or key"
            raise unknown_name(kind, key, fields)
        name = f"{where}.{key}" if where else key
        values[key] = _value(hints[key], getattr(default, key), value, name)
    return dataclasses.replace(default, **values)  # pyright: ignore[reportArgumentType,reportCallIssue]


def _value(hint: Any, default: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        if not isinstance(value, Mapping):
            raise InputError(f"{name} is a section, got {value!r}")
        return updated(default, value, where=name)
    return _checked(hint, value, name)


def _checked(hint: Any, value: Any, name: str) -> Any:
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin is not None:
        return _CHECKS[origin](typing.get_args(hint), value, name)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bool) != (hint is bool) or not isinstance(value, hint):
        raise InputError(f"{name} must be {_called(hint)}, got {value!r}")
    return value


def _checked_choice(choices: tuple[Any, ...], value: Any, name: str) -> Any:
    if value not in choices:
        raise unknown_name(f"value of {name}:", str(value), map(str, choices))
    return value


def _checked_list(of: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} must be a list, got {value!r}")
    return tuple(_checked(of[0], item, f"{name}[{i}]") for i, item in enumerate(value))


def _checked_table(of: tuple[Any, ...], value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a section, got {value!r}")
    return {key: _checked(of[1], item, f"{name}.{key}") for key, item in value.items()}


_CHECKS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Literal: _checked_choice,
    tuple: _checked_list,
    dict: _checked_table,
}


def _called(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    return names.get(hint, str(hint))
