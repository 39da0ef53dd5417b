"""The guard of a run: its limits, and the controller that acts if the policy cannot."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax.numpy as jnp

from neorl_core import Channel, InputError, Policy, Spec
from neorl_core.control import ConstantPolicy
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


FallbackKind = Literal["default", "reference", "constant", "classical"]
FurtherKind = Literal["reference", "constant", "classical"]


@dataclasses.dataclass(frozen=True)
class FallbackConfig:
    """The controller that acts inside the guard if the policy cannot.

    Attributes:
        kind: ``"reference"`` is the plant's reference controller; ``"constant"`` is the action in
            ``values``; ``"classical"`` is ``controller``, fitted on the log or declared;
            ``"default"`` is the reference controller for a plant, and the constant mean logged
            action for a log.
        values: Action of a constant fallback by channel name, in the channel's unit.
        controller: One of ``classical.controllers`` or ``classical.declared``, for a classical
            fallback.
        then: Additional kinds in order; each acts if all before it give no finite action.
    """

    kind: FallbackKind = "default"
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    controller: str = ""
    then: tuple[FurtherKind, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds, the preferred one first."""
        return (self.kind, *self.then)


def resolved_fallback(
    fallback: FallbackConfig,
    limits: LimitsConfig,
    spec: Spec,
    *,
    reference: str,
    mean: Sequence[float] | None,
    controllers: Sequence[str] = (),
) -> FallbackConfig:
    """The explicit kind of the fallback, with its action.

    Args:
        fallback: Fallback as configured.
        limits: Resolved limits; a constant must lie inside their box.
        spec: Channels with their units.
        reference: Name of the plant's reference controller; empty if there is only a log.
        mean: Mean logged action, the default if there is no plant.
        controllers: Names of the classical controllers that the run fits or declares.

    Returns:
        A fallback of kind ``"reference"``, ``"classical"`` or ``"constant"``; the last with a value
        for every channel.

    Raises:
        InputError: If the kind is unknown, a log is asked for its reference controller, a value is
            given that has no effect, a classical controller is not fitted, or a constant lacks a
            channel, names an unknown one, or leaves the box.
    """
    names = [channel.name for channel in spec.action]
    require_known("fallback.kind", [fallback.kind], get_args(FallbackKind))
    require_known("action channel in fallback.values", fallback.values, names)
    require_known("kind in fallback.then", fallback.then, get_args(FurtherKind))
    if fallback.values and not any(k in _RULES and _RULES[k].takes_values for k in fallback.kinds):
        raise InputError(
            f"fallback.values has no effect with fallback.kind {fallback.kind!r}; add "
            "`--fallback.kind constant`, or leave the values out"
        )
    _check_controller(fallback, controllers)
    if fallback.kind == "default":
        fallback = _default(fallback, limits, names, reference, mean)
    if len(set(fallback.kinds)) < len(fallback.kinds):
        raise InputError(
            "fallback.kind and fallback.then repeat a kind: "
            f"{', '.join(fallback.kinds)}; name each kind once"
        )
    for kind in fallback.kinds:
        _RULES[kind].check(fallback, limits, spec, reference)
    ordered = {name: fallback.values[name] for name in names if name in fallback.values}
    return dataclasses.replace(fallback, values=ordered)


def _default(
    fallback: FallbackConfig,
    limits: LimitsConfig,
    names: Sequence[str],
    reference: str,
    mean: Sequence[float] | None,
) -> FallbackConfig:
    """The reference controller for a plant; for a log, the mean logged action inside the box."""
    if reference:
        return dataclasses.replace(fallback, kind="reference")
    pairs = [] if mean is None else zip(names, mean, strict=True)
    values = {n: min(max(float(x), limits.low[n]), limits.high[n]) for n, x in pairs}
    return dataclasses.replace(fallback, kind="constant", values=values)


def _check_controller(fallback: FallbackConfig, controllers: Sequence[str]) -> None:
    if "classical" in fallback.kinds:
        if not controllers:
            name = fallback.controller or "pid"
            raise InputError(
                "the fallback is classical, but no classical controller is fitted; add "
                f"`--classical.controllers {name}`"
            )
        require_known("fallback.controller", [fallback.controller], controllers)
    elif fallback.controller:
        raise InputError(
            f"fallback.controller has no effect with fallback.kind {fallback.kind!r}; add "
            "`--fallback.kind classical`, or leave it out"
        )


def fallback_policy(
    fallback: FallbackConfig,
    environment: Any,
    spec: Spec,
    controllers: Mapping[str, Policy] | None = None,
) -> Policy:
    """The controller that a resolved fallback names."""
    return _rule(fallback.kind).policy(fallback, environment, spec, controllers or {})


def fallback_policies(
    fallback: FallbackConfig,
    environment: Any,
    spec: Spec,
    controllers: Mapping[str, Policy] | None = None,
) -> list[Policy]:
    """The controllers of a resolved fallback, the preferred one first."""
    one_per_kind = [dataclasses.replace(fallback, kind=kind) for kind in fallback.kinds]
    return [fallback_policy(single, environment, spec, controllers) for single in one_per_kind]


def fallback_sentence(
    fallback: FallbackConfig,
    spec: Spec,
    *,
    reference: str,
    given: bool,
    declared: Collection[str] = (),
) -> str:
    """Describes in one sentence, without a full stop, what the fallback does."""
    clauses = [
        f"the declared controller {fallback.controller}"
        if kind == "classical" and fallback.controller in declared
        else _rule(kind).text(fallback, spec, reference, given)
        for kind in fallback.kinds
    ]
    return "; if that gives no finite action, ".join(clauses)


def _check_reference(
    fallback: FallbackConfig, limits: LimitsConfig, spec: Spec, reference: str
) -> None:
    if not reference:
        raise InputError(
            "fallback.kind is 'reference', and a log has no controller; declare an action with "
            f"`--fallback.kind constant --fallback.values {spec.action[0].name} NUMBER`"
        )


def _reference_policy(
    fallback: FallbackConfig, environment: Any, spec: Spec, controllers: Mapping[str, Policy]
) -> Policy:
    return environment.tunings()[environment.reference]


def _reference_text(fallback: FallbackConfig, spec: Spec, reference: str, given: bool) -> str:
    return f"the plant's reference controller, {reference}"


def _check_constant(
    fallback: FallbackConfig, limits: LimitsConfig, spec: Spec, reference: str
) -> None:
    for channel in spec.action:
        _check_value(channel, fallback.values, limits)


def _check_value(channel: Channel, values: Mapping[str, float], limits: LimitsConfig) -> None:
    name, unit = channel.name, channel.unit
    box = f"{limits.low[name]:g} to {limits.high[name]:g} {unit}"
    if name not in values:
        raise InputError(
            f"fallback.values has no entry for {name}, and a constant fallback needs an action for "
            f"every channel; add `--fallback.values {name} NUMBER` in {box}"
        )
    if not limits.low[name] <= values[name] <= limits.high[name]:
        raise InputError(
            f"fallback.values.{name} is {values[name]:g} {unit}, outside the box of the guard, "
            f"{box}"
        )


def _constant_policy(
    fallback: FallbackConfig, environment: Any, spec: Spec, controllers: Mapping[str, Policy]
) -> Policy:
    values = [fallback.values[channel.name] for channel in spec.action]
    return ConstantPolicy(jnp.asarray(values, jnp.float32))


def _constant_text(fallback: FallbackConfig, spec: Spec, reference: str, given: bool) -> str:
    values = [
        # A published log states no units.
        f"{c.name} {fallback.values[c.name]:.4g} {c.unit}".removesuffix(" ?")
        for c in spec.action
    ]
    why = "" if given else " (the mean logged action, because no fallback was declared)"
    return f"holds {', '.join(values)}{why}"


def _check_classical(
    fallback: FallbackConfig, limits: LimitsConfig, spec: Spec, reference: str
) -> None:
    """Accepts any controller: whether it is fitted was checked where the names are known."""


def _classical_policy(
    fallback: FallbackConfig, environment: Any, spec: Spec, controllers: Mapping[str, Policy]
) -> Policy:
    return controllers[fallback.controller]


def _classical_text(fallback: FallbackConfig, spec: Spec, reference: str, given: bool) -> str:
    return f"the classical controller {fallback.controller}, fitted on the log"


@dataclasses.dataclass(frozen=True)
class _Rule:
    """How to check, build and describe a fallback of one kind.

    Attributes:
        takes_values: Whether ``fallback.values`` is its action.
        check: Refuses what the source or the limits do not allow.
        policy: Builder of the controller.
        text: Describes the fallback as text.
    """

    takes_values: bool
    check: Callable[[FallbackConfig, LimitsConfig, Spec, str], None]
    policy: Callable[[FallbackConfig, Any, Spec, Mapping[str, Policy]], Policy]
    text: Callable[[FallbackConfig, Spec, str, bool], str]


_RULES: dict[str, _Rule] = {
    "reference": _Rule(False, _check_reference, _reference_policy, _reference_text),
    "constant": _Rule(True, _check_constant, _constant_policy, _constant_text),
    "classical": _Rule(False, _check_classical, _classical_policy, _classical_text),
}
"""Every kind except ``"default"``, which is resolved to one of these."""


def _rule(kind: str) -> _Rule:
    if kind not in _RULES:
        raise unknown_name("kind of a resolved fallback", kind, _RULES)
    return _RULES[kind]
