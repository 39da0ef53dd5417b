"""Files of a log as tables of bounded size.

A scan of polars reads ahead of whoever takes its batches: it held most of a CSV, and row groups of
Parquet, at the end. So CSV is cut at the ends of rows here, and Parquet is asked for by rows.
"""

import codecs
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from neorl_core.infrastructure import nearest_name
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.plant_logs._configuration import Files

ROW = "neorl row"
ONE_ROW = rb'(?:[^"\n]++|"[^"]*+")*+\n'
HEAD = re.compile(rb"[\r\n]*+" + ONE_ROW)
"""Of CSV; what is between quotes may hold line breaks."""
LEAST, MOST = 2**16, 2**23
"""Bytes of CSV that are parsed at once."""
LONGEST_ROW = 2**24
"""Bytes without the end of a row: a quote was opened and not closed."""
BLOCK, FEWEST = 100_000, 64
"""Rows of a table, fewer where they are wide."""
CELL_BYTES, STORED_BYTES = 400, 64
"""What a cell takes at the peak, as text and as a number; and as Parquet gives it."""


def tables(
    path: Path, files: Files, *, memory: float, wanted: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """The rows of a file in their order, as tables with the number of every row.

    Args:
        path: CSV, compressed CSV or Parquet.
        files: How CSV is separated.
        memory: Bytes that a table may take while it is worked on.
        wanted: Columns; all of them by default.

    Yields:
        Columns of CSV as text, those of Parquet as they are; ``ROW`` counts as an editor does.

    Raises:
        DatasetError: If a column is absent, or a row has no end.
    """
    read = _parquet if path.name.endswith((".parquet", ".pq")) else _csv
    for table in read(path, files, memory, wanted):
        size = min(BLOCK, max(FEWEST, int(memory / (CELL_BYTES * len(table.columns)))))
        yield from table.iter_slices(size)


def _csv(path: Path, files: Files, memory: float, wanted: Sequence[str]) -> Iterator[pl.DataFrame]:
    at_once = int(min(MOST, max(LEAST, memory / 32)))
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rb") as file:
        source = Utf8(cast(BinaryIO, file), files.encoding, str(path))
        row, head, above = 2, b"", files.header_rows - 1  # row 2 is below the names
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
            if wanted:
                _require(path, frame, wanted)
            table = (frame.select(ROW, *wanted) if wanted else frame).collect()
            row += len(table)
            yield table


class Utf8:
    """A file of text in any encoding, read as UTF-8.

    Args:
        file: Opened for bytes.
        encoding: Encoding of the file.
        source: Named in the message.
    """

    def __init__(self, file: BinaryIO, encoding: str, source: str) -> None:
        self._file, self._source, self._encoding = file, source, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rows = 1

    def read(self, size: int) -> bytes:
        """About so many bytes; none at the end of the file.

        Raises:
            DatasetError: At the first row with bytes that are not of the encoding.
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
    path: Path, files: Files, memory: float, wanted: Sequence[str]
) -> Iterator[pl.DataFrame]:
    frame = pl.scan_parquet(path, glob=False).with_row_index(ROW)
    _require(path, frame, wanted)
    frame = frame.select(ROW, *wanted) if wanted else frame
    width = len(frame.collect_schema())
    size = min(BLOCK, max(FEWEST, int(memory / (STORED_BYTES * width))))
    n_rows = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    for first in range(0, n_rows, size):
        yield frame.slice(first, size).collect()


def records(file: BinaryIO | Utf8, at_once: int, source: str) -> Iterator[bytes]:
    """The bytes of a CSV in pieces that end where a row does; an empty file gives one empty piece.

    Args:
        file: Opened for bytes.
        at_once: Bytes of a piece, where no row is longer.
        source: Named in the message.

    Yields:
        Pieces; a line break between quotes ends none.

    Raises:
        DatasetError: If a row does not end.
    """
    rest, first = b"", True
    while chunk := file.read(max(at_once, len(rest))):
        text = rest + chunk
        end = _last_end(text)
        if text[:end].isspace():  # no table by itself; it goes with what follows
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
    """Behind the last line break outside quotes; 0 where there is none."""
    end = text.rfind(b"\n")
    between = end >= 0 and text.count(b'"', 0, end) % 2 == 1
    while end >= 0 and between:
        before = text.rfind(b"\n", 0, end)
        between = text.count(b'"', max(before, 0), end) % 2 == 0
        end = before
    return end + 1


def _head(text: bytes) -> bytes:
    """Empty lines and the header."""
    match = HEAD.match(text)
    return match.group() if match else text


def _require(path: Path, frame: pl.LazyFrame, wanted: Sequence[str]) -> None:
    present = frame.collect_schema().names()
    for column in wanted:
        if column not in present:
            near = nearest_name(column, present)
            hint = f"; did you mean {near!r}?" if near else ""
            raise DatasetError(
                f"{path}: no column {column!r}{hint} (it has {_shown(present[1:9])}"
                f"{', ...' if len(present) > 9 else ''})"
            )


def _shown(names: Sequence[str]) -> str:
    """Names on one line: an open quote makes a column of many."""
    return ", ".join(" ".join(name.split())[:40] for name in names)
