"""Detects the layout of a log file: encoding, separator, header, stamps, wide or long format."""

import codecs
import csv
import dataclasses
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import polars as pl

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._file import require_regular
from neorl_envs.plant_logs._configuration import Files
from neorl_envs.plant_logs._numbers import Notation, parse
from neorl_envs.plant_logs._stamps import Clock
from neorl_envs.plant_logs._tables import ROW, dated, read_as_table, tables

LOOKED_AT, MEMORY = 200_000, 1e9
"""Number of rows examined per file, and memory for a table of them, bytes."""
READABLE = 0.9
"""Share of the stamps that must follow a format if some of them cannot be read at all."""
TRIED = 2000
"""Number of rows from which the timestamp column and its format are determined."""
MOST_HEADER_ROWS = 4
DATE = re.compile(r"date|day|datum|tag$", re.IGNORECASE)
TIME_OF_DAY = re.compile(r"time|hour|zeit|uhr", re.IGNORECASE)
STAMP = re.compile(r"time|date|stamp|^ts$|zeit|datum|^t$", re.IGNORECASE)
QUALITY = re.compile(r"qual|status|\.q$|_q$", re.IGNORECASE)
LONG = {
    "tag_column": re.compile(r"^(tag|tagname|tag_name|point|name|variable)$", re.IGNORECASE),
    "value_column": re.compile(r"^(value|val|reading|wert)$", re.IGNORECASE),
}
UNITS = re.compile(r"^(unit|units|uom|eu|eng_?units?|einheit)$", re.IGNORECASE)
DAYS = ("%d.%m.%", "%m/%d/%", "%d/%m/%", "%d-%b-%")
TIMES = ("%H:%M:%S%.f", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
FORMATS = (
    "",
    "%Y/%m/%d %H:%M:%S",
    # Years of two digits come first: %Y would read 24 as the year 24.
    *(f"{day}{year} {time}" for time in TIMES for day in DAYS for year in "yY"),
    "epoch_s",
)
KNOWN = "ISO 8601, day.month.year, month/day/year, day/month/year, day-Mon-year or seconds of 1970"


@dataclasses.dataclass
class Layout:
    """Layout of the files of a log, as detected in the first of them.

    Attributes:
        path: The first file.
        files: Values for ``[log]`` of the configuration.
        columns: Names of all columns.
        units: Units from a row of units, by column.
        qualities: Quality columns, by the column that they belong to.
        period_s: Median spacing of the stamps.
        local: Whether the stamps are local times without an offset from UTC.
        remark: Comment to be written after the format of the stamps.
        rows: Number of rows from which this was found.
        unreadable: Number of them whose stamp cannot be read.
    """

    path: Path
    files: Files
    columns: list[str]
    units: dict[str, str]
    qualities: dict[str, str]
    period_s: float
    local: bool
    remark: str
    rows: int
    unreadable: int

    def by_tag(
        self, table: pl.DataFrame, at: pl.Series | None
    ) -> Iterator[tuple[str, pl.Series, pl.Series | None, pl.Series | None]]:
        """The name, values, units and stamps of every tag in a table of rows."""
        files = self.files
        if files.layout == "wide":
            skipped = {files.timestamp, files.date, *(c for c in self.columns if QUALITY.search(c))}
            for column in self.columns:
                if column not in skipped:
                    yield column, table[column], None, at
            return
        frame = table if at is None else table.with_columns(at.alias("neorl at"))
        for (name,), part in frame.group_by(files.tag_column, maintain_order=True):
            units = part[files.unit_column] if files.unit_column else None
            stamps = None if at is None else part["neorl at"]
            yield str(name), part[files.value_column], units, stamps


def layout_of(path: Path, *, stamped: bool = True) -> Layout:
    """Detects the layout from the beginning of a file.

    Without ``stamped``, a file that holds no timestamps is taken to have a row a second. Raises a
    ``DatasetError`` if the file cannot be read, or has no row or no timestamp column.
    """
    require_regular(path)
    parquet = path.name.endswith((".parquet", ".pq"))
    encoding = "utf-8" if parquet else encoding_of(path)
    files = Files((path.name,), "", encoding=encoding)
    if not parquet:
        files = dataclasses.replace(files, separator=_separator(path, encoding))
    with read_as_table(path):
        table = next(tables(path, files, memory=MEMORY), pl.DataFrame())
    if table.is_empty():
        raise DatasetError(f"{path}: the log has no row")
    most_above = 0 if parquet else MOST_HEADER_ROWS - 1
    date = ""
    try:
        above, stamp, kind = _stamps(path, table.drop(ROW), most_above)
    except DatasetError:
        found = _days_apart(path, table.drop(ROW), most_above)
        masked = None if found else _mostly_stamps(path, table.drop(ROW), most_above)
        if found is not None:
            date, (above, stamp, kind) = found
            table = dated(table, date, stamp)
        elif masked is not None:
            above, stamp, kind = masked
            files = dataclasses.replace(files, unreadable="mask")
        elif stamped:
            raise
        else:
            above, stamp, kind = 0, ROW, "epoch_s"
    table = table if stamp == ROW else table.drop(ROW)
    kind, remark = _day_or_month(path, table.slice(above), stamp, kind)
    files = dataclasses.replace(
        files, timestamp=stamp, timestamp_format=kind, header_rows=1 + above, date=date
    )
    qualities = [c for c in table.columns if QUALITY.search(c)]
    long = {k: next((c for c in table.columns if p.search(c)), "") for k, p in LONG.items()}
    if all(long.values()):
        unit = next((c for c in table.columns if UNITS.search(c)), "")
        files = dataclasses.replace(
            files, layout="long", quality_column=(qualities or [""])[0], unit_column=unit, **long
        )
    others = [c for c in table.columns if c not in (stamp, date, *qualities)]
    rows = table.slice(above)
    if stamp != ROW and _read(path, rows, stamp, kind) is None:
        files = dataclasses.replace(files, unreadable="mask")
    clock = Clock(files, str(path))
    at = _nanoseconds(clock, rows, files)
    stamps = np.unique(at.drop_nulls().to_numpy().astype(np.float64))
    local = kind not in ("epoch_s", "epoch_ms") and not clock.offsets
    local = local and getattr(rows[stamp].dtype, "time_zone", None) is None
    return Layout(
        path=path,
        files=files,
        columns=[name for name in table.columns if name != ROW],
        units=_units(table.head(above), others),
        qualities={c: q for c in others for q in qualities if q.startswith(c)},
        period_s=float(np.median(np.diff(stamps))) / 1e9 if len(stamps) > 1 else 1.0,
        local=local,
        remark=remark,
        rows=len(rows),
        unreadable=clock.unreadable,
    )


def stamps_of(table: pl.DataFrame, layout: Layout) -> pl.Series | None:
    """The stamps of some rows in nanoseconds; ``None`` if any cannot be read."""
    try:
        return _nanoseconds(Clock(layout.files, str(layout.path)), table, layout.files)
    except (DatasetError, pl.exceptions.PolarsError):
        return None


def encoding_of(path: Path) -> str:
    """The encoding of a text file: UTF-8 if valid, UTF-16 if it has a byte order mark, else cp1252.

    Raises a ``DatasetError`` if the file cannot be read.
    """
    opener = gzip.open if path.name.endswith(".gz") else open
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with cast(BinaryIO, opener(path, "rb")) as file:
            while True:
                part = file.read(2**20)
                if part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                decoder.decode(part, final=not part)
                if not part:
                    return "utf-8"
    except UnicodeDecodeError:
        return "cp1252"
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot read it: {error}") from error


def _separator(path: Path, encoding: str) -> str:
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding=encoding, errors="replace") as file:
            head = file.read(65_536)
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise DatasetError(f"{path}: cannot read it: {error}") from error
    if not head.strip("\ufeff \t\r\n"):
        raise DatasetError(f"{path}: the log is empty")
    try:
        return csv.Sniffer().sniff(head.lstrip().splitlines()[0], ",;\t|").delimiter
    except csv.Error:
        return ","


def _mostly_stamps(path: Path, table: pl.DataFrame, most_above: int) -> tuple[int, str, str] | None:
    """The same as :func:`_stamps` of a column in which some stamps cannot be read."""
    try:
        return _stamps(path, table, most_above, readable=READABLE)
    except DatasetError:
        return None


def _stamps(
    path: Path, table: pl.DataFrame, most_above: int, *, readable: float = 1.0
) -> tuple[int, str, str]:
    """The number of header rows below the names, the timestamp column and its format.

    A row below the names belongs to the header if it holds no number, such as a row of units. At
    least the share ``readable`` of the stamps must follow the format.
    """
    likely = sorted(table.columns, key=lambda name: not STAMP.search(name))
    for above in range(min(most_above + 1, len(table))):
        rows = table.slice(above, TRIED)
        for column, kind in itertools.product(likely, FORMATS):
            named = kind != "epoch_s" or STAMP.search(column)
            at = _read(path, rows, column, kind, readable) if named else None
            if at is not None:
                return above, column, kind
        if _has_number(table.slice(above, 1)):
            break
    if sum(_has_number(pl.DataFrame({"name": [name]})) for name in table.columns) > 1:
        raise DatasetError(
            f"{path}: the first row looks like numbers ({', '.join(table.columns[:4])}), not like "
            "the names of the columns; write a header above it"
        )
    raise DatasetError(
        f"{path}: no column holds timestamps ({KNOWN}); columns: {', '.join(table.columns[:8])}"
    )


def _days_apart(
    path: Path, table: pl.DataFrame, most_above: int
) -> tuple[str, tuple[int, str, str]] | None:
    """A column of days, with the header rows, column and format of the times of day beside it."""
    dates, times = (
        [name for name in table.columns if pattern.search(name)] for pattern in (DATE, TIME_OF_DAY)
    )
    for date, time in itertools.product(dates, times):
        if date == time:
            continue
        both = dated(table, date, time).select(time)
        try:
            return date, _stamps(path, both, most_above)
        except DatasetError:
            continue
    return None


def _read(
    path: Path, rows: pl.DataFrame, column: str, kind: str, readable: float = 1.0
) -> pl.Series | None:
    """The stamps of some rows, null if one cannot be read; ``None`` if too many cannot."""
    unreadable = "refuse" if readable >= 1 else "mask"
    files = Files((), column, timestamp_format=kind, unreadable=unreadable)
    try:
        at = _nanoseconds(Clock(files, str(path)), rows, files)
    except (DatasetError, pl.exceptions.PolarsError):
        return None
    # A row of units has no stamp either, so the first row must have one.
    if at.null_count() > (1 - readable) * len(at) or (len(at) and at[0] is None):
        return None
    return at


def _nanoseconds(clock: Clock, rows: pl.DataFrame, files: Files) -> pl.Series:
    return clock.nanoseconds(rows[files.timestamp], pl.Series(range(len(rows)), dtype=pl.Int64))


def _day_or_month(path: Path, rows: pl.DataFrame, column: str, kind: str) -> tuple[str, str]:
    """The format of stamps such as 03/04/2024, with a remark if both orders remain possible.

    If both orders fit all rows, the right one is the one under which the stamps ascend.
    """
    other = kind.replace("%m/%d/", "%d/%m/")
    at = _read(path, rows, column, kind, READABLE)
    swapped = None if other == kind else _read(path, rows, column, other, READABLE)
    if at is not None and swapped is not None and at.null_count() != swapped.null_count():
        # Rows after the twelfth of a month can be read in one order alone.
        return (kind if at.null_count() < swapped.null_count() else other), ""
    if swapped is None:
        return kind, ""
    if at is None:
        return other, ""
    spans = [int(np.ptp(stamps.drop_nulls().to_numpy())) for stamps in (at, swapped)]
    if spans[0] == spans[1]:
        return kind, "  # TODO is the month or the day first?"
    return (kind, "") if spans[0] < spans[1] else (other, "")


def _has_number(row: pl.DataFrame) -> bool:
    """Whether a cell is a number, under either decimal mark."""
    cells = pl.Series([str(x).strip() for x in row.row(0) if x is not None], dtype=pl.String)
    readings = (parse(cells, Notation(mark)) for mark in (".", ","))
    return any(bool(number.is_finite().any()) for number, _ in readings)


def _units(header: pl.DataFrame, columns: list[str]) -> dict[str, str]:
    """The units by column, from the header row below the names that has the shortest texts."""
    rows = [dict(zip(header.columns, row, strict=True)) for row in header.iter_rows()]
    named = [{c: str(row[c]).strip() for c in columns if row[c]} for row in rows]
    filled = [row for row in named if row]
    if not filled:
        return {}
    shortest = min(filled, key=lambda row: sum(map(len, row.values())) / len(row))
    return {column: text.strip("[]()") for column, text in shortest.items()}
