"""What persons order: modes, stops and releases; and which of several orders wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from neorl_deploy.loop._modes import TARGETS, WRITING, Mode

STOP, RELEASE = "stop", "release"
ARMED = 60.0
"""Seconds after the mode tag has reached 2 within which a 3 is a request for the closed loop."""


class Order(NamedTuple):
    """One order.

    Attributes:
        what: A mode, :data:`STOP` or :data:`RELEASE`.
        by: Name of the person and the reason.
        author: What orders by itself, such as a roll-out; empty for a person. Its later requests
            take the place of its earlier ones.
    """

    what: Mode | str
    by: str
    author: str = ""


class Outcome(NamedTuple):
    """What the orders of one period come to.

    Attributes:
        target: The requested mode.
        asked: Whether the closed loop was requested anew.
        stop: Who stops the loop; empty if nobody does.
        release: Who releases a stop; empty if nobody does.
        notes: One line for each order.
    """

    target: Mode
    asked: bool
    stop: str
    release: str
    notes: tuple[str, ...]


def carry_out(orders: Sequence[Order], mode: Mode, target: Mode, stopped: str) -> Outcome:
    """Decides what the orders of one period come to; a stop wins, whatever their sequence.

    With a stop, every other order of the period is dropped, except a request for manual, in which
    the loop writes nothing and the plant has its actuators. While a stop is in force, a request for
    the closed loop is dropped, and so is one in the same period as a request for another mode. A
    release leads to shadow, and nothing else of its period closes the loop.

    Args:
        orders: The orders of the period, oldest first.
        mode: Mode of the previous period.
        target: The most recently requested mode.
        stopped: Who had stopped the loop before; empty if no stop is in force.
    """
    notes, asked, release = [], False, ""
    stops = [order.by for order in orders if order.what == STOP]
    openers = [o for o in orders if o.what in TARGETS and o.what is not Mode.CLOSED_LOOP]
    for what, by, author in orders:
        opened = any(not other.author or other.author != author for other in openers)
        if what == STOP:
            notes.append(f"emergency stop: {by}")
        elif what is Mode.MANUAL:
            target, asked = Mode.MANUAL, False
            notes.append(f"{what} was requested: {by}")
        elif stops:
            notes.append(f"{what} is not carried out, because of the emergency stop: {by}")
        elif what == RELEASE:
            target, asked, release = Mode.SHADOW, False, by
            notes.append(f"released, in shadow: {by}")
        elif what is Mode.CLOSED_LOOP and (stopped or release or opened):
            why = f"it is stopped ({stopped})" if stopped else "another mode was requested, too"
            why = "it was released in this period" if release else why
            notes.append(f"{what} is not carried out, because {why}: {by}")
        else:
            target, asked = Mode(what), what is Mode.CLOSED_LOOP
            notes.append(f"{what} was requested: {by}")
    if stops and target is Mode.CLOSED_LOOP and mode not in WRITING:
        target = mode
    return Outcome(target, asked, stops[0] if stops else "", release, tuple(notes))


def level_order(name: str, tag: str, value: float) -> Order | None:
    """What a tag orders by the value that it shows, while the loop writes.

    Directly before a write this may be seen and be over by the next period, as with a button that a
    person presses for a second. It is an order nevertheless.

    Args:
        name: What the tag is: ``"stop"``, ``"mode"``, ``"heartbeat"`` or ``"permit CHANNEL"``.
        tag: Its address, for the messages.
        value: What it shows; NaN, which orders nothing, if that cannot be trusted.
    """
    shows = f"the tag {tag} shows {value:g}"
    if math.isnan(value):
        return None
    if name == "stop":
        return Order(STOP, shows) if value else None
    if name == "mode" and value != TARGETS.index(Mode.CLOSED_LOOP):
        return Order(TARGETS[int(value)] if value in range(len(TARGETS)) else Mode.MANUAL, shows)
    if name == "heartbeat":
        return Order(Mode.MANUAL, f"somebody else writes the heartbeat {tag}")
    return Order(Mode.MANUAL, shows) if name.startswith("permit ") and value != 1 else None


class ModeTag(NamedTuple):
    """What the mode tag has shown since the connection was made; NaN if nothing yet.

    Attributes:
        value: The last number.
        since: When it took this number, monotonic.
    """

    value: float = math.nan
    since: float = math.nan


NOT_SHOWN = ModeTag()


def read_mode_tag(
    before: ModeTag, value: float, mode: Mode, monotonic: float, *, tag: str, armed: float = ARMED
) -> tuple[ModeTag, Order | None, str]:
    """What the mode tag orders: down to any mode, but up by one step at a time.

    The first number of a connection is no order, because a server that restarts shows a default. A
    panel that then restores the number of before the restart jumps, which is no order either. The 3
    must follow the 2 within a minute. While the loop writes, the tag is a level: any number but 3
    opens the loop.

    Args:
        before: What the tag showed in the last period.
        value: What it shows now; NaN if that cannot be trusted.
        mode: Mode of the previous period.
        monotonic: Time of this period.
        tag: Its address, for the messages.
        armed: Seconds after a 2 within which a 3 is a request.

    Returns:
        What it has shown, its order, and a note on a change that is no order.
    """
    if math.isnan(value):
        return NOT_SHOWN, None, ""
    changed = value != before.value
    after = ModeTag(value, monotonic) if changed else before
    known = value in range(len(TARGETS))
    shown = f"{value:g}" if known else f"{value:g}; modes are 0 to {len(TARGETS) - 1}"
    if mode in WRITING and value != TARGETS.index(Mode.CLOSED_LOOP):
        target = TARGETS[int(value)] if known else Mode.MANUAL
        return after, Order(target, f"the tag {tag} shows {shown}"), ""
    if not changed or math.isnan(before.value):
        return after, None, ""
    if not known:
        return after, Order(Mode.MANUAL, f"the tag {tag} shows {shown}"), ""
    if value > before.value + 1:
        return after, None, f"the tag {tag} jumps from {before.value:g} to {value:g}: no order"
    waited = monotonic - before.since
    if TARGETS[int(value)] is Mode.CLOSED_LOOP and waited > armed:
        return after, None, f"the tag {tag} took {waited:.0f} s from 2 to 3: no order"
    return after, Order(TARGETS[int(value)], f"the tag {tag}"), ""
