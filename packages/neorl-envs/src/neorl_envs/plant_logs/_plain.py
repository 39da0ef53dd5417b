"""A configuration as plain values, for TOML and for the provenance of a dataset."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from neorl_envs.plant_logs._configuration import PlantLog
from neorl_envs.plant_logs._configuration_file import KEYS


def plain(config: PlantLog) -> dict[str, Any]:
    """What differs from the defaults, under the keys of ``plant.toml``; infinity as text."""
    return _plain(config)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            KEYS.get(field.name, field.name): _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    if isinstance(value, float) and math.isnan(value):
        return True
    if field.default_factory is not dataclasses.MISSING:
        return value == field.default_factory()
    return field.default is not dataclasses.MISSING and value == field.default
