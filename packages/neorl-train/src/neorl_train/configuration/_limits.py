"""Limits of a run: those of the source, unless the run declares others."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neorl_core import Channel, InputError, Spec
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import unknown_name
from neorl_safety.constraints import channel_limits, spec_channels


@dataclasses.dataclass(frozen=True)
class LimitsConfig:
    """Limits for acting and judging; those that are not given are the source's own.

    Attributes:
        cost: Largest admissible cost by name of the cost, in its unit, per step or per episode as
            the source declares it.
        low: Smallest action by channel name, in its unit; not below the channel's range.
        high: Largest action by channel name, in its unit; not above the channel's range.
        rate_up: Largest rise of an action by channel name, in its unit per second; ``inf`` for no
            limit.
        rate_down: Largest fall of an action as a positive number, in its unit per second.
        further: Constraints, each with its ``kind`` and the fields of that kind; in a file,
            top-level tables ``[[constraint]]``. Ranges and rates among them are merged into the
            tables above.
    """

    cost: dict[str, float] = dataclasses.field(default_factory=dict)
    low: dict[str, float] = dataclasses.field(default_factory=dict)
    high: dict[str, float] = dataclasses.field(default_factory=dict)
    rate_up: dict[str, float] = dataclasses.field(default_factory=dict)
    rate_down: dict[str, float] = dataclasses.field(default_factory=dict)
    further: tuple[dict[str, Any], ...] = ()


def declared_limits(
    spec: Spec,
    rates: Sequence[float] | None,
    constraints: Sequence[Mapping[str, Any]] = (),
) -> LimitsConfig:
    """The limits that a source declares.

    Args:
        spec: Cost channels, and actions with their ranges.
        rates: Largest change of every action per second, infinite for no limit; ``None`` if nothing
            is known about them, as for a log.
        constraints: Constraints that the ``plant.toml`` of a log declares.
    """
    names = [channel.name for channel in spec.action]
    known = [math.inf] * spec.n_action if rates is None else [float(rate) for rate in rates]
    constraint_limits = channel_limits(spec_channels(spec), constraints, "plant.toml, constraint")
    return LimitsConfig(
        cost={channel.name: float(channel.limit) for channel in spec.cost},
        low={channel.name: float(channel.low) for channel in spec.action} | constraint_limits.low,
        high={channel.name: float(channel.high) for channel in spec.action}
        | constraint_limits.high,
        rate_up=_lower(dict(zip(names, known, strict=True)), constraint_limits.up),
        rate_down=_lower(dict(zip(names, known, strict=True)), constraint_limits.down),
        further=tuple(dict(record) for record in constraint_limits.further),
    )


def _lower(rates: Mapping[str, float], declared: Mapping[str, float]) -> dict[str, float]:
    """The rates of the actuators, or lower ones that a log declares."""
    return {name: min(rate, declared.get(name, math.inf)) for name, rate in rates.items()}


def resolved_limits(limits: LimitsConfig, declared: LimitsConfig, spec: Spec) -> LimitsConfig:
    """All limits written out: the run's own if it has one, else the declared one.

    Raises:
        InputError: If a name is unknown, a cost's limit is negative or not finite, a box leaves
            the range of its channel or is empty, a rate is negative or above the declared one, or
            a channel has a limit twice.
    """
    limits = _by_channel(limits, spec)
    require_known("cost in limits.cost", limits.cost, declared.cost)
    for channel in spec.cost:
        value = limits.cost.get(channel.name, channel.limit)
        if not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"limits.cost.{channel.name} must be finite and not negative, in {channel.unit} "
                f"per {channel.per}, got {value}"
            )
    for field in ("low", "high", "rate_up", "rate_down"):
        values = getattr(limits, field)
        require_known(f"action channel in limits.{field}", values, declared.low)
    tables = ("cost", "low", "high", "rate_up", "rate_down")
    merged = LimitsConfig(
        **{name: {**getattr(declared, name), **getattr(limits, name)} for name in tables},
        further=limits.further,
    )
    for channel in spec.action:
        _check_box(channel, merged)
        _check_rates(channel, merged, declared)
    return merged


def _by_channel(limits: LimitsConfig, spec: Spec) -> LimitsConfig:
    """The same limits, with ranges and rates from the constraints moved to the channel tables."""
    constraint_limits = channel_limits(spec_channels(spec), limits.further)
    tables: dict[str, dict[str, float]] = {}
    pairs = (
        ("low", constraint_limits.low),
        ("high", constraint_limits.high),
        ("rate_up", constraint_limits.up),
        ("rate_down", constraint_limits.down),
    )
    for field, declared in pairs:
        table = getattr(limits, field)
        for name in declared:
            if name in table:
                raise InputError(
                    f"limits.{field}.{name} is {table[name]:g}, and a constraint declares "
                    f"{declared[name]:g}; remove one of them"
                )
        tables[field] = {**table, **declared}
    further = tuple(dict(record) for record in constraint_limits.further)
    return LimitsConfig(cost=limits.cost, **tables, further=further)


def _check_box(channel: Channel, limits: LimitsConfig) -> None:
    low, high = limits.low[channel.name], limits.high[channel.name]
    for field, value in (("low", low), ("high", high)):
        if not channel.low <= value <= channel.high:
            raise InputError(
                f"limits.{field}.{channel.name} is {value:g} {channel.unit}, outside the range of "
                f"the channel, {channel.low:g} to {channel.high:g} {channel.unit}; limits can only "
                "narrow the range of a channel"
            )
    if low > high:
        raise InputError(
            f"limits.low.{channel.name} is {low:g} {channel.unit}, above limits.high."
            f"{channel.name}, {high:g} {channel.unit}; lower it"
        )


def _check_rates(channel: Channel, limits: LimitsConfig, declared: LimitsConfig) -> None:
    for field in ("rate_up", "rate_down"):
        value = getattr(limits, field)[channel.name]
        maximum = getattr(declared, field)[channel.name]
        if not 0 <= value <= maximum:
            allowed = (
                "not negative" if math.isinf(maximum) else f"from 0 to the plant's own {maximum:g}"
            )
            raise InputError(
                f"limits.{field}.{channel.name} must be {allowed}, in {channel.unit} per second, "
                f"got {value:g}"
            )


def require_known(kind: str, used: Iterable[str], known: Iterable[str]) -> None:
    """Refuses an unknown name and suggests the closest one."""
    names = list(known)
    for name in used:
        if name not in names:
            raise unknown_name(kind, name, names)


def limited_spec(spec: Spec, cost: Mapping[str, float]) -> Spec:
    """A specification with other limits for its costs.

    Args:
        spec: Specification of the source.
        cost: Limits by name of the cost, each in its unit; an unnamed cost keeps its own.

    Returns:
        The same channels.

    Raises:
        InputError: If a name is unknown.
        ValueError: If a limit is negative or not finite.

    Example:
        >>> from neorl_core import Channel, CostChannel, Spec
        >>> from neorl_train.configuration import limited_spec
        >>> heat = CostChannel("heat", "K min", 20.0, "episode")
        >>> level, valve = Channel("level", "m", 0.0, 2.0), Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((level,), (valve,), (heat,), dt=60.0, horizon=100)
        >>> limited_spec(spec, {"heat": 15.0}).cost[0].limit
        15.0
    """
    require_known("cost", cost, [channel.name for channel in spec.cost])
    channels = [dataclasses.replace(c, limit=cost.get(c.name, c.limit)) for c in spec.cost]
    return dataclasses.replace(spec, cost=tuple(channels))


def cost_sentences(limits: LimitsConfig, spec: Spec) -> list[str]:
    """Describes the limits of the costs in words.

    Returns:
        Sentences such as ``"cost heat at most 20 K min per episode"``, one for each cost.
    """
    return [
        f"cost {channel.name} at most "
        + limit_kind(channel).limit_words(limits.cost[channel.name], channel.unit)
        for channel in spec.cost
    ]
