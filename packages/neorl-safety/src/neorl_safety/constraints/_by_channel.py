"""A pair of numbers for every action channel, the box and the rate of change: data and kinds."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from neorl_core import Spec, highs, lows
from neorl_safety.constraints._numbers import rounded_towards_first, usable_ends, usable_step
from neorl_safety.constraints._protocol import (
    ChannelRange,
    Channels,
    Interval,
    Record,
    Situation,
    column,
    index_of,
    limit,
    require,
    require_fields,
    require_unit,
    shortest,
)

GivenRate = float | tuple[float, float] | None


def _as_float(value: Any) -> Any:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating):
        return value
    with np.errstate(over="ignore"):
        return jnp.asarray(np.asarray(value, np.float32))


class ActionConstraints(eqx.Module):
    """Box and rate limits of every action channel, in physical units.

    For an action ``u`` that follows ``v`` after ``dt`` seconds, the hard constraints are

    ``low <= u <= high`` and ``-rate_down dt <= u - v <= rate_up dt``.

    Every limit is an array leaf, so limits may be batched, swept and exported. Concrete values are
    checked; in compiled code the filter flags bad ones instead. Limits are the float32 numbers
    nearest to the declared ones. Constraints of other kinds are added to these in
    :class:`Constraints`.

    Attributes:
        low: Lower ends of the box, shape ``(act,)``.
        high: Upper ends of the box, shape ``(act,)``.
        rate_up: Largest rise per second, shape ``(act,)``; infinite means no limit.
        rate_down: Largest fall per second, as a positive number, shape ``(act,)``.
        actuator_low: Lower end of the actuator range, shape ``(act,)``: at or below ``low``.
        actuator_high: Upper end of the actuator range, shape ``(act,)``: at or above ``high``.
        names: Channel names, in the order of the last axis.
        units: Units of the channels.

    Raises:
        ValueError: If shapes differ, or a concrete limit is NaN, infinite where that is not
            allowed, negative, subnormal or inverted; the message names the channel.
    """

    low: Float[Array, " act"] = eqx.field(converter=_as_float)
    high: Float[Array, " act"] = eqx.field(converter=_as_float)
    rate_up: Float[Array, " act"] = eqx.field(converter=_as_float)
    rate_down: Float[Array, " act"] = eqx.field(converter=_as_float)
    actuator_low: Float[Array, " act"] = eqx.field(converter=_as_float)
    actuator_high: Float[Array, " act"] = eqx.field(converter=_as_float)
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)

    @property
    def n_action(self) -> int:
        """Number of action channels."""
        return len(self.names)

    def __check_init__(self) -> None:
        expected = (len(self.names),)
        if len(self.units) != len(self.names):
            raise ValueError(
                f"ActionConstraints has {len(self.names)} names but {len(self.units)} units; give "
                "one unit for each name"
            )
        for field in LIMIT_FIELDS:
            shape = getattr(self, field).shape
            if shape != expected:
                raise ValueError(
                    f"{field} has shape {shape}; expected {expected}, "
                    f"one number for each of the channels {', '.join(self.names)}"
                )
        values = {field: getattr(self, field) for field in LIMIT_FIELDS}
        if not any(isinstance(value, Tracer) for value in values.values()):
            _refuse_bad_limits(self.names, self.units, values)


LIMIT_FIELDS = ("low", "high", "rate_up", "rate_down", "actuator_low", "actuator_high")


def _refuse_bad_limits(
    names: Sequence[str], units: Sequence[str], values: dict[str, jax.Array]
) -> None:
    for i, (name, unit) in enumerate(zip(names, units, strict=True)):
        limits = {field: float(value[i]) for field, value in values.items()}
        where = f"action channel {name!r} ({unit})"
        for field, value in values.items():
            tiny = float(np.finfo(value.dtype).tiny)
            if 0 < abs(limits[field]) < tiny:
                raise ValueError(
                    f"{where}: {field} is {limits[field]}, below the smallest normal number "
                    f"{tiny:g}; write 0"
                )
        for field in ("low", "high", "actuator_low", "actuator_high"):
            if not np.isfinite(limits[field]):
                raise ValueError(f"{where}: {field} must be finite in float32, got {limits[field]}")
        for field in ("rate_up", "rate_down"):
            if not limits[field] >= 0:
                raise ValueError(
                    f"{where}: {field} must be zero or more per second, or infinite for no "
                    f"limit, got {limits[field]}"
                )
        if limits["low"] > limits["high"]:
            raise ValueError(f"{where}: low {limits['low']} is above high {limits['high']}")
        if not (
            limits["actuator_low"] <= limits["low"] and limits["high"] <= limits["actuator_high"]
        ):
            raise ValueError(
                f"{where}: the box {limits['low']} to {limits['high']} leaves the actuator range "
                f"{limits['actuator_low']} to {limits['actuator_high']}"
            )


def action_constraints(
    spec: Spec,
    rates: Sequence[GivenRate] | None = None,
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
) -> ActionConstraints:
    """The box of a specification with rate limits, optionally tightened.

    Args:
        spec: Specification whose action channels give names, units, the actuator ranges and, unless
            ``low`` and ``high`` are given, the box.
        rates: Largest change per second of each action channel: one number for both directions, a
            pair ``(up, down)``, or ``None`` or infinity for no limit. ``None`` instead of a list
            means that no channel has a rate limit.
        low: Lower ends of a tighter box.
        high: Upper ends of a tighter box.

    Returns:
        The constraints, in float32.

    Raises:
        ValueError: If a list does not have one entry for each channel, or a limit is bad; the
            message names the channel.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import action_constraints
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> action_constraints(spec, [(0.5, 1.0)]).rate_down.tolist()
        [1.0]
    """
    n = spec.n_action
    given = {
        "rates": [None] * n if rates is None else list(rates),
        "low": lows(spec.action) if low is None else list(low),
        "high": highs(spec.action) if high is None else list(high),
    }
    for field, entries in given.items():
        if len(entries) != n:
            raise ValueError(
                f"{field} has {len(entries)} entries; expected {n}, one for each of the channels "
                f"{', '.join(channel.name for channel in spec.action)}"
            )
    pairs = [_up_and_down(rate) for rate in given["rates"]]
    return ActionConstraints(
        low=given["low"],
        high=given["high"],
        rate_up=[up for up, _ in pairs],
        rate_down=[down for _, down in pairs],
        actuator_low=lows(spec.action),
        actuator_high=highs(spec.action),
        names=tuple(channel.name for channel in spec.action),
        units=tuple(channel.unit for channel in spec.action),
    )


def _up_and_down(rate: GivenRate) -> tuple[float, float]:
    if rate is None:
        return np.inf, np.inf
    if isinstance(rate, tuple | list):
        if len(rate) != 2:
            raise ValueError(f"a rate is one number or a pair (up, down), got {rate!r}")
        return float(rate[0]), float(rate[1])
    return float(rate), float(rate)


# The two kinds as records of a document.


SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
PERIODS = {"s": "second", "min": "minute", "h": "hour"}


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
    """``{"kind": "box", "channel", "unit", "low", "high"}``: one record for every channel.

    May also be declared as ``range``. A missing end is that of the actuator; the unit is optional.
    """

    def to_records(self, channels: Channels, constraint: Box) -> list[dict[str, Any]]:
        """One record for every channel, with the shortest numbers that give the same float32."""
        return [
            {"channel": channel.name, "unit": channel.unit}
            | {"low": shortest(low), "high": shortest(high)}
            for channel, low, high in zip(
                channels.action, constraint.low, constraint.high, strict=True
            )
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Box:
        """The box; every channel needs one record. A missing end is that of the actuator."""
        by_name = {channel.name: channel for channel in channels.action}
        pairs = {
            name: tuple(
                actuator_end if value == unlimited else value
                for value, actuator_end, unlimited in zip(
                    pair,
                    (by_name[name].low, by_name[name].high),
                    (-np.inf, np.inf),
                    strict=True,
                )
            )
            for name, pair in _pairs(
                channels.action, records, {"low": -np.inf, "high": np.inf}
            ).items()
        }
        missing = [channel.name for channel in channels.action if channel.name not in pairs]
        require(not missing, f"there is no box for the channels {', '.join(missing)}")
        ends = [pairs[channel.name] for channel in channels.action]
        return Box(_column(ends, 0), _column(ends, 1))

    def describe(self, channels: Channels, constraint: Box) -> list[str]:
        """For example ``"feed between 0 and 30000 kg/h"``."""
        return [
            f"{channel.name} between {float(low):g} and {float(high):g}{_suffix(channel.unit)}"
            for channel, low, high in zip(
                channels.action, constraint.low, constraint.high, strict=True
            )
        ]

    def lower(self, constraint: Box, situation: Situation) -> Interval:
        """The box itself, without malformed ends."""
        del situation
        return Interval(*usable_ends(constraint.low, constraint.high))


class RateKind:
    """``{"kind": "rate", "channel", "unit", "up", "down"}``, per second.

    A missing end, or ``null``, means no limit; ``per`` (``"s"``, ``"min"``, ``"h"``) is the time
    unit of the numbers.
    """

    def to_records(self, channels: Channels, constraint: Rate) -> list[dict[str, Any]]:
        """One record for every channel that has a limit."""
        records = [
            {"channel": channel.name, "unit": channel.unit}
            | {"up": shortest(up), "down": shortest(down)}
            for channel, up, down in zip(
                channels.action, constraint.up, constraint.down, strict=True
            )
        ]
        return [
            record for record in records if record["up"] is not None or record["down"] is not None
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Rate:
        """The limits; a channel without a record, or a missing end, has no limit."""
        pairs = _pairs(channels.action, records, {"up": np.inf, "down": np.inf}, timed=True)
        limits = [pairs.get(channel.name, (np.inf, np.inf)) for channel in channels.action]
        return Rate(_column(limits, 0), _column(limits, 1))

    def describe(self, channels: Channels, constraint: Rate) -> list[str]:
        """For example ``"feed rises by at most 120 kg/h per second"``; unlimited ones together."""
        sentences, unlimited = [], []
        for channel, up, down in zip(channels.action, constraint.up, constraint.down, strict=True):
            limited = [
                f"{verb} by at most {_rate_text(float(rate), channel.unit)}"
                for verb, rate in (("rises", up), ("falls", down))
                if np.isfinite(rate)
            ]
            if limited:
                sentences.append(f"{channel.name} {' and '.join(limited)}")
            else:
                unlimited.append(channel.name)
        names = " and ".join(
            [", ".join(unlimited[:-1]), unlimited[-1]] if len(unlimited) > 1 else unlimited
        )
        return [*sentences, *([f"{names} may change at any rate"] if unlimited else [])]

    def lower(self, constraint: Rate, situation: Situation) -> Interval:
        """Interval reachable from the start in one period; a malformed limit allows no movement.

        The ends are rounded towards the start, so that no step exceeds the limit.
        """
        rise, bad_up = usable_step(constraint.up, situation.dt)
        fall, bad_down = usable_step(constraint.down, situation.dt)
        return Interval(
            rounded_towards_first(situation.start, -fall),
            rounded_towards_first(situation.start, rise),
            bad_up | bad_down,
        )


class ChannelLimits(NamedTuple):
    """Ranges and rates from declared records, and the records of all other kinds.

    Attributes:
        low: Lower ends by channel, if a record gives one.
        high: Upper ends, likewise.
        up: Largest rise per second, likewise.
        down: Largest fall per second, as a positive number, likewise.
        further: The other records, in order.
    """

    low: dict[str, float]
    high: dict[str, float]
    up: dict[str, float]
    down: dict[str, float]
    further: list[Mapping[str, Any]]


def channel_limits(
    channels: Channels, records: Sequence[Mapping[str, Any]], where: str = "constraint"
) -> ChannelLimits:
    """Separates the ranges and rates of single channels from the other declared records.

    Args:
        channels: Channels of action and observation.
        records: Declared records of any kind.
        where: Name of a record in messages, before its number, which starts from 1.

    Returns:
        The limits by channel; ends without a record are absent.

    Raises:
        InputError: If a field is missing, unknown or bad, or a channel has two records of a kind.
    """
    further: list[Mapping[str, Any]] = []
    of_kind: dict[str, list[Record]] = {"box": [], "rate": []}
    for i, record in enumerate(records):
        require(isinstance(record, Mapping), f"{where} {i + 1} must be a table, got {record!r:.40}")
        given = record.get("kind")
        kind = {"range": "box"}.get(str(given), str(given))
        if kind not in of_kind:
            further.append(record)
            continue
        fields = {name: value for name, value in record.items() if name != "kind"}
        of_kind[kind].append(Record(f"{where} {i + 1} ({given})", fields))
    unlimited = {"low": -np.inf, "high": np.inf}
    ranges = _pairs(channels.action, of_kind["box"], unlimited)
    rates = _pairs(channels.action, of_kind["rate"], {"up": np.inf, "down": np.inf}, timed=True)
    low, high, up, down = (
        {name: pair[end] for name, pair in pairs.items() if not np.isinf(pair[end])}
        for pairs in (ranges, rates)
        for end in (0, 1)
    )
    return ChannelLimits(low, high, up, down, further)


def _column(pairs: Sequence[tuple[float, ...]], index: int) -> Array:
    return column([pair[index] for pair in pairs])


def _pairs(
    channels: Sequence[ChannelRange],
    records: Sequence[Record],
    unlimited: Mapping[str, float],
    *,
    timed: bool = False,
) -> Mapping[str, tuple[float, ...]]:
    """Two numbers by channel; those of a rate are converted to per second."""
    pairs: dict[str, tuple[float, ...]] = {}
    for where, record in records:
        require_fields(where, record, {"channel"}, {"unit", *unlimited, *(["per"] * timed)})
        channel = channels[index_of(channels, where, "action", record["channel"])]
        where = f"{where[:-1]} of {channel.name!r})"
        seconds = 1.0
        if timed:
            seconds = _seconds(where, record, channel)
        elif "unit" in record:
            require_unit(where, "unit", record["unit"], channel)
        require(
            channel.name not in pairs,
            f"{where}: the channel already has a constraint of this kind; give only one",
        )
        pair = tuple(limit(where, field, record, no_limit) for field, no_limit in unlimited.items())
        field_names = " or ".join(unlimited)
        any_given = any(field in record for field in unlimited)
        require(
            any_given, f"{where}: give {field_names}, or both; one that is missing means no limit"
        )
        pairs[channel.name] = tuple(value / seconds for value in pair)
    return pairs


def _seconds(where: str, record: Mapping[str, Any], channel: ChannelRange) -> float:
    """The time unit of a rate in seconds: ``per``, or the end of the unit, as in ``"%/min"``."""
    per, unit = record.get("per", "s"), record.get("unit", channel.unit)
    if "per" not in record and isinstance(unit, str):
        value_unit, _, time_unit = unit.rpartition("/")
        if value_unit == channel.unit and time_unit in SECONDS:
            unit, per = value_unit, time_unit
    require(
        isinstance(per, str) and per in SECONDS,
        f"{where}: per must be the time unit of the rate, 's', 'min' or 'h', got {per!r}",
    )
    require_unit(where, "unit", unit, channel)
    return SECONDS[per]


def _rate_text(rate: float, unit: str) -> str:
    """A rate per second, or per minute or hour if the rate per second has more than four digits.

    Example:
        >>> _rate_text(0.5, "%"), _rate_text(5 / 60, "%")
        ('0.5 % per second', '5 % per minute')
    """
    numbers = {name: f"{rate * SECONDS[per]:g}" for per, name in PERIODS.items()}
    period = next((name for name, number in numbers.items() if len(number) <= 5), "second")
    return f"{numbers[period]}{_suffix(unit)} per {period}"


def _suffix(unit: str) -> str:
    """A unit behind a number; nothing for the unit of a log that states none."""
    return "" if unit == "?" else f" {unit}"
