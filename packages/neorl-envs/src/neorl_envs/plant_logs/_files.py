"""Reads the files of a log as tables of bounded size.

A lazy scan of polars reads ahead of its consumer: in the end it held most of a CSV file, or several
row groups of Parquet, in memory. CSV is therefore cut at row ends here, and Parquet is read by row
ranges.
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
"""The header of a CSV file; quoted text may contain line breaks."""
LEAST, MOST = 2**16, 2**23
"""Smallest and largest number of CSV bytes that are parsed at a time."""
LONGEST_ROW = 2**24
"""Longest row in bytes; beyond it a quote must have been opened and never closed."""
BLOCK, FEWEST = 100_000, 64
"""Largest and smallest number of rows of a table; wide rows make smaller tables."""
CELL_BYTES, STORED_BYTES = 400, 64
"""Peak bytes of a cell while it is converted from text, and of a cell read from Parquet."""


def tables(
    path: Path, files: Files, *, memory: float, columns: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """Yields the rows of a file in order, as tables that include the row numbers.

    ``memory`` is what a table may take while it is processed, in bytes. CSV columns are text,
    Parquet columns as stored; the column ``ROW`` numbers rows as a text editor does. Raises a
    ``DatasetError`` if a column is absent, or a row has no end.
    """
    read = _parquet if path.name.endswith((".parquet", ".pq")) else _csv
    for table in read(path, files, memory, columns):
        size = min(BLOCK, max(FEWEST, int(memory / (CELL_BYTES * len(table.columns)))))
        yield from table.iter_slices(size)


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
                _require(path, frame, columns)
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
    _require(path, frame, columns)
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


def _require(path: Path, frame: pl.LazyFrame, columns: Sequence[str]) -> None:
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
