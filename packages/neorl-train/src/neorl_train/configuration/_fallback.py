"""The fallback of a run: who acts where the policy cannot."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from neorl_core import Channel, InputError, Spec
from neorl_train.configuration._limits import LimitsConfig, require_known

FallbackKind = Literal["default", "reference", "constant"]


@dataclasses.dataclass(frozen=True)
class FallbackConfig:
    """What acts inside the guard where the policy cannot.

    Attributes:
        kind: ``"reference"`` is the plant's reference controller; ``"constant"`` is the action in
            ``values``; ``"default"`` is the reference of a plant, and of a log the mean logged
            action, held.
        values: Action of a constant fallback by name of the channel, in its unit.
    """

    kind: FallbackKind = "default"
    values: dict[str, float] = dataclasses.field(default_factory=dict)


def resolved_fallback(
    fallback: FallbackConfig,
    limits: LimitsConfig,
    spec: Spec,
    *,
    reference: str,
    mean: Sequence[float] | None,
) -> FallbackConfig:
    """The kind of the fallback and its action, written out.

    Args:
        fallback: Fallback as configured.
        limits: Resolved; a constant lies inside their box.
        spec: Channels with their units.
        reference: Name of the plant's reference controller; empty where there is only a log.
        mean: Mean logged action, the default where there is no plant.

    Returns:
        Of kind ``"reference"`` or ``"constant"``; the latter with a value for every channel.

    Raises:
        InputError: If a log is asked for its reference controller, a value is given that has
            no effect, or a constant lacks a channel, names another, or leaves the box.
    """
    names = [channel.name for channel in spec.action]
    require_known("action channel in fallback.values", fallback.values, names)
    if fallback.kind != "constant" and fallback.values:
        raise InputError(
            f"fallback.values is of no effect with fallback.kind {fallback.kind!r}; add "
            "`--fallback.kind constant`, or leave the values out"
        )
    if fallback.kind == "reference" and not reference:
        raise InputError(
            "fallback.kind is 'reference', and a log has no controller; declare an action with "
            f"`--fallback.kind constant --fallback.values {names[0]} NUMBER`"
        )
    if fallback.kind == "reference" or (fallback.kind == "default" and reference):
        return FallbackConfig("reference", {})
    values = dict(fallback.values)
    if fallback.kind == "default" and mean is not None:
        pairs = zip(names, mean, strict=True)
        values = {n: min(max(float(x), limits.low[n]), limits.high[n]) for n, x in pairs}
    for channel in spec.action:
        _check_held(channel, values, limits)
    return FallbackConfig("constant", {name: values[name] for name in names})


def _check_held(channel: Channel, values: dict[str, float], limits: LimitsConfig) -> None:
    name, unit = channel.name, channel.unit
    box = f"{limits.low[name]:g} to {limits.high[name]:g} {unit}"
    if name not in values:
        raise InputError(
            f"fallback.values lacks {name}; a constant fallback needs an action for every channel, "
            f"here `--fallback.values {name} NUMBER` in {box}"
        )
    if not limits.low[name] <= values[name] <= limits.high[name]:
        raise InputError(
            f"fallback.values.{name} is {values[name]:g} {unit}, outside the box of the guard, "
            f"{box}"
        )


def fallback_sentence(fallback: FallbackConfig, spec: Spec, *, reference: str, given: bool) -> str:
    """What the fallback does, in words.

    Args:
        fallback: Resolved.
        spec: Channels with their units.
        reference: Name of the plant's reference controller.
        given: Whether the run declared it.

    Returns:
        One sentence without a full stop.
    """
    if fallback.kind == "reference":
        return f"the plant's reference controller, {reference}"
    values = [f"{c.name} {fallback.values[c.name]:.4g} {c.unit}" for c in spec.action]
    why = "" if given else " (the mean logged action, because no fallback was declared)"
    return f"holds {', '.join(values)}{why}"
