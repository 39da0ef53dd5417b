"""Reads valid values from log files, block by block: quality, units, ranges and stray text."""

import codecs
import contextlib
import dataclasses
import gzip
import hashlib
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import polars as pl

from neorl_core.infrastructure import nearest_name
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._file import require_regular
from neorl_envs.plant_logs._configuration import WORDS, Files, PlantLog, Tag
from neorl_envs.plant_logs._numbers import (
    Notation,
    advice,
    decides,
    is_grouped,
    is_long,
    parse,
    quote,
)
from neorl_envs.plant_logs._stamps import Clock

# Reads the files of a log as tables of bounded size.
#
# A lazy scan of polars reads ahead of its consumer: in the end it held most of a CSV file, or
# several row groups of Parquet, in memory. CSV is therefore cut at row ends here, and Parquet is
# read by row ranges.


ROW = "neorl row"
ONE_ROW = rb'(?:[^"\n]++|"[^"]*+")*+\n'
HEAD = re.compile(rb"[\r\n]*+" + ONE_ROW)
"""The header of a CSV file; quoted text may contain line breaks."""
LEAST, MOST = 2**16, 2**23
"""Smallest and largest number of CSV bytes that are parsed at a time."""
LONGEST_ROW = 2**24
"""Longest row in bytes; beyond it a quote must have been opened and never closed."""
BLOCK, FEWEST = 100_000, 64
"""Largest and smallest number of rows of a table; wide rows make smaller tables."""
CELL_BYTES, STORED_BYTES = 400, 64
"""Peak bytes of a cell while it is converted from text, and of a cell read from Parquet."""


@contextlib.contextmanager
def read_as_table(path: Path) -> Iterator[None]:
    """Reports a file that is damaged, or no table, as a ``DatasetError`` of one line."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        raise DatasetError(f"{path}: cannot read it as a table: {reason}") from error


def tables(
    path: Path, files: Files, *, memory: float, columns: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """Yields the rows of a file in order, as tables that include the row numbers.

    ``memory`` is what a table may take while it is processed, in bytes. CSV columns are text,
    Parquet columns as stored; the column ``ROW`` numbers rows as a text editor does. Days that
    stand in a column of their own are put before the times. Raises a ``DatasetError`` if a column
    is absent, or a row has no end.
    """
    read = _parquet if path.name.endswith((".parquet", ".pq")) else _csv
    for table in read(path, files, memory, [name for name in columns if name != ROW]):
        if files.date:
            table = dated(table, files.date, files.timestamp)
        size = min(BLOCK, max(FEWEST, int(memory / (CELL_BYTES * len(table.columns)))))
        yield from table.iter_slices(size)


def dated(table: pl.DataFrame, date: str, time: str) -> pl.DataFrame:
    """The table with days and times of day joined in the column of the times."""
    parts = [pl.col(name).cast(pl.String).str.strip_chars() for name in (date, time)]
    return table.with_columns(pl.concat_str(parts, separator=" ").alias(time))


def _csv(path: Path, files: Files, memory: float, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    at_once = int(min(MOST, max(LEAST, memory / 32)))
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rb") as file:
        source = Utf8(cast(BinaryIO, file), files.encoding, str(path))
        row, head, above = 2, b"", files.header_rows - 1  # row 1 holds the names
        for piece in records(source, at_once, str(path)):
            if not head:
                head = _head(piece)
                body = piece[len(head) :]
            else:
                body = piece
            while above and (line := re.match(ONE_ROW, body)):
                body, row, above = body[line.end() :], row + 1, above - 1
            frame = pl.scan_csv(
                io.BytesIO(head + body),
                separator=files.separator,
                infer_schema=False,
                row_index_name=ROW,
                row_index_offset=row,
            )
            if columns:
                _require_columns(path, frame, columns)
            table = (frame.select(ROW, *columns) if columns else frame).collect()
            row += len(table)
            yield table


class Utf8:
    """A file of text in any encoding, read as UTF-8.

    Args:
        file: File opened in binary mode.
        encoding: Encoding of the file.
        source: Name of the file in error messages.
    """

    def __init__(self, file: BinaryIO, encoding: str, source: str) -> None:
        self._file, self._source, self._encoding = file, source, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rows = 1

    def read(self, size: int) -> bytes:
        """Reads about ``size`` bytes; an empty result means the end of the file.

        Raises a ``DatasetError`` at the first row whose bytes are invalid in the encoding.
        """
        while True:
            raw = self._file.read(size)
            try:
                text = self._decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                row = self._rows + error.object[: error.start].count(b"\n")
                raise DatasetError(
                    f"{self._source}: row {row} holds bytes that are not {self._encoding}; set "
                    'log.encoding, such as "cp1252" or "utf-16"'
                ) from error
            if text or not raw:
                self._rows += text.count("\n")
                return text.encode()


def _parquet(
    path: Path, files: Files, memory: float, columns: Sequence[str]
) -> Iterator[pl.DataFrame]:
    frame = pl.scan_parquet(path, glob=False).with_row_index(ROW)
    _require_columns(path, frame, columns)
    frame = frame.select(ROW, *columns) if columns else frame
    width = len(frame.collect_schema())
    size = min(BLOCK, max(FEWEST, int(memory / (STORED_BYTES * width))))
    n_rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    for first in range(0, n_rows, size):
        yield frame.slice(first, size).collect()


def records(file: BinaryIO | Utf8, at_once: int, source: str) -> Iterator[bytes]:
    """Yields the bytes of a CSV file in pieces that end at row ends.

    A piece has ``at_once`` bytes unless a row is longer, and never ends at a line break inside
    quotes. An empty file gives one empty piece. Raises a ``DatasetError`` if a row does not end.
    """
    rest, first = b"", True
    while chunk := file.read(max(at_once, len(rest))):
        text = rest + chunk
        end = _last_end(text)
        if text[:end].isspace():  # not a table by itself; joined with the next piece
            end = 0
        rest = text[end:]
        if len(rest) > max(LONGEST_ROW, at_once):
            raise DatasetError(
                f"{source}: cannot read it as a table: a row does not end within "
                f"{len(rest) / 1e6:.0f} MB; look for a quote that is not closed"
            )
        if end:
            first = False
            yield text[:end]
    if rest or first:
        yield rest


def _last_end(text: bytes) -> int:
    """The position after the last line break outside quotes; 0 if there is none."""
    end = text.rfind(b"\n")
    between = end >= 0 and text.count(b'"', 0, end) % 2 == 1
    while end >= 0 and between:
        before = text.rfind(b"\n", 0, end)
        between = text.count(b'"', max(before, 0), end) % 2 == 0
        end = before
    return end + 1


def _head(text: bytes) -> bytes:
    """The header and any empty lines above it."""
    match = HEAD.match(text)
    return match.group() if match else text


def _require_columns(path: Path, frame: pl.LazyFrame, columns: Sequence[str]) -> None:
    present = frame.collect_schema().names()
    for column in columns:
        if column not in present:
            near = nearest_name(column, present)
            hint = f"; did you mean {near!r}?" if near else ""
            raise DatasetError(
                f"{path}: no column {column!r}{hint} (it has {_names_text(present[1:9])}"
                f"{', ...' if len(present) > 9 else ''})"
            )


def _names_text(names: Sequence[str]) -> str:
    """Names on one line; with an unclosed quote, a single name may span many lines."""
    return ", ".join(" ".join(name.split())[:40] for name in names)


OUTSIDE = "outside the range"
"""Reason counted for a value that is not between ``low`` and ``high`` of its tag."""


@dataclasses.dataclass
class Tally:
    """Statistics collected while a log is read.

    Attributes:
        rows: Number of rows in all files.
        out_of_order: Number of rows with an earlier stamp than the row above.
        unreadable: Number of rows left out because their stamp cannot be read.
        ambiguous: Number of rows in an hour that is repeated when daylight saving ends.
        lost: Rows of repeated hours that are not or not all used, with times and reason.
        offsets: UTC offsets that occurred in stamps.
        tags: For every tag, the number of values lost by reason: ``"bad quality"``,
            ``"missing"``, ``"outside the range"``, ``"repeated"``, ``"contradicting"``.
        unknown: Tags of the long layout that the configuration does not name.
        files: Name, size in bytes and SHA-256 of every file.
        extent: Smallest and largest value read for every tag, in its unit.
        grouped: For every tag, the first number of the current file with a thousands mark, and its
            row.
        ungrouped: For every tag, the first number of the current file without one, and its row.
    """

    rows: int = 0
    out_of_order: int = 0
    ambiguous: int = 0
    unreadable: int = 0
    lost: list[dict[str, str | int]] = dataclasses.field(default_factory=list)
    offsets: set[str] = dataclasses.field(default_factory=set)
    tags: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    unknown: set[str] = dataclasses.field(default_factory=set)
    files: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    extent: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    grouped: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    ungrouped: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    undecided: dict[str, tuple[str, int, str]] = dataclasses.field(default_factory=dict)
    decided: set[str] = dataclasses.field(default_factory=set)

    def count(self, tag: str, reason: str, number: int) -> None:
        """Counts values of a tag under a reason."""
        if number:
            self.tags.setdefault(tag, Counter())[reason] += number

    def extend(self, tag: str, values: pl.Series) -> None:
        """Widens the extent of a tag to include more values; nulls are ignored."""
        low, high = values.min(), values.max()
        if isinstance(low, float) and isinstance(high, float):
            before = self.extent.get(tag, (low, high))
            self.extent[tag] = min(low, before[0]), max(high, before[1])


class Words:
    """Codes for the words of a mode, batch or behaviour, in the order of their appearance."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def codes(self, column: pl.Series) -> pl.Series:
        """The code of every word; new words get new codes."""
        for word in column.drop_nulls().unique(maintain_order=True):
            self.known.setdefault(word, len(self.known))
        return column.replace_strict(self.known, default=None, return_dtype=pl.Float64)


def blocks(
    config: PlantLog,
    paths: Sequence[Path],
    tally: Tally,
    words: dict[str, Words],
    memory: float,
) -> Iterator[pl.DataFrame]:
    """Yields the valid values of all files: ``at`` (UTC nanoseconds), ``tag`` (index), ``value``.

    ``tally``, and ``words`` with the codes of the words of every tag, are updated in place.
    ``memory`` is in bytes. Blocks are in no particular order of time. Raises a ``DatasetError``
    naming the file, row and tag of the first value that cannot be read.
    """
    for path in paths:
        require_regular(path)
        tally.files.append(
            {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)}
        )
        clock = Clock(config.log, str(path))
        tally.grouped, tally.ungrouped = {}, {}
        with read_as_table(path):
            for block in tables(path, config.log, memory=memory, columns=_columns(config)):
                yield from _tag_blocks(config, path, block, clock, tally, words)
        tally.out_of_order += clock.out_of_order
        tally.ambiguous += clock.ambiguous_rows
        tally.unreadable += clock.unreadable
        tally.lost += [one.entry(config.log.time_zone) for one in clock.lost]
        tally.offsets |= clock.offsets
    _require_decided(config, tally)


def sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tag_blocks(
    config: PlantLog,
    path: Path,
    block: pl.DataFrame,
    clock: Clock,
    tally: Tally,
    words: dict[str, Words],
) -> Iterator[pl.DataFrame]:
    tally.rows += len(block)
    at = clock.nanoseconds(block[config.log.timestamp], block[ROW])
    block = block.with_columns(at.alias("neorl at")).filter(pl.col("neorl at").is_not_null())
    by_tag = _wide if config.log.layout == "wide" else _long
    for index, tag, table in by_tag(config, block, tally):
        values = _values(config, tag, table, str(path), tally, words)
        valid = pl.DataFrame({"at": table["neorl at"], "value": values}).drop_nulls()
        yield valid.select("at", pl.lit(index, pl.Int32).alias("tag"), "value")


def _columns(config: PlantLog) -> list[str]:
    log = config.log
    if log.layout == "long":
        optional = [name for name in (log.quality_column, log.unit_column) if name]
        optional += [log.date] if log.date else []
        return [log.timestamp, log.tag_column, log.value_column, *optional]
    qualities = [tag.quality for tag in config.tags if tag.quality]
    stamps = [name for name in (log.date, log.timestamp) if name]
    return list(dict.fromkeys([*stamps, *(tag.logged_as for tag in config.tags), *qualities]))


def _wide(
    config: PlantLog, block: pl.DataFrame, tally: Tally
) -> Iterator[tuple[int, Tag, pl.DataFrame]]:
    for index, tag in enumerate(config.tags):
        columns = {"value": tag.logged_as, **({"quality": tag.quality} if tag.quality else {})}
        selection = [pl.col(column).alias(name) for name, column in columns.items()]
        yield index, tag, block.select(ROW, "neorl at", *selection)


def _long(
    config: PlantLog, block: pl.DataFrame, tally: Tally
) -> Iterator[tuple[int, Tag, pl.DataFrame]]:
    log = config.log
    columns = {"value": log.value_column, "quality": log.quality_column, "unit": log.unit_column}
    selection = [pl.col(column).alias(name) for name, column in columns.items() if column]
    names = {tag.logged_as: index for index, tag in enumerate(config.tags)}
    for (name,), part in block.group_by(log.tag_column, maintain_order=True):
        if name not in names:
            tally.unknown.add(str(name))
            continue
        index = names[str(name)]
        yield index, config.tags[index], part.select(ROW, "neorl at", *selection)


def _values(
    config: PlantLog,
    tag: Tag,
    table: pl.DataFrame,
    source: str,
    tally: Tally,
    words: dict[str, Words],
) -> pl.Series:
    """The values of one tag in its unit; null for values that are missing or rejected."""
    raw = table["value"]
    if raw.dtype == pl.String:
        raw = raw.str.strip_chars()
    absent = raw.is_null() | (raw.cast(pl.String).is_in(["", *config.log.missing]))
    bad = pl.repeat(False, len(raw), eager=True)
    if "quality" in table.columns:
        quality = table["quality"].cast(pl.String).str.strip_chars()
        bad = ~quality.is_in(list(config.log.good)).fill_null(False) & ~absent
    tally.count(tag.name, "missing", int(absent.sum()))
    tally.count(tag.name, "bad quality", int(bad.sum()))
    usable = ~absent & ~bad
    if tag.role in WORDS:
        text = raw.cast(pl.String)
        return words.setdefault(tag.name, Words()).codes(_where(usable, text))
    if not (raw.dtype.is_numeric() or raw.dtype in (pl.String, pl.Boolean)):
        raise DatasetError(f"{source}: tag {tag.name!r} holds {raw.dtype}, expected numbers")
    cell_unit = None
    if raw.dtype == pl.String:
        notation = config.notation(tag)
        text = _where(usable, raw)
        number, cell_unit = parse(text, notation)
        _require_numbers(
            usable & (number.is_null() | number.is_infinite()), table, tag, source, notation
        )
        if notation.thousands:
            _require_one_way(text, notation, table, tag, source, tally)
    else:
        number = raw.cast(pl.Float64, strict=False)
        _require_numbers(
            usable & (number.is_null() | number.is_infinite()), table, tag, source, Notation()
        )
    number = _where(usable & number.is_not_nan(), number)
    number = _in_unit(number, tag, table, cell_unit, source)
    tally.extend(tag.name, number)
    slack = float(np.finfo(np.float32).eps) * max(
        (abs(end) for end in (tag.low, tag.high) if math.isfinite(end)), default=0.0
    )
    outside = ((number < tag.low - slack) | (number > tag.high + slack)).fill_null(False)
    tally.count(tag.name, OUTSIDE, int(outside.sum()))
    tally.count(tag.name, "missing", int((usable & number.is_null()).sum()))
    # What lies within the slack was rounded to float32 on its way, as 100 to 100.000008.
    return _where(~outside, number).clip(tag.low, tag.high)


def _where(condition: pl.Series, column: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"keep": condition, "column": column})
    return frame.select(pl.when("keep").then("column")).to_series()


def _require_numbers(
    invalid: pl.Series, table: pl.DataFrame, tag: Tag, source: str, notation: Notation
) -> None:
    if invalid.any():
        first = int(invalid.arg_max() or 0)
        value = table["value"][first]
        raise DatasetError(
            f"{source}: tag {tag.name!r}, row {table[ROW][first]}: expected a number, got "
            f"{value!r}; {advice(str(value).strip(), notation)}"
        )


def _require_one_way(
    text: pl.Series,
    notation: Notation,
    table: pl.DataFrame,
    tag: Tag,
    source: str,
    tally: Tally,
) -> None:
    """Raises if a column has large numbers both with and without a thousands mark.

    A program writes one form or the other; if both occur, the mark is a decimal mark.
    """
    marks = (tally.grouped, is_grouped(text, notation)), (tally.ungrouped, is_long(text))
    for first, others in marks:
        if tag.name not in first and others.any():
            row = int(others.arg_max() or 0)
            first[tag.name] = int(table[ROW][row]), str(text[row])
    if tag.name in tally.grouped and tag.name in tally.ungrouped:
        (row, value), (other_row, other) = tally.grouped[tag.name], tally.ungrouped[tag.name]
        hint = f'set decimal = "{notation.thousands}" in its [[tag]] if it is its decimal mark'
        raise DatasetError(
            f"{source}: tag {tag.name!r}: row {row} has {value!r} with the thousands mark "
            f"{quote(notation.thousands)}, row {other_row} has {other!r} without; "
            + (hint if notation.thousands in ".," else "correct the rows that differ")
        )
    if tag.name in tally.decided or tag.decimal or notation.thousands not in ".,":
        return
    if decides(text, notation).any():
        tally.decided.add(tag.name)
    elif tag.name in tally.grouped and tag.name not in tally.undecided:
        tally.undecided[tag.name] = source, *tally.grouped[tag.name]


def _require_decided(config: PlantLog, tally: Tally) -> None:
    """Raises for a tag whose numbers are all ambiguous.

    59,990 is one number if the mark separates thousands, and another if it is the decimal mark.
    """
    for tag in config.tags:
        if tag.name in tally.decided or tag.name not in tally.undecided:
            continue
        source, row, text = tally.undecided[tag.name]
        notation = config.notation(tag)
        whole = text.replace(notation.thousands, "")
        part = text.replace(notation.thousands, ".")
        raise DatasetError(
            f"{source}: tag {tag.name!r}, row {row}: {text!r} may be {whole} or {part}, and no "
            f"other number of the tag decides; set decimal = {quote(notation.decimal)} in its "
            f"[[tag]] for {whole}, or decimal = {quote(notation.thousands)} for {part}"
        )


def _in_unit(
    number: pl.Series, tag: Tag, table: pl.DataFrame, cell_unit: pl.Series | None, source: str
) -> pl.Series:
    """The numbers in the unit of the channel.

    A unit in the cell takes precedence over the unit column; a value with neither is in the logged
    unit of the tag.
    """
    if cell_unit is None and "unit" not in table.columns:
        return number * tag.factor + tag.offset
    unit = pl.repeat(tag.unit, len(number), dtype=pl.String, eager=True)
    if "unit" in table.columns:
        unit = table["unit"].cast(pl.String).str.strip_chars().fill_null("")
    if cell_unit is not None:
        unit = pl.select(pl.coalesce(cell_unit, unit)).to_series()
    rules = {tag.unit: (tag.factor, tag.offset), **tag.conversions}
    unknown = ~unit.is_in(list(rules)) & number.is_not_null()
    if unknown.any():
        first = int(unknown.arg_max() or 0)
        in_cell = cell_unit is not None and cell_unit[first] is not None
        text = f"{table['value'][first]!r} is not a number alone: its " if in_cell else ""
        raise DatasetError(
            f"{source}: tag {tag.name!r}, row {table[ROW][first]}: {text}unit {unit[first]!r} is "
            f"neither {tag.unit!r} nor one of its conversions; add it, as [factor, offset]"
        )
    factor = unit.replace_strict({u: r[0] for u, r in rules.items()}, default=None)
    offset = unit.replace_strict({u: r[1] for u, r in rules.items()}, default=None)
    return number * factor.cast(pl.Float64) + offset.cast(pl.Float64)
