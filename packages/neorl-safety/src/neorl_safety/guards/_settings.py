"""All settings of a guard besides its constraints, as one document."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from neorl_core import InputError, Policy, Spec
from neorl_core.infrastructure import check_head, head, unknown_name
from neorl_safety.constraints import AnyConstraints
from neorl_safety.guards._chain import fallback_chain
from neorl_safety.guards._guard import GuardedPolicy, default_supervision, guard
from neorl_safety.guards._supervisor import Supervision, supervision
from neorl_safety.monitoring import (
    NamedMonitor,
    describe_monitor,
    monitors_from_dict,
    monitors_to_dict,
    range_monitor,
)

VERSION = 1
FIELDS = {"supervisor", "fallbacks", "max_age", "monitors"}
COUNTS = ("trip_after", "reset_after", "dwell", "latch_after", "assume_for")


@dataclasses.dataclass(frozen=True)
class GuardSettings:
    """Monitors, take-over rules, and the order of the fallbacks.

    Attributes:
        supervision: When to trip, to reset and to latch.
        monitors: Monitors with their names, at most 32.
        fallbacks: Names of the fallbacks in order of preference.
        max_age: Seconds after which a measurement counts as lost, by name of the channel; the age
            of a channel that is not listed is not checked.
    """

    supervision: Supervision
    monitors: tuple[NamedMonitor, ...]
    fallbacks: tuple[str, ...] = ("fallback",)
    max_age: Mapping[str, float] = dataclasses.field(default_factory=dict)


def default_settings(spec: Spec) -> GuardSettings:
    """The default settings of :func:`guard`: measuring ranges and one fallback."""
    return GuardSettings(
        default_supervision(spec.dt), (NamedMonitor("range", range_monitor(spec)),)
    )


def guard_with(
    settings: GuardSettings,
    policy: Policy,
    constraints: AnyConstraints,
    fallbacks: Mapping[str, Policy],
    spec: Spec,
) -> GuardedPolicy:
    """Calls :func:`guard` with these settings.

    Args:
        settings: Settings whose fallbacks all occur in ``fallbacks``.
        policy: Policy to guard.
        constraints: Constraints on the policy's actions.
        fallbacks: Fallbacks by name.
        spec: The control problem.

    Returns:
        The guarded policy; several fallbacks act in order (:func:`fallback_chain`).

    Raises:
        InputError: If a fallback is missing, or as for :func:`guard`.
    """
    for name in settings.fallbacks:
        if name not in fallbacks:
            raise unknown_name("fallback", name, fallbacks)
    members = [fallbacks[name] for name in settings.fallbacks]
    fallback = members[0] if len(members) == 1 else fallback_chain(*members)
    return guard(
        policy,
        constraints,
        fallback,
        spec,
        supervision=settings.supervision,
        monitors=[named.monitor for named in settings.monitors],
    )


def settings_to_dict(settings: GuardSettings, spec: Spec) -> dict[str, Any]:
    """The settings as plain dictionaries, lists, strings and numbers, ready for JSON."""
    plain: dict[str, Any] = {name: int(getattr(settings.supervision, name)) for name in COUNTS}
    return {
        **head("guard", VERSION),
        "supervisor": {**plain, "settle": float(settings.supervision.settle)},
        "fallbacks": list(settings.fallbacks),
        "max_age": {name: float(age) for name, age in settings.max_age.items()},
        "monitors": monitors_to_dict(settings.monitors, spec),
    }


def settings_from_dict(
    data: Mapping[str, Any],
    spec: Spec,
    policies: Mapping[str, Policy] | None = None,
    source: str = "guard",
) -> GuardSettings:
    """Inverse of :func:`settings_to_dict`.

    Args:
        data: Result of :func:`settings_to_dict`, possibly after a round trip through JSON.
        spec: Specification whose observations are monitored.
        policies: Policies by name, for monitors of their disagreement.
        source: Origin of the data, for messages.

    Returns:
        The settings.

    Raises:
        InputError: If the document has another format or version or is for another plant, or a
            field is missing, unknown or bad; the message names it.
    """
    fields = check_head(data, "guard", VERSION, source)
    if set(fields) != FIELDS:
        raise InputError(f"{source} must have the fields {sorted(FIELDS)}, got {sorted(fields)}")
    supervisor, fallbacks = fields["supervisor"], fields["fallbacks"]
    if not isinstance(supervisor, Mapping) or set(supervisor) != {*COUNTS, "settle"}:
        given = sorted(supervisor) if isinstance(supervisor, Mapping) else repr(supervisor)
        raise InputError(
            f"{source}: supervisor must have the fields {sorted([*COUNTS, 'settle'])}, got {given}"
        )
    are_names = isinstance(fallbacks, list) and all(isinstance(name, str) for name in fallbacks)
    if not (are_names and fallbacks and len(set(fallbacks)) == len(fallbacks)):
        raise InputError(
            f"{source}: fallbacks must be a list of different names, got {fallbacks!r}"
        )
    if isinstance(supervisor["settle"], bool) or not isinstance(supervisor["settle"], int | float):
        raise InputError(
            f"{source}: settle must be a number of seconds, got {supervisor['settle']!r}"
        )
    return GuardSettings(
        supervision=supervision(**supervisor),
        monitors=tuple(monitors_from_dict(fields["monitors"], spec, policies, source)),
        fallbacks=tuple(fallbacks),
        max_age=usable_ages(fields["max_age"], spec, f"{source}: max_age"),
    )


def usable_ages(ages: Any, spec: Spec, where: str) -> dict[str, float]:
    """Largest ages by observed channel.

    Raises:
        InputError: If a channel is not observed or an age is not a positive number of seconds.
    """
    if not isinstance(ages, Mapping):
        raise InputError(f"{where} must be a table of seconds by channel, got {ages!r}")
    names = [channel.name for channel in spec.obs]
    for name, age in ages.items():
        if name not in names:
            raise InputError(f"{where}: {unknown_name('channel', str(name), names)}")
        number = isinstance(age, int | float) and not isinstance(age, bool)
        if not (number and math.isfinite(age) and age > 0):
            raise InputError(f"{where}.{name} must be a positive number of seconds, got {age!r}")
    return {name: float(age) for name, age in ages.items()}


def describe_settings(settings: GuardSettings, spec: Spec) -> list[str]:
    """Describes the monitors and the take-over rules in words with units.

    Args:
        settings: Settings with concrete numbers.
        spec: Specification that provides units and the period.

    Returns:
        Sentences without full stops: the monitors, the ages, then the supervisor.
    """
    supervision_settings = settings.supervision
    steps = {name: int(getattr(supervision_settings, name)) for name in COUNTS}
    stale = [f"{name} older than {age:g} s" for name, age in settings.max_age.items()]
    sentences = [f"alarm at {describe_monitor(named, spec)}" for named in settings.monitors]
    sentences += [f"a measurement counts as lost: {', '.join(stale)}"] if stale else []
    sentences.append(
        f"the fallback takes over after {_steps(steps['trip_after'])} with an alarm, and "
        f"immediately if the policy cannot act; it acts for at least {_steps(steps['dwell'])}, "
        f"until {_steps(steps['reset_after'])} in a row raised no alarm"
    )
    if steps["latch_after"]:
        sentences.append(
            f"after {steps['latch_after']} take-overs it stays in charge until an operator "
            "releases it"
        )
    sentences.append(
        "if the plant does not report the action that it last received, the guard assumes its own "
        f"last action for {_steps(steps['assume_for'])}; after a hand-over the offset decays with "
        f"a time constant of {float(supervision_settings.settle):g} s"
    )
    if len(settings.fallbacks) > 1:
        sentences.append(
            "fallbacks in order, of which the first that can act is used: "
            f"{', '.join(settings.fallbacks)}"
        )
    return sentences


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"
