"""The commissioning gate: what must be right between bundle, tag map and plant before closing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from neorl_deploy.bundle._manifest import ChannelEntry, Manifest
from neorl_deploy.loop._contract import UNATTENDED, Claim, objection
from neorl_deploy.loop._inputs import without_stamp
from neorl_deploy.loop._plant import Clock, Plant, PlantError, Quality, Reading
from neorl_deploy.loop._tags import Input, Output, TagMap
from neorl_deploy.loop._writing import good

RECORD = "check"
"""Kind of the standing audit record that holds the result of a check."""
LOOKS = 3
"""Number of times that the tags are read, a period apart."""
NARROWEST = 0.1
"""Smallest part of an engineering range that a channel may use; percent taken for a fraction, or a
fraction for percent, is a hundredth."""


STEP_TIME = 120.0
"""Seconds that a person has for a small step of an actuator."""


class EngineeringRange(NamedTuple):
    """What a server states about a tag.

    Attributes:
        low: Lowest value, raw.
        high: Highest value, raw.
        unit: Unit as text; empty if it states none.
    """

    low: float
    high: float
    unit: str = ""


class Finding(NamedTuple):
    """One thing that was checked.

    Attributes:
        name: What was checked, and of which channel or tag.
        fault: What is wrong; empty if it is right.
    """

    name: str
    fault: str = ""


def unchecked(tags: TagMap, record: Mapping[str, Any] | None) -> str:
    """Why a tag map may not close a loop; empty if its check has passed.

    Args:
        tags: The tag map.
        record: The last record of a check in the audit log of the loop.
    """
    advice = "run `neorl-deploy check BUNDLE TAGS --by NAME` with this folder"
    if record is None:
        return f"the tag map has not been checked at the plant: {advice}"
    if record["tags"] != tags.digest:
        return f"the tag map has changed since it was checked: {advice}"
    if record["faults"]:
        return f"the check of the tag map has failed ({'; '.join(record['faults'])}): {advice}"
    return ""


def check_record(tags: TagMap, findings: Sequence[Finding], by: str) -> dict[str, Any]:
    """The record of a check, for the audit log."""
    return {
        "kind": RECORD,
        "bundle": tags.bundle,
        "tags": tags.digest,
        "by": by,
        "checked": [finding.name for finding in findings],
        "faults": [f"{finding.name}: {finding.fault}" for finding in findings if finding.fault],
    }


def check_tags(
    tags: TagMap,
    manifest: Manifest,
    plant: Plant,
    clock: Clock,
    *,
    steps: Collection[str] = (),
    ask: Callable[[str], None] = print,
) -> list[Finding]:
    """Compares a tag map with the plant; writes nothing but the heartbeat.

    Args:
        tags: The tag map.
        manifest: Manifest of its bundle.
        plant: The connection. A connection that knows engineering ranges has a method ``ranges``,
            which takes tags and returns an :class:`EngineeringRange` by tag.
        clock: Time source; the check takes some periods.
        steps: Outputs that a person moves by a small step during the check.
        ask: Called with the sentence that asks the person for each of them.

    Returns:
        What was checked.

    Raises:
        PlantError: If there is no connection.
    """
    looks: list[dict[str, Reading]] = []
    for look in range(LOOKS):
        if look:
            clock.sleep_until(clock.now().monotonic + manifest.dt)
        looks.append(dict(zip(tags.read, plant.read(tags.read), strict=True)))
    ranges: Mapping[str, EngineeringRange] = {}
    if hasattr(plant, "ranges"):
        ranges = plant.ranges([row.tag for row in (*tags.inputs, *tags.outputs)])  # pyright: ignore
    findings = [
        _input(row, channel, looks, ranges.get(row.tag))
        for row, channel in zip(tags.inputs, manifest.obs, strict=True)
    ]
    for row, channel in zip(tags.outputs, manifest.action, strict=True):
        findings += _output(row, channel, looks, ranges.get(row.tag))
        direction = "no person has moved it by a small step: give --step"
        if row.channel in steps:
            direction = _direction(row, channel, plant, clock, ask)
        findings.append(Finding(f"direction of {row.channel}", direction))
    return [*findings, *_contract(tags, looks), *_heartbeats(tags, looks, plant)]


def _input(
    row: Input,
    channel: ChannelEntry,
    looks: Sequence[Mapping[str, Reading]],
    stated: EngineeringRange | None,
) -> Finding:
    name = f"input {row.channel}{_other_unit(row, stated)}"
    readings = [look[row.tag] for look in looks]
    if any(reading.quality == Quality.BAD for reading in readings):
        return Finding(name, "its quality is bad")
    if why := next(filter(None, (without_stamp(row, reading) for reading in readings)), ""):
        return Finding(name, why)
    if stated is not None and (why := _misfit(row, channel, stated, inside=False)):
        return Finding(name, why)
    value = readings[-1].value * row.scale + row.offset
    if not row.low <= value <= row.high:
        return Finding(name, f"it reads {value:g} {row.unit}, outside {row.low:g} to {row.high:g}")
    return Finding(name)


def _output(
    row: Output,
    channel: ChannelEntry,
    looks: Sequence[Mapping[str, Reading]],
    stated: EngineeringRange | None,
) -> list[Finding]:
    limits = stated
    if limits is None and math.isfinite(row.raw_low) and math.isfinite(row.raw_high):
        limits = EngineeringRange(row.raw_low, row.raw_high)
    if limits is None:
        scale = "the server states no range; give raw_low and raw_high"
    else:
        scale = _misfit(row, channel, limits, inside=True)
    value = good(looks[-1][row.read_back]) * row.scale + row.offset
    held = ""
    if not channel.low - row.tolerance <= value <= channel.high + row.tolerance:
        held = f"it shows {value:g} {row.unit}, outside {channel.low:g} to {channel.high:g}"
    return [
        Finding(f"range of {row.channel}{_other_unit(row, stated)}", scale),
        Finding(f"read-back of {row.channel}", held),
    ]


def _direction(
    row: Output, channel: ChannelEntry, plant: Plant, clock: Clock, ask: Callable[[str], None]
) -> str:
    """What is wrong with an actuator that a person moves upwards, as its channel counts.

    The person moves it at the plant, since a step of the check would pass by the guard.
    """

    def shown() -> float:
        (reading,) = plant.read([row.read_back])
        return good(reading) * row.scale + row.offset

    before = shown()
    ask(
        f"Move {row.channel} from its faceplate by a small step upwards, so that the device in the "
        f"field goes towards {channel.high:g} {row.unit} (it reads {before:g})"
    )
    end = clock.now().monotonic + STEP_TIME
    while not abs((after := shown()) - before) > row.tolerance:
        if clock.now().monotonic > end:
            return (
                f"it still reads {after:g} {row.unit} {STEP_TIME:g} s later: nobody moved it, or "
                "its read-back does not show the device"
            )
        clock.sleep_until(clock.now().monotonic + 1.0)
    if after < before:
        return f"it went from {before:g} to {after:g} {row.unit} in a step upwards: is it reversed?"
    return ""


def _other_unit(row: Input | Output, stated: EngineeringRange | None) -> str:
    """The unit that a server states, if it is written otherwise than that of the channel."""
    if stated is None or stated.unit in ("", row.unit):
        return ""
    return f" ({row.unit} by a factor of {row.scale:g}, and the server states {stated.unit})"


def _misfit(
    row: Input | Output, channel: ChannelEntry, stated: EngineeringRange, *, inside: bool
) -> str:
    """Why the range of a channel does not fit the engineering range of its tag."""
    ends = sorted((end - row.offset) / row.scale for end in (channel.low, channel.high))
    span = stated.high - stated.low
    if not span > 0:
        return f"the server states the range {stated.low:g} to {stated.high:g}, which is none"
    slack = 1e-6 * span
    text = (
        f"its channel is {ends[0]:g} to {ends[1]:g} of the tag, which has {stated.low:g} to "
        f"{stated.high:g} {stated.unit}".rstrip()
    )
    if inside and not (ends[0] >= stated.low - slack and ends[1] <= stated.high + slack):
        return text
    if not NARROWEST <= (ends[1] - ends[0]) / span <= 1 / NARROWEST:
        return f"{text}: is the scale right?"
    return ""


def _contract(tags: TagMap, looks: Sequence[Mapping[str, Reading]]) -> list[Finding]:
    """Whether the plant permits and can be asked; a grant is not needed yet."""
    if tags.block is None and tags.loop.unattended == UNATTENDED:
        return [Finding("permit: the tag map says that there is none")]
    last = looks[-1]
    shown = {name: good(last[tag]) if tag else math.nan for name, tag in tags.named.items()}
    if tags.block is not None:
        unknown = [tags.named[n] for n in ("granted", "sequence", "active") if shown[n] != shown[n]]
        why = f"{', '.join(unknown)} cannot be read" if unknown else ""
        return [Finding("block", why)]
    return [Finding("permit", objection(tags, shown, Claim(), 0, closed=False))]


def _heartbeats(
    tags: TagMap, looks: Sequence[Mapping[str, Reading]], plant: Plant
) -> list[Finding]:
    findings, loop = [], tags.loop
    if loop.heartbeat:
        shown = [good(look[loop.heartbeat]) for look in looks]
        fault = ""
        if len(set(shown)) > 1:
            fault = "somebody else writes it: another loop?"
        elif math.isnan(shown[-1]):
            fault = "it cannot be read"
        else:
            value = 0.0 if shown[-1] else 1.0
            try:
                fault = "; ".join(plant.write({loop.heartbeat: value}).values())
            except PlantError as error:
                fault = str(error)
        findings.append(Finding(f"heartbeat {loop.heartbeat}", fault))
    if loop.plant_heartbeat:
        shown = [good(look[loop.plant_heartbeat]) for look in looks]
        fault = "" if len(set(shown)) == LOOKS else "it does not change in every period"
        findings.append(Finding(f"plant_heartbeat {loop.plant_heartbeat}", fault))
    return findings
