"""The modes of the loop and every transition between them."""

import enum
from typing import NamedTuple


class Mode(enum.StrEnum):
    """Mode of the loop: which controller owns the actuators."""

    MANUAL = "manual"
    """A person or the plant's own controller acts; the loop writes nothing."""
    SHADOW = "shadow"
    """As manual mode, but the bundle's decisions are recorded beside the actual actions."""
    ADVISORY = "advisory"
    """The bundle's decisions are written to advice tags, and a person decides."""
    CLOSED_LOOP = "closed loop"
    """The policy acts through its guard."""
    FALLBACK = "fallback"
    """The bundle's fallback controller acts, because the policy may not act now."""


WRITING = frozenset({Mode.CLOSED_LOOP, Mode.FALLBACK})
"""Modes in which the loop writes to the actuators."""

TARGETS = (Mode.MANUAL, Mode.SHADOW, Mode.ADVISORY, Mode.CLOSED_LOOP)
"""Modes that a person may request, in the order of the mode tag's numbers, from 0."""

TRANSITIONS: dict[tuple[Mode, Mode], str] = {
    **{
        (mode, Mode.MANUAL): "a person asks for it"
        + (
            ", moves an actuator by hand, or the loop gives the actuators up"
            if mode in WRITING
            else ""
        )
        for mode in Mode
        if mode is not Mode.MANUAL
    },
    **{
        (mode, target): "a person asks for it"
        for mode in Mode
        for target in (Mode.SHADOW, Mode.ADVISORY)
        if mode is not target
    },
    **{
        (mode, Mode.CLOSED_LOOP): "a person asks for it, and everything has been well for a while"
        for mode in (Mode.MANUAL, Mode.SHADOW, Mode.ADVISORY)
    },
    (Mode.CLOSED_LOOP, Mode.FALLBACK): "the guard does not let the policy act, or a stop",
    (Mode.FALLBACK, Mode.CLOSED_LOOP): "the guard lets the policy act again",
}
"""Every possible transition, with its cause."""


class Situation(NamedTuple):
    """Inputs for choosing the next mode; a reason that does not apply is empty.

    Attributes:
        target: The most recently requested mode.
        give_up: Why the loop must release the actuators.
        fallback: Why the fallback acts in this step.
        not_ready: Why the loop may not be closed now.
    """

    target: Mode
    give_up: str = ""
    fallback: str = ""
    not_ready: str = ""


def next_mode(mode: Mode, now: Situation) -> tuple[Mode, str]:
    """The mode of this step and the reason for it.

    A mode other than the closed loop takes effect as soon as a person requests it. The loop closes
    only if nothing speaks against it, and opens at the first thing that does.

    Args:
        mode: The mode of the previous step.
        now: The situation of this step.

    Returns:
        The mode, and the reason as text.
    """
    if now.target is not Mode.CLOSED_LOOP:
        return now.target, "asked for"
    if mode not in WRITING:
        if now.not_ready:
            return mode, f"not closed yet: {now.not_ready}"
        return Mode.CLOSED_LOOP, "asked for, and nothing prevents it"
    if now.give_up:
        return Mode.MANUAL, now.give_up
    if now.fallback:
        return Mode.FALLBACK, now.fallback
    return Mode.CLOSED_LOOP, "no fault and no alarm"
