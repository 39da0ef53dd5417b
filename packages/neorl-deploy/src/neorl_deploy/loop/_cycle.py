"""Record of one control period, and the memory of the loop."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from neorl_deploy.loop._inputs import Judged, Seen
from neorl_deploy.loop._modes import Mode
from neorl_deploy.loop._plant import Instant
from neorl_deploy.runtime._decision import Decision


class Cycle(NamedTuple):
    """Record of one control period.

    Attributes:
        number: Number of the period since the loop began, missed ones counted.
        at: When it began.
        mode: The mode of this period.
        before: The mode of the period before.
        reason: Why it is the mode.
        measured: What was measured, and what of it may not be trusted.
        received: What the actuators hold by their read-backs; NaN where not known.
        decision: What the bundle decided.
        written: Number by tag that was written.
        refused: Reason by tag that was not.
        notes: Whatever else happened, one line each.
        carry: What the bundle remembered before the decision, as words.
        continued: Whether that is what it remembered after the last one; not after a stop, a
            release or a restart.
    """

    number: int
    at: Instant
    mode: Mode
    before: Mode
    reason: str
    measured: Judged
    received: np.ndarray
    decision: Decision
    written: dict[str, float]
    refused: dict[str, str]
    notes: tuple[str, ...]
    carry: np.ndarray
    continued: bool


@dataclasses.dataclass
class Memory:
    """Memory of the loop between two periods.

    Attributes:
        mode: Mode of the last period.
        target: Mode that was asked for last.
        seen: The last value and stamp of every input.
        expected: What the read-backs should show; NaN where nothing was written.
        at: When the last period began.
        number: Number of the last period.
        clean: Steps in a row in which all was well.
        misses: Periods in a row that were missed or came late.
        failures: Periods in a row without a connection or with a refused write.
        failure: The last of them; empty where there is none.
        connected: Whether the last reading came through.
        unrecorded: What happened after the last cycle was recorded.
        carry: What the bundle remembered after the last decision.
        beat: Counter of the heartbeat.
        beaten: What was written to its tag; NaN where nothing was.
        beat_seen: What its tag showed.
        alive: Value of the heartbeat of the plant, and when it changed last, monotonic.
        asked: Number that the tag of the mode showed.
    """

    mode: Mode
    target: Mode
    seen: list[Seen | None]
    expected: np.ndarray
    at: Instant | None = None
    number: int = 0
    clean: int = 0
    misses: int = 0
    failures: int = 0
    failure: str = ""
    connected: bool = True
    unrecorded: tuple[str, ...] = ()
    carry: np.ndarray | None = None
    beat: int = 0
    beaten: float = math.nan
    beat_seen: float = math.nan
    alive: tuple[float, float] = (math.nan, math.nan)
    asked: float = math.nan
