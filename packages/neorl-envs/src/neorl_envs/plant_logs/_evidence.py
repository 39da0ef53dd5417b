"""Evidence about each tag in the rows of a log, for the draft of ``plant.toml``."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from neorl_envs.plant_logs._numbers import Notation, decides, is_grouped, is_long, parse

PLAIN = (Notation("."), Notation(","))
GROUPED = (
    Notation(".", ","),
    Notation(",", "."),
    Notation(".", " "),
    Notation(",", " "),
    Notation(".", "'"),
    Notation(",", "'"),
)
SOME_GROUP = r"^[+\u2212-]?[1-9][0-9]{0,2}[., '\u2019\u00a0\u2009\u202f][0-9]{3}"
INTEGER = re.compile(r"[+-]?\d+(\.0+)?")
MOST_WORDS = 50
MOST_LEVELS = 20
"""A column with more different values is not a grade or recipe."""
SELDOM = 20
"""A column that changes seldom holds a value for at least this many samples on average."""
MOST_UNITS = 3
"""A column with more different texts after its numbers holds remarks, not units."""


@dataclasses.dataclass
class Reading:
    """The texts of a tag as read under one notation.

    Attributes:
        fits: Number of texts that are numbers.
        low: Smallest of these numbers.
        high: Largest of these numbers.
        others: Some of the texts that are not numbers.
    """

    fits: int = 0
    low: float = np.inf
    high: float = -np.inf
    others: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, text: pl.Series, number: pl.Series) -> None:
        """Adds texts and their values under the notation, null for a text that is not a number."""
        finite = number.filter(number.is_finite())
        self.fits += int(number.is_not_null().sum())
        if len(finite):
            values = finite.to_numpy()
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
        for word in text.filter(number.is_null()).unique(maintain_order=True):
            if len(self.others) < MOST_WORDS:
                self.others[word] += 1


@dataclasses.dataclass
class Evidence:
    """Evidence about one tag.

    Attributes:
        dtype: Dtype of the stored column.
        filled: Number of cells that are not empty.
        spacing_s: Median spacing of the stamps, seconds, in the largest block of rows added so
            far; 0 if unknown.
        spacings: Number of spacings in that block.
        readings: The numbers and words under every notation that was tried.
        grouped: Notations under which a number has a thousands mark.
        decided: Those of ``grouped`` under which some number proves that the mark is not a
            decimal mark.
        long: Whether a number has four or more consecutive digits before any mark.
        units: Units that follow numbers in their cell or stand in the unit column.
        changes: Number of cells that differ from the one before them.
        levels: The different values, at most one more than :data:`MOST_LEVELS`.
        last: The last cell that was added.
    """

    dtype: pl.DataType
    filled: int = 0
    spacing_s: float = 0.0
    spacings: int = 0
    readings: dict[Notation, Reading] = dataclasses.field(default_factory=dict)
    grouped: set[Notation] = dataclasses.field(default_factory=set)
    decided: set[Notation] = dataclasses.field(default_factory=set)
    long: bool = False
    units: Counter[str] = dataclasses.field(default_factory=Counter)
    changes: int = 0
    levels: set[str] = dataclasses.field(default_factory=set)
    last: Any = None

    def add(self, values: pl.Series, at: pl.Series | None) -> None:
        """Adds cells of the tag, with their stamps if these could be read."""
        if values.dtype in (pl.Categorical, pl.Enum):
            values = values.cast(pl.String)
        if values.dtype == pl.String:
            values = values.str.strip_chars().replace("", None)
        present = values.is_not_null()
        self.filled += int(present.sum())
        if at is not None and present.any():
            stamps = np.unique(at.filter(present).drop_nulls().to_numpy()) / 1e9
            if len(stamps) - 1 > self.spacings:
                self.spacing_s = float(np.median(np.diff(stamps)))
                self.spacings = len(stamps) - 1
        values = values.filter(present)
        self._add_changes(values)
        if values.dtype == pl.String:
            self._add_text(values)
        elif values.dtype.is_numeric() or values.dtype == pl.Boolean:
            number = values.cast(pl.Float64, strict=False)
            self._reading(PLAIN[0]).add(values.cast(pl.String), number)

    def _add_changes(self, values: pl.Series) -> None:
        if not len(values):
            return
        self.changes += int((values != values.shift(1)).sum())
        self.changes += self.last is not None and self.last != values[0]
        self.last = values[-1]
        if len(self.levels) <= MOST_LEVELS:
            different = values.unique().head(MOST_LEVELS + 1)
            self.levels |= set(different.cast(pl.String, strict=False).drop_nulls().to_list())

    def changes_seldom(self, period: float) -> bool:
        """Whether a value lasts for many samples, or is recorded only when it changes.

        ``period`` is in seconds.
        """
        return self.changes * SELDOM <= self.filled or self.spacing_s >= SELDOM * period > 0

    def has_few_levels(self) -> bool:
        """Whether there are a few different values, but more than one."""
        return 1 < len(self.levels) <= MOST_LEVELS

    def is_code(self) -> bool:
        """Whether the values looked at are integers, such as the numbers of batches or recipes."""
        return all(INTEGER.fullmatch(level) for level in self.levels)

    def _add_text(self, text: pl.Series) -> None:
        plain: dict[str, pl.Series] = {}
        for notation in PLAIN:
            plain[notation.decimal], units = parse(text, notation)
            self._reading(notation).add(text, plain[notation.decimal])
            if units is not None and notation is PLAIN[0]:
                self.units.update(units.drop_nulls().to_list())
        self.long |= bool(is_long(text).any())
        marked = bool(text.str.contains(SOME_GROUP).any())
        for notation in GROUPED:
            number = parse(text, notation)[0] if marked else plain[notation.decimal]
            self._reading(notation).add(text, number)
            if marked and is_grouped(text, notation).any():
                self.grouped.add(notation)
                if notation.thousands not in ".," or decides(text, notation).any():
                    self.decided.add(notation)

    def _reading(self, notation: Notation) -> Reading:
        return self.readings.setdefault(notation, Reading())

    def best(self) -> tuple[Notation, ...]:
        """The notations that fit the most cells; those without a thousands mark come first.

        A notation with a thousands mark is considered only if every large number has the mark.
        """
        usable = {
            notation: reading.fits
            for notation, reading in self.readings.items()
            if not notation.thousands or (notation in self.grouped and not self.long)
        }
        most = max(usable.values(), default=0)
        return tuple(n for n in (*PLAIN, *GROUPED) if most and usable.get(n) == most)

    def is_numeric(self, notation: Notation) -> bool:
        """Whether most cells are numbers, at least one of which is not NaN."""
        reading = self.readings.get(notation, Reading())
        finite = reading.low <= reading.high
        return finite and reading.fits > 0.5 * self.filled and len(self.units) <= MOST_UNITS


def log_notation(tags: Sequence[Evidence]) -> Notation:
    """The decimal mark that most tags use, with the mark that groups their digits."""
    decimals: Counter[str] = Counter()
    thousands: Counter[str] = Counter()
    for tag in tags:
        best = tag.best()
        if len({notation.decimal for notation in best}) == 1:  # integers fit both marks
            decimals[best[0].decimal] += 1
            if best[0].thousands:
                thousands[best[0].thousands] += 1
    decimal = max((".", ","), key=lambda mark: decimals[mark])
    thousands.pop(decimal, None)
    mark = thousands.most_common(1)[0][0] if thousands else ""
    return Notation(decimal, mark)  # pyright: ignore


def tag_notation(tag: Evidence, log: Notation) -> Notation:
    """The notation of a tag: that of the log unless another one fits more cells."""
    best = tag.best()
    plain = Notation(log.decimal)
    return next((n for n in (log, plain, *best) if n in best), log)
