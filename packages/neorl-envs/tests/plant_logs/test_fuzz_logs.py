"""Logs, configurations and expressions that nobody wrote on purpose: a dataset, or one line.

Daily a few examples; ten minutes of them: ``python tools/fuzz_readers.py --minutes 10``.
"""

import copy
import datetime as dt
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_envs import Dataset
from neorl_envs.plant_logs import (
    Expression,
    convert_log,
    draft_plant_log,
    plant_log_from_dict,
    read_plant_log,
)

from .conftest import WIDE, toml_of

EXAMPLES = int(os.environ.get("NEORL_FUZZ_EXAMPLES", "12"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ROWS = 30


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid log as CSV, packed CSV and Parquet, and its configuration as TOML."""
    folder = tmp_path_factory.mktemp("seeds")
    lines = ["time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE"]
    lines += [f"2024-01-01T00:{m:02d}:00Z,{1 + m / 99:.3f},1.5,{m},AUTO" for m in range(ROWS)]
    text = "\n".join(lines) + "\n"
    (folder / "log.csv").write_text(text)
    (folder / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    pl.read_csv(folder / "log.csv").write_parquet(folder / "log.parquet")
    (folder / "plant.toml").write_text(toml_of(WIDE))
    assert read_plant_log(folder / "plant.toml").name == "tank"
    assert converted(folder / "log.csv", WIDE) is not None
    return folder


def one_line(error: InputError, named: str) -> None:
    """A refusal is one line that names its source."""
    message = str(error)
    assert "\n" not in message, message
    assert named in message, message


def converted(path: Path, values: dict[str, Any]) -> Dataset | None:
    """The dataset of a file; whatever is refused is one line."""
    values = copy.deepcopy(values)
    try:
        if isinstance(values.get("log"), dict):
            values["log"].setdefault("files", [path.name])
            if isinstance(values["log"]["files"], list):
                values["log"]["files"] = [path.name]
        config = plant_log_from_dict(values, str(path.parent / "plant.toml"))
        return convert_log(config, folder=path.parent, source=str(path.parent / "plant.toml"))
    except InputError as error:
        one_line(error, "plant.toml" if "plant.toml" in str(error) else str(path.parent))
        return None


def drafted(path: Path) -> None:
    """A draft can be read, and what it says converted or refused."""
    try:
        text = draft_plant_log(path)
    except InputError as error:
        one_line(error, str(path))
        return
    toml = path.parent / "drafted.toml"
    toml.write_text(text)
    try:
        convert_log(read_plant_log(toml), folder=path.parent, source=str(toml))
    except InputError as error:
        one_line(error, "")


WORDS = (
    *("level", "valve", "before_level", '"LI-1.PV"', "1", "0", "-1", "1e308", "NULL", "'a'", "x"),
    *("+", "-", "*", "/", "%", "(", ")", ",", "<", ">", "=", "<>", "and", "or", "not", "is", "in"),
    *("abs(", "greatest(", "least(", "power(", "sqrt(", "ln(", "exp(", "case", "when", "then"),
    *("else", "end", "between", "cast(", "as", "int", "float", "sum(", "over", "lag(", "select"),
    *("from", "coalesce(", "nullif(", "round(", ";", "--", "[", "]", ".", "::", "interval", "date"),
)


@FUZZ
@given(
    text=st.one_of(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), st.text(max_size=20))
)
@example(text="level between 1 and 2")
def test_expressions(text: str) -> None:
    columns = {"level": np.array([1.0, np.nan, 3.0]), "valve": np.zeros(3)}
    columns["before_level"] = columns["level"]
    try:
        value = Expression(text, list(columns), "plant.toml: reward.expression")(columns)
    except InputError as error:
        one_line(error, "plant.toml: reward.expression")
        return
    assert value.shape == (3,)
    assert value.dtype == np.float64


EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


def edited(content: bytes, edits: list[tuple[float, bytes, int]]) -> bytes:
    """Some bytes put in at some places, and some taken out."""
    for place, put, taken in edits:
        at = int(place * len(content))
        content = content[:at] + put + content[at + taken :]
    return content


@FUZZ
@given(name=st.sampled_from(["log.csv", "log.csv.gz", "log.parquet"]), edits=EDITS)
def test_changed_logs(
    seeds: Path, tmp_path: Path, name: str, edits: list[tuple[float, bytes, int]]
) -> None:
    path = tmp_path / name
    path.write_bytes(edited((seeds / name).read_bytes(), edits))
    converted(path, WIDE)
    drafted(path)


CELLS = st.one_of(
    st.sampled_from(["", "NaN", "inf", "-1e999", "Bad", "AUTO", "1,5", '"', "\0", "0x1F", "1 2"]),
    st.sampled_from(["2024-01-01T00:00:00Z", "9999-12-31", "0001-01-01 00:00", "1e18", "-1", "2"]),
    st.integers(-(10**25), 10**25).map(str),
    st.text(max_size=4),
)


@FUZZ
@given(
    cells=st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, 4), CELLS), max_size=6),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
)
def test_changed_cells(
    seeds: Path, tmp_path: Path, cells: list[tuple[int, int, str]], separator: str, end: str
) -> None:
    table = [line.split(",") for line in (seeds / "log.csv").read_text().splitlines()]
    for row, column, text in cells:
        table[row][column] = text
    path = tmp_path / "log.csv"
    path.write_bytes(end.join(separator.join(row) for row in table).encode("utf-8", "replace"))
    values = copy.deepcopy(WIDE)
    values["log"]["separator"] = separator
    converted(path, values)
    drafted(path)


COLUMNS = st.sampled_from(
    [
        pl.Series([True, None, False]),
        pl.Series([1, 2, None], dtype=pl.UInt64),
        pl.Series([1.5, float("nan"), float("inf")]),
        pl.Series([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2), None]),
        pl.Series([dt.datetime(2024, 1, 1)] * 3, dtype=pl.Datetime("ms", "Europe/Vienna")),
        pl.Series([dt.date(2024, 1, 1)] * 3),
        pl.Series([dt.timedelta(seconds=1)] * 3),
        pl.Series([[1], [2, 3], None]),
        pl.Series([{"a": 1}] * 3),
        pl.Series([b"a", b"", None]),
        pl.Series(["a", "b", None], dtype=pl.Categorical),
        pl.Series([None, None, None], dtype=pl.Null),
        pl.Series(["2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z", "2024-01-01T00:02:00Z"]),
    ]
)


@FUZZ
@given(columns=st.lists(COLUMNS, min_size=5, max_size=5))
def test_tables_of_any_types(tmp_path: Path, columns: list[pl.Series]) -> None:
    names = ["time", "LI-1.PV", "LC-1.SP", "LC-1.OP", "LC-1.MODE"]
    path = tmp_path / "log.parquet"
    pl.DataFrame(dict(zip(names, columns, strict=True))).write_parquet(path)
    converted(path, WIDE)
    drafted(path)


VALUES = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=4),
    st.booleans(),
    st.just([]),
    st.just({}),
    st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["hold", "interpolate", "long", "order", "mode", "batch", "setpoint", "level"]),
    st.dates(),
)
PLACES = [
    *(("log", key) for key in ("files", "layout", "timestamp", "timestamp_format", "time_zone")),
    *(("log", key) for key in ("ambiguous", "separator", "decimal", "missing", "good")),
    *(("log", key) for key in ("tag_column", "value_column", "quality_column", "unit_column")),
    *(("sampling", key) for key in ("period_s", "largest_gap_s")),
    *(("episodes", k) for k in ("gap_s", "mode_change", "length", "running", "trip", "manual")),
    *(("reward", key) for key in ("expression", "unit")),
    *(("cost", 0, key) for key in ("name", "expression", "unit", "limit", "per")),
    *(("tag", 0, key) for key in ("name", "role", "tag", "unit", "low", "high", "fill", "factor")),
    *(("tag", 0, key) for key in ("offset", "conversions", "delay_s", "largest_gap_s", "quality")),
    *(("tag", 3, key) for key in ("automatic", "of", "role", "name")),
    *((key,) for key in ("log", "tag", "cost", "history", "name", "reward", "episodes")),
    *(("history", key) for key in ("steps", "actions")),
]


@FUZZ
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=2))
@example(changes=[(("history", "steps"), 10**9)])
@example(changes=[(("sampling", "period_s"), 1e-9)])
@example(changes=[(("sampling", "period_s"), 1e300)])
@example(changes=[(("tag", 0, "delay_s"), 6e300)])
def test_changed_configurations(
    seeds: Path, tmp_path: Path, changes: list[tuple[tuple[Any, ...], Any]]
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes((seeds / "log.csv").read_bytes())
    values: Any = copy.deepcopy(WIDE)
    for (*folders, key), value in changes:
        place = values
        for folder in folders:
            if isinstance(place, dict):
                place = place.setdefault(folder, {})
            elif isinstance(place, list) and isinstance(folder, int) and folder < len(place):
                place = place[folder]
        if isinstance(place, dict):
            place[key] = value
    converted(path, values)


@FUZZ
@given(edits=EDITS)
def test_changed_toml(seeds: Path, tmp_path: Path, edits: list[tuple[float, bytes, int]]) -> None:
    toml = tmp_path / "plant.toml"
    toml.write_bytes(edited((seeds / "plant.toml").read_bytes(), edits))
    (tmp_path / "log.csv").write_bytes((seeds / "log.csv").read_bytes())
    try:
        convert_log(read_plant_log(toml), folder=tmp_path, source=str(toml))
    except InputError as error:
        one_line(error, "")
