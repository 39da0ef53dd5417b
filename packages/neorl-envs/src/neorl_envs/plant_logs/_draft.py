"""A draft of ``plant.toml`` inferred from a log, with a comment beside every guess."""

import dataclasses
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from neorl_envs.datasets._file import require_regular
from neorl_envs.plant_logs._configuration import WORDS, Files
from neorl_envs.plant_logs._layout import LOOKED_AT, MEMORY, Layout, layout_of, stamps_of
from neorl_envs.plant_logs._numbers import Notation, decides, is_grouped, is_long, parse
from neorl_envs.plant_logs._tables import read_as_table, tables

# Evidence about each tag in the rows of a log, for the draft of ``plant.toml``.


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


ROLES = (
    ("mode", re.compile(r"mode|auto", re.IGNORECASE)),
    ("behaviour", re.compile(r"shift|crew|operator|schicht", re.IGNORECASE)),
    ("batch", re.compile(r"batch|charge|lot", re.IGNORECASE)),
    ("setpoint", re.compile(r"([\s._-]|^)sp$|set_?point|\bsoll", re.IGNORECASE)),
    (
        "manipulated",
        re.compile(r"([\s._-]|^)(op|out|mv|co)$|valve|xmv|manip|^u_?\d+$", re.IGNORECASE),
    ),
    ("observation", re.compile(r"([\s._-]|^)(pv|cv|me)$|xmeas|^y_?\d+$", re.IGNORECASE)),
)
LOOP_TAG = re.compile(r"^(?P<loop>.*\d.*?)[\s._-](sp|pv|cv|op|out|mv|co|me)$", re.IGNORECASE)
"""A tag that belongs to a controller, such as ``TIC-201.OP``."""
GRADE = re.compile(r"grade|recipe|product|campaign|sorte|rezept", re.IGNORECASE)
"""Names of columns that say what is produced; an episode ends where they change."""
AUTOMATIC = re.compile(r"^(a|aut|auto|automatic|cas|cascade|rcas|rauto)$", re.IGNORECASE)
MANUAL = re.compile(r"^(m|man|manual|hand|iman|rout)$", re.IGNORECASE)
BRACKETS = re.compile(r"^(?P<name>.*\S)\s*\[(?P<unit>[^\[\]]*)\]$")
PARENTHESES = re.compile(r"^(?P<name>.*\S)(?P<space>\s*)\((?P<unit>[^()]*[^()\d\s][^()]*)\)$")
SPARSE = 3.0
"""A tag with a longer spacing of values, in periods, is treated as sampled separately."""


def draft_plant_log(
    path: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    stamped: bool = True,
) -> str:
    """Drafts a configuration that is to be completed by hand.

    Roles and units are inferred from the column names, a row of units, or the cells. Ranges,
    decimal marks and texts for missing values are inferred from up to 200,000 rows of each file.

    Args:
        path: A log as CSV, compressed CSV or Parquet.
        more: Further files of the same log.
        folder: Folder in which the configuration will be saved; the paths of the files are written
            relative to it. The default is the folder of the first file.
        stamped: Whether files without timestamps are refused; otherwise such a file is taken to
            have a row a second.

    Returns:
        Text of ``plant.toml``. Whatever the log does not show is marked TODO: the reward,
        instrument ranges, units that appear nowhere, and limits.

    Raises:
        DatasetError: If a file cannot be read, has no timestamp column, or lacks a column that the
            first file has.
    """
    paths = [Path(path), *map(Path, more)]
    folder = paths[0].parent if folder is None else Path(folder)
    layout = layout_of(paths[0], stamped=stamped)
    evidence: dict[str, Evidence] = {}
    for each in paths:
        require_regular(each)
        with read_as_table(each):
            _add_file(each, layout, evidence)
    names = [os.path.relpath(each, folder).replace(os.sep, "/") for each in paths]
    return _text(_log_name(paths), names, layout, evidence)


def _log_name(paths: list[Path]) -> str:
    """A name for the log: that of its only file, the common prefix of several, or the folder's."""
    first, *others = (path.name.split(".")[0] for path in paths)
    if not others:
        return first
    letters = zip(first, *others, strict=False)
    same = itertools.takewhile(lambda letter: len(set(letter)) == 1, letters)
    start = "".join(letter[0] for letter in same)
    return start.rstrip("0123456789_- ") or paths[0].resolve().parent.name


def _add_file(path: Path, layout: Layout, evidence: dict[str, Evidence]) -> None:
    """Adds the rows of a file to the evidence on every tag."""
    rows = 0
    columns = layout.columns if path != layout.path else ()
    for table in tables(path, layout.files, memory=MEMORY, columns=columns):
        at = stamps_of(table, layout)
        for name, values, units, stamps in layout.by_tag(table, at):
            tag = evidence.setdefault(name, Evidence(values.dtype))
            tag.add(values, stamps)
            if units is not None:
                tag.units.update(units.cast(pl.String).str.strip_chars().drop_nulls().to_list())
        rows += len(table)
        if rows >= LOOKED_AT:
            break


def _text(name: str, names: list[str], layout: Layout, evidence: dict[str, Evidence]) -> str:
    files = layout.files
    notation = log_notation(list(evidence.values()))
    tags, missing = _tags(layout, evidence, notation)
    lines = [
        "# Drafted from the log. Complete the lines marked TODO.",
        f"name = {quote(name)}  # name of this log in reports",
        "",
        "[log]",
        f"files = [{', '.join(map(quote, names))}]",
        *([f"date = {quote(files.date)}"] if files.date else []),
        f"timestamp = {quote(files.timestamp)}",
        f"timestamp_format = {quote(files.timestamp_format)}{layout.remark}",
    ]
    if layout.local:
        lines += [
            'time_zone = "UTC"  # TODO zone of the timestamps, such as "Europe/Vienna"',
            '# ambiguous = "order"  # for the hour repeated at the end of daylight saving',
        ]
    if files.unreadable == "mask":
        lines.append(
            'unreadable = "mask"  # TODO some stamps cannot be read; leave their rows out?'
        )
    plain = Files((), "")
    for key in ("separator", "encoding", "header_rows"):
        if getattr(files, key) != getattr(plain, key):
            lines.append(f"{key} = {_value(getattr(files, key))}")
    lines += [f"decimal = {quote(notation.decimal)}"] if notation.decimal != "." else []
    lines += [f"thousands = {quote(notation.thousands)}"] if notation.thousands else []
    if files.layout == "long":
        lines += ['layout = "long"']
        lines += [
            f"{key} = {quote(getattr(files, key))}{'  # TODO check log.good' * (key[0] == 'q')}"
            for key in ("tag_column", "value_column", "quality_column", "unit_column")
            if getattr(files, key)
        ]
    if missing:
        lines.append(f"missing = [{', '.join(map(quote, sorted(missing)))}]")
    return "\n".join([*lines, *_rules(layout.period_s), *tags]) + "\n"


def _rules(period: float) -> list[str]:
    return [
        "",
        "[sampling]",
        f"period_s = {period:g}  # median spacing of the timestamps",
        f"largest_gap_s = {3 * period:g}  # a value is held for at most this long",
        "",
        "[episodes]",
        f"gap_s = {10 * period:g}  # a longer gap ends an episode",
        "# length = 500  # cut a long record into episodes of this many rows",
        "",
        "[reward]",
        'expression = "0"  # TODO such as: -abs(level - level_setpoint)',
        "",
        "# [[cost]]",
        '# name = "level"',
        '# expression = "greatest(level - 80, 0)"',
        '# unit = "%"',
        "# limit = 0.5  # largest value allowed in any step; 0 means never",
        "",
        "# [[interlock]]  # what the control system does by itself, under any controller",
        '# name = "high level"',
        '# when = "level > 90"  # a condition over observed and manipulated tags',
        "# set = { feed_valve = 0.0 }  # in the unit of the tag, or an expression in quotes",
        "",
        "# [[exclude]]  # a period whose rows are left out",
        '# from = "2026-03-01 08:00"',
        '# to = "2026-03-03 16:00"',
        '# reason = "pump overhaul"',
    ]


def _tags(
    layout: Layout, evidence: dict[str, Evidence], log: Notation
) -> tuple[list[str], set[str]]:
    """The TOML table of every tag, and the texts that occur among numbers."""
    lines: list[str] = []
    missing: set[str] = set()
    used_names: set[str] = set()
    parts: dict[str, dict[str, str]] = {}
    for column, tag in evidence.items():
        base, unit = split_unit(column)
        notation = tag_notation(tag, log)
        reading = tag.readings.get(notation, Reading())
        numeric = tag.is_numeric(notation)
        role, remark = _role(base, tag, numeric, layout.period_s)
        if not numeric and role not in WORDS:
            lines += ["", f"# {quote(column)} holds no numbers{_instead(tag, reading)}"]
            continue
        name = _name(base, used_names)
        used_names.add(name)
        lines += ["", "[[tag]]", f"name = {quote(name)}"]
        lines += [f"tag = {quote(column)}"] if column != name else []
        lines.append(f'role = "{role or "observation"}"{remark}')
        if role == "mode":
            lines.append(_automatic(reading))
        elif role not in WORDS:
            words = [word for word in reading.others if not re.match(r"[+-]?[.,]?\d", word)]
            missing |= set(words)
            unit = (
                unit or layout.units.get(column) or next(iter(tag.units.most_common(1)), ("",))[0]
            )
            lines += _number_lines(tag, reading, role or "observation", unit)
            lines += _notation_lines(tag, notation, log, set(reading.others) - set(words))
            lines += _gap_lines(tag, role, layout.period_s)
        quality = layout.qualities.get(column)
        lines += [f"quality = {quote(quality)}  # TODO check log.good"] if quality else []
        if part := LOOP_TAG.match(base):
            parts.setdefault(part["loop"], {}).setdefault(role or "observation", name)
    return lines + _loops(parts), missing


def _loops(parts: dict[str, dict[str, str]]) -> list[str]:
    """A table to complete for every controller whose measurement, setpoint and output are there.

    Args:
        parts: By tag of the controller, the names of its tags by role.
    """
    lines: list[str] = []
    for loop, names in parts.items():
        if {"observation", "setpoint", "manipulated"} <= {*names}:
            lines += [
                "",
                f"# [[loop]]  # {loop}, found by its tags: complete it, and a run retunes it",
                f"# name = {quote(loop)}",
                f"# controlled = {quote(names['observation'])}",
                f"# manipulated = {quote(names['manipulated'])}",
                f"# setpoint_channel = {quote(names['setpoint'])}",
                '# direction = "reverse"  # or "direct": the output rises with the measurement',
                "# gain = 1.0  # as the faceplate shows it, or proportional_band",
                '# gain_unit = "percent"  # or "engineering"',
                "# integral = 10.0",
                '# integral_unit = "minutes"  # or "seconds" or "per_minute" (repeats)',
            ]
    return lines


def _role(base: str, tag: Evidence, numeric: bool, period: float) -> tuple[str, str]:
    """The role of a column, empty if nothing shows it, and the comment beside it.

    A column of numbers is never a mode. It is a batch or a behaviour only if it holds integers that
    change seldom, so that a discharge pressure is not taken for a charge.
    """
    is_code = tag.is_code() and tag.changes_seldom(period)
    for role, pattern in ROLES:
        fits = not numeric or role != "mode"
        if role in ("batch", "behaviour"):
            fits = is_code or not numeric
        if role == "behaviour":  # a column of remarks has many different texts
            fits &= tag.has_few_levels()
        if pattern.search(base) and fits:
            ends = "  # TODO who ran the plant; an episode ends where it changes"
            return role, ends * (role == "behaviour")
    if tag.has_few_levels() and tag.changes_seldom(period):
        ends = "  # TODO an episode ends where it changes; "
        if not numeric:
            return "batch", f"{ends}remove this tag if it is not a grade, recipe or batch"
        if is_code and GRADE.search(base):
            return "batch", f'{ends}"observation" if a policy needs to know it'
    return "", "  # TODO check"


def split_unit(column: str) -> tuple[str, str]:
    """Splits a column name such as ``TIC-201.OP [%]`` or ``Level (m)`` into name and unit.

    Digits or a role abbreviation in parentheses belong to the name: ``XMV(3)``, ``TIC-201(OP)``.
    """
    match = BRACKETS.match(column) or PARENTHESES.match(column)
    if not match:
        return column, ""
    unit = match["unit"].strip()
    if any(pattern.search(unit) for _, pattern in ROLES):
        return column, ""
    return match["name"].strip(), unit


def _instead(tag: Evidence, reading: Reading) -> str:
    """What an omitted column holds instead of numbers."""
    if tag.dtype not in (pl.String, pl.Null) and not tag.dtype.is_numeric():
        return f" but {tag.dtype}"
    words = sorted(reading.others)[:4]
    return f" ({', '.join(words)})" if words else " in the rows looked at"


def _automatic(reading: Reading) -> str:
    words = sorted(reading.others)
    chosen = [word for word in words if AUTOMATIC.match(word)]
    if chosen and len(chosen) < len(words):
        return f"automatic = [{', '.join(map(quote, chosen))}]  # of {', '.join(words[:6])}"
    others = [word for word in words if not MANUAL.match(word)]
    if not others:
        return f'automatic = ["AUTO"]  # TODO the log has only {", ".join(words[:6])}'
    return f"automatic = [{', '.join(map(quote, others))}]  # TODO choose"


def _number_lines(tag: Evidence, reading: Reading, role: str, unit: str) -> list[str]:
    low, high = _range(reading, role)
    lines = [f"unit = {quote(unit)}" if unit else 'unit = "?"  # TODO']
    others = [f"{other} = [1.0, 0.0]" for other in tag.units if other and other != unit]
    if others:
        lines.append(f"conversions = {{{', '.join(others)}}}  # TODO factor and offset to {unit}")
    lines += [f"low = {low!r}  # TODO low and high: the range of the instrument"]
    return [*lines, f"high = {high!r}"]


def _notation_lines(
    tag: Evidence, notation: Notation, log: Notation, misfits: set[str]
) -> list[str]:
    """Lines on a decimal mark that differs from that of the log, and on unreadable numbers."""
    lines = []
    if notation.decimal != log.decimal:
        other = Notation(log.decimal, notation.decimal)
        remark = f"  # TODO or does {quote(notation.decimal)} separate thousands?"
        lines.append(f"decimal = {quote(notation.decimal)}{remark if other in tag.best() else ''}")
    elif notation in tag.grouped - tag.decided:
        marks = f"{quote(notation.thousands)}, or {quote(notation.decimal)} if"
        lines.append(f"# decimal = {marks} its {quote(notation.thousands)} are thousands  # TODO")
    if misfits:
        examples = ", ".join(sorted(misfits)[:3])
        lines.append(f"# TODO not written as the other numbers of this tag are: {examples}")
    return lines


def _gap_lines(tag: Evidence, role: str, period: float) -> list[str]:
    """The line on how long to hold the value of a tag sampled less than once per period."""
    spacing = tag.spacing_s
    if spacing <= SPARSE * period:
        return []
    spacing_note = f"a value every {_duration(spacing)}"
    if role in ("setpoint", "manipulated"):
        return [f"largest_gap_s = inf  # TODO {spacing_note}: is it logged on change?"]
    digits = -math.floor(math.log10(spacing)) + 1
    hold_s = round(2 * spacing, digits)
    return [f"largest_gap_s = {hold_s:g}  # TODO {spacing_note}: how long is a value valid?"]


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _name(column: str, used_names: set[str]) -> str:
    """A name of only letters, digits and _, which needs no quotes in expressions."""
    name = re.sub(r"\W+", "_", column).strip("_") or "tag"
    name = f"t_{name}" if name[0].isdigit() or name.startswith("before_") else name
    while name in used_names:
        name += "_"
    return name


def _range(reading: Reading, role: str) -> tuple[float, float]:
    """The range of the data widened by a tenth; 0 to 100 for a valve within those limits."""
    low, high = reading.low, reading.high
    if role == "manipulated" and low >= 0 and 1 < high <= 100:
        return 0.0, 100.0
    margin = 0.1 * (high - low) or max(0.5, abs(low) / 2)
    # Round to the digits of the margin: with four significant digits, both ends of the range of a
    # large and nearly constant signal would be equal.
    digits = 1 - math.floor(math.log10(margin))
    return round(low - margin, digits), round(high + margin, digits)


def _value(value: object) -> str:
    return quote(value) if isinstance(value, str) else str(value)


def quote(text: str) -> str:
    """A string in TOML notation."""
    return json.dumps(text, ensure_ascii=False)
