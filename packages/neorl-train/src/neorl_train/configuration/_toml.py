"""Strict TOML: every key must be a field, every value of the field's type."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_core.infrastructure import Binder, unknown_name

T = TypeVar("T")


def load_toml(path: Path, default: T) -> T:
    """Reads a configuration; keys that the file omits keep their defaults.

    Args:
        path: The file.
        default: A frozen dataclass, possibly nested.

    Returns:
        The same type as ``default``.

    Raises:
        InputError: If the file is missing or not TOML, a key is unknown (the closest name is
            suggested) or a value has another type than its field; the message names file and key.
    """
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such configuration file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a TOML file: its brackets are nested too deeply") from None
    try:
        return update(default, _with_constraints(data))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _with_constraints(data: dict[str, Any]) -> dict[str, Any]:
    """Moves tables ``[[constraint]]``, as in documents and plant.toml, into the limits."""
    if "constraint" not in data:
        return data
    constraints, limits = data["constraint"], data.get("limits", {})
    if not isinstance(constraints, list) or not isinstance(limits, Mapping):
        raise InputError("write each constraint as [[constraint]], with two brackets")
    rest = {key: value for key, value in data.items() if key != "constraint"}
    return {**rest, "limits": {**limits, "further": [*limits.get("further", []), *constraints]}}


def dump_toml(data: Mapping[str, Any]) -> str:
    """Nested plain dictionaries as TOML text; the inverse of reading."""
    import tomli_w

    return tomli_w.dumps(data)


def update(default: T, data: Mapping[str, Any]) -> T:
    """A dataclass in which the values in ``data`` replace its own.

    Raises:
        InputError: For an unknown key or a value of another type.
    """
    return _BINDER.bound(default, data)


def _why_no_section(where: str, key: str) -> None:
    """Explains why a learner has no section: it cannot be imported, or only a script knew it."""
    if where == "algorithms":
        if key in ALGORITHMS:
            ALGORITHMS.find(key)
        raise InputError(
            f"{unknown_name('key in [algorithms]', key, ALGORITHMS)}. A learner of your own needs "
            "an installed distribution with the entry point neorl.algorithms, or in Python "
            "ALGORITHMS.register before this"
        )


_BINDER = Binder(unknown=_why_no_section)
