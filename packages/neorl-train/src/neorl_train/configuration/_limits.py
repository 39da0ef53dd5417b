"""Limits of a run: the source's own, unless the run declares others."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from neorl_core import Channel, InputError, Spec
from neorl_core.boundary import unknown_name
from neorl_core.costs import limit_kind


@dataclasses.dataclass(frozen=True)
class LimitsConfig:
    """What a policy is judged by and acts within; what is not named is the source's own.

    Attributes:
        cost: Largest admissible cost by name of the cost, in its unit, over a step or an episode
            as the source declares it.
        low: Smallest action by name of the channel, in its unit; not below the channel's range.
        high: Largest action by name of the channel, in its unit; not above the channel's range.
        rate_up: Largest rise of an action by name of the channel, in its unit per second; ``inf``
            for no limit.
        rate_down: Largest fall of an action as a positive number, in its unit per second.
    """

    cost: dict[str, float] = dataclasses.field(default_factory=dict)
    low: dict[str, float] = dataclasses.field(default_factory=dict)
    high: dict[str, float] = dataclasses.field(default_factory=dict)
    rate_up: dict[str, float] = dataclasses.field(default_factory=dict)
    rate_down: dict[str, float] = dataclasses.field(default_factory=dict)


def declared_limits(spec: Spec, rates: Sequence[float] | None) -> LimitsConfig:
    """The limits that a source has by itself.

    Args:
        spec: Cost channels, and actions with their ranges.
        rates: Largest change of every action per second, infinite for no limit; ``None`` where
            nothing is known of them, as for a log.

    Returns:
        A value for every cost and every action channel.
    """
    names = [channel.name for channel in spec.action]
    known = [math.inf] * spec.n_action if rates is None else [float(rate) for rate in rates]
    return LimitsConfig(
        cost={channel.name: float(channel.limit) for channel in spec.cost},
        low={channel.name: float(channel.low) for channel in spec.action},
        high={channel.name: float(channel.high) for channel in spec.action},
        rate_up=dict(zip(names, known, strict=True)),
        rate_down=dict(zip(names, known, strict=True)),
    )


def resolved_limits(limits: LimitsConfig, declared: LimitsConfig, spec: Spec) -> LimitsConfig:
    """Every limit written out: the run's where it has one, else the declared one.

    Args:
        limits: Limits as configured.
        declared: Limits of :func:`declared_limits`.
        spec: Channels, whose units the messages name.

    Returns:
        A value for every cost and every action channel.

    Raises:
        InputError: If a name is unknown, a cost's limit is negative or not finite, a box leaves
            the range of its channel or is empty, or a rate is negative or above the declared one.
    """
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
    merged = LimitsConfig(
        **{
            field.name: {**getattr(declared, field.name), **getattr(limits, field.name)}
            for field in dataclasses.fields(LimitsConfig)
        }
    )
    for channel in spec.action:
        _check_box(channel, merged)
        _check_rates(channel, merged, declared)
    return merged


def _check_box(channel: Channel, limits: LimitsConfig) -> None:
    low, high = limits.low[channel.name], limits.high[channel.name]
    for field, value in (("low", low), ("high", high)):
        if not channel.low <= value <= channel.high:
            raise InputError(
                f"limits.{field}.{channel.name} is {value:g} {channel.unit}, outside the range of "
                f"the channel, {channel.low:g} to {channel.high:g} {channel.unit}; a box can only "
                "be tightened"
            )
    if low > high:
        raise InputError(
            f"limits.low.{channel.name} is {low:g} {channel.unit}, above limits.high."
            f"{channel.name}, {high:g} {channel.unit}; lower it"
        )


def _check_rates(channel: Channel, limits: LimitsConfig, declared: LimitsConfig) -> None:
    for field in ("rate_up", "rate_down"):
        value = getattr(limits, field)[channel.name]
        most = getattr(declared, field)[channel.name]
        if not 0 <= value <= most:
            least = "not negative" if math.isinf(most) else f"from 0 to the plant's own {most:g}"
            raise InputError(
                f"limits.{field}.{channel.name} must be {least}, in {channel.unit} per second, "
                f"got {value:g}"
            )


def require_known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a name that is not known.

    Raises:
        InputError: With the nearest name.
    """
    names = list(known)
    for name in given:
        if name not in names:
            raise unknown_name(kind, name, names)


def limited_spec(spec: Spec, cost: Mapping[str, float]) -> Spec:
    """A specification with other limits of its costs.

    Args:
        spec: Specification of the source.
        cost: Limits by name of the cost, each in its unit; a cost that is not named keeps its own.

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


def limit_sentences(limits: LimitsConfig, declared: LimitsConfig, spec: Spec) -> list[str]:
    """The limits of a run in words: one sentence for every cost and every action.

    Args:
        limits: Resolved.
        declared: The source's own, which are told where the run has others.
        spec: Channels with their units.

    Returns:
        Such as ``"valve: 10 to 100 % (declared: 0 to 100), may change at any rate"``.
    """
    return [
        *(_cost_sentence(limits, declared, spec, i) for i in range(spec.n_cost)),
        *(_action_sentence(limits, declared, channel) for channel in spec.action),
    ]


def _cost_sentence(limits: LimitsConfig, declared: LimitsConfig, spec: Spec, i: int) -> str:
    channel = spec.cost[i]
    value, own = limits.cost[channel.name], declared.cost[channel.name]
    words = limit_kind(channel).limit_words(value, channel.unit)
    return f"cost {channel.name}: at most {words}" + _unless(value == own, f"{own:g}")


def _action_sentence(limits: LimitsConfig, declared: LimitsConfig, channel: Channel) -> str:
    box, own = [(of.low[channel.name], of.high[channel.name]) for of in (limits, declared)]
    rates, own_rates = [
        (of.rate_up[channel.name], of.rate_down[channel.name]) for of in (limits, declared)
    ]
    unit = "" if channel.unit == "1" else f" {channel.unit}"
    return (
        f"{channel.name}: {box[0]:g} to {box[1]:g}{unit}"
        + _unless(box == own, f"{own[0]:g} to {own[1]:g}")
        + f", {_rate_words(rates, unit)}"
        + _unless(rates == own_rates, _rate_words(own_rates, unit))
    )


def _rate_words(rates: tuple[float, float], unit: str) -> str:
    parts = zip(("rises", "falls"), rates, strict=True)
    limited = [f"{verb} by at most {r:g}{unit} per second" for verb, r in parts if math.isfinite(r)]
    return " and ".join(limited) or "may change at any rate"


def _unless(same: bool, own: str) -> str:
    return "" if same else f" (declared: {own})"
