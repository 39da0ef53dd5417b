"""Conversion between plain data, as read from TOML and JSON, and frozen dataclasses."""

import collections.abc
import dataclasses
import functools
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure._registry import unknown_name

_WORDS = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
_ADVICE = {
    "an integer": "write it without a fraction and without quotes",
    "a number": "write it without a unit and without quotes",
    "text": "put it in quotes",
    "true or false": "write one of the two without quotes",
    "a list": "put it in brackets",
    "a table": "give its keys a section of their own",
}
_SHOWN = 60  # characters of a wrong value shown in a message


def _itself(value: Any) -> Any:
    return value


def _accept(where: str, key: str) -> None:
    del where, key


def _no_special(hint: Any, value: Any, where: str) -> Any:
    del hint, value, where
    return NotImplemented


@dataclasses.dataclass(frozen=True)
class Binder:
    """Builds dataclasses from plain data, strictly: every key is a field, every value has its type.

    Supports nested dataclasses, ``tuple[X, ...]``, ``dict`` and ``Mapping``, ``Literal``, ``X |
    None`` and scalars. An integer is accepted for a float, a path for a string, and a list for a
    tuple; nothing else is converted.

    Attributes:
        keys: Keys in the data that differ from their field's name.
        complete: Whether fields with a default are required too.
        number: Function that converts a value where a float is expected.
        special: Function of annotation, value and place for types that are not listed above;
            returns ``NotImplemented`` if the annotation is none of them.
        unknown: Called with the place and the unknown key before that is reported; may raise a more
            helpful error.

    Example:
        >>> import dataclasses
        >>> from neorl_core import InputError
        >>> @dataclasses.dataclass(frozen=True)
        ... class Sampling:
        ...     period: float
        ...     unit: str = "s"
        >>> Binder().bound(Sampling, {"period": 60})
        Sampling(period=60.0, unit='s')
        >>> try:
        ...     Binder().bound(Sampling, {"period": "1 min"})
        ... except InputError as error:
        ...     print(str(error).partition(";")[0])
        period must be a number, got '1 min'
    """

    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    complete: bool = False
    number: Callable[[Any], Any] = _itself
    special: Callable[[Any, Any, str], Any] = _no_special
    unknown: Callable[[str, str], None] = _accept

    def bound(self, kind: Any, data: Any, where: str = "") -> Any:
        """Builds the dataclass that plain data describe.

        Args:
            kind: Its class, another annotation, or an instance whose values are the defaults.
            data: Nested mappings and lists.
            where: Place of the data in a larger document, such as ``"log.columns"``; for messages.

        Returns:
            A new instance.

        Raises:
            InputError: If keys are missing (all of them are named), unknown (the nearest known key
                is suggested) or of the wrong type (key, expected and actual type are named).
        """
        default = kind if _is_instance(kind) else None
        hint = type(kind) if default is not None else kind
        missing = self._missing(hint, default, data, where)
        if missing:
            verb, each = ("is", "it") if len(missing) == 1 else ("are", "each")
            raise InputError(f"{', '.join(missing)} {verb} missing; give {each} a value")
        return self._value(hint, default, data, where)

    def plain(self, value: Any, *, changed_only: bool = False) -> Any:
        """The inverse: converts dataclasses, tuples and arrays to what JSON and TOML can hold.

        NaN becomes ``None`` and the infinities ``"inf"`` and ``"-inf"``: JSON has no such numbers.

        Args:
            value: A dataclass, or a value that one may hold.
            changed_only: Whether to omit fields that have their default value.
        """
        if _is_instance(value):
            entries = [
                (self.keys.get(f.name, f.name), getattr(value, f.name))
                for f in dataclasses.fields(value)
                if not (changed_only and _is_default(f, getattr(value, f.name)))
            ]
            return {key: self.plain(entry, changed_only=changed_only) for key, entry in entries}
        # Importing NumPy takes half the time of a short command, and before its import no array
        # exists.
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            return self.plain(value.tolist())
        if isinstance(value, Mapping):
            return {str(k): self.plain(v, changed_only=changed_only) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(entry, changed_only=changed_only) for entry in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        return value

    def _missing(self, hint: Any, default: Any, data: Any, where: str) -> list[str]:
        """Every missing required key; keys of a missing table are listed by their own names."""
        hint = _not_none(hint)
        if typing.get_origin(hint) is tuple and isinstance(data, list):
            item = typing.get_args(hint)[0]
            each = (self._missing(item, None, x, _item(where, i, x)) for i, x in enumerate(data))
            return [name for names in each for name in names]
        if not dataclasses.is_dataclass(hint) or not isinstance(data, Mapping):
            return []
        missing: list[str] = []
        for field in dataclasses.fields(hint):
            key, inner = self.keys.get(field.name, field.name), _hints(hint)[field.name]
            key_path = f"{where}.{key}" if where else key
            has_default = default is not None or not _is_required(field)
            required = not has_default or (self.complete and default is None)
            if key in data:
                missing += self._missing(
                    inner, getattr(default, field.name, None), data[key], key_path
                )
            elif required and dataclasses.is_dataclass(inner) and not self.complete:
                missing += self._missing(inner, None, {}, key_path) or [key_path]
            elif required:
                missing.append(key_path)
        return missing

    def _value(self, hint: Any, default: Any, value: Any, where: str) -> Any:
        if _is_instance(default) or dataclasses.is_dataclass(hint):
            return self._table(default if _is_instance(default) else None, hint, value, where)
        hint = _not_none(hint) if value is not None else hint
        if hint is Any:
            return value
        if dataclasses.is_dataclass(hint):
            return self._table(None, hint, value, where)
        special = self.special(hint, value, where)
        if special is not NotImplemented:
            return special
        origin: Any = typing.get_origin(hint)
        arguments = typing.get_args(hint)
        if origin in (types.UnionType, typing.Union) and value is None and type(None) in arguments:
            return None
        if origin is Literal:
            if value in arguments:
                return value
            raise unknown_name(f"value of {where}:", str(value), map(str, arguments))
        if origin is tuple:
            value = _required(value, list | tuple, where, "a list")
            inner = arguments[0]
            return tuple(
                self._value(inner, None, x, _item(where, i, x)) for i, x in enumerate(value)
            )
        if origin is dict or origin is collections.abc.Mapping:
            value = _required(value, Mapping, where, "a table")
            inner = arguments[1]
            return {str(k): self._value(inner, None, v, f"{where}.{k}") for k, v in value.items()}
        return self._scalar(hint, value, where)

    def _table(self, default: Any, hint: Any, value: Any, where: str) -> Any:
        value = _required(value, Mapping, where, "a table")
        kind = hint if default is None else type(default)
        fields = {self.keys.get(f.name, f.name): f.name for f in dataclasses.fields(kind)}
        values = {}
        for key, entry in value.items():
            if key not in fields:
                self.unknown(where, key)
                raise unknown_name(f"key in [{where}]" if where else "key", key, fields)
            name = fields[key]
            key_path = f"{where}.{key}" if where else key
            values[name] = self._value(
                _hints(kind)[name], getattr(default, name, None), entry, key_path
            )
        return kind(**values) if default is None else dataclasses.replace(default, **values)

    def _scalar(self, hint: Any, value: Any, where: str) -> Any:
        if hint is str and isinstance(value, os.PathLike):
            return os.fspath(value)
        value = self.number(value) if hint is float else value
        expected = _WORDS.get(hint, getattr(hint, "__name__", str(hint)))
        value = _required(value, (int, float) if hint is float else hint, where, expected)
        return float(value) if hint is float else value


def _required(value: Any, kind: Any, where: str, expected: str) -> Any:
    # True is an int to Python, but not to the author of a file.
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    text = repr(value)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    advice = _ADVICE.get(expected, "give another value")
    raise InputError(f"{where or 'the content'} must be {expected}, got {text}; {advice}")


def _item(where: str, number: int, item: Any) -> str:
    """Place of a list item, by its name if it has one."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return f"{where} {name!r}" if isinstance(name, str) else f"{where}[{number}]"


def _not_none(hint: Any) -> Any:
    """The annotation without the alternative ``None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _is_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    if isinstance(value, float) and math.isnan(value):
        return True
    if field.default_factory is not dataclasses.MISSING:
        return value == field.default_factory()
    return field.default is not dataclasses.MISSING and value == field.default


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
