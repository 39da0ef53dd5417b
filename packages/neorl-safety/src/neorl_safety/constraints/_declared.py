"""Constraints declared as records with units, in code or in TOML."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from neorl_core import InputError, Spec, highs, lows
from neorl_safety.constraints._constraints import Constraints
from neorl_safety.constraints._identified import IdentifiedModel, with_models
from neorl_safety.constraints._json import build_constraints, read_records
from neorl_safety.constraints._protocol import ChannelRange, Channels, require


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
