"""Conversion between ``plant.toml`` and typed values, with errors that name the bad key."""

import datetime
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import Binder
from neorl_envs.plant_logs._configuration import PlantLog, check_plant_log
from neorl_envs.plant_logs._interlocks import check_interlocks
from neorl_envs.plant_logs._timeline import excluded_periods

_BINDER = Binder(
    keys={
        "tags": "tag",
        "costs": "cost",
        "constraints": "constraint",
        "terms": "term",
        "excludes": "exclude",
        "interlocks": "interlock",
        "loops": "loop",
        "values": "set",
        "begin": "from",
        "end": "to",
    }
)
"""Arrays of tables are singular in TOML (``[[tag]]``), and ``from`` is a keyword of Python."""


def read_plant_log(path: str | os.PathLike[str]) -> PlantLog:
    """Reads and checks a configuration file.

    Args:
        path: ``plant.toml``.

    Returns:
        The configuration, checked.

    Raises:
        InputError: If the file is missing or is not valid TOML, or if a key is missing, unknown,
            of the wrong type or out of range. The message names the file and the key.
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
    """Builds and checks a configuration from the plain values that a TOML parser returns.

    Args:
        values: The tables of ``plant.toml``, as nested dictionaries.
        source: Name of their file, for messages.

    Returns:
        The configuration, checked.

    Raises:
        InputError: As :func:`read_plant_log`, if a key is missing, unknown, of the wrong type or
            out of range.
    """
    try:
        config = _BINDER.bound(PlantLog, {**values, **_written_out(values)})
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    check_plant_log(config, source)
    excluded_periods(config, source)
    check_interlocks(config, source)
    return config


def _written_out(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the times of excluded periods to text, since TOML allows them without quotes."""
    tables = values.get("exclude")
    if not isinstance(tables, list):
        return {}
    return {
        "exclude": [
            {k: v.isoformat(" ") if isinstance(v, datetime.datetime) else v for k, v in one.items()}
            if isinstance(one, Mapping)
            else one
            for one in tables
        ]
    }


def plain(config: PlantLog) -> dict[str, Any]:
    """The values that differ from the defaults, by ``plant.toml`` key; infinity becomes text."""
    return _BINDER.plain(config, changed_only=True)
