"""Durations, numbers and the origin of a log in words."""

import math
import zoneinfo
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

# Formats times and numbers for readers.


EPOCH = "1970-01-01T00:00:00Z"


UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def durations(seconds: Sequence[float]) -> list[str]:
    """Durations that a reader compares, in one unit if it suits all of them.

    The unit is the largest in which the shortest duration is at least 0.5 and the longest below
    1000. If there is none, each duration has a unit of its own.

    Example:
        >>> durations([600.0, 9_000.0])
        ['10 min', '150 min']
    """
    known = [value for value in seconds if 0 < value < math.inf]
    for size, unit in UNITS if known else ():
        if min(known) >= 0.5 * size and max(known) < 1000 * size and max(known) >= 2 * size:
            return [_with_unit(value, size, unit) for value in seconds]
    return [duration(value) for value in seconds]


def duration(seconds: float) -> str:
    """A readable duration in seconds, minutes, hours or days."""
    size, unit = next((one for one in UNITS if seconds >= 2 * one[0]), UNITS[-1])
    return _with_unit(seconds, size, unit)


def _with_unit(seconds: float, size: int, unit: str) -> str:
    return f"{seconds / size:.3g} {unit}" if math.isfinite(seconds) else f"{seconds:g}"


def log_zone(attributes: Mapping[str, Any]) -> str:
    """The time zone that a log declares for its stamps, from the attributes of its file.

    Args:
        attributes: Attributes of a dataset.

    Returns:
        A name such as ``"Europe/Vienna"``; ``"UTC"`` if none is declared or known here.
    """
    configuration = _object(_object(attributes.get("provenance")).get("configuration"))
    zone = str(_object(configuration.get("log")).get("time_zone", "UTC"))
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return "UTC"
    return zone


def moment(
    seconds: float, origin: str | None, zone: str = "UTC", form: str = "%Y-%m-%d %H:%M:%S"
) -> str:
    """A readable time: a date if it counts from 1970, otherwise seconds.

    Args:
        seconds: Time since ``origin``.
        origin: Where the times of a log begin, its attribute ``time_origin``.
        zone: Time zone of the clock that is shown, as :func:`log_zone` says it.
        form: Format of the date, behind which the zone stands.

    Example:
        >>> moment(1.792960e9, "1970-01-01T00:00:00Z", "Europe/Vienna")
        '2026-10-25 21:26:40 CET'
    """
    if origin != EPOCH:
        return f"{seconds:g} s"
    try:
        clock = UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone)
        return datetime.fromtimestamp(seconds, clock).strftime(f"{form} %Z")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s"


def moment_of(seconds: float, time: Mapping[str, Any]) -> str:
    """A time of a log, by the entry ``time`` of its report."""
    return moment(seconds, time["origin"], time.get("zone", "UTC"))


def began(event: dict[str, Any], time: dict[str, Any] | None) -> str:
    """The time at which an event begins in a log, or its row if the log has no times."""
    return f"row {event['row']}" if time is None else moment_of(event["start"], time)


def figures(value: float) -> str:
    """A readable number: four significant digits, without an exponent if possible."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


# Lines for readers on how a log was recorded and read, from the attributes of its file.
#
# Files of other programs may have any attributes. What is not known here is listed by name if it
# is a single number or word, and otherwise left to the JSON report.


COUNTS = {
    "repeated": "values repeat a timestamp of their tag",
    "out_of_order": "rows are earlier than the row above them",
    "unreadable_stamps": "rows were left out because their stamp cannot be read",
    "in_a_repeated_hour": "rows are in the hour that occurs twice when daylight saving ends",
}
"""Counts of an ingestion that are worth a line if they are not zero."""
SHOWN_NAMES = 8
"""Number of names in a line; the rest is counted."""


def origin_lines(report: Mapping[str, Any]) -> list[str]:
    """Lines on excitation, ingestion, provenance and split of a log."""
    excitation, ingestion = _object(report["excitation"]), _object(report["ingestion"])
    channels = excitation.get("channels")
    listed = channels if isinstance(channels, list) else []
    return [
        *(_excitation(one) for one in listed if isinstance(one, dict) and "channel" in one),
        *_ingestion(ingestion),
        *_provenance(_object(report["provenance"])),
        *_split(_object(report["split"])),
    ]


def excluded_text(one: Mapping[str, Any]) -> str:
    """Number of rows that an ``[[exclude]]`` period or a repeated hour lost, with the reason."""
    count = f"{one['rows']} {'row' if one['rows'] == 1 else 'rows'}"
    return f"{count} from {one['from']} to {one['to']}: {one['reason']}"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _excitation(channel: Mapping[str, Any]) -> str:
    """How one manipulated variable was moved while a simulated log was recorded."""
    unit, parts = str(channel.get("unit", "")), []
    known = {"channel", "unit"}

    def number(name: str) -> float | None:
        value = channel.get(name)
        known.add(name)
        return float(value) if _is_number(value) else None

    amplitude, dwell = number("prbs_amplitude"), number("prbs_mean_dwell_s")
    active, manual = number("prbs_fraction_of_steps"), number("manual_fraction_of_steps")
    deviation = number("action_std")
    if amplitude is not None:
        text = f"a test signal of {figures(amplitude)} {unit}".rstrip()
        text += "" if dwell is None else f" that changes every {duration(dwell)} on average"
        parts.append(text + ("" if active is None else f", in {active:.0%} of the steps"))
    if manual is not None:
        parts.append(f"in manual in {manual:.0%} of the steps")
    if deviation is not None:
        parts.append(f"standard deviation of the action {figures(deviation)} {unit}".rstrip())
    parts += _plain({name: value for name, value in channel.items() if name not in known})
    return f"excitation of {channel['channel']}: {'; '.join(parts)}"


def _ingestion(ingestion: Mapping[str, Any]) -> list[str]:
    lines = []
    if _is_number(ingestion.get("rows_read")) and _is_number(ingestion.get("samples")):
        rows, values = ingestion["rows_read"], ingestion["samples"]
        lines.append(f"ingestion: {rows} rows of the files with {values} values were read")
    lines += [
        f"ingestion: {ingestion[name]} {text}"
        for name, text in COUNTS.items()
        if _is_number(ingestion.get(name)) and ingestion[name]
    ]
    if offsets := ingestion.get("offsets_from_utc"):
        lines.append(f"ingestion: timestamps have the offsets {_names(offsets)} from UTC")
    if unknown := ingestion.get("unknown_tags"):
        lines.append(f"ingestion: plant.toml does not declare the tags {_names(unknown)}")
    if counts := _object(ingestion.get("rows")):
        lines.append(f"rows: {_counts_text(counts)}")
    for name, word in (("excluded", "excluded"), ("repeated_hours", "left out")):
        periods = ingestion.get(name)
        lines += [
            f"{word}: {excluded_text(one)}"
            for one in (periods if isinstance(periods, list) else ())
            if isinstance(one, dict) and {"from", "to", "reason", "rows"} <= one.keys()
        ]
    lines += [
        f"values of {tag} that were not used: {_counts_text(_object(counts))}"
        for tag, counts in _object(ingestion.get("tags")).items()
    ]
    lines += [
        f"{tag} is unknown {_unknown_text(_object(counts))}"
        for tag, counts in _object(ingestion.get("unknown")).items()
    ]
    known = {*COUNTS, "rows_read", "samples", "offsets_from_utc", "unknown_tags", "empty_periods"}
    known |= {"rows", "excluded", "repeated_hours", "tags", "unknown"}
    rest = _plain({name: value for name, value in ingestion.items() if name not in known})
    return [*lines, *([f"ingestion: {', '.join(rest)}"] if rest else [])]


def _unknown_text(counts: Mapping[str, Any]) -> str:
    text = f"in {counts.get('rows', '?')} rows, in {counts.get('alone', '?')} of them alone"
    spacing = counts.get("mean_spacing_s")
    return f"{text}; its values are {duration(spacing)} apart" if _is_number(spacing) else text


def _provenance(provenance: Mapping[str, Any]) -> list[str]:
    """What wrote the file, from which files or plant; hashes and keys are left to the JSON."""
    generator = {"generator", "neorl-envs", "jax", "polars"}
    versions = [
        f"{name} {provenance[name]}"
        for name in ("neorl-envs", "polars", "jax")
        if name in provenance
    ]
    lines = []
    if "environment" in provenance:
        lines.append(f"provenance: recorded on the simulated plant {provenance['environment']}")
    files = provenance.get("files")
    if isinstance(files, list):
        names = [str(one["name"]) for one in files if isinstance(one, dict) and "name" in one]
        lines.append(f"provenance: converted from {_names(names)}")
    if "generator" in provenance:
        by = f" ({', '.join(versions)})" if versions else ""
        lines.append(f"provenance: written by {provenance['generator']}{by}")
    known = {*generator, "environment", "files", "key", "configuration"}
    rest = _plain({name: value for name, value in provenance.items() if name not in known})
    return [*lines, *([f"provenance: {', '.join(rest)}"] if rest else [])]


def _split(split: Mapping[str, Any]) -> list[str]:
    if {"of", "episodes", "of_episodes"} <= split.keys():
        return [
            f"split: {split['episodes']} of the {split['of_episodes']} episodes of the log with "
            f"content {split['of']}"
        ]
    rest = _plain(split)
    return [f"split: {', '.join(rest)}"] if rest else []


def _plain(values: Mapping[str, Any]) -> list[str]:
    """Single numbers and words with their names; lists and objects are left to the JSON report."""
    return [
        f"{name.replace('_', ' ')} {figures(value) if isinstance(value, float) else value}"
        for name, value in values.items()
        if isinstance(value, str | int | float) and value != ""
    ]


def _counts_text(counts: Mapping[str, Any]) -> str:
    """Numbers of rows or values, each before what it counts."""
    return "; ".join(f"{number} {name}" for name, number in counts.items() if _is_number(number))


def _names(values: Any) -> str:
    """Names in a line: the first few, and how many more there are."""
    names = list(map(str, values)) if isinstance(values, Sequence) else [str(values)]
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
