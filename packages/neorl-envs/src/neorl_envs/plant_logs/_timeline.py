"""The samples of a completely read log, by time windows, without those of excluded periods."""

import collections
import dataclasses
import datetime
import itertools
import math
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Int

from neorl_core import InputError
from neorl_envs.plant_logs._configuration import BEFORE, WORDS, Exclusion, PlantLog, Tag

# Valid values of a log, thinned to those that the time grid needs.
#
# The value at a grid time is that of the last sample at or before it, or is interpolated from
# there to the next sample. It is therefore enough to keep the first and the last sample of each
# tag in each period. If even these do not fit into memory, they are stored on disk, one file per
# part of the time axis.


MERGE_AT = 2_000_000
"""Number of rows collected before they are thinned together."""
FIRST, LAST = ("first_at", "first_low", "first_high"), ("last_at", "last_low", "last_high")
NAMES = ("tag", "bin", *FIRST, *LAST)
ROW = np.dtype([(name, "<f8" if name.endswith(("low", "high")) else "<i8") for name in NAMES])
"""Format of a thinned sample on disk."""


@dataclasses.dataclass
class Samples:
    """The thinned samples of all tags so far.

    Attributes:
        period: Period of the grid, nanoseconds.
        folder: Folder for samples that do not fit into memory.
        most_rows: Number of thinned samples that fit into memory.
        part_periods: Number of periods in a part of the time axis.
        count: Number of valid samples so far.
        repeated: Number of samples whose tag already had one with the same stamp. Only repetitions
            within a block of rows, or at the first or last sample of a period, are noticed.
        spilled: Numbers of the parts that are on disk.
    """

    period: int
    folder: Path
    most_rows: int
    part_periods: int
    count: int = 0
    repeated: int = 0
    spilled: set[int] = dataclasses.field(default_factory=set)
    _waiting: list[pl.DataFrame] = dataclasses.field(default_factory=list)
    _rows: int = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Adds rows of ``at`` (nanoseconds), ``tag`` (index) and ``value``."""
        self.count += len(rows)
        self.repeated += len(rows) - rows.select("tag", "at").n_unique()
        value = pl.col("value")
        part = rows.select(
            pl.col("tag").cast(pl.Int64),
            # The period that ends at or after the stamp.
            (-((-pl.col("at")) // self.period)).alias("bin"),
            pl.col("at").alias(FIRST[0]),
            value.alias(FIRST[1]),
            value.alias(FIRST[2]),
            pl.col("at").alias(LAST[0]),
            value.alias(LAST[1]),
            value.alias(LAST[2]),
        )
        self._waiting.append(thin(part))
        self._rows += len(self._waiting[-1])
        if self._rows > min(MERGE_AT, self.most_rows):
            self.merged()

    def merged(self) -> pl.DataFrame:
        """The samples in memory in order, one row per tag and period; empty after a spill."""
        if len(self._waiting) > 1:
            self._waiting = [thin(pl.concat(self._waiting))]
        # Count only new rows: otherwise a long log would be thinned again at every block.
        self._rows = 0
        if self._waiting and len(self._waiting[0]) > self.most_rows:
            self.spill()
        return self._waiting[0] if self._waiting else pl.DataFrame(schema=_SCHEMA)

    def spill(self) -> None:
        """Moves the samples in memory to the parts on disk."""
        table = pl.concat(self._waiting) if self._waiting else pl.DataFrame(schema=_SCHEMA)
        self._waiting, self._rows = [], 0
        rows = np.empty(len(table), ROW)
        for name in NAMES:
            rows[name] = table[name].to_numpy()
        part = rows["bin"] // self.part_periods
        order = np.argsort(part, kind="stable")
        rows, part = rows[order], part[order]
        bounds = np.flatnonzero(np.diff(part, prepend=part[:1] - 1, append=part[-1:] + 1))
        for start, stop in itertools.pairwise(bounds):
            number = int(part[start])
            with self.part_file(number).open("ab") as file:
                file.write(rows[start:stop].tobytes())
            self.spilled.add(number)

    def part_file(self, number: int) -> Path:
        """Path of a part on disk."""
        return self.folder / f"part{number}"

    def part(self, number: int) -> pl.DataFrame:
        """The samples of a part on disk in order, one row per tag and period."""
        rows = np.fromfile(self.part_file(number), ROW)
        return thin(pl.DataFrame({name: rows[name] for name in NAMES}))


_SCHEMA = {name: pl.Float64 if name.endswith(("low", "high")) else pl.Int64 for name in NAMES}


def thin(rows: pl.DataFrame) -> pl.DataFrame:
    """Reduces samples to one row per tag and period; several values of one stamp become a range."""
    # The only sample of a period is both its first and its last; grouping such rows is expensive.
    several = rows.select("tag", "bin").is_duplicated()
    if not several.any():
        return rows.sort("tag", "bin")
    first, last = pl.col(FIRST[0]), pl.col(LAST[0])
    at_first, at_last = first == first.min(), last == last.max()
    together = (
        rows.filter(several)
        .group_by("tag", "bin")
        .agg(
            first.min(),
            pl.col(FIRST[1]).filter(at_first).min(),
            pl.col(FIRST[2]).filter(at_first).max(),
            last.max(),
            pl.col(LAST[1]).filter(at_last).min(),
            pl.col(LAST[2]).filter(at_last).max(),
        )
    )
    return pl.concat([rows.filter(~several), together]).sort("tag", "bin")


# Samples of every tag on a common time grid; an unknown value is NaN and remains so.


@dataclasses.dataclass(frozen=True)
class TagSamples:
    """Ascending stamps of one tag, nanoseconds, and its values; contradicting values are NaN."""

    at: np.ndarray
    value: np.ndarray


def values_at(tag: Tag, samples: TagSamples, times: np.ndarray, gap: float) -> np.ndarray:
    """The values of a tag at given times.

    Times are in nanoseconds. ``gap`` is the longest time for which a sample is held, or between
    samples that are interpolated; in longer gaps and without a sample the value is NaN.
    """
    n = len(samples.at)
    if n == 0:
        return np.full(len(times), np.nan)
    before = np.searchsorted(samples.at, times, side="right") - 1
    age = times - samples.at[np.maximum(before, 0)]
    values = np.where((before >= 0) & (age <= gap), samples.value[np.maximum(before, 0)], np.nan)
    if tag.fill == "hold":
        return values
    after = np.minimum(before + 1, n - 1)
    start, end = samples.at[np.maximum(before, 0)], samples.at[after]
    spacing = np.maximum(end - start, 1)
    weight = (times - start) / spacing
    first, second = samples.value[np.maximum(before, 0)], samples.value[after]
    line = first + weight * (second - first)
    inside = (before >= 0) & (before + 1 < n) & (spacing <= gap)
    exact = (before >= 0) & (times == start)
    return np.where(exact, first, np.where(inside, line, np.nan))


def largest_gap(tag: Tag, config: PlantLog) -> float:
    """Nanoseconds for which a sample of a tag is held; a word is held until the next one."""
    seconds = tag.largest_gap_s
    if math.isnan(seconds):
        seconds = math.inf if tag.role in WORDS else config.sampling.largest_gap_s
    return max(seconds, config.sampling.period_s) * 1e9


@dataclasses.dataclass(frozen=True)
class Piece:
    """The tags at some consecutive times of the grid.

    Attributes:
        at: Times, nanoseconds.
        values: Values of every tag known at these times.
        shifted: Values for expressions, measured one transport delay later.
    """

    at: np.ndarray
    values: dict[str, np.ndarray]
    shifted: dict[str, np.ndarray]

    def before_and_now(self) -> dict[str, np.ndarray]:
        """Columns for a condition: every tag now, and one period earlier as ``before_...``."""
        return {**self.shifted, **{BEFORE + n: _earlier(v) for n, v in self.shifted.items()}}

    def of_steps(self, config: PlantLog) -> dict[str, np.ndarray]:
        """Columns for a reward; a step leads from one time of the grid to the next.

        A manipulated variable holds the action of the step, and with ``before_`` the action of the
        previous step. Any other tag holds the value after the step, and with ``before_`` the value
        at its beginning.
        """
        actions = {tag.name for tag in config.of_role("manipulated")}
        columns = {}
        for name, value in self.shifted.items():
            if name in actions:
                columns[name], columns[BEFORE + name] = value[:-1], _earlier(value)[:-1]
            else:
                columns[name], columns[BEFORE + name] = value[1:], value[:-1]
        return columns


def piece(times: np.ndarray, samples: dict[str, TagSamples], config: PlantLog) -> Piece:
    """All tags at some consecutive times of the grid."""
    values, shifted = {}, {}
    for tag in config.tags:
        gap = largest_gap(tag, config)
        values[tag.name] = values_at(tag, samples[tag.name], times, gap)
        delay = round(tag.delay_s * 1e9)
        shifted[tag.name] = (
            values_at(tag, samples[tag.name], times + delay, gap) if delay else values[tag.name]
        )
    numbers = {tag.name for tag in config.numbers}
    return Piece(times, values, {name: v for name, v in shifted.items() if name in numbers})


def _earlier(value: np.ndarray) -> np.ndarray:
    return np.append(np.nan, value[:-1])


HELD_PARTS = 3
NONE = -(2**62)
"""Stamp of a sample that does not exist."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The samples of one part of the time axis, tag by tag, ascending.

    Attributes:
        at: Stamps, nanoseconds.
        value: Values; NaN where they contradict.
        starts: Index of the first sample of every tag, followed by the number of samples.
        conflicts: For every tag, the number of stamps with contradicting values.
    """

    at: np.ndarray
    value: np.ndarray
    starts: np.ndarray
    conflicts: np.ndarray

    def of_tag(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Stamps and values of one tag."""
        rows = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return self.at[rows], self.value[rows]


class Timeline:
    """All samples of a log, accessed by time windows.

    Args:
        samples: Thinned samples, which must be complete.
        n_tags: Number of tags.
        counted: Tags whose samples show that the plant was being logged.
        gap: A new stretch begins after more than this many periods without a sample of these tags.

    Attributes:
        stretches: Numbers of the periods of every stretch without such a gap.
        conflicts: For every tag, the number of stamps with contradicting values.
        valid: For every tag, whether it has a finite sample.
        empty: Number of periods within stretches in which none of the counted tags has a sample.
        spacing_s: Mean spacing of the samples of every tag; 0 if there is only one sample.
    """

    def __init__(
        self, samples: Samples, n_tags: int, counted: Sequence[int], *, gap: float
    ) -> None:
        self._samples, self._n_tags, self._counted = samples, n_tags, list(counted)
        self._gap = max(gap, 1)
        self.stretches: list[range] = []
        whole = samples.merged()
        self._whole = None
        if samples.spilled:
            samples.spill()
        else:
            self._whole = whole
        self.numbers = np.array(sorted(samples.spilled) or [0])
        self.conflicts = np.zeros(n_tags, np.int64)
        self.valid = np.zeros(n_tags, np.bool_)
        self._cache: collections.OrderedDict[int, Part] = collections.OrderedDict()
        # The last sample of every tag before each part, and the first one at or after its start.
        shape = (len(self.numbers) + 1, n_tags)
        self._before = np.full(shape, NONE), np.full(shape, np.nan)
        self._after = np.full(shape, NONE), np.full(shape, np.nan)
        self._n_samples = np.zeros(n_tags, np.int64)
        self._filled = 0
        self._scan()
        self.empty = sum(map(len, self.stretches)) - self._filled
        first, last = self._after[0][0], self._before[0][-1]
        several = np.maximum(self._n_samples - 1, 1)
        self.spacing_s = np.where(self._n_samples > 1, (last - first) / several / 1e9, 0.0)

    def _scan(self) -> None:
        """Makes one pass over the parts to find their first and last samples and the stretches."""
        for i in range(len(self.numbers)):
            table = self._table(i)
            self._add_stretches(table)
            part = self._part(i, table)
            self.conflicts += part.conflicts
            for array in self._before:
                array[i + 1] = array[i]
            for tag in range(self._n_tags):
                at, value = part.of_tag(tag)
                self._n_samples[tag] += len(at)
                if len(at):
                    self.valid[tag] |= bool(np.isfinite(value).any())
                    self._before[0][i + 1, tag], self._before[1][i + 1, tag] = at[-1], value[-1]
                    self._after[0][i, tag], self._after[1][i, tag] = at[0], value[0]
        for i in reversed(range(len(self.numbers))):
            absent = self._after[0][i] == NONE
            for array in self._after:
                array[i, absent] = array[i + 1, absent]

    def _add_stretches(self, table: pl.DataFrame) -> None:
        """Adds the stretches of a part, which may continue the last one across a short gap."""
        bins = np.unique(table.filter(pl.col("tag").is_in(self._counted))["bin"].to_numpy())
        if not len(bins):
            return
        self._filled += len(bins)
        cuts = np.flatnonzero(np.diff(bins) > self._gap) + 1
        starts = bins[np.append(0, cuts)]
        stops = bins[np.append(cuts - 1, len(bins) - 1)] + 1
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if self.stretches and start - (self.stretches[-1].stop - 1) <= self._gap:
                self.stretches[-1] = range(self.stretches[-1].start, stop)
            else:
                self.stretches.append(range(start, stop))

    def window(self, first: int, last: int) -> list[TagSamples]:
        """The samples of every tag that are needed to fill a time window.

        Times are in nanoseconds. A tag has at least the last sample at or before ``first``, those
        in the window, and the first one after it.
        """
        low, high = 0, 1
        if self._whole is None:
            ends = [
                -(-at // self._samples.period) // self._samples.part_periods for at in (first, last)
            ]
            low = int(np.searchsorted(self.numbers, ends[0]))
            high = int(np.searchsorted(self.numbers, ends[1], side="right"))
        parts = [self._part(i) for i in range(low, high)]
        return [self._of_tag(tag, parts, low, high) for tag in range(self._n_tags)]

    def _of_tag(self, tag: int, parts: list[Part], low: int, high: int) -> TagSamples:
        pieces = [part.of_tag(tag) for part in parts]
        for edge, i, position in ((self._before, low, 0), (self._after, high, len(parts) + 1)):
            if edge[0][i, tag] != NONE:
                sample = edge[0][i, tag : tag + 1], edge[1][i, tag : tag + 1]
                pieces.insert(min(position, len(pieces)), sample)
        if not pieces:
            return TagSamples(np.zeros(0, np.int64), np.zeros(0))
        if len(pieces) == 1:
            return TagSamples(*pieces[0])
        at, value = zip(*pieces, strict=True)
        return TagSamples(np.concatenate(at), np.concatenate(value))

    def _table(self, i: int) -> pl.DataFrame:
        return self._whole if self._whole is not None else self._samples.part(int(self.numbers[i]))

    def _part(self, i: int, table: pl.DataFrame | None = None) -> Part:
        if i in self._cache:
            self._cache.move_to_end(i)
            return self._cache[i]
        part = self._cache[i] = _samples_of_table(
            self._table(i) if table is None else table, self._n_tags
        )
        if len(self._cache) > HELD_PARTS:
            self._cache.popitem(last=False)
        return part


def _samples_of_table(table: pl.DataFrame, n_tags: int) -> Part:
    """Builds a part from a table of thinned samples; contradicting values become NaN."""
    ends = [
        table.select(
            "tag", pl.col(at).alias("at"), pl.col(low).alias("low"), pl.col(high).alias("high")
        )
        for at, low, high in (FIRST, LAST)
    ]
    ends_of_bins = pl.concat(ends).unique(subset=["tag", "at"]).sort("tag", "at")
    tag = ends_of_bins["tag"].to_numpy()
    value, high = ends_of_bins["low"].to_numpy().copy(), ends_of_bins["high"].to_numpy()
    conflicting = value != high
    conflicts = np.bincount(tag[conflicting], minlength=n_tags)
    value[conflicting] = np.nan
    starts = np.searchsorted(tag, np.arange(n_tags + 1))
    return Part(ends_of_bins["at"].to_numpy(), value, starts, conflicts)


# Periods of a log to leave out of the dataset, from `[[exclude]]` in `plant.toml`.


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
