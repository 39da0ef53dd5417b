"""Kinds that give every action channel a pair of numbers: the box and the rate of change."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from neorl_safety.constraints._numbers import rounded_towards_first, usable_ends, usable_step
from neorl_safety.constraints._protocol import (
    ChannelRange,
    Channels,
    Interval,
    Record,
    Situation,
    number,
    require,
    require_fields,
)
from neorl_safety.constraints._records import column, index_of, require_unit, shortest


class Box(NamedTuple):
    """Ends of the admissible range, ``low <= u <= high``.

    Attributes:
        low: Lower ends, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.
    """

    low: Float[Array, " act"]
    high: Float[Array, " act"]


class Rate(NamedTuple):
    """Largest change per second, ``-down dt <= u - v <= up dt``; infinite for no limit.

    Attributes:
        up: Largest rise per second, shape ``(act,)``.
        down: Largest fall per second as a positive number, shape ``(act,)``.
    """

    up: Float[Array, " act"]
    down: Float[Array, " act"]


class BoxKind:
    """``{"kind": "box", "channel", "unit", "low", "high"}``: one record for every channel."""

    def to_records(self, channels: Channels, constraint: Box) -> list[dict[str, Any]]:
        """A record for every channel, numbers as short as gives the same float32."""
        return [
            {"channel": channel.name, "unit": channel.unit}
            | {"low": shortest(low), "high": shortest(high)}
            for channel, low, high in zip(
                channels.action, constraint.low, constraint.high, strict=True
            )
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Box:
        """The box; every channel has one record."""
        pairs = _pairs(channels.action, records, ("low", "high"), none_is_infinite=False)
        missing = [channel.name for channel in channels.action if channel.name not in pairs]
        require(not missing, f"no box for the channels {', '.join(missing)}")
        ends = [pairs[channel.name] for channel in channels.action]
        return Box(_column(ends, 0), _column(ends, 1))

    def describe(self, channels: Channels, constraint: Box) -> list[str]:
        """Such as ``"feed between 0 and 30000 kg/h"``."""
        return [
            f"{channel.name} between {float(low):g} and {float(high):g} {channel.unit}"
            for channel, low, high in zip(
                channels.action, constraint.low, constraint.high, strict=True
            )
        ]

    def lower(self, constraint: Box, situation: Situation) -> Interval:
        """The box itself, with malformed ends left out."""
        del situation
        return Interval(*usable_ends(constraint.low, constraint.high))


class RateKind:
    """``{"kind": "rate", "channel", "unit", "up", "down"}``, per second; ``null`` for no limit."""

    def to_records(self, channels: Channels, constraint: Rate) -> list[dict[str, Any]]:
        """A record for every channel that has a limit."""
        records = [
            {"channel": channel.name, "unit": channel.unit}
            | {"up": shortest(up), "down": shortest(down)}
            for channel, up, down in zip(
                channels.action, constraint.up, constraint.down, strict=True
            )
        ]
        return [one for one in records if one["up"] is not None or one["down"] is not None]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Rate:
        """The limits; a channel without a record has none."""
        pairs = _pairs(channels.action, records, ("up", "down"), none_is_infinite=True)
        limits = [pairs.get(channel.name, (np.inf, np.inf)) for channel in channels.action]
        return Rate(_column(limits, 0), _column(limits, 1))

    def describe(self, channels: Channels, constraint: Rate) -> list[str]:
        """Such as ``"feed rises by at most 120 kg/h per second"``; free ones together."""
        sentences, free = [], []
        for channel, up, down in zip(channels.action, constraint.up, constraint.down, strict=True):
            limited = [
                f"{verb} by at most {float(rate):g} {channel.unit} per second"
                for verb, rate in (("rises", up), ("falls", down))
                if np.isfinite(rate)
            ]
            if limited:
                sentences.append(f"{channel.name} {' and '.join(limited)}")
            else:
                free.append(channel.name)
        names = " and ".join([", ".join(free[:-1]), free[-1]] if len(free) > 1 else free)
        return [*sentences, *([f"{names} may change at any rate"] if free else [])]

    def lower(self, constraint: Rate, situation: Situation) -> Interval:
        """What is reached from the start in one period; a malformed limit admits no movement.

        The ends are rounded towards the start, so that no step is larger than the limit.
        """
        rise, bad_up = usable_step(constraint.up, situation.dt)
        fall, bad_down = usable_step(constraint.down, situation.dt)
        return Interval(
            rounded_towards_first(situation.start, -fall),
            rounded_towards_first(situation.start, rise),
            bad_up | bad_down,
        )


def _column(pairs: Sequence[tuple[float, ...]], index: int) -> Array:
    return column([pair[index] for pair in pairs])


def _pairs(
    channels: Sequence[ChannelRange],
    records: Sequence[Record],
    fields: tuple[str, str],
    *,
    none_is_infinite: bool,
) -> Mapping[str, tuple[float, ...]]:
    pairs: dict[str, tuple[float, ...]] = {}
    for where, record in records:
        require_fields(where, record, {"channel", "unit", *fields})
        channel = channels[index_of(channels, where, "action", record["channel"])]
        where = f"{where[:-1]} of {channel.name!r})"
        require_unit(where, "unit", record["unit"], channel)
        require(channel.name not in pairs, f"{where}: the channel has one already")
        pairs[channel.name] = tuple(
            np.inf
            if none_is_infinite and record[field] is None
            else number(where, field, record[field])
            for field in fields
        )
    return pairs
