"""Kinds that give every action channel a pair of numbers: the box and the rate of change."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_safety.constraints._numbers import usable_ends, usable_step
from neorl_safety.constraints._protocol import (
    ActionChannel,
    Interval,
    Record,
    Situation,
    number,
    require,
    require_fields,
)


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
    """``{"kind": "box", "channel", "low", "high"}``: one record for every channel."""

    def to_records(
        self, channels: Sequence[ActionChannel], constraint: Box
    ) -> list[dict[str, Any]]:
        """A record for every channel, numbers as short as gives the same float32."""
        return [
            {"channel": channel.name, "low": shortest(low), "high": shortest(high)}
            for channel, low, high in zip(channels, constraint.low, constraint.high, strict=True)
        ]

    def from_records(self, channels: Sequence[ActionChannel], records: Sequence[Record]) -> Box:
        """The box; every channel has one record."""
        pairs = _pairs(channels, records, ("low", "high"), none_is_infinite=False)
        missing = [channel.name for channel in channels if channel.name not in pairs]
        require(not missing, f"no box for the channels {', '.join(missing)}")
        ends = [pairs[channel.name] for channel in channels]
        return Box(_column(ends, 0), _column(ends, 1))

    def describe(self, channels: Sequence[ActionChannel], constraint: Box) -> list[str]:
        """Such as ``"feed between 0 and 30000 kg/h"``."""
        return [
            f"{channel.name} between {float(low):g} and {float(high):g} {channel.unit}"
            for channel, low, high in zip(channels, constraint.low, constraint.high, strict=True)
        ]

    def lower(self, constraint: Box, situation: Situation) -> Interval:
        """The box itself, with malformed ends left out."""
        del situation
        return Interval(*usable_ends(constraint.low, constraint.high))


class RateKind:
    """``{"kind": "rate", "channel", "up", "down"}``, per second; ``null`` for no limit."""

    def to_records(
        self, channels: Sequence[ActionChannel], constraint: Rate
    ) -> list[dict[str, Any]]:
        """A record for every channel that has a limit."""
        records = [
            {"channel": channel.name, "up": shortest(up), "down": shortest(down)}
            for channel, up, down in zip(channels, constraint.up, constraint.down, strict=True)
        ]
        return [one for one in records if one["up"] is not None or one["down"] is not None]

    def from_records(self, channels: Sequence[ActionChannel], records: Sequence[Record]) -> Rate:
        """The limits; a channel without a record has none."""
        pairs = _pairs(channels, records, ("up", "down"), none_is_infinite=True)
        limits = [pairs.get(channel.name, (np.inf, np.inf)) for channel in channels]
        return Rate(_column(limits, 0), _column(limits, 1))

    def describe(self, channels: Sequence[ActionChannel], constraint: Rate) -> list[str]:
        """Such as ``"feed rises by at most 120 kg/h per second"``."""
        sentences = []
        for channel, up, down in zip(channels, constraint.up, constraint.down, strict=True):
            limited = [
                f"{verb} by at most {float(rate):g} {channel.unit} per second"
                for verb, rate in (("rises", up), ("falls", down))
                if np.isfinite(rate)
            ]
            sentences.append(f"{channel.name} {' and '.join(limited) or 'may change at any rate'}")
        return sentences

    def lower(self, constraint: Rate, situation: Situation) -> Interval:
        """What is reached from the start in one period; a malformed limit is left out."""
        rise, bad_up = usable_step(constraint.up, situation.dt)
        fall, bad_down = usable_step(constraint.down, situation.dt)
        return Interval(situation.start - fall, situation.start + rise, bad_up | bad_down)


def shortest(value: Any) -> float | None:
    """The shortest decimal that rounds to the same float32; ``None`` for infinity."""
    nearest = np.asarray(value)[()]
    return float(str(nearest)) if np.isfinite(nearest) else None


def _column(pairs: Sequence[tuple[float, ...]], index: int) -> Array:
    with np.errstate(over="ignore"):  # an end that is infinite in float32 is refused by name later
        return jnp.asarray(np.asarray([pair[index] for pair in pairs], np.float32))


def _pairs(
    channels: Sequence[ActionChannel],
    records: Sequence[Record],
    fields: tuple[str, str],
    *,
    none_is_infinite: bool,
) -> Mapping[str, tuple[float, ...]]:
    names = [channel.name for channel in channels]
    pairs: dict[str, tuple[float, ...]] = {}
    for where, record in records:
        require_fields(where, record, {"channel", *fields})
        channel = record["channel"]
        require(
            isinstance(channel, str) and channel in names,
            f"{where}: unknown channel {channel!r}; the channels are {', '.join(names)}",
        )
        where = f"{where[:-1]} of {channel!r})"
        require(channel not in pairs, f"{where}: the channel has one already")
        pairs[channel] = tuple(
            np.inf
            if none_is_infinite and record[field] is None
            else number(where, field, record[field])
            for field in fields
        )
    return pairs
