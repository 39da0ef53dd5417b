"""Decides which readings may be trusted: quality, age, limits, standstill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neorl_deploy.bundle._test_vectors import rounding
from neorl_deploy.loop._plant import Instant, Quality, Reading
from neorl_deploy.loop._tags import Input


class TagMemory(NamedTuple):
    """Memory of one tag.

    Attributes:
        value: The last value.
        moved: When it last changed, monotonic.
        stamp: The last time stamp.
        stamped: When the time stamp last changed, monotonic.
        good: The last trusted value, in the unit of the channel; NaN if there is none yet.
        good_at: When that value was taken, monotonic.
    """

    value: float
    moved: float
    stamp: float | None
    stamped: float
    good: float = math.nan
    good_at: float = math.nan


class Measurements(NamedTuple):
    """Measurements as passed to the bundle.

    Attributes:
        obs: Observations in the units of the channels; NaN for one that may not be trusted.
        ages: Seconds since each measurement was taken.
        faults: Why a value may not be trusted, by channel, even if its last good value is held;
            empty if all values may be trusted.
    """

    obs: np.ndarray
    ages: np.ndarray
    faults: dict[str, str]


def judge_readings(
    inputs: Sequence[Input],
    readings: Sequence[Reading],
    memory: Sequence[TagMemory | None],
    now: Instant,
    *,
    ahead: float = 1.0,
) -> tuple[list[TagMemory | None], Measurements]:
    """Decides for every reading whether it may be trusted.

    Args:
        inputs: Rules of the tags, in the order of the bundle's observations.
        readings: One reading for each rule.
        memory: The last value and time stamp of each input; ``None`` before the first reading.
        now: The time of the readings.
        ahead: Seconds by which the clock of a source may be ahead of this machine's.

    Returns:
        The new memory, and the measurements.
    """
    new_memory: list[TagMemory | None] = []
    obs, ages = np.full(len(inputs), np.nan), np.zeros(len(inputs))
    faults: dict[str, str] = {}
    for i, (rule, reading, before) in enumerate(zip(inputs, readings, memory, strict=True)):
        after = _update(reading, before, now.monotonic)
        value = reading.value * rule.scale + rule.offset
        ages[i] = _age(after, now, ahead)
        still = now.monotonic - after.moved
        if fault := _fault(rule, reading, value, float(ages[i]), still, ahead):
            faults[rule.channel] = fault
            held = now.monotonic - after.good_at
            if held <= rule.hold:  # unless there was no good value yet (NaN)
                obs[i], ages[i] = after.good, held
                faults[rule.channel] += f"; the value of {held:.0f} s ago is held"
        else:
            obs[i] = value
            ages[i] = max(ages[i], 0.0)
            after = after._replace(good=value, good_at=now.monotonic - ages[i])
        new_memory.append(after)
    return new_memory, Measurements(obs, ages, faults)


def without_stamp(rule: Input, reading: Reading) -> str:
    """Why an age that the tag map allows says nothing of a reading; empty if it does."""
    known = reading.stamp is not None or reading.quality == Quality.BAD
    if known or math.isinf(rule.max_age):
        return ""
    return (
        f"it has no time stamp, so max_age = {rule.max_age:g} cannot tell that it is alive; give "
        "frozen, and accept that with max_age = inf"
    )


def fault_changes(
    before: Mapping[str, bool], inputs: Sequence[Input], measured: Measurements
) -> tuple[dict[str, bool], list[str]]:
    """What changed since the last period in which values may be trusted.

    Args:
        before: For each channel with a fault in the last period, whether its last good value was
            held.
        inputs: Rules of the tags, in the order of the bundle's observations.
        measured: The measurements of this period.

    Returns:
        The same for this period, and one line for each channel that is lost, held or good again.
    """
    held = {
        rule.channel: bool(np.isfinite(value))
        for rule, value in zip(inputs, measured.obs, strict=True)
        if rule.channel in measured.faults
    }
    lines = [
        f"{channel}: {measured.faults[channel]}"
        for channel in held
        if before.get(channel) is not held[channel]
    ]
    lines += [f"{channel}: good again" for channel in before if channel not in held]
    return held, lines


def no_measurements(inputs: Sequence[Input], why: str) -> Measurements:
    """The measurements of a step without a connection."""
    width = len(inputs)
    faults = {rule.channel: why for rule in inputs}
    return Measurements(np.full(width, np.nan), np.full(width, np.inf), faults)


def _update(reading: Reading, before: TagMemory | None, monotonic: float) -> TagMemory:
    if before is None:
        return TagMemory(reading.value, monotonic, reading.stamp, monotonic)
    moved = before.moved if reading.value == before.value else monotonic
    stamped = before.stamped if reading.stamp == before.stamp else monotonic
    return before._replace(value=reading.value, moved=moved, stamp=reading.stamp, stamped=stamped)


def _age(memory: TagMemory, now: Instant, ahead: float) -> float:
    """Seconds since a value was taken; negative if its time stamp lies in the future.

    A value whose time stamp stays the same keeps aging even if this machine's clock is set. A value
    without a time stamp ages from its last change, since nothing else shows that it is alive.
    """
    if memory.stamp is None:
        return now.monotonic - memory.moved
    by_stamp = now.wall - memory.stamp
    return by_stamp if by_stamp < -ahead else max(by_stamp, now.monotonic - memory.stamped)


def _fault(
    rule: Input, reading: Reading, value: float, age: float, still: float, ahead: float
) -> str:
    if reading.quality == Quality.BAD:
        return "its quality is bad"
    if reading.quality == Quality.UNCERTAIN and rule.uncertain == "bad":
        return "its quality is uncertain"
    if not math.isfinite(value):
        return "it is not a finite number"
    if age < -ahead:
        return f"it is stamped {-age:.0f} s in the future: set the clocks"
    if age > rule.max_age and reading.stamp is None:
        return (
            f"it has no time stamp and has not changed for {age:.1f} s; {rule.max_age:g} s are "
            "allowed"
        )
    if age > rule.max_age:
        return f"it is {age:.1f} s old, and {rule.max_age:g} s are allowed"
    slack = rounding(rule.low, rule.high)
    if not rule.low - slack <= value <= rule.high + slack:
        return f"{value:g} {rule.unit} is not within {rule.low:g} to {rule.high:g} {rule.unit}"
    if still > rule.frozen:
        return f"it has not moved for {still:.0f} s"
    return ""
