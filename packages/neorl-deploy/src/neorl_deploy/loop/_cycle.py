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
        reason: Reason for the mode.
        measured: The measurements, and those that may not be trusted.
        received: Values of the actuators by their read-backs; NaN where not known.
        decision: Decision of the bundle.
        written: Number by tag that was written.
        refused: Reason by tag that was not written.
        notes: Other events, one line each.
        carry: State of the bundle before the decision, as words.
        continued: Whether that state is the one after the last decision; false after a stop, a
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
        expected: Values that the read-backs should show; NaN where nothing was written.
        at: When the last period began.
        number: Number of the last period.
        clean: Steps in a row in which all was well.
        misses: Periods in a row that were missed or came late.
        failures: Periods in a row without a connection or with a refused write.
        failure: The last of them; empty where there is none.
        connected: Whether the last reading came through.
        unrecorded: Events after the last cycle was recorded.
        carry: State of the bundle after the last decision.
        beat: Counter of the heartbeat.
        beaten: Number that was written to its tag; NaN where none was.
        beat_seen: Number that its tag showed.
        alive: Value of the heartbeat of the plant, and when it changed last, monotonic.
        mode_number: Number that the tag of the mode showed last.
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
    mode_number: float = math.nan
