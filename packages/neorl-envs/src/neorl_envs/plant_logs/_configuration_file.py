"""``plant.toml`` into typed values; a key that is unknown or of another type is named."""

import dataclasses
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs.plant_logs._configuration import PlantLog, check_plant_log

Table = TypeVar("Table")
KEYS = {"tags": "tag", "costs": "cost", "constraints": "constraint"}
"""An array of tables is written in the singular: ``[[tag]]``."""


def read_plant_log(path: str | os.PathLike[str]) -> PlantLog:
    """The configuration of a file.

    Args:
        path: ``plant.toml``.

    Returns:
        The configuration, checked.

    Raises:
        InputError: If the file is missing, is no TOML, or a key is missing, unknown, of another
            type or out of range; file and key are named.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror}") from error
    return plant_log_from_dict(values, str(path))


def plant_log_from_dict(values: Mapping[str, Any], source: str) -> PlantLog:
    """The configuration out of plain values, as TOML gives them.

    Raises:
        InputError: As :func:`read_plant_log`.
    """
    absent = _absent(PlantLog, values, "")
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        raise InputError(f"{source}: {', '.join(absent)} {verb} missing")
    config = _table(PlantLog, values, source, "")
    check_plant_log(config, source)
    return config


def _table(kind: type[Table], values: Any, source: str, place: str) -> Table:
    if not isinstance(values, Mapping):
        raise InputError(f"{source}: [{place}] must be a table, got {values!r}")
    hints = typing.get_type_hints(kind)
    fields = {KEYS.get(f.name, f.name): f for f in dataclasses.fields(kind)}  # pyright: ignore
    for key in values:
        if key not in fields:
            raise unknown_name(f"key of {source}{f' in [{place}]' if place else ''}", key, fields)
    given: dict[str, Any] = {}
    for key, field in fields.items():
        where = f"{place}.{key}" if place else key
        if key in values:
            given[field.name] = _value(hints[field.name], values[key], source, where)
    return kind(**given)


def _absent(kind: type, values: Any, place: str) -> list[str]:
    """Every required key that is absent, those inside an absent table by their own names."""
    if not isinstance(values, Mapping):
        return []
    absent: list[str] = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, hint = KEYS.get(field.name, field.name), hints[field.name]
        where = f"{place}.{key}" if place else key
        inside = typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else hint
        required = field.default is field.default_factory is dataclasses.MISSING
        if dataclasses.is_dataclass(hint) and (required or key in values):
            absent += _absent(typing.cast(type, hint), values.get(key, {}), where)
        elif dataclasses.is_dataclass(inside) and isinstance(values.get(key), list):
            for number, item in enumerate(values[key], 1):
                name = item.get("name", number) if isinstance(item, Mapping) else number
                absent += _absent(typing.cast(type, inside), item, f"{where} {name!r}")
        elif required and key not in values:
            absent.append(where)
    return absent


def _value(hint: Any, value: Any, source: str, place: str) -> Any:
    if hint is Any:  # what a run checks, which knows the kinds of constraints
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _table(typing.cast("type[Any]", hint), value, source, place)
    if origin is Literal:
        if value in arguments:
            return value
        raise InputError(
            f"{source}: {place} must be one of {', '.join(map(repr, arguments))}, got {value!r}"
        )
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], item, source, place) for item in value)
    if origin in (Mapping, typing.get_origin(Mapping[str, int])) and isinstance(value, Mapping):
        return {str(k): _value(arguments[1], v, source, f"{place}.{k}") for k, v in value.items()}
    if hint is float and type(value) in (int, float):
        return float(value)
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias) and type(value) is hint:
        return value
    expected = "a list" if origin is tuple else getattr(hint, "__name__", str(hint))
    words = {"str": "text", "float": "a number", "int": "a whole number", "bool": "true or false"}
    raise InputError(f"{source}: {place} must be {words.get(expected, expected)}, got {value!r}")
