"""Valid values of a log, thinned to what a grid of times needs of them.

A value of a grid is that of the last sample at or before a time, or lies on a line from there to
the next one. Of each period and tag it is therefore enough to keep the first and the last sample,
and this fits into memory where the log does not.
"""

import dataclasses

import numpy as np
import polars as pl

MERGE_AT = 2_000_000
"""Rows that wait before they are thinned together."""
FIRST, LAST = ("first_at", "first_low", "first_high"), ("last_at", "last_low", "last_high")


@dataclasses.dataclass
class Samples:
    """The thinned samples of all tags so far.

    Attributes:
        period: Of the grid, nanoseconds.
        count: Valid samples so far.
        repeated: Samples with a stamp that their tag had already, as far as noticed: within a
            block of rows, or at an end of a period.
    """

    period: int
    count: int = 0
    repeated: int = 0
    _waiting: list[pl.DataFrame] = dataclasses.field(default_factory=list)
    _rows: int = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Takes rows of ``at`` (nanoseconds), ``tag`` (index) and ``value``."""
        self.count += len(rows)
        self.repeated += len(rows) - rows.select("tag", "at").n_unique()
        value = pl.col("value")
        part = rows.select(
            "tag",
            # The period that ends at or behind the stamp.
            (-((-pl.col("at")) // self.period)).alias("bin"),
            pl.col("at").alias(FIRST[0]),
            value.alias(FIRST[1]),
            value.alias(FIRST[2]),
            pl.col("at").alias(LAST[0]),
            value.alias(LAST[1]),
            value.alias(LAST[2]),
        )
        self._waiting.append(_thinned(part))
        self._rows += len(self._waiting[-1])
        if self._rows > MERGE_AT:
            self.merged()

    def merged(self) -> pl.DataFrame:
        """One row a tag and period, in order."""
        if not self._waiting:
            return pl.DataFrame()
        if len(self._waiting) > 1:
            self._waiting = [_thinned(pl.concat(self._waiting))]
        # Samples that grow with the log are no reason to thin them at every block.
        self._rows = 0
        return self._waiting[0]

    def of_tag(self, index: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Ascending stamps of a tag, its values, and how many stamps had two values.

        Such a value is NaN, for nobody knows which is right.
        """
        table = self.merged()
        if table.is_empty():
            return np.zeros(0, np.int64), np.zeros(0), 0
        table = table.filter(pl.col("tag") == index)
        ends = [
            table.select(
                pl.col(at).alias("at"), pl.col(low).alias("low"), pl.col(high).alias("high")
            )
            for at, low, high in (FIRST, LAST)
        ]
        both = pl.concat(ends).unique(subset="at").sort("at")
        value, high = both["low"].to_numpy().copy(), both["high"].to_numpy()
        conflicts = int((value != high).sum())
        value[value != high] = np.nan
        return both["at"].to_numpy(), value, conflicts

    def bins(self, tags: list[int]) -> np.ndarray:
        """Ascending periods with a sample of one of the tags."""
        table = self.merged()
        if table.is_empty():
            return np.zeros(0, np.int64)
        return np.unique(table.filter(pl.col("tag").is_in(tags))["bin"].to_numpy())


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a tag and period; where one stamp has several values, the range of them."""
    # A sample that is alone in its period is its first and its last; a group a row is dear.
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
