"""Constraints as records with units: declared in code or TOML, and written to JSON."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from neorl_core import InputError, Spec, highs, lows
from neorl_core.infrastructure import check_head, head, nearest_name
from neorl_safety.constraints._by_channel import ActionConstraints
from neorl_safety.constraints._constraints import (
    CHANNEL_KINDS,
    DECLARED_AS,
    KINDS,
    AnyConstraints,
    Constraints,
    as_constraints,
    by_kind,
    channels_of,
)
from neorl_safety.constraints._feasible import require_feasible
from neorl_safety.constraints._identified import IdentifiedModel, with_models
from neorl_safety.constraints._protocol import (
    ChannelRange,
    Channels,
    Record,
    number,
    require,
    require_fields,
    shortest,
    type_name,
)

# Constraints as a JSON document: a list of records, each read and written by its kind.


VERSION = 1


def constraints_to_dict(constraints: AnyConstraints) -> dict[str, Any]:
    """The constraints as plain dictionaries, lists, strings and numbers, ready for JSON.

    ``channels`` lists the action channels in order, each with its actuator range. ``observations``
    lists the observed channels with their measuring ranges; it is empty if no kind reads one.
    ``constraints`` is a list of records of every kind: first ``{"kind": "box", "channel", "unit",
    "low", "high"}`` for every channel, then ``{"kind": "rate", "channel", "unit", "up", "down"}``
    (per second, ``None`` for no limit) for those with a rate limit, then the records of other
    kinds. Numbers are the shortest that give the same float32.
    """
    full = as_constraints(constraints)
    c = full.action
    channels = [
        {"name": name, "unit": unit, "low": shortest(low), "high": shortest(high)}
        for name, unit, low, high in zip(
            c.names, c.units, c.actuator_low, c.actuator_high, strict=True
        )
    ]
    ranges = channels_of(full)
    records = [
        {"kind": name, **record}
        for name, constraint in by_kind(full).items()
        for record in KINDS.find(name).to_records(ranges, constraint)
    ]
    return {
        **head("constraints", VERSION),
        "channels": channels,
        "observations": [channel._asdict() for channel in full.obs],
        "constraints": records,
    }


def constraints_from_dict(data: Mapping[str, Any], source: str = "constraints") -> Constraints:
    """Inverse of :func:`constraints_to_dict`.

    Args:
        data: Result of :func:`constraints_to_dict`, possibly after a round trip through JSON.
        source: Origin of the data, for messages.

    Returns:
        The constraints.

    Raises:
        InputError: If the document has another format or version, a field is missing or unknown, a
            kind is unknown, a channel has no box or two, a unit differs from the channel's, a limit
            is bad, or no action satisfies two of the constraints together. The message names the
            records or the channel.
    """
    fields = check_head(data, "constraints", VERSION, source)
    require_fields("constraints", fields, {"channels", "observations", "constraints"})
    for name, value in fields.items():
        require(isinstance(value, list), f"{name} must be a list, got {type_name(value)}")
    require(bool(fields["channels"]), "constraints need at least one channel")
    channels = Channels(
        _channels("channel", fields["channels"]), _channels("observation", fields["observations"])
    )
    return build_constraints(channels, read_records(fields["constraints"]))


def build_constraints(channels: Channels, records: Mapping[str, list[Record]]) -> Constraints:
    """Builds constraints from records by kind, with the errors of :func:`constraints_from_dict`."""
    constraint_by_kind = {
        name: KINDS.find(name).from_records(channels, records.get(name, []))
        for name in dict.fromkeys((*CHANNEL_KINDS, *records))
    }
    box, rate = constraint_by_kind.pop("box"), constraint_by_kind.pop("rate")
    action = ActionConstraints(
        low=box.low,
        high=box.high,
        rate_up=rate.up,
        rate_down=rate.down,
        actuator_low=[channel.low for channel in channels.action],
        actuator_high=[channel.high for channel in channels.action],
        names=tuple(channel.name for channel in channels.action),
        units=tuple(channel.unit for channel in channels.action),
    )
    constraints = Constraints(action, constraint_by_kind, channels.obs)
    require_feasible(constraints)
    return constraints


def _channels(kind: str, listed: list[Any]) -> tuple[ChannelRange, ...]:
    channels = []
    for i, entry in enumerate(listed):
        require_fields(f"{kind} {i + 1}", entry, {"name", "unit", "low", "high"})
        for field in ("name", "unit"):
            require(
                isinstance(entry[field], str),
                f"{kind} {i + 1}: {field} must be a string, got {type_name(entry[field])}",
            )
        where = f"{kind} {entry['name']!r}"
        low, high = (number(where, field, entry[field]) for field in ("low", "high"))
        channels.append(ChannelRange(entry["name"], entry["unit"], low, high))
    names = [channel.name for channel in channels]
    require(len(set(names)) == len(names), f"two {kind}s share a name")
    return tuple(channels)


def read_records(listed: Sequence[Any]) -> dict[str, list[Record]]:
    """The records by kind, each with its place in the document."""
    records: dict[str, list[Record]] = {}
    for i, record in enumerate(listed):
        where = f"constraint {i + 1}"
        require(isinstance(record, Mapping), f"{where} must be an object, got {type_name(record)}")
        given = record.get("kind")
        kind = DECLARED_AS.get(given, given) if isinstance(given, str) else given
        known = [*DECLARED_AS, "keep_below", *KINDS]
        suggestion = nearest_name(given, known) if isinstance(given, str) else None
        hint = f"did you mean {suggestion!r}? " if suggestion else ""
        require(
            isinstance(kind, str) and kind in KINDS,
            f"{where}: unknown kind {given!r}; {hint}known: {', '.join(known)}; a kind of your own "
            "is known once the package that brings it is installed",
        )
        fields = {name: value for name, value in record.items() if name != "kind"}
        records.setdefault(str(kind), []).append(Record(f"{where} ({given})", fields))
    return records


# Constraints declared as records with units, in code or in TOML.


def spec_channels(spec: Spec) -> Channels:
    """The channels of a specification, in the form that kinds of constraints use."""
    return Channels(
        tuple(ChannelRange(c.name, c.unit, c.low, c.high) for c in spec.action),
        tuple(ChannelRange(c.name, c.unit, c.low, c.high) for c in spec.obs),
    )


def declared_constraints(
    spec: Spec, records: Sequence[Mapping[str, Any]], *, model: IdentifiedModel | None = None
) -> Constraints:
    """Builds constraints from records that name channels: ``range``, ``rate``, ``while`` etc.

    A channel without a ``range`` may use the whole range of its actuator. One without a ``rate``
    may change at any rate.

    Args:
        spec: Specification whose channels the records name.
        records: One mapping per constraint: its ``kind`` and the fields of that kind.
        model: Model of a log, for records of the kind ``keep_below`` (:func:`identified_model`).

    Returns:
        The constraints, in float32.

    Raises:
        InputError: If a kind or channel is unknown, a unit differs from the channel's, a number is
            bad, or no action satisfies two of the constraints together; the message names both.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import declared_constraints, describe_constraints
        >>> pumps = tuple(Channel(name, "kg/h", 0.0, 100.0) for name in ("a", "b"))
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), pumps, (), dt=60.0, horizon=100)
        >>> total = {"kind": "sum", "sum": {"a": 1.0, "b": 1.0}, "at_most": 150.0}
        >>> describe_constraints(declared_constraints(spec, [total]))[-1]
        '1 a + 1 b at most 150'
    """
    channels = spec_channels(spec)
    by_kind = read_records(with_models(channels, records, model))
    declared_channels = {record.fields.get("channel") for record in by_kind.get("box", [])}
    ranged_channels = zip(channels.action, lows(spec.action), highs(spec.action), strict=True)
    ranges = [
        {"kind": "box", "channel": c.name, "unit": c.unit, "low": low, "high": high}
        for c, low, high in ranged_channels
        if c.name not in declared_channels
    ]
    by_kind["box"] = by_kind.get("box", []) + read_records(ranges).get("box", [])
    return build_constraints(channels, by_kind)


def constraints_from_toml(
    document: str, spec: Spec, *, model: IdentifiedModel | None = None
) -> Constraints:
    r"""Builds constraints from a TOML document with one table ``[[constraint]]`` for each.

    Args:
        document: Text of the document.
        spec: Specification whose channels the tables name.
        model: Model of a log, for tables of the kind ``keep_below``.

    Returns:
        The constraints, in float32.

    Raises:
        InputError: If it is not TOML, has anything but ``constraint`` at the top level, or is
            invalid for :func:`declared_constraints`.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import constraints_from_toml, describe_constraints
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> document = '[[constraint]]\nkind = "rest"\nchannel = "valve"\nseconds = 300.0'
        >>> describe_constraints(constraints_from_toml(document, spec))[-1]
        'valve rests for 300 s after every move'
    """
    try:
        tables = tomllib.loads(document)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the constraints are not TOML: {error}") from error
    unknown = sorted(set(tables) - {"constraint"})
    require(
        not unknown,
        f"the constraints have the tables {', '.join(unknown)}; expected [[constraint]]",
    )
    listed = tables.get("constraint", [])
    require(isinstance(listed, list), "write each constraint as [[constraint]], with two brackets")
    return declared_constraints(spec, listed, model=model)
