"""A number is read as it is written in the declared notation, or refused; never as another one."""

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_envs.plant_logs import convert_log, plant_log_from_dict
from neorl_envs.plant_logs._numbers import Notation, advice, decides, is_grouped, is_long, parse

from .conftest import WIDE

NOTATIONS = [
    Notation(decimal, thousands)  # pyright: ignore
    for decimal in ".,"
    for thousands in ("", ".", ",", " ", "'")
    if decimal != thousands
]
SPACES = " \u00a0\u2009\u202f"


def one(text: str, notation: Notation) -> float | None:
    number, units = parse(pl.Series([text]), notation)
    return number[0] if units is None or units[0] is None else None


@st.composite
def written(draw: st.DrawFn) -> tuple[str, float, Notation]:
    """A number in a notation: CPython formats it, and its marks are exchanged for others."""
    value = draw(st.floats(-1e12, 1e12, allow_nan=False))
    notation = draw(st.sampled_from(NOTATIONS))
    kind = draw(st.sampled_from([".0f", ".1f", ".3f", ".6f", ".9e", ".3g", "+.2f"]))
    grouped = bool(notation.thousands) and kind.endswith("f")
    text = format(value, kind.replace(".", ",.") if grouped else kind)
    expected = float(text.replace(",", ""))
    thousands = notation.thousands
    if thousands == " ":
        thousands = draw(st.sampled_from(SPACES))
    elif thousands == "'":
        thousands = draw(st.sampled_from("'\u2019"))
    text = text.translate({ord(","): thousands, ord("."): notation.decimal})
    if draw(st.booleans()):
        text = text.replace("-", "\u2212", 1) if text.startswith("-") else text
    return text, expected, notation


@given(written())
def test_a_number_comes_back_in_its_own_notation(case: tuple[str, float, Notation]) -> None:
    text, expected, notation = case
    assert one(text, notation) == expected


@given(written(), st.sampled_from([n for n in NOTATIONS if not n.thousands]))
@example(("51.84", 51.84, Notation(".")), Notation(","))
@example(("51.840", 51.84, Notation(".")), Notation(","))
@example(("1,234", 1234.0, Notation(".", ",")), Notation("."))
def test_another_notation_refuses_it_or_reads_the_same(
    case: tuple[str, float, Notation], declared: Notation
) -> None:
    """A mark that is not declared is never dropped: 51.84 under a decimal comma is not 5184."""
    text, expected, notation = case
    actual = one(text, declared)
    marks = set(text) & {".", ",", " ", "'", "\u2019", *SPACES}
    if marks - {declared.decimal}:
        assert actual is None
    elif notation.thousands != declared.decimal:
        assert actual == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        ".",
        "1.2.3",
        "1e",
        "1_000",
        "0x1F",
        "12-34",
        "1 2 3 4",
        "12:30",
        "1e5.5",
        "\u0661",
        "a1",
    ],
)
@pytest.mark.parametrize("notation", NOTATIONS)
def test_what_is_no_number_is_refused(text: str, notation: Notation) -> None:
    assert one(text, notation) is None


@pytest.mark.parametrize("text", ["1.23", "0.123", "1234.567", "1.2345", "12.34.567", "1..234"])
def test_a_thousands_mark_stands_before_every_third_digit(text: str) -> None:
    assert one(text, Notation(",", ".")) is None


@given(
    st.floats(-1e6, 1e6, allow_nan=False),
    st.sampled_from(["%", "°C", "m3/h", "kg/m²", "mm H2O", "µS/cm", "bar(g)", "t/h"]),
    st.sampled_from(["", " ", "\u00a0"]),
)
def test_a_unit_in_a_cell_is_split_off(value: float, unit: str, space: str) -> None:
    number, units = parse(pl.Series([f"{value!r}{space}{unit}", "5"]), Notation("."))
    assert number.to_list() == [value, 5.0]
    assert units is not None
    assert units.to_list() == [unit, None]


def test_nan_is_a_number_that_is_missing_and_null_stays_null() -> None:
    number, _ = parse(pl.Series(["NaN", "-nan", None, "1,5"]), Notation(","))
    assert np.isnan(number[0])
    assert np.isnan(number[1])
    assert number.to_list()[2:] == [None, 1.5]


def test_groups_are_told_from_long_numbers() -> None:
    text = pl.Series(["1.234", "-12.345,6", "1234", "999", "0.123", None])
    notation = Notation(",", ".")
    assert is_grouped(text, notation).to_list() == [True, True, False, False, False, False]
    assert is_long(text).fill_null(False).to_list() == [False, False, True, False, False, False]


@pytest.mark.parametrize("notation", [n for n in NOTATIONS if n.thousands in (".", ",")])
@given(
    value=st.integers(-(10**9), 10**9),
    places=st.integers(0, 4),
    unit=st.sampled_from(["", " m.v."]),
)
def test_a_number_decides_if_the_other_notation_cannot_read_it(
    notation: Notation, value: int, places: int, unit: str
) -> None:
    """What two notations read as two numbers decides nothing; of `1,234` nobody knows."""
    text = f"{value / 10**places:,.{places}f}"
    marks = {ord(","): notation.thousands, ord("."): notation.decimal}
    text = text.translate(marks)
    other = Notation(notation.thousands)  # pyright: ignore
    if is_grouped(pl.Series([text]), notation)[0]:
        assert decides(pl.Series([text + unit]), notation)[0] == (one(text, other) is None)


@pytest.mark.parametrize(
    ("text", "notation", "expected"),
    [
        ("51.84", Notation(","), r'the decimal mark "," is declared; set decimal = "." in its \['),
        ("2,93", Notation("."), r'set decimal = "," in its \[\[tag\]\]$'),
        ("1.234", Notation(","), r'decimal = "." in its .*, or log.thousands = "." if the mark'),
        ("1 234", Notation("."), r'set log.thousands = " " if the mark separates thousands$'),
        ("1.234,5", Notation("."), r'set decimal = "," in its \[\[tag\]\], and log.thousands$'),
        ("Bad", Notation("."), "^add the text to log.missing if it stands for none$"),
    ],
)
def test_the_advice_names_the_key(text: str, notation: Notation, expected: str) -> None:
    assert re.search(expected, advice(text, notation))


def log_of(levels: list[str], folder: Path, **log: Any) -> dict[str, Any]:
    """A log with these levels once a minute, semicolons between the columns."""
    lines = ["time;LI-1.PV;LC-1.SP;LC-1.OP;LC-1.MODE"]
    lines += [f"2024-01-01T00:{m:02d}:00Z;{x};1;{m};AUTO" for m, x in enumerate(levels)]
    (folder / "log.csv").write_text("\n".join(lines))
    values = copy.deepcopy(WIDE)
    values["log"] |= {"separator": ";", **log}
    values["tag"][0] |= {"low": 0, "high": 1e6}
    values["reward"]["expression"] = "level"
    return values


def levels_of(values: dict[str, Any], folder: Path) -> list[float]:
    dataset = convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder)
    return [float(f"{x:.7g}") for x in np.asarray(dataset.transitions.obs)[:, 0]]


def test_a_point_under_a_decimal_comma_is_refused_by_tag_and_row(tmp_path: Path) -> None:
    """It was read as 5184, without a word."""
    values = log_of(["51,8", "51.84", "52,1", "52,2"], tmp_path, decimal=",")
    message = (
        r"log\.csv: tag 'level', row 3: expected a number, got '51\.84'; the decimal mark \",\" "
        r"is declared; set decimal = \"\.\" in its \[\[tag\]\]$"
    )
    with pytest.raises(InputError, match=message):
        levels_of(values, tmp_path)


def test_a_tag_may_have_its_own_decimal_mark(tmp_path: Path) -> None:
    values = log_of(["51.84", "51.85", "52.125", "52"], tmp_path, decimal=",")
    values["tag"][0]["decimal"] = "."
    assert levels_of(values, tmp_path) == [51.84, 51.85, 52.125]
    values["log"]["thousands"] = "."  # its decimal mark separates nothing
    assert levels_of(values, tmp_path) == [51.84, 51.85, 52.125]


def test_thousands_are_read_where_they_are_declared(tmp_path: Path) -> None:
    values = log_of(["1.234,5", "999", "12.345", "1.000.000"], tmp_path, decimal=",", thousands=".")
    assert levels_of(values, tmp_path) == [1234.5, 999.0, 12345.0]


@pytest.mark.parametrize("block", [2, 100_000])
def test_one_mark_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """51.840 may be a number of thousands, unless 51840 stands in the same column."""
    monkeypatch.setattr("neorl_envs.plant_logs._tables.BLOCK", block)
    levels = ["51.840", "51.841", "52", "1234.5", "1"]
    values = log_of([x.replace("1234.5", "1234") for x in levels], tmp_path, decimal=",")
    values["log"]["thousands"] = "."
    message = (
        r"tag 'level': row 2 has '51\.840' with the thousands mark \"\.\", row 5 has '1234' "
        r"without; set decimal = \"\.\" in its \[\[tag\]\] if it is its decimal mark$"
    )
    with pytest.raises(InputError, match=message):
        levels_of(values, tmp_path)


@pytest.mark.parametrize("block", [2, 100_000])
def test_a_column_that_nothing_decides_is_refused_until_its_mark_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Another tag has thousands marks; 59,990 beside them was read as 59990 without a word."""
    monkeypatch.setattr("neorl_envs.plant_logs._tables.BLOCK", block)
    values = log_of(["999", "59,990", "59,991", "60,002", "61"], tmp_path, thousands=",")
    message = (
        r"log\.csv: tag 'level', row 3: '59,990' may be 59990 or 59\.990, and no other number of "
        r"the tag decides; set decimal = \"\.\" in its \[\[tag\]\] for 59990, or decimal = \",\" "
        r"for 59\.990$"
    )
    with pytest.raises(InputError, match=message):
        levels_of(values, tmp_path)
    values["tag"][0]["decimal"] = "."
    assert levels_of(values, tmp_path) == [999.0, 59990.0, 59991.0, 60002.0]
    values["tag"][0]["decimal"] = ","
    assert levels_of(values, tmp_path) == [999.0, 59.99, 59.991, 60.002]
    decided = log_of(["59,990", "1", "2", "1,000.5", "3"], tmp_path, thousands=",")
    assert levels_of(decided, tmp_path) == [59990.0, 1.0, 2.0, 1000.5]


def test_units_in_cells_are_converted_or_refused(tmp_path: Path) -> None:
    values = log_of(["1.5 m", "250 cm", "2", "3 m"], tmp_path)
    values["tag"][0]["conversions"] = {"cm": [0.01, 0.0]}
    assert levels_of(values, tmp_path) == [1.5, 2.5, 2.0]
    values = log_of(["1.5 m", "250 ft", "2", "3 m"], tmp_path)
    message = (
        r"tag 'level', row 3: '250 ft' is not a number alone: its unit 'ft' is neither 'm' nor one "
        r"of its conversions; add it, as \[factor, offset\]"
    )
    with pytest.raises(InputError, match=message):
        levels_of(values, tmp_path)


def test_one_mark_cannot_be_both(tmp_path: Path) -> None:
    values = log_of(["1"], tmp_path, decimal=",", thousands=",")
    with pytest.raises(InputError, match=r"log\.thousands and log\.decimal are both ','; one mark"):
        plant_log_from_dict(values, "plant.toml")
