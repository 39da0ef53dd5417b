"""Reads the control loops of a historian's export without a configuration."""

import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._loop_tags import LoopTags
from neorl_envs.plant_logs._configuration_file import plant_log_from_dict
from neorl_envs.plant_logs._convert import convert_log
from neorl_envs.plant_logs._draft import LOOP_TAG, draft_plant_log, split_unit
from neorl_envs.plant_logs._layout import MEMORY, Layout, layout_of
from neorl_envs.plant_logs._tables import ROW, tables

GAP_S = 1e6
"""Seconds without any value after which the rows end and begin anew; shorter gaps are NaN."""
ROLES = ("measurement", "output", "setpoint", "mode")
TWIN = re.compile(r"^(?P<column>.+)_duplicated_\d+$")
"""How a column is called whose name stands in the file before."""


class LoopColumn(NamedTuple):
    """A column of an export that may belong to a loop.

    Attributes:
        name: Its name in the file; of the second column of a name, with ``_duplicated_0`` after it.
        unit: Its unit as the file shows it; empty if it does not.
        low: Smallest number in it; NaN for a column of words.
        high: Largest number in it.
    """

    name: str
    unit: str
    low: float
    high: float


class LoopColumns(NamedTuple):
    """What an export shows of its loops before a row is read.

    Attributes:
        columns: Its columns of numbers, and those of modes.
        loops: Which of them make a loop, by their names.
        twins: Names that two columns with different values have, each with the name of the second.
        stamped: Whether the file says when its rows are.
        period_s: Median spacing of the stamps in seconds.
        rows: Number of rows, of a very long file those that were looked at.
        unreadable: Number of them whose stamp cannot be read; they are left out.
    """

    columns: tuple[LoopColumn, ...]
    loops: tuple[LoopTags, ...]
    twins: tuple[tuple[str, str], ...]
    stamped: bool
    period_s: float
    rows: int
    unreadable: int


class LoopLog(NamedTuple):
    """The loops of an export, each on a grid of equal times.

    Attributes:
        datasets: The tags of each loop; setpoints are observed, outputs are the actions. One for
            each, so that a tag without values costs no other loop its rows.
        loops: Which tags make which loop.
        stamped: Whether the file says when its rows are; otherwise they are one second apart.
        guessed: Names of the measurements and outputs whose range is only that of their values.
    """

    datasets: tuple[Dataset, ...]
    loops: tuple[LoopTags, ...]
    stamped: bool
    guessed: tuple[str, ...]


def read_loop_log(
    path: str | os.PathLike[str],
    *,
    loop: LoopTags | None = None,
    measurement_range: Sequence[float] = (),
    output_range: Sequence[float] = (),
    period_s: float | None = None,
) -> LoopLog:
    """Reads a loop that is named, or every loop that the names of the columns show.

    Marks, units, texts for missing values and the format of the stamps are found as for a draft of
    ``plant.toml``, and the rows are put on a grid of equal times by the same rules.

    Args:
        path: A log as CSV, compressed CSV or Parquet.
        loop: Columns of the loop; setpoint and mode may be empty. Beside a measurement such as
            ``TIC-201.PV`` the mode ``TIC-201.MODE`` is read anyway. Without a loop they are found
            by columns such as ``TIC-201.PV``, ``.SP``, ``.OP`` and ``.MODE``.
        measurement_range: Range of the instrument of the named loop, low and high.
        output_range: Range of its output.
        period_s: Period of the grid; by default the median spacing of the stamps.

    Returns:
        The log.

    Raises:
        DatasetError: If the file cannot be read, or no row results.
        InputError: If a column does not exist or holds no numbers, or no loop is found.
    """
    path = Path(path)
    layout = layout_of(path, stamped=False)
    stamped = layout.files.timestamp != ROW
    draft, tags = _drafted(path)
    draft["log"]["unreadable"] = "mask"
    loops = _found(list(tags)) if loop is None else (_with_mode(path, loop, tags),)
    if loop is None:
        _require_no_twin(path, layout, loops)
    if not loops:
        raise InputError(
            f"{path}: no loop is found by names such as TIC-201.PV, TIC-201.SP and TIC-201.OP; "
            f"name its columns with --pv and --op, and with --sp and --mode if there are any (it "
            f"has {', '.join(list(tags)[:8])}{', ...' if len(tags) > 8 else ''})"
        )
    period = draft["sampling"]["period_s"] if period_s is None or not stamped else period_s
    largest_gap = max(draft["sampling"]["largest_gap_s"], 3.0 * period)
    ranges = {"measurement": measurement_range, "output": output_range}
    datasets, named, guessed = [], [], []
    for one in loops:
        names = {role: _tag(path, getattr(one, role), tags, role) for role in ROLES}
        used = {
            role: _as_role(path, tag, role, names["output"]) for role, tag in names.items() if tag
        }
        for role, ends in ranges.items():
            if ends:
                used[role] |= {"low": float(ends[0]), "high": float(ends[1])}
        named.append(one._replace(**{role: tag["name"] for role, tag in used.items()}))
        guessed += [
            tag["name"] for role, tag in used.items() if role in ranges and not ranges[role]
        ]
        values = {
            "name": draft["name"],
            "log": draft["log"],
            "sampling": {"period_s": float(period), "largest_gap_s": float(largest_gap)},
            "episodes": {"gap_s": GAP_S},
            "reward": {"expression": "0"},
            "tag": list(used.values()),
        }
        config = plant_log_from_dict(values, str(path))
        datasets.append(convert_log(config, folder=path.parent, source=str(path)))
    return LoopLog(tuple(datasets), tuple(named), stamped, tuple(guessed))


def loop_columns(path: str | os.PathLike[str]) -> LoopColumns:
    """What an export shows of its loops: columns, units and extremes, and the loops by their names.

    Args:
        path: A log as CSV, compressed CSV or Parquet.

    Raises:
        DatasetError: If the file cannot be read.
    """
    path = Path(path)
    layout = layout_of(path, stamped=False)
    _, tags = _drafted(path)
    columns = []
    for name, tag in tags.items():
        low, high = _extremes(tag) if "low" in tag else (float("nan"), float("nan"))
        unit = "" if tag.get("unit", "") == "?" else tag.get("unit", "")
        columns.append(LoopColumn(name, unit, low, high))
    loops = _found([column.name for column in columns])
    return LoopColumns(
        columns=tuple(columns),
        loops=loops,
        twins=_twins(path, layout),
        stamped=layout.files.timestamp != ROW,
        period_s=layout.period_s,
        rows=layout.rows,
        unreadable=layout.unreadable,
    )


def _drafted(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The draft of an export, and its tags by their columns."""
    draft = tomllib.loads(draft_plant_log(path, stamped=False))
    return draft, {tag.get("tag", tag["name"]): tag for tag in draft["tag"]}


def _extremes(tag: dict[str, Any]) -> tuple[float, float]:
    """The smallest and the largest number of a drafted tag, whose range is a tenth wider."""
    low, high = tag["low"], tag["high"]
    if (low, high) == (0.0, 100.0):
        return low, high
    return low + (high - low) / 12, high - (high - low) / 12


def _twins(path: Path, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Names that stand above two columns with different values."""
    pairs = [
        (match["column"], name)
        for name in layout.columns
        if (match := TWIN.match(name)) and match["column"] in layout.columns
    ]
    if not pairs:
        return ()
    table = next(tables(path, layout.files, memory=MEMORY))
    return tuple(pair for pair in pairs if not table[pair[0]].equals(table[pair[1]]))


def _require_no_twin(path: Path, layout: Layout, loops: Sequence[LoopTags]) -> None:
    """Raises if a loop's column has a namesake with other values: which one is meant?"""
    for first, second in _twins(path, layout):
        if any(first in loop for loop in loops):
            raise InputError(
                f"{path}: two columns are called {first!r}, and their values differ; name the "
                f"columns of the loop with --pv, --op and --sp, the second one as {second!r}"
            )


def _found(columns: Sequence[str]) -> tuple[LoopTags, ...]:
    """Loops by the endings of their columns; one needs a measurement and an output."""
    endings = {"pv": "measurement", "cv": "measurement", "me": "measurement", "sp": "setpoint"}
    parts: dict[str, dict[str, str]] = {}
    for column in columns:
        base, _ = split_unit(column)
        if part := LOOP_TAG.match(base):
            role = endings.get(base[part.end("loop") + 1 :].lower(), "output")
            parts.setdefault(part["loop"], {}).setdefault(role, column)
        else:
            loop, _, ending = base.replace("_", ".").rpartition(".")
            if loop and ending.lower() in ("mode", "auto", "md"):
                parts.setdefault(base[: len(loop)], {}).setdefault("mode", column)
    return tuple(
        LoopTags(name, *(roles.get(role, "") for role in ROLES))
        for name, roles in parts.items()
        if {"measurement", "output"} <= {*roles}
    )


def _with_mode(path: Path, loop: LoopTags, tags: dict[str, dict[str, Any]]) -> LoopTags:
    """The named loop with the mode of its tag, without which rows in manual count as automatic."""
    measured = _tag(path, loop.measurement, tags, "measurement")
    modes = [
        one.mode
        for one in _found(list(tags))
        if one.mode and tags[one.measurement] is measured and tags[one.mode].get("automatic")
    ]
    return loop._replace(mode=loop.mode or next(iter(modes), ""))


def _tag(
    path: Path, column: str, tags: dict[str, dict[str, Any]], role: str
) -> dict[str, Any] | None:
    """The drafted tag of a column, named with or without its unit; ``None`` for no column."""
    if not column:
        return None
    names = {tag["name"]: name for name, tag in tags.items()}
    names |= {split_unit(name)[0]: name for name in tags}
    if column not in tags and column not in names:
        if role == "mode":
            raise unknown_name(f"column in {path}", column, list(tags))
        numbers = [name for name, tag in tags.items() if "low" in tag]
        raise unknown_name(f"column with numbers in {path}", column, numbers)
    return tags.get(column) or tags[names[column]]


def _as_role(
    path: Path, tag: dict[str, Any], role: str, output: dict[str, Any] | None
) -> dict[str, Any]:
    roles = {"measurement": "observation", "output": "manipulated"}
    tag = {**tag, "role": roles.get(role, role)}
    if role == "mode":
        if not tag.get("automatic"):
            raise InputError(
                f"{path}: column {tag['name']!r} holds no word for automatic, such as AUTO or A; "
                "leave --mode out, and every row counts as automatic"
            )
        kept = {"name", "tag", "role", "automatic", "quality"}
        tag = {key: value for key, value in tag.items() if key in kept}
        return {**tag, "of": [output["name"]]} if output else tag
    if "low" not in tag:
        raise InputError(f"{path}: column {tag['name']!r} holds no numbers")
    low, high = _extremes(tag)
    if role == "output" and low >= -1e-9 and high <= 100 * (1 + 1e-9):
        # Without a unit, 0.4 is a part of one; a valve that stays below 1 % is nearly shut.
        percent = high > 1 + 1e-9 or "%" in tag.get("unit", "")
        tag |= {"low": 0.0, "high": 100.0 if percent else 1.0}
    return tag
