"""Interlocks: while a measurement is beyond its threshold, an action stays in a set."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_safety.constraints._numbers import usable_ends
from neorl_safety.constraints._protocol import (
    Channels,
    Interval,
    Rank,
    Record,
    Situation,
    column,
    finite,
    index_of,
    indices,
    limit,
    require,
    require_fields,
    require_unit,
    shortest,
)

FIELDS = {"obs", "channel"}
OPTIONAL = {"obs_unit", "below", "above", "unit", "low", "high"}


class Interlock(NamedTuple):
    """``low <= u[act] <= high`` while ``obs[measured]`` lies outside ``[below, above]``.

    Attributes:
        measured: Index of the observation that each interlock reads, shape ``(lock,)``.
        below: Trips below this value, shape ``(lock,)``; ``-inf`` for never.
        above: Trips above this value, shape ``(lock,)``; ``inf`` for never.
        act: Index of the restricted action, shape ``(lock,)``.
        low: Lower end of the action while tripped, shape ``(lock,)``.
        high: Upper end of the action while tripped, shape ``(lock,)``.
    """

    measured: Int[Array, " lock"]
    below: Float[Array, " lock"]
    above: Float[Array, " lock"]
    act: Int[Array, " lock"]
    low: Float[Array, " lock"]
    high: Float[Array, " lock"]


class InterlockKind:
    """``{"kind": "interlock", "obs", "obs_unit", "below", "above", "channel", "unit", ...}``.

    Also has ``low`` and ``high``, the ends of the action while the interlock is tripped. One of
    ``below`` and ``above``, and one of ``low`` and ``high``, may be missing (or null): then there
    is no such threshold, and that end is the actuator's. May also be declared as ``while``.
    """

    rank = Rank.INTERLOCK

    def to_records(self, channels: Channels, constraint: Interlock) -> list[dict[str, Any]]:
        """One record for every interlock."""
        return [
            {
                "obs": channels.obs[int(measured)].name,
                "obs_unit": channels.obs[int(measured)].unit,
                "below": shortest(below),
                "above": shortest(above),
                "channel": channels.action[int(act)].name,
                "unit": channels.action[int(act)].unit,
                "low": shortest(low),
                "high": shortest(high),
            }
            for measured, below, above, act, low, high in zip(
                *map(np.asarray, constraint), strict=True
            )
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Interlock:
        """The interlocks, in the order of the records."""
        rows = [_read(channels, record) for record in records]
        measured, below, above, act, low, high = zip(*rows, strict=True) if rows else [()] * 6
        return Interlock(
            indices(measured), column(below), column(above), indices(act), column(low), column(high)
        )

    def describe(self, channels: Channels, constraint: Interlock) -> list[str]:
        """For example ``"feed between 0 and 5000 kg/h while T_R is below 361.15 K"``."""
        sentences = []
        for row in self.to_records(channels, constraint):
            conditions = [
                f"{side} {row[side]:g} {row['obs_unit']}"
                for side in ("below", "above")
                if row[side] is not None
            ]
            interval = f"between {row['low']:g} and {row['high']:g}"
            if row["low"] == row["high"]:
                interval = f"at {row['low']:g}"
            sentences.append(
                f"{row['channel']} {interval} {row['unit']} while {row['obs']} is "
                f"{' or '.join(conditions)}"
            )
        return sentences

    def lower(self, constraint: Interlock, situation: Situation) -> Interval:
        """The intervals of the tripped interlocks; a NaN measurement trips its interlock."""
        c, dtype, shape = constraint, situation.start.dtype, situation.start.shape
        low, high, bad = usable_ends(c.low.astype(dtype), c.high.astype(dtype))
        bad = bad | jnp.isnan(c.below) | jnp.isnan(c.above)
        reading = situation.obs[c.measured]
        # Not ``<`` or ``>``, which are false for NaN: a lost measurement trips.
        tripped = ~((reading >= c.below) & (reading <= c.above))
        lowest = jnp.where(tripped & ~bad, low, -jnp.inf).astype(dtype)
        highest = jnp.where(tripped & ~bad, high, jnp.inf).astype(dtype)
        # Several interlocks may act on one channel; the narrowest ends hold.
        return Interval(
            jnp.full(shape, -jnp.inf, dtype).at[c.act].max(lowest),
            jnp.full(shape, jnp.inf, dtype).at[c.act].min(highest),
            jnp.zeros(shape, jnp.bool_).at[c.act].max(bad),
        )


def _read(channels: Channels, record: Record) -> tuple[int, float, float, int, float, float]:
    where, fields = record
    require_fields(where, fields, FIELDS, OPTIONAL)
    measured = index_of(channels.obs, where, "obs", fields["obs"])
    observation = channels.obs[measured]
    if "obs_unit" in fields:
        require_unit(where, "obs_unit", fields["obs_unit"], observation)
    below, above = limit(where, "below", fields, -np.inf), limit(where, "above", fields, np.inf)
    for end, value in (("below", below), ("above", above)):
        if np.isfinite(value):
            finite(where, end, value)
            require(
                observation.low <= value <= observation.high,
                f"{where}: {end} is {value:g} {observation.unit}, outside the measuring range of "
                f"{observation.name}, {observation.low:g} to {observation.high:g} "
                f"{observation.unit}; check the unit",
            )
    require(
        np.isfinite(below) or np.isfinite(above), f"{where}: give a limit, below or above or both"
    )
    require(
        below <= above,
        f"{where}: below, {below}, is greater than above, {above}, so that the interlock would "
        "always be tripped",
    )
    act = index_of(channels.action, where, "action", fields["channel"])
    channel = channels.action[act]
    if "unit" in fields:
        require_unit(where, "unit", fields["unit"], channel)
    low, high = limit(where, "low", fields, -np.inf), limit(where, "high", fields, np.inf)
    require(
        low > -np.inf or high < np.inf,
        f"{where}: give low or high, the range of {channel.name} while the interlock is tripped",
    )
    low = channel.low if low == -np.inf else finite(where, "low", low)
    high = channel.high if high == np.inf else finite(where, "high", high)
    require(low <= high, f"{where}: low {low} is above high {high}")
    return measured, below, above, act, low, high
