"""The block on the plant's side, as its page of structured text (``neorl_block.st``) states it."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple

from neorl_deploy.loop._modes import Mode

COUNTERS = 30_000
"""Counters and owners restart at this number, so that they fit a signed 16-bit word."""

STATES = {Mode.MANUAL: 0, Mode.SHADOW: 1, Mode.ADVISORY: 2, Mode.CLOSED_LOOP: 3, Mode.FALLBACK: 4}
"""What the loop tells the block of its mode."""
LEAVING = 5


class BlockReason(enum.IntEnum):
    """Why the block takes a proposal or does not."""

    TAKEN = 0
    NO_PERMIT = 1
    NOT_REMOTE = 2
    NOT_GRANTED = 3
    SILENT = 4
    VOID = 5
    OUTSIDE = 6
    TOO_FAST = 7
    NOT_ASKED = 8
    TRIPPED = 9


TEXTS = {
    BlockReason.TAKEN: "the proposal is taken",
    BlockReason.NO_PERMIT: "the permit of a variable is missing",
    BlockReason.NOT_REMOTE: "a controller is not in remote",
    BlockReason.NOT_GRANTED: "the plant has not granted this owner",
    BlockReason.SILENT: "the beat stands still",
    BlockReason.VOID: "it was decided before the last event of the plant",
    BlockReason.OUTSIDE: "a value is outside the limits of the plant",
    BlockReason.TOO_FAST: "a move is larger than the plant allows",
    BlockReason.NOT_ASKED: "the loop does not ask",
    BlockReason.TRIPPED: "a trip, a hand on a set point or a restart",
}


class BlockSettings(NamedTuple):
    """What the plant's engineer writes into the block, in raw numbers.

    Attributes:
        low: Lowest set point of each actuator.
        high: Highest set point.
        move: Largest move of one proposal.
        patience: Scans without a new beat after which the beat counts as still.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    move: tuple[float, ...]
    patience: int


class BlockInputs(NamedTuple):
    """What a scan of the block reads: the loop's proposal, then the plant's own signals.

    Attributes:
        proposal: Value of each actuator, raw.
        owner: Session number of the loop; 0 for none.
        decided: ``SEQUENCE`` that the loop had read when it decided.
        state: One of :data:`STATES`, or :data:`LEAVING`.
        beat: Counter of the loop.
        permit: Permit of each variable.
        remote: Whether every controller is in remote.
        trip: A trip, or a hand on a set point.
        grant: A person's button.
        own: What the plant's own controllers want, raw.
    """

    proposal: tuple[float, ...]
    owner: int
    decided: int
    state: int
    beat: int
    permit: tuple[bool, ...]
    remote: bool
    trip: bool
    grant: bool
    own: tuple[float, ...]


class BlockState(NamedTuple):
    """Outputs and memory of the block; the defaults are those of a controller that restarts.

    Attributes:
        setpoint: Set point of each actuator, raw.
        sequence: Counter of the events on the plant's side.
        granted: Owner that a person has granted; 0 for none.
        active: Whether the set points are those of the loop.
        reason: Why the proposal is or is not taken.
        alive: Counter of the scans.
        started: Whether this is not the first scan.
        last_beat: Beat of the last scan.
        silent: Scans since the beat has changed.
        pressed: Whether the button was pressed in the last scan.
        tripped: Whether there was a trip in the last scan.
        was_remote: Whether every controller was in remote in the last scan.
    """

    setpoint: tuple[float, ...]
    sequence: int = 0
    granted: int = 0
    active: bool = False
    reason: int = 0
    alive: int = 0
    started: bool = False
    last_beat: int = 0
    silent: int = 0
    pressed: bool = False
    tripped: bool = False
    was_remote: bool = False


def block_page() -> str:
    """The page of structured text, which a test compares with :func:`block_scan` scan by scan.

    Returns:
        The function block, to be copied into the plant's controller.
    """
    return Path(__file__).with_name("neorl_block.st").read_text("utf-8")


def block_scan(settings: BlockSettings, state: BlockState, inputs: BlockInputs) -> BlockState:
    """One scan of the block.

    Args:
        settings: Limits and patience.
        state: The block after the last scan.
        inputs: What this scan reads.

    Returns:
        The block after this scan.
    """
    fresh = state.started and inputs.beat != state.last_beat
    silent = 0 if fresh else min(state.silent + 1, COUNTERS)
    pressed = inputs.grant and not state.pressed and state.started and not inputs.trip
    granted = state.granted
    if pressed and inputs.owner != 0 and silent <= settings.patience:
        granted = inputs.owner
    reason = _reason(settings, state, inputs, fresh=fresh, silent=silent, granted=granted)
    active = reason == BlockReason.TAKEN and (fresh or state.active)
    setpoint = state.setpoint
    if not active:
        setpoint = inputs.own
    elif fresh:
        setpoint = inputs.proposal
    ended = state.active and reason not in (BlockReason.TAKEN, BlockReason.NOT_ASKED)
    tripped, local = inputs.trip and not state.tripped, state.was_remote and not inputs.remote
    event = ended or tripped or local or not state.started
    return BlockState(
        setpoint=setpoint,
        sequence=(state.sequence + 1) % COUNTERS if event else state.sequence,
        granted=0 if ended or reason == BlockReason.TRIPPED else granted,
        active=active,
        reason=int(reason),
        alive=(state.alive + 1) % COUNTERS,
        started=True,
        last_beat=inputs.beat,
        silent=silent,
        pressed=inputs.grant,
        tripped=inputs.trip,
        was_remote=inputs.remote,
    )


def _reason(
    settings: BlockSettings,
    state: BlockState,
    inputs: BlockInputs,
    *,
    fresh: bool,
    silent: int,
    granted: int,
) -> BlockReason:
    """The first reason against the proposal, the plant's own before the loop's."""
    asked = inputs.state in (STATES[Mode.CLOSED_LOOP], STATES[Mode.FALLBACK])
    values = tuple(zip(inputs.proposal, settings.low, settings.high, strict=True))
    moves = zip(inputs.proposal, state.setpoint, settings.move, strict=True)
    conditions = {
        BlockReason.TRIPPED: inputs.trip or not state.started,
        BlockReason.NO_PERMIT: not all(inputs.permit),
        BlockReason.NOT_REMOTE: not inputs.remote,
        BlockReason.NOT_GRANTED: inputs.owner == 0 or inputs.owner != granted,
        BlockReason.SILENT: silent > settings.patience,
        BlockReason.VOID: fresh and asked and inputs.decided != state.sequence,
        BlockReason.OUTSIDE: fresh and asked and not all(lo <= v <= hi for v, lo, hi in values),
        BlockReason.TOO_FAST: fresh and asked and any(v > s + m or v < s - m for v, s, m in moves),
        BlockReason.NOT_ASKED: not asked,
    }
    return next((reason for reason, holds in conditions.items() if holds), BlockReason.TAKEN)
