"""The modes of the loop, every transition between them, and the bounded authority of a trial."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

# The modes of the loop and every transition between them.


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
        (mode, Mode.MANUAL): "a person requests it"
        + (
            ", moves an actuator by hand, or the loop releases the actuators"
            if mode in WRITING
            else ""
        )
        for mode in Mode
        if mode is not Mode.MANUAL
    },
    **{
        (mode, target): "a person requests it"
        for mode in Mode
        for target in (Mode.SHADOW, Mode.ADVISORY)
        if mode is not target
    },
    **{
        (mode, Mode.CLOSED_LOOP): "a person requests it, and there has been no fault for some steps"
        for mode in (Mode.MANUAL, Mode.SHADOW, Mode.ADVISORY)
    },
    (
        Mode.CLOSED_LOOP,
        Mode.FALLBACK,
    ): "the guard does not let the policy act, or somebody stopped it",
    (Mode.FALLBACK, Mode.CLOSED_LOOP): "the guard lets the policy act again",
}
"""Every possible transition, with its cause."""


class ModeConditions(NamedTuple):
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


def next_mode(mode: Mode, conditions: ModeConditions) -> tuple[Mode, str]:
    """The mode of this step and the reason for it.

    A mode other than the closed loop takes effect as soon as a person requests it. The loop closes
    only if nothing speaks against it, and opens at the first thing that does.

    Args:
        mode: The mode of the previous step.
        conditions: The situation of this step.

    Returns:
        The mode, and the reason as text.
    """
    if conditions.target is not Mode.CLOSED_LOOP:
        return conditions.target, "requested"
    if mode not in WRITING:
        if conditions.not_ready:
            return mode, f"not closed yet: {conditions.not_ready}"
        return Mode.CLOSED_LOOP, "requested, and nothing prevents it"
    if conditions.give_up:
        return Mode.MANUAL, conditions.give_up
    if conditions.fallback:
        return Mode.FALLBACK, conditions.fallback
    return Mode.CLOSED_LOOP, "no fault and no alarm"


# Bounded authority: limits how far a policy on trial may move the actuators.


class Authority(NamedTuple):
    """A band around the actuator positions at the time it was granted.

    The filter of the bundle solves it together with box, rate and rows. It binds the policy alone,
    and yields to every limit that protects the plant.

    Attributes:
        anchor: Values that the actuators held, in the units of the channels.
        width: How far an action may lie from the anchor, by channel.
    """

    anchor: np.ndarray
    width: np.ndarray

    @property
    def band(self) -> np.ndarray:
        """Lowest and highest action that the policy may send, shape ``(2, act)``."""
        return np.stack([self.anchor - self.width, self.anchor + self.width])
