"""Periods of a log to leave out of the dataset, from ``[[exclude]]`` in ``plant.toml``."""

import datetime
import itertools
import zoneinfo
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from neorl_core import InputError
from neorl_envs.plant_logs._configuration import Exclusion, PlantLog
from neorl_envs.plant_logs._timeline import Piece

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Period(NamedTuple):
    """A half-open period without rows, in nanoseconds since 1970 UTC; the end is not included."""

    begin: int
    end: int


def excluded_periods(config: PlantLog, source: str) -> tuple[Period, ...]:
    """The periods of a configuration, in the order of the file.

    Raises an ``InputError`` if a time cannot be read or placed, a period does not begin before it
    ends, or two of them overlap; the period is named.
    """
    periods = []
    for one in config.excludes:
        where = f"{source}: [[exclude]] {words_of(one)}"
        begin, end = (
            _nanoseconds(text, config.log.time_zone, f"{where}: {key}")
            for key, text in (("from", one.begin), ("to", one.end))
        )
        if begin >= end:
            raise InputError(f"{where}: from must be before to")
        periods.append(Period(begin, end))
    order = sorted(range(len(periods)), key=periods.__getitem__)
    for earlier, later in itertools.pairwise(order):
        if periods[later].begin < periods[earlier].end:
            raise InputError(
                f"{source}: [[exclude]] {words_of(config.excludes[later])} overlaps "
                f"{words_of(config.excludes[earlier])}; write one period for both"
            )
    return tuple(periods)


def period_of(
    times: Int[np.ndarray, " sample"], periods: tuple[Period, ...]
) -> Int[np.ndarray, " sample"]:
    """The number of the period that contains each time, counted from 1; 0 for none."""
    number = np.zeros(len(times), np.int16)
    for place, one in enumerate(periods, 1):
        number[(times >= one.begin) & (times < one.end)] = place
    return number


def without_excluded(part: Piece, config: PlantLog, periods: tuple[Period, ...]) -> Piece:
    """The piece with all values in the periods unknown, as if the record had gaps there."""
    if not periods:
        return part
    delays = {tag.name: round(tag.delay_s * 1e9) for tag in config.tags}

    def known(values: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.where(period_of(at, periods) > 0, np.nan, values)

    return Piece(
        part.at,
        {name: known(values, part.at) for name, values in part.values.items()},
        {name: known(values, part.at + delays[name]) for name, values in part.shifted.items()},
    )


def words_of(one: Exclusion) -> str:
    """A period as the file writes it, with its reason."""
    return f"from {one.begin} to {one.end} ({one.reason})"


def _nanoseconds(text: str, zone: str, where: str) -> int:
    try:
        stamp = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"{where}: cannot read {text!r}; write it as 2026-03-01 08:00, or with an offset as "
            "2026-03-01T08:00+01:00"
        ) from None
    if stamp.tzinfo is None:
        stamp = _local(stamp, zone, where)
    return (stamp - _EPOCH) // datetime.timedelta(microseconds=1) * 1000


def _local(stamp: datetime.datetime, zone: str, where: str) -> datetime.datetime:
    try:
        first = stamp.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        raise InputError(f"{where}: log.time_zone {zone!r} is unknown") from error
    if first.utcoffset() != first.replace(fold=1).utcoffset():
        raise InputError(
            f"{where}: {stamp.isoformat(' ')} is ambiguous or does not exist in {zone} (clock "
            "change); write the time with its offset, such as +01:00"
        )
    return first
