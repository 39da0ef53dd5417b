"""Valid values of a log, thinned to those that the time grid needs.

The value at a grid time is that of the last sample at or before it, or is interpolated from there
to the next sample. It is therefore enough to keep the first and the last sample of each tag in each
period. If even these do not fit into memory, they are stored on disk, one file per part of the time
axis.
"""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import polars as pl

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
