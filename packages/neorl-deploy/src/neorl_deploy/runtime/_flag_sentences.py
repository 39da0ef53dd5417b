"""What the guard's flags mean for whoever watches the plant, in plain words."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping

from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.runtime._decision import Decision

FLAG_SENTENCES: Mapping[str, str] = types.MappingProxyType(
    {
        "request_nonfinite": "the policy proposes no valid number",
        "observation_nonfinite": "a measurement is missing",
        "bad_constraint": "a limit is not valid",
        "bad_period": "the length of the period is not valid, so nothing with a rate limit moves",
        "previous_unknown": "it is not known what the plant received last",
        "previous_assumed": "the plant did not say what it received, so the last output is assumed",
        "previous_out_of_range": "the plant received a value outside an actuator's range",
        "previous_outside_box": "an actuator is outside its limits and returns at the allowed rate",
        "fallback_nonfinite": "the fallback has no valid number for an actuator, which holds",
        "fallback_clipped": "the fallback is held within the limits",
        "fallback_used": "the fallback acts",
        "box_active": "an actuator is at its limit",
        "rate_active": "an actuator moves as fast as it may",
        "interval_active": "an interlock or a further limit holds an actuator",
        "interval_empty": "limits of an actuator exclude one another and were ignored",
        "rows_active": "a limit on several actuators together changes the action",
        "rows_infeasible": "no action satisfies the limits on several actuators together",
        "wear_active": "an actuator rests to spare it",
        "request_subnormal": "a proposed number is so small that it counts as zero",
        "monitor_alarm": "a monitor alarms",
        "fallback_held": "the fallback stays until there has been no fault for some time",
        "latched": "the fallback stays until somebody releases the loop",
        "hand_over": "control is being handed over without a jump",
        "emergency_stop": "the emergency stop was pressed",
        "authority_active": "the policy may not move an actuator further",
    }
)
"""A sentence for every flag, by the name that a manifest gives it."""

NO_CAUSES = frozenset({"fallback_used", "hand_over", "fallback_clipped", "monitor_alarm"})
"""Flags of a take-over that are not its cause, or that the monitors' names describe better."""

OF_A_LOST_MEASUREMENT = frozenset({"observation_nonfinite", "request_nonfinite"})
"""Flags that say nothing more where a measurement is lost."""


def flag_sentences(flags: Iterable[str], *, lost: bool = False) -> list[str]:
    """The flags in words, in their order.

    Args:
        flags: Names of flags.
        lost: Whether a lost measurement is named already, from which some of them follow.

    Example:
        >>> flag_sentences(["request_nonfinite", "fallback_held"], lost=True)
        ['the fallback stays until there has been no fault for some time']
    """
    return [
        FLAG_SENTENCES.get(name, name.replace("_", " "))
        for name in flags
        if not (lost and name in OF_A_LOST_MEASUREMENT)
    ]


def causes_in_words(manifest: Manifest, decision: Decision, *, lost: bool = False) -> list[str]:
    """Why policy or fallback acts in a decision: the monitors that alarm, then the flags."""
    alarms = [f"monitor {name} alarms" for name in manifest.alarm_names(decision.alarms)]
    flags = [name for name in manifest.flag_names(decision.flags) if name not in NO_CAUSES]
    return alarms + flag_sentences(flags, lost=lost)
