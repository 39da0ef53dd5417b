"""Reads valid values from log files, block by block: quality, units, ranges and stray text."""

import dataclasses
import hashlib
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._hdf5 import require_regular
from neorl_envs.plant_logs._configuration import WORDS, PlantLog, Tag
from neorl_envs.plant_logs._files import ROW, tables
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

OUTSIDE = "outside the range"
"""Reason counted for a value that is not between ``low`` and ``high`` of its tag."""


@dataclasses.dataclass
class Tally:
    """Statistics collected while a log is read.

    Attributes:
        rows: Number of rows in all files.
        out_of_order: Number of rows with an earlier stamp than the row above.
        ambiguous: Number of rows in an hour that is repeated when daylight saving ends.
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
        try:
            for block in tables(path, config.log, memory=memory, columns=_columns(config)):
                yield from _tag_blocks(config, path, block, clock, tally, words)
        except (pl.exceptions.PolarsError, OSError, zlib.error, EOFError) as error:
            reason = (str(error).splitlines() or ["?"])[0]
            raise DatasetError(f"{path}: cannot read it as a table: {reason}") from error
        tally.out_of_order += clock.out_of_order
        tally.ambiguous += clock.ambiguous_rows
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
        return [log.timestamp, log.tag_column, log.value_column, *optional]
    qualities = [tag.quality for tag in config.tags if tag.quality]
    return list(dict.fromkeys([log.timestamp, *(tag.logged_as for tag in config.tags), *qualities]))


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
        _require(usable & (number.is_null() | number.is_infinite()), table, tag, source, notation)
        if notation.thousands:
            _require_one_way(text, notation, table, tag, source, tally)
    else:
        number = raw.cast(pl.Float64, strict=False)
        _require(usable & (number.is_null() | number.is_infinite()), table, tag, source, Notation())
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


def _require(
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
