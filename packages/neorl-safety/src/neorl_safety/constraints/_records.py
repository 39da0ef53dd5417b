"""Fields of records: channels by name and unit, numbers, coefficients."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_core.infrastructure import unknown_name
from neorl_safety.constraints._protocol import ChannelRange, number, require, type_name


def index_of(channels: Sequence[ChannelRange], where: str, field: str, name: Any) -> int:
    """The index of a channel by its name; the nearest one is suggested for an unknown name."""
    names = [channel.name for channel in channels]
    require(
        bool(names),
        f"{where}: it names a channel, but no {field} channels are declared; declare them",
    )
    require(isinstance(name, str), f"{where}: {field} must be a name, got {type_name(name)}")
    if name not in names:
        require(False, f"{where}: {unknown_name(f'{field} channel', name, names)}")
    return names.index(name)


def require_unit(where: str, field: str, unit: Any, channel: ChannelRange) -> None:
    """Raises an error unless a unit equals that of the channel, since numbers are not converted."""
    require(
        unit == channel.unit,
        f"{where}: {field} is {unit!r}, but {channel.name} is in {channel.unit!r}; convert the "
        "numbers",
    )


def coefficients(
    channels: Sequence[ChannelRange], where: str, field: str, value: Any
) -> np.ndarray:
    """One number for every channel, zero for those that the record does not name.

    A coefficient is a number, in the row's unit per unit of the channel, or the same number with
    that unit, ``{"per": unit, "value": number}``.

    Raises:
        InputError: If a channel is unknown, its unit differs, or a number is bad.
    """
    row = np.zeros(len(channels), np.float32)
    require(
        isinstance(value, Mapping),
        f"{where}: {field} must be an object of coefficients by channel, got {type_name(value)}",
    )
    for name, entry in value.items():
        index = index_of(channels, where, field, name)
        entry_where = f"{where}, {field} of {name}"
        if not isinstance(entry, Mapping):
            row[index] = finite(entry_where, "coefficient", entry)
            continue
        valid = set(entry) == {"value", "per"}
        require(
            valid,
            f'{entry_where}: expected a number or {{"value": number, "per": unit}}, got {entry!r}',
        )
        require_unit(entry_where, "per", entry["per"], channels[index])
        row[index] = finite(entry_where, "value", entry["value"])
    return row


def coefficient_records(channels: Sequence[ChannelRange], row: Any) -> dict[str, dict[str, Any]]:
    """Inverse of :func:`coefficients`."""
    return {
        channel.name: {"value": shortest(entry), "per": channel.unit}
        for channel, entry in zip(channels, np.asarray(row), strict=True)
        if entry != 0
    }


def row_text(channels: Sequence[ChannelRange], row: Any) -> str:
    """For example ``"1 feed + 2.5 jacket"``; empty if all coefficients are zero."""
    terms = [
        f"{signed(float(entry))} {channel.name}"
        for channel, entry in zip(channels, np.asarray(row), strict=True)
        if entry != 0
    ]
    text = " ".join(terms).removeprefix("+ ")
    return f"-{text[2:]}" if text.startswith("- ") else text


def signed(value: float) -> str:
    """A number as a further term of a sum, as in ``"+ 2.5"``."""
    return f"{'-' if value < 0 else '+'} {abs(value):g}"


def finite(where: str, field: str, value: Any) -> float:
    """A number that is finite in float32 and not subnormal; raises an error otherwise."""
    given = number(where, field, value)
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(given)
    require(bool(np.isfinite(nearest)), f"{where}: {field} must be finite in float32, got {given}")
    tiny = np.finfo(np.float32).tiny
    require(
        given == 0 or abs(float(nearest)) >= float(tiny),
        f"{where}: {field} is {given}, below the smallest normal number {tiny:g}; write 0",
    )
    return float(nearest)


def shortest(value: Any) -> float | None:
    """The shortest decimal that rounds to the same float32; ``None`` for infinity."""
    nearest = np.asarray(value)[()]
    return float(str(nearest)) if np.isfinite(nearest) else None


def column(values: Sequence[float]) -> Array:
    """Numbers as float32."""
    with np.errstate(over="ignore"):  # an infinite end is reported by name later
        return jnp.asarray(np.asarray(values, np.float32))


def indices(values: Sequence[int]) -> Array:
    """Indices of channels as an integer array."""
    return jnp.asarray(np.asarray(values, np.int32))
