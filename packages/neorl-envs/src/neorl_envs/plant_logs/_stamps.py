"""Converts the timestamps of a log to UTC nanoseconds: time zones, offsets, daylight saving."""

import dataclasses
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.plant_logs._configuration import Files

ISO = (
    r"^\s*(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)"
    r"\s*(Z|[+-]\d{2}:?\d{2})?\s*$"
)
NUMBERS = {"epoch_s": 10**9, "epoch_ms": 10**6}
YEARS = 1678, 2261
"""First and last year that nanoseconds since 1970 can represent in 64 bits."""
HALF_AN_HOUR = 1800 * 10**9
MOST_SET_BACK = 3 * 3600 * 10**9
"""A row that is earlier than the one above by half an hour to this is one of a clock set back."""
DAY = 86_400 * 10**9


class Repeated(NamedTuple):
    """Rows of an hour that clocks pass twice, which are not or not all used.

    Attributes:
        begin: First stamp, nanoseconds of local time where rows are masked, else of UTC.
        end: Last stamp.
        rows: Number of the rows.
        masked: Whether ``log.ambiguous`` leaves them out; else stamps of a wide table stand in it
            twice, and values that differ are left out.
    """

    begin: int
    end: int
    rows: int
    masked: bool

    def entry(self, zone: str) -> dict[str, str | int]:
        """The same for a JSON document, with local times and the reason in words."""
        reason = (
            "their stamps are those of rows above them, as when clocks are set back, and values "
            "that differ from those count as missing; state the zone as log.time_zone in "
            'plant.toml, with log.ambiguous = "order"'
        )
        if self.masked:
            reason = (
                'clocks pass this hour twice, and log.ambiguous = "mask" leaves it out; "order" '
                "reads both hours of a wide table"
            )
        seen = ZoneInfo("UTC" if self.masked else zone)
        begin, end = (
            f"{datetime.fromtimestamp(at // 10**9, seen):%Y-%m-%d %H:%M:%S}" for at in self[:2]
        )
        return {"from": begin, "to": end, "rows": self.rows, "reason": reason}


@dataclasses.dataclass
class Clock:
    """State of the conversion of one file's timestamps while its rows are read in order.

    Attributes:
        files: Format of the stamps.
        source: Name of the file in error messages.
        offsets: UTC offsets that occurred in stamps, such as ``"+01:00"``.
        unreadable: Number of rows that were left out because their stamp cannot be read.
        ambiguous_rows: Number of rows whose stamp falls into the repeated hour.
        out_of_order: Number of rows with an earlier stamp than the row above.
        latest: Stamp of the last row read.
        repeated: State of the repeated hour: its day, the newest stamp in it, and whether its
            second pass has begun.
        lost: Rows of repeated hours that are not or not all used.
        again: Stamp up to which rows stand in the log for the second time; ``None`` for none.
    """

    files: Files
    source: str
    offsets: set[str] = dataclasses.field(default_factory=set)
    unreadable: int = 0
    ambiguous_rows: int = 0
    out_of_order: int = 0
    latest: int = -(2**62)
    repeated: tuple[int, int, bool] = (0, 0, False)
    lost: list[Repeated] = dataclasses.field(default_factory=list)
    again: int | None = None

    def nanoseconds(self, column: pl.Series, rows: pl.Series) -> pl.Series:
        """Converts stamps to nanoseconds since 1970 UTC; null for a row that is to be left out.

        Raises a ``DatasetError`` at the first stamp whose time is not unique, or that cannot be
        read unless the format leaves such rows out.
        """
        if isinstance(column.dtype, pl.Datetime):
            self._readable(column, rows, column.is_null(), "as a timestamp")
            naive = column.cast(pl.Datetime("ns", column.dtype.time_zone))
            zoned = column.dtype.time_zone is not None
            stamps = naive.to_physical() if zoned else self._local(naive, column, rows)
        elif not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Date)):
            raise DatasetError(
                f"{self.source}: column '{self.files.timestamp}' holds {column.dtype}, expected "
                "timestamps"
            )
        elif self.files.timestamp_format in NUMBERS:
            scale = NUMBERS[self.files.timestamp_format]
            number = column.cast(pl.Float64, strict=False)
            whole = column.cast(pl.Int64, strict=False)
            stamps = (whole * scale).fill_null(
                (number * scale).round().cast(pl.Int64, strict=False)
            )
            self._readable(column, rows, stamps.is_null(), "as a number of seconds since 1970")
        else:
            stamps = self._text(column.cast(pl.String), rows)
        self._count(stamps)
        return stamps

    def _text(self, column: pl.Series, rows: pl.Series) -> pl.Series:
        pattern = self.files.timestamp_format
        if pattern:
            naive = _datetime(column, pattern)
            if isinstance(naive.dtype, pl.Datetime) and naive.dtype.time_zone is not None:
                return naive.to_physical()
            self._readable(column, rows, naive.is_null(), f"by the format {pattern!r}")
            return self._local(naive, column, rows)
        parts = column.to_frame("s").select(
            pl.col("s").str.extract(ISO, 1).alias("day"),
            pl.col("s").str.extract(ISO, 2).str.replace(",", ".", literal=True).alias("time"),
            pl.col("s").str.extract(ISO, 3).alias("zone"),
        )
        time = parts["time"]
        short = time.str.len_chars() == 5
        time = parts.select(
            pl.when(pl.lit(short)).then(pl.col("time") + ":00").otherwise(pl.col("time"))
        ).to_series()
        naive = _datetime(parts["day"] + "T" + time, "%Y-%m-%dT%H:%M:%S%.f")
        self._readable(column, rows, naive.is_null(), "as an ISO 8601 timestamp")
        zoned = parts["zone"].is_not_null()
        if not zoned.any():
            return self._local(naive, column, rows)
        local = ~zoned & naive.is_not_null()
        self._require(column, rows, local, "beside timestamps that name their offset from UTC")
        zones = parts["zone"].drop_nulls().unique().to_list()
        self.offsets |= {"+00:00" if z == "Z" else z for z in zones}
        return naive.to_physical() - _offset(parts["zone"])

    def _local(self, naive: pl.Series, column: pl.Series, rows: pl.Series) -> pl.Series:
        """Converts local time to UTC; ``log.ambiguous`` decides about the repeated hour."""

        def localised(ambiguous: str) -> pl.Series:
            zone = self.files.time_zone
            aware = naive.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null")  # pyright: ignore
            return aware.dt.convert_time_zone("UTC").to_physical()

        try:
            early, late = localised("earliest"), localised("latest")
        except pl.exceptions.PolarsError as error:
            raise DatasetError(
                f"{self.source}: log.time_zone {self.files.time_zone!r} is unknown: {error}"
            ) from error
        self._require(
            column,
            rows,
            early.is_null() & naive.is_not_null(),
            f"in {self.files.time_zone}, whose clocks skip it",
        )
        repeated = (early != late).fill_null(False)
        self.ambiguous_rows += int(repeated.sum())
        how = self.files.ambiguous
        if how == "refuse":
            self._require(
                column,
                rows,
                repeated,
                f"in {self.files.time_zone}, whose clocks pass it twice: set log.ambiguous to mask,"
                " earliest, latest or order",
            )
        if how == "mask":
            self._mask(naive.to_physical().filter(repeated).to_numpy())
            both = pl.DataFrame({"at": early, "twice": repeated})
            return both.select(pl.when(~pl.col("twice")).then("at")).to_series()
        if how == "order" and repeated.any():
            second_time = self._second_time(naive.to_physical().to_numpy(), repeated.to_numpy())
            return pl.Series(np.where(second_time, late.to_numpy(), early.to_numpy()))
        return late if how == "latest" else early

    def _second_time(self, local: np.ndarray, repeated: np.ndarray) -> np.ndarray:
        """Rows of the repeated hour after the point at which its stamps jump back."""
        second_time = np.zeros(len(local), np.bool_)
        day, newest, second = self.repeated
        # In a log of every hour the repeated stamp is the same one, which does not jump.
        coarse = len(local) > 1 and np.median(np.diff(local)) >= HALF_AN_HOUR
        back = 0 if coarse else HALF_AN_HOUR + 1
        for row in np.flatnonzero(repeated):
            stamp = int(local[row])
            same_day = stamp // DAY == day
            second = same_day and (second or stamp <= newest - back)
            day, newest = stamp // DAY, max(newest, stamp) if same_day else stamp
            second_time[row] = second
        self.repeated = (day, newest, second)
        return second_time

    def _readable(self, column: pl.Series, rows: pl.Series, invalid: pl.Series, how: str) -> None:
        """Counts the stamps that cannot be read if their rows are left out; else refuses them."""
        if self.files.unreadable == "mask":
            self.unreadable += int(invalid.sum())
        else:
            self._require(column, rows, invalid, how)

    def _require(self, column: pl.Series, rows: pl.Series, invalid: pl.Series, how: str) -> None:
        if invalid.any():
            first = int(invalid.arg_max() or 0)
            raise DatasetError(
                f"{self.source}: column '{self.files.timestamp}', row {rows[first]}: cannot read "
                f"{column[first]!r} {how}"
            )

    def _count(self, times: pl.Series) -> None:
        stamps = times.drop_nulls().to_numpy()
        if len(stamps):
            before = np.append(self.latest, stamps[:-1])
            self.out_of_order += int((stamps < before).sum())
            self.latest = int(stamps[-1])
            if self.files.layout == "wide":
                self._find_again(stamps, before)

    def _mask(self, local: np.ndarray) -> None:
        """Counts rows of repeated hours that are left out, by their day."""
        for day in np.unique(local // DAY):
            stamps = local[local // DAY == day]
            if not (self.lost and self.lost[-1].masked and self.lost[-1].begin // DAY == day):
                self.lost.append(Repeated(int(stamps.min()), int(stamps.max()), 0, masked=True))
            self._extend(stamps)

    def _find_again(self, stamps: np.ndarray, before: np.ndarray) -> None:
        """Finds rows whose stamps stand above them already, because the clock was set back."""
        back, row = before - stamps, 0
        while row < len(stamps):
            if self.again is None:
                set_back = (back[row:] >= HALF_AN_HOUR) & (back[row:] <= MOST_SET_BACK)
                if not set_back.any():
                    return
                row += int(np.argmax(set_back))
                self.again = int(before[row])
                self.lost.append(Repeated(int(stamps[row]), int(stamps[row]), 0, masked=False))
            over = np.flatnonzero(stamps[row:] > self.again)
            stop = row + int(over[0]) if len(over) else len(stamps)
            self._extend(stamps[row:stop])
            self.again = None if len(over) else self.again
            row = stop

    def _extend(self, stamps: np.ndarray) -> None:
        last = self.lost[-1]
        begin, end = min(last.begin, int(stamps.min())), max(last.end, int(stamps.max()))
        self.lost[-1] = Repeated(begin, end, last.rows + len(stamps), last.masked)


def _datetime(column: pl.Series, pattern: str) -> pl.Series:
    """Parses stamps by a format; null if a stamp does not follow it or overflows nanoseconds.

    With `%Y`, a two-digit year is read as the year 24, whose nanoseconds wrap around to 1777.
    """
    naive = column.str.to_datetime(pattern, time_unit="ns", strict=False)
    year = column.str.to_datetime(pattern, time_unit="us", strict=False).dt.year()
    inside = year.is_between(*YEARS).fill_null(False)
    if inside.all():
        return naive
    frame = pl.DataFrame({"at": naive, "inside": inside})
    return frame.select(pl.when("inside").then("at")).to_series()


def _offset(zone: pl.Series) -> pl.Series:
    """Nanoseconds of UTC offsets such as ``+01:00``, ``-0530`` and ``Z``."""
    plain = zone.str.replace("Z", "+0000").str.replace(":", "", literal=True)
    hours = plain.str.slice(1, 2).cast(pl.Int64)
    minutes = plain.str.slice(3, 2).cast(pl.Int64)
    sign = plain.str.starts_with("-").cast(pl.Int64) * -2 + 1
    return sign * (hours * 60 + minutes) * 60 * 10**9
