"""Constraints as a JSON document: a list of records, each with its kind."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from neorl_safety.constraints._action_limits import ActionConstraints

FORMAT = "neorl-constraints"
VERSION = 1
KINDS = {"box": ("low", "high"), "rate": ("up", "down")}


def constraints_to_dict(constraints: ActionConstraints) -> dict[str, Any]:
    """The constraints as plain dictionaries, lists, strings and numbers, ready for JSON.

    ``channels`` lists the action channels in order, each with its actuator range;
    ``constraints`` is a list of records: ``{"kind": "box", "channel", "low", "high"}`` for every
    channel and ``{"kind": "rate", "channel", "up", "down"}`` (per second, ``None`` for no limit)
    for those with a rate limit. Numbers are the shortest that give the same float32.
    """
    c = constraints
    channels, records = [], []
    for i, (name, unit) in enumerate(zip(c.names, c.units, strict=True)):
        channels.append(
            {
                "name": name,
                "unit": unit,
                "low": _shortest(c.actuator_low[i]),
                "high": _shortest(c.actuator_high[i]),
            }
        )
        records.append(
            {
                "kind": "box",
                "channel": name,
                "low": _shortest(c.low[i]),
                "high": _shortest(c.high[i]),
            }
        )
        up, down = _shortest(c.rate_up[i]), _shortest(c.rate_down[i])
        if up is not None or down is not None:
            records.append({"kind": "rate", "channel": name, "up": up, "down": down})
    return {"format": FORMAT, "version": VERSION, "channels": channels, "constraints": records}


def constraints_from_dict(data: Mapping[str, Any]) -> ActionConstraints:
    """Inverse of :func:`constraints_to_dict`.

    Args:
        data: What :func:`constraints_to_dict` returned, possibly after a round trip through JSON.

    Returns:
        The constraints.

    Raises:
        ValueError: If the document is of another format or version, a field is missing or
            unknown, a kind is not known, a channel has no box or two, or a limit is bad. The
            record or channel is named.
    """
    _require(isinstance(data, Mapping), f"constraints are a JSON object, got {_kind_of(data)}")
    found = (data.get("format"), data.get("version"))
    _require(
        found == (FORMAT, VERSION),
        f"expected format {FORMAT!r} version {VERSION}, got {found[0]!r} version {found[1]!r}",
    )
    _require_fields("constraints", data, {"format", "version", "channels", "constraints"})
    channels, records = data["channels"], data["constraints"]
    for name, value in (("channels", channels), ("constraints", records)):
        _require(isinstance(value, list), f"{name} must be a list, got {_kind_of(value)}")
    _require(bool(channels), "constraints need at least one channel")
    names = []
    for i, channel in enumerate(channels):
        _require_fields(f"channel {i}", channel, {"name", "unit", "low", "high"})
        for field in ("name", "unit"):
            _require(
                isinstance(channel[field], str),
                f"channel {i}: {field} must be a string, got {_kind_of(channel[field])}",
            )
        names.append(channel["name"])
    limits = _limits_by_channel(names, records)
    missing = [name for name in names if "box" not in limits[name]]
    _require(not missing, f"no box for the channels {', '.join(missing)}")
    boxes = [limits[name]["box"] for name in names]
    rates = [limits[name].get("rate", (np.inf, np.inf)) for name in names]
    return ActionConstraints(
        low=[low for low, _ in boxes],
        high=[high for _, high in boxes],
        rate_up=[up for up, _ in rates],
        rate_down=[down for _, down in rates],
        actuator_low=[_number(f"channel {c['name']!r}", "low", c["low"]) for c in channels],
        actuator_high=[_number(f"channel {c['name']!r}", "high", c["high"]) for c in channels],
        names=tuple(names),
        units=tuple(channel["unit"] for channel in channels),
    )


def _limits_by_channel(names: list[str], records: list[Any]) -> dict[str, dict[str, Any]]:
    _require(len(set(names)) == len(names), "two channels share a name")
    limits: dict[str, dict[str, Any]] = {name: {} for name in names}
    for i, record in enumerate(records):
        where = f"constraint {i}"
        _require(isinstance(record, Mapping), f"{where} must be an object, got {_kind_of(record)}")
        kind = record.get("kind")
        _require(
            isinstance(kind, str) and kind in KINDS,
            f"{where}: unknown kind {kind!r}; this version knows {', '.join(KINDS)}",
        )
        fields = KINDS[kind]
        _require_fields(f"{where} ({kind})", record, {"kind", "channel", *fields})
        channel = record["channel"]
        _require(
            isinstance(channel, str) and channel in limits,
            f"{where} ({kind}): unknown channel {channel!r}; the channels are {', '.join(names)}",
        )
        where = f"{where} ({kind} of {channel!r})"
        _require(kind not in limits[channel], f"{where}: the channel has one already")
        limits[channel][kind] = tuple(
            np.inf
            if kind == "rate" and record[field] is None
            else _number(where, field, record[field])
            for field in fields
        )
    return limits


def _number(where: str, field: str, value: Any) -> float:
    _require(
        isinstance(value, int | float) and not isinstance(value, bool),
        f"{where}: {field} must be a number, got {_kind_of(value)}",
    )
    return float(value)


def _shortest(value: Any) -> float | None:
    """The shortest decimal that rounds to the same float32; None for infinity."""
    number = np.asarray(value)[()]
    return float(str(number)) if np.isfinite(number) else None


def _require_fields(where: str, data: Any, fields: set[str]) -> None:
    _require(isinstance(data, Mapping), f"{where} must be an object, got {_kind_of(data)}")
    _require(
        set(data) == fields,
        f"{where} has the fields {sorted(fields)}, got {sorted(map(str, data))}",
    )


def _kind_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
