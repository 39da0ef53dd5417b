"""Limits against actuator wear: no move that is too small or too soon after the last one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_safety.constraints._numbers import flush, subnormal
from neorl_safety.constraints._protocol import (
    Channels,
    Interval,
    Rank,
    Record,
    Situation,
    column,
    finite,
    index_of,
    require,
    require_fields,
    require_unit,
    shortest,
)


class Deadband(NamedTuple):
    """A channel holds unless it is requested to move by at least a minimum amount.

    Attributes:
        width: Smallest move in the unit of the channel, shape ``(act,)``; zero for no deadband.
    """

    width: Float[Array, " act"]


class Rest(NamedTuple):
    """After a move, a channel rests for a minimum time.

    Attributes:
        seconds: Resting time in seconds, shape ``(act,)``; zero for none.
    """

    seconds: Float[Array, " act"]


class DeadbandKind:
    """``{"kind": "deadband", "channel", "unit", "width"}``; yields to every limit."""

    rank = Rank.WEAR

    def to_records(self, channels: Channels, constraint: Deadband) -> list[dict[str, Any]]:
        """One record for every channel that has a deadband."""
        return _records_of(channels, "width", constraint.width, with_unit=True)

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Deadband:
        """The deadbands; a channel without a record has none."""
        return Deadband(_values_from(channels, records, "width", with_unit=True))

    def describe(self, channels: Channels, constraint: Deadband) -> list[str]:
        """For example ``"feed moves by at least 50 kg/h or holds"``."""
        return [
            f"{row['channel']} moves by at least {row['width']:g} {row['unit']} or holds"
            for row in self.to_records(channels, constraint)
        ]

    def lower(self, constraint: Deadband, situation: Situation) -> Interval:
        """Only the current position, if the request is too close to it."""
        small = jnp.abs(situation.request - situation.position) < flush(constraint.width)
        return _hold_interval(situation, small, constraint.width)


class RestKind:
    """``{"kind": "rest", "channel", "seconds"}``; yields to every limit."""

    rank = Rank.WEAR

    def to_records(self, channels: Channels, constraint: Rest) -> list[dict[str, Any]]:
        """One record for every channel that has a resting time."""
        return _records_of(channels, "seconds", constraint.seconds, with_unit=False)

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Rest:
        """The resting times; a channel without a record has none."""
        return Rest(_values_from(channels, records, "seconds", with_unit=False))

    def describe(self, channels: Channels, constraint: Rest) -> list[str]:
        """For example ``"pump rests for 300 s after every move"``."""
        return [
            f"{row['channel']} rests for {row['seconds']:g} s after every move"
            for row in self.to_records(channels, constraint)
        ]

    def lower(self, constraint: Rest, situation: Situation) -> Interval:
        """Only the current position, if the channel moved too recently."""
        return _hold_interval(
            situation, situation.held < flush(constraint.seconds), constraint.seconds
        )


def _hold_interval(situation: Situation, holds: Array, setting: Array) -> Interval:
    bad = ~(jnp.isfinite(setting) & (setting >= 0)) | subnormal(setting)
    holds = holds & ~bad
    return Interval(
        jnp.where(holds, situation.position, -jnp.inf),
        jnp.where(holds, situation.position, jnp.inf),
        bad,
    )


def _records_of(
    channels: Channels, field: str, values: Array, *, with_unit: bool
) -> list[dict[str, Any]]:
    return [
        {"channel": channel.name}
        | ({"unit": channel.unit} if with_unit else {})
        | {field: shortest(value)}
        for channel, value in zip(channels.action, values, strict=True)
        if value != 0
    ]


def _values_from(
    channels: Channels, records: Sequence[Record], field: str, *, with_unit: bool
) -> Array:
    given: dict[int, float] = {}
    for where, record in records:
        require_fields(where, record, {"channel", field}, {"unit"} if with_unit else set())
        act = index_of(channels.action, where, "action", record["channel"])
        channel = channels.action[act]
        if "unit" in record:
            require_unit(where, "unit", record["unit"], channel)
        require(
            act not in given,
            f"{where}: {channel.name!r} already has a constraint of this kind; give one",
        )
        given[act] = finite(where, field, record[field])
        require(given[act] > 0, f"{where}: {field} must be positive, got {given[act]}")
        require(
            not with_unit or given[act] <= channel.high - channel.low,
            f"{where}: {field} is {given[act]:g} {channel.unit}, more than the range of "
            f"{channel.name}, {channel.low:g} to {channel.high:g} {channel.unit}, so that it would "
            "never move; check the unit",
        )
    return column([given.get(act, 0.0) for act in range(len(channels.action))])
