"""A change of one loop with its evidence, as plain data."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import write_text
from neorl_train.judging._results import from_plain, to_plain

TODAY, PROPOSED = "today", "proposed"


@dataclasses.dataclass(frozen=True)
class Range:
    """A number with the extremes over the members of a model.

    Attributes:
        value: The number by the member that is fitted on all rows.
        low: The least of all members.
        high: The largest.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Typed:
    """One number as it is typed.

    Attributes:
        name: What it is.
        unit: Its unit.
        old: Today; to roll back, type this.
        halfway: On the way, if the change is made in two moves; empty otherwise.
        new: Proposed.
    """

    name: str
    unit: str
    old: str
    halfway: str
    new: str


@dataclasses.dataclass(frozen=True)
class Compared:
    """A figure of today's and of the proposed loop.

    Attributes:
        name: What it is.
        unit: Its unit; empty for a plain number.
        today: Today's loop.
        proposed: The proposed one.
        demand: What is demanded of the worst member; empty if nothing is.
    """

    name: str
    unit: str
    today: Range
    proposed: Range
    demand: str = ""


@dataclasses.dataclass(frozen=True)
class Curve:
    """A step response over time: the first member, and the least and the largest of all.

    Attributes:
        kind: ``"setpoint"`` or ``"load"``, and ``"measurement"`` or ``"output"``, with a blank.
        loop: ``"today"`` or ``"proposed"``.
        middle: The member that is fitted on all rows.
        low: The least.
        high: The largest.
    """

    kind: str
    loop: str
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ProfilePoint:
    """One loop between calm and tight.

    Attributes:
        typed: Its numbers as on the faceplate.
        gain: Its gain over today's.
        error: Its integrated error after a load over today's; infinite if it is unstable.
        sensitivity: Peak sensitivity with the worst member.
        gain_margin: Gain margin with the worst member.
        refusal: Why it is not proposed; empty if it may be.
    """

    typed: str
    gain: float
    error: float
    sensitivity: float
    gain_margin: float
    refusal: str


@dataclasses.dataclass(frozen=True)
class LoopChange:
    """All that a change sheet says; plain data, stored as JSON.

    Attributes:
        loop: Tag of the loop.
        tags: Names of the channels by role.
        measurement_unit: Unit of measurement and setpoint.
        output_unit: Unit of the output.
        form: The form of the controller in words.
        vendors: Controllers on the market that show the same form, each with its manual.
        direction: ``"reverse"`` or ``"direct"``, which does not change.
        sentence: The change in one line.
        typed: Numbers of the faceplate.
        engineering: The same in engineering units and seconds.
        accepted: Whether the worst member has margins enough with the proposed loop.
        reason: Why the change is made.
        stopped: The rule that refuses a tighter loop; empty if it is not known.
        profile: Loops from calm to tight; empty if the gains come from elsewhere.
        margins: Gain, phase and delay margin and peak sensitivity.
        figures: Overshoot, settling, integrated error and travel of the steps.
        expected: The log replayed with both loops; empty if it could not be.
        logged: The same figures of the log itself, in the order of ``expected``.
        band: Size of the error up to which a row counts as inside, in measured units.
        time: Seconds of the curves.
        curves: Step responses.
        trend: Columns ``time`` in seconds, ``measurement``, ``setpoint`` and ``output`` of the log.
        members: Number of members of the model.
        conditions: What the model rests on.
        touched: Limits, alarms and interlocks that hold the measurement or the output; empty if
            the log declares none.
        declared: Whether the log could declare them at all.
        plan: Steps of the test, in words.
        stop: When to go back at once.
        source: File of the log.
        digest: Digest of the log.
        period_of_log: First and last time of the log, in words; empty if unknown.
        model: What the log shows of the process, in lines with intervals.
    """

    loop: str
    tags: dict[str, str]
    measurement_unit: str
    output_unit: str
    form: str
    vendors: tuple[str, ...]
    direction: str
    sentence: str
    typed: tuple[Typed, ...]
    engineering: tuple[Typed, ...]
    accepted: bool
    reason: str
    stopped: str
    profile: tuple[ProfilePoint, ...]
    margins: tuple[Compared, ...]
    figures: tuple[Compared, ...]
    expected: tuple[Compared, ...]
    logged: tuple[float, ...]
    band: float
    time: tuple[float, ...]
    curves: tuple[Curve, ...]
    trend: dict[str, tuple[float, ...]]
    members: int
    conditions: tuple[str, ...]
    touched: tuple[str, ...]
    declared: bool
    plan: tuple[str, ...]
    stop: tuple[str, ...]
    source: str
    digest: str
    period_of_log: str
    model: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class LogFacts:
    """Where the rows of a loop come from.

    Attributes:
        source: File of the log.
        digest: Digest of its content.
        period: First and last time, in words; empty if unknown.
        touched: Limits, alarms and interlocks on the loop, in words.
        declared: Whether the log could declare them.
    """

    source: str
    digest: str
    period: str = ""
    touched: tuple[str, ...] = ()
    declared: bool = False


def write_changes(path: Path, changes: Sequence[LoopChange]) -> None:
    """Stores changes as JSON."""
    text = json.dumps(to_plain(tuple(changes)), ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_changes(path: Path) -> list[LoopChange]:
    """The changes that were stored; none if there is no file.

    Raises:
        InputError: If the file is damaged.
    """
    if not path.is_file():
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return list(from_plain(tuple[LoopChange, ...], content))
    except (OSError, ValueError):  # every InputError is a ValueError
        raise InputError(f"{path} is damaged; run it again, or restore it") from None
