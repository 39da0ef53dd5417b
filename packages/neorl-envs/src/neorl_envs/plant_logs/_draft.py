"""A first ``plant.toml`` from a look at a log; what was guessed is said beside it."""

import csv
import json
import math
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._hdf5 import require_regular
from neorl_envs.plant_logs._configuration import Files
from neorl_envs.plant_logs._files import ROW, tables
from neorl_envs.plant_logs._stamps import Clock

LOOKED_AT, MEMORY = 50_000, 1e9
STAMP = re.compile(r"time|date|stamp|^ts$|zeit|^t$", re.IGNORECASE)
QUALITY = re.compile(r"qual|status|\.q$|_q$", re.IGNORECASE)
LONG = {
    "tag": re.compile(r"^(tag|tagname|tag_name|point|name|variable)$", re.IGNORECASE),
    "value": re.compile(r"^(value|val|reading|wert)$", re.IGNORECASE),
}
ROLES = (
    ("mode", re.compile(r"mode|auto", re.IGNORECASE)),
    ("batch", re.compile(r"batch|charge|lot", re.IGNORECASE)),
    ("setpoint", re.compile(r"([._-]|^)sp$|set_?point|\bsoll", re.IGNORECASE)),
    (
        "manipulated",
        re.compile(r"([._-]|^)(op|out|mv|co)$|valve|xmv|manip|^u_?\d+$", re.IGNORECASE),
    ),
)


def draft_plant_log(path: str | os.PathLike[str]) -> str:
    """A configuration to be completed by hand.

    Args:
        path: A log as CSV, compressed CSV or Parquet.

    Returns:
        Text of ``plant.toml``: columns, stamps, period, ranges and roles as far as names and
        values tell. Units, reward and limits they do not tell.

    Raises:
        DatasetError: If the file cannot be read or has no column of stamps.
    """
    path = Path(path)
    require_regular(path)
    separator = _separator(path)
    files = Files((path.name,), "", separator=separator)
    try:
        table = _head(path, files)
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error) as error:
        reason = (str(error).splitlines() or ["?"])[0]
        raise DatasetError(f"{path}: cannot read it as a table: {reason}") from error
    if table.is_empty():
        raise DatasetError(f"{path}: the log has no row")
    return _text(path, table, separator)


def _head(path: Path, files: Files) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    for table in tables(path, files, memory=MEMORY):
        parts.append(table)
        if sum(map(len, parts)) >= LOOKED_AT:
            break
    return pl.concat(parts).head(LOOKED_AT).drop(ROW) if parts else pl.DataFrame()


def _separator(path: Path) -> str:
    if path.suffix in (".parquet", ".pq"):
        return ","
    import gzip

    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            head = file.read(65_536)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path}: cannot read it: {error}") from error
    if not head.strip():
        raise DatasetError(f"{path}: the log is empty")
    try:
        return csv.Sniffer().sniff(head.splitlines()[0], ",;\t|").delimiter
    except csv.Error:
        return ","


def _text(path: Path, table: pl.DataFrame, separator: str) -> str:
    stamp, kind = _stamps(path, table)
    columns = {
        role: next((c for c in table.columns if found.search(c)), "")
        for role, found in LONG.items()
    }
    long = all(columns.values())
    decimal = "," if separator != "," and _has_decimal_commas(table) else "."
    lines = [
        "# A draft from a look at the log. Complete the lines marked TODO.",
        f"name = {_quoted(path.name.split('.')[0])}",
        "",
        "[log]",
        f"files = [{_quoted(path.name)}]",
        f"timestamp = {_quoted(stamp)}",
        f"timestamp_format = {_quoted(kind)}  # empty: ISO 8601",
        'time_zone = "UTC"  # TODO of stamps that name no offset',
    ]
    lines += [f"separator = {_quoted(separator)}"] if separator != "," else []
    lines += [f'decimal = "{decimal}"'] if decimal != "." else []
    if long:
        lines += ['layout = "long"', f"tag_column = {_quoted(columns['tag'])}"]
        lines += [f"value_column = {_quoted(columns['value'])}"]
        quality = next((c for c in table.columns if QUALITY.search(c)), "")
        lines += [f"quality_column = {_quoted(quality)}  # TODO check log.good"] if quality else []
        series = {
            str(name): part[columns["value"]]
            for (name,), part in table.group_by(columns["tag"], maintain_order=True)
        }
    else:
        series = {c: table[c] for c in table.columns if c != stamp and not QUALITY.search(c)}
    tags, missing = _tags(series, [c for c in table.columns if QUALITY.search(c)], decimal, long)
    if missing:
        lines.append(f"missing = [{', '.join(map(_quoted, sorted(missing)))}]")
    return "\n".join([*lines, *_rules(_period(path, table, stamp, kind)), *tags]) + "\n"


def _rules(period: float) -> list[str]:
    return [
        "",
        "[sampling]",
        f"period_s = {period:g}  # the median distance of stamps",
        f"largest_gap_s = {3 * period:g}  # a sample is held this long",
        "",
        "[episodes]",
        f"gap_s = {10 * period:g}  # a longer gap ends an episode",
        "# length = 500  # so do so many rows: whole episodes are held out, so cut a long record",
        "",
        "[reward]",
        'expression = "0"  # TODO such as: -abs(level - level_setpoint)',
        "",
        "# [[cost]]",
        '# name = "level"',
        '# expression = "greatest(level - 80, 0)"',
        '# unit = "%"',
        "# limit = 0.0",
    ]


def _stamps(path: Path, table: pl.DataFrame) -> tuple[str, str]:
    """The column of stamps and their format."""
    for column in sorted(table.columns, key=lambda name: not STAMP.search(name)):
        for kind in ("", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%Y/%m/%d %H:%M:%S", "epoch_s"):
            if kind == "epoch_s" and not STAMP.search(column):
                continue
            try:
                _placed(path, table, column, kind)
            except (DatasetError, pl.exceptions.PolarsError):
                continue
            return column, kind
    raise DatasetError(
        f"{path}: no column holds stamps (ISO 8601, day.month.year, month/day/year or seconds "
        f"since 1970); columns: {', '.join(table.columns[:8])}"
    )


def _placed(path: Path, table: pl.DataFrame, column: str, kind: str) -> np.ndarray:
    files = Files((), column, timestamp_format=kind)
    rows = pl.Series(range(2, len(table) + 2), dtype=pl.Int64)
    return Clock(files, str(path)).nanoseconds(table[column], rows).to_numpy()


def _period(path: Path, table: pl.DataFrame, stamp: str, kind: str) -> float:
    steps = np.diff(np.unique(_placed(path, table, stamp, kind)))
    return float(np.median(steps)) / 1e9 if len(steps) else 1.0


def _has_decimal_commas(table: pl.DataFrame) -> bool:
    texts = [table[c] for c in table.columns if table[c].dtype == pl.String]
    return any(bool(text.str.contains(r"^\s*-?\d+,\d+\s*$").any()) for text in texts)


def _tags(
    series: dict[str, pl.Series], qualities: Sequence[str], decimal: str, long: bool
) -> tuple[list[str], set[str]]:
    """A table for every tag, and texts found among numbers."""
    lines: list[str] = []
    missing: set[str] = set()
    names: set[str] = set()
    for column, values in series.items():
        if values.dtype in (pl.Categorical, pl.Enum):
            values = values.cast(pl.String)
        if not (values.dtype.is_numeric() or values.dtype in (pl.String, pl.Boolean, pl.Null)):
            lines += ["", f"# {_quoted(column)} holds no numbers but {values.dtype}"]
            continue
        if values.dtype == pl.String:
            text = values.str.strip_chars().replace("", None).drop_nulls()
            plain = text.str.replace(",", ".", literal=True) if decimal == "," else text
            number = plain.cast(pl.Float64, strict=False)
            words = set(text.filter(number.is_null()).unique().to_list())
        else:
            number, words = values.cast(pl.Float64, strict=False).drop_nulls(), set()
        role = next((role for role, found in ROLES if found.search(column)), "observation")
        found = number.is_not_null().sum() > 0.5 * max(len(number), 1)
        numeric = found and bool(number.is_finite().any())  # and not NaN alone
        if role in ("mode", "batch") and numeric:
            role = "observation" if role == "mode" else role
        if not numeric and role not in ("mode", "batch"):
            told = f" ({', '.join(sorted(words)[:4])})" if words else " in the rows looked at"
            lines += ["", f"# {_quoted(column)} holds no numbers{told}"]
            continue
        name = _name(column, names)
        names.add(name)
        lines += ["", "[[tag]]", f"name = {_quoted(name)}", f"tag = {_quoted(column)}"]
        lines += [f"role = {_quoted(role)}  # TODO check"]
        if role == "mode":
            lines += [f"automatic = [{', '.join(map(_quoted, sorted(words)))}]  # TODO choose"]
        elif role != "batch":
            missing |= words
            low, high = _range(number, role)
            lines += ['unit = "?"  # TODO', f"low = {low!r}  # TODO", f"high = {high!r}  # TODO"]
        quality = next((q for q in qualities if not long and q.startswith(column)), "")
        lines += [f"quality = {_quoted(quality)}  # TODO check log.good"] if quality else []
    return lines, missing


def _name(column: str, taken: set[str]) -> str:
    """Letters, digits and _ alone, so that it stands in expressions without quotes."""
    name = re.sub(r"\W+", "_", column).strip("_") or "tag"
    name = f"t_{name}" if name[0].isdigit() or name.startswith("before_") else name
    while name in taken:
        name += "_"
    return name


def _range(number: pl.Series, role: str) -> tuple[float, float]:
    """That of the data and a tenth more; 0 to 100 for a valve inside it."""
    finite = number.filter(number.is_finite())
    if finite.is_empty():
        return 0.0, 1.0
    values = finite.to_numpy()
    low, high = float(values.min()), float(values.max())
    if role == "manipulated" and low >= 0 and 1 < high <= 100:
        return 0.0, 100.0
    margin = 0.1 * (high - low) or max(0.5, abs(low) / 2)
    # As many digits as the margin has: four of a large and steady number would be one and the same.
    digits = 1 - math.floor(math.log10(margin))
    return round(low - margin, digits), round(high + margin, digits)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
