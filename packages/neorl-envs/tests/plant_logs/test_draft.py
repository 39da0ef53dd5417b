"""A draft reads a log as the conversion does: units, roles, marks, headers, encodings, files."""

import copy
import gzip
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neorl_core import InputError
from neorl_envs import DatasetError
from neorl_envs.plant_logs import convert_log, draft_plant_log, plant_log_from_dict
from neorl_envs.plant_logs._draft import split_unit

from .conftest import WIDE


def drafted(*paths: Path) -> dict[str, Any]:
    return tomllib.loads(draft_plant_log(*paths))


def tags_of(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tag.get("tag", tag["name"]): tag for tag in values["tag"]}


def obs_of(values: dict[str, Any], folder: Path, name: str) -> list[float]:
    dataset = convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder)
    column = [channel.name for channel in dataset.spec.obs].index(name)
    return [float(f"{x:.7g}") for x in np.asarray(dataset.transitions.obs)[:, column]]


def write(path: Path, header: list[str], columns: list[list[str]], separator: str = ";") -> Path:
    """A log of one row a minute with these columns, and a valve."""
    lines = [separator.join(["time", *header, "V.OP"])]
    for minute, row in enumerate(zip(*columns, strict=True)):
        stamp = f"2024-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"
        lines.append(separator.join([stamp, *row, str(minute % 60)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("TIC-201.OP [%]", ("TIC-201.OP", "%")),
        ("TI-1 [°C]", ("TI-1", "°C")),
        ("FI-203 (t/h)", ("FI-203", "t/h")),
        ("Level(m3)", ("Level", "m3")),
        ("XMV(3)", ("XMV(3)", "")),
        ("TIC-201(OP)", ("TIC-201(OP)", "")),
        ("x[2]", ("x", "2")),
        ("[bar]", ("[bar]", "")),
    ],
)
def test_units_are_split_off_names(column: str, expected: tuple[str, str]) -> None:
    assert split_unit(column) == expected


def test_roles_and_units_come_from_headers_with_units(tmp_path: Path) -> None:
    """`TIC-201.OP [%]` was an observation of unit "?", and every line of its tag a TODO."""
    header = ["TIC-201.PV [°C]", "TIC-201.SP [°C]", "TIC-201.OP [%]", "FI-203 (t/h)"]
    path = write(tmp_path / "log.csv", header, [["80.5", "81", "80"]] * 4)
    text = draft_plant_log(path)
    tags = tags_of(tomllib.loads(text))
    result = {name: (tag["role"], tag["unit"], tag["name"]) for name, tag in tags.items()}
    assert result == {
        "TIC-201.PV [°C]": ("observation", "°C", "TIC_201_PV"),
        "TIC-201.SP [°C]": ("setpoint", "°C", "TIC_201_SP"),
        "TIC-201.OP [%]": ("manipulated", "%", "TIC_201_OP"),
        "FI-203 (t/h)": ("observation", "t/h", "FI_203"),
        "V.OP": ("manipulated", "?", "V_OP"),
    }
    assert text.count("# TODO") == 1 + 5 + 1 + 1  # reward, ranges, one unit, one role


@pytest.mark.parametrize("values", [("A7", "B2", "A7"), ("3", "12", "3"), ("3.0", "12.0", "3.0")])
def test_a_grade_becomes_a_batch_and_ends_episodes(tmp_path: Path, values: tuple[str, ...]) -> None:
    """It was left out if it held words, and an ordinary observation if it held numbers."""
    grade = [value for value in values for _ in range(40)]
    level = [f"{50 + minute % 7}.5" for minute in range(120)]
    path = write(tmp_path / "log.csv", ["LI-1.PV", "GRADE"], [level, grade])
    text = draft_plant_log(path)
    assert 'role = "batch"  # TODO an episode ends where it changes' in text
    drafted_tags = tomllib.loads(text)
    assert set(tags_of(drafted_tags)["GRADE"]) == {"name", "role"}
    dataset = convert_log(plant_log_from_dict(drafted_tags, "plant.toml"), folder=tmp_path)
    assert dataset.n_episodes == 3
    assert [channel.name for channel in dataset.spec.obs] == ["LI_1_PV"]


def test_what_only_resembles_a_grade_is_no_batch(tmp_path: Path) -> None:
    columns = {
        "Discharge pressure": ["3", "4", "5"] * 40,  # integers that change in every row
        "PRODUCT.FLOW": ["1.5"] * 60 + ["2.5"] * 60,  # numbers that are no codes
        "Pump": ["0"] * 60 + ["1"] * 60,  # a code whose name does not say that it is a grade
        "REMARK": [f"shift {minute}" for minute in range(120)],  # other words in every row
        "SITE": ["north"] * 120,  # the same word in every row
        "STEP": ["heat"] * 60 + ["cool"] * 60,
    }
    text = draft_plant_log(write(tmp_path / "log.csv", list(columns), list(columns.values())))
    tags = tags_of(tomllib.loads(text))
    roles = {name: tag["role"] for name, tag in tags.items()}
    assert roles.pop("V.OP") == "manipulated"
    assert roles.pop("STEP") == "batch"
    assert set(roles.values()) == {"observation"}
    assert {"REMARK", "SITE"}.isdisjoint(roles)
    assert '# "REMARK" holds no numbers' in text


MARKS = {
    "points": ["51.84", "51.85", "52.1"],
    "commas": ["51,84", "51,85", "52,1"],
    "whole": ["51", "52", "53"],
    "grouped": ["1.234,5", "999,1", "12.345,0"],
    "swiss": ["1'234.5", "999.1", "12'345.0"],
}
VALUES = {
    "points": [51.84, 51.85, 52.1],
    "commas": [51.84, 51.85, 52.1],
    "whole": [51, 52, 53],
    "grouped": [1234.5, 999.1, 12345],
    "swiss": [1234.5, 999.1, 12345],
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.sampled_from(sorted(MARKS)), min_size=1, max_size=5))
def test_draft_and_conversion_read_the_same_numbers(tmp_path: Path, kinds: list[str]) -> None:
    """Whatever marks the columns have: the range of the draft holds the values, and so does the
    dataset; or a conversion is refused where two columns need two marks for thousands."""
    header = [f"{kind}_{i}" for i, kind in enumerate(kinds)]
    path = write(tmp_path / "log.csv", header, [[*MARKS[k], MARKS[k][-1]] for k in kinds])
    values = drafted(path)
    for kind, name in zip(kinds, header, strict=True):
        tag = tags_of(values)[name]
        assert tag["low"] <= min(VALUES[kind])
        assert max(VALUES[kind]) <= tag["high"] < 10 * max(VALUES[kind])
    if {"grouped", "swiss"} <= set(kinds):
        with pytest.raises(DatasetError, match="expected a number"):
            obs_of(values, tmp_path, header[0])
        return
    for kind, name in zip(kinds, header, strict=True):
        assert obs_of(values, tmp_path, name) == VALUES[kind]


def test_one_column_with_commas_leaves_the_others_alone(tmp_path: Path) -> None:
    """`init` wrote decimal = "," for the whole log as soon as one column had decimal commas."""
    columns = [["51.84", "51.9", "52"], ["7.5", "7.6", "7.7"], ["2,93", "2,94", "2,95"]]
    path = write(tmp_path / "log.csv", ["A", "B", "C"], columns)
    values = drafted(path)
    assert "decimal" not in values["log"]
    assert tags_of(values)["C"]["decimal"] == ","
    assert (tags_of(values)["A"]["low"], tags_of(values)["A"]["high"]) == (51.824, 52.016)
    assert obs_of(values, tmp_path, "A") == [51.84, 51.9]
    assert obs_of(values, tmp_path, "C") == [2.93, 2.94]


def test_numbers_that_may_be_thousands_are_doubted(tmp_path: Path) -> None:
    columns = [["51,8", "51,9", "52"], ["1.234", "1.235", "1.236"], ["1,5", "1.5", "2,5"]]
    text = draft_plant_log(write(tmp_path / "log.csv", ["A", "B", "C"], columns))
    assert 'decimal = "."  # TODO or does "." separate thousands?' in text
    assert "# TODO not written as the other numbers of this tag are: 1.5" in text


def test_thousands_of_another_column_decide_nothing(tmp_path: Path) -> None:
    """The range of A was that of 51840 because B has thousands marks; the conversion asks now."""
    columns = [["51,840", "51,841", "51,900"], ["1,234.5", "999.5", "1,000.5"]]
    text = draft_plant_log(write(tmp_path / "log.csv", ["A", "B"], columns))
    assert 'thousands = ","' in text
    line = '# decimal = ",", or "." if its "," are thousands  # TODO'
    assert text.count(line) == 1
    assert text.index('name = "A"') < text.index(line) < text.index('name = "B"')
    with pytest.raises(DatasetError, match=r"tag 'A', row 2: '51,840' may be 51840 or 51\.840"):
        obs_of(tomllib.loads(text), tmp_path, "A")


def test_units_in_cells_and_a_laboratory_tag(tmp_path: Path) -> None:
    n = 60
    columns = [["51.5 °C", "52 °C"] * (n // 2), ["3.1" if i % 20 == 0 else "" for i in range(n)]]
    text = draft_plant_log(write(tmp_path / "log.csv", ["A", "QI-9"], columns))
    tags = tags_of(tomllib.loads(text))
    assert tags["A"]["unit"] == "°C"
    assert "largest_gap_s" not in tags["A"]
    assert tags["QI-9"]["largest_gap_s"] == 2400
    assert "# TODO a value every 20 min: how long is a value valid?" in text


@pytest.mark.parametrize("rows", [["unit;°C;%"], ["Description;outlet;valve", "unit;°C;%"]])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_units_and_encodings(
    tmp_path: Path, rows: list[str], encoding: str, packed: bool
) -> None:
    """The first was refused for want of stamps, the second gave a tag with a replacement sign."""
    lines = ["time;TI-7 Ä;V.OP", *rows]
    lines += [f"2024-01-01T00:{m:02d}:00Z;5{m % 10}.25;{m}" for m in range(30)]
    content = "\n".join(lines).encode(encoding)
    path = tmp_path / ("log.csv.gz" if packed else "log.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    values = drafted(path)
    assert values["log"]["header_rows"] == 1 + len(rows)
    assert values["log"].get("encoding", "utf-8") == encoding.removesuffix("-sig")
    assert [(tag["role"], tag["unit"]) for tag in values["tag"]] == [
        ("observation", "°C"),
        ("manipulated", "%"),
    ]
    assert obs_of(values, tmp_path, "TI_7_Ä") == [50 + m % 10 + 0.25 for m in range(29)]


def test_a_row_below_a_row_of_units_is_numbered_as_an_editor_does(tmp_path: Path) -> None:
    text = "time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE\nutc,m,m,%,\n"
    text += "".join(f"2024-01-01T00:0{m}:00Z,{'x' if m == 5 else 1},1,1,AUTO\n" for m in range(8))
    (tmp_path / "log.csv").write_text(text)
    values = copy.deepcopy(WIDE)
    values["log"]["header_rows"] = 2
    with pytest.raises(DatasetError, match=r"tag 'level', row 8: expected a number, got 'x'"):
        convert_log(plant_log_from_dict(values, "plant.toml"), folder=tmp_path)


def test_bytes_of_another_encoding_are_refused_by_row(tmp_path: Path) -> None:
    text = "time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE\n2024-01-01T00:00:00Z,1,1,1,Anfahren für\n"
    (tmp_path / "log.csv").write_bytes(text.encode("cp1252"))
    with pytest.raises(DatasetError, match=r"log\.csv: row 2 holds bytes that are not utf-8; set "):
        convert_log(plant_log_from_dict(WIDE, "plant.toml"), folder=tmp_path)
    values = copy.deepcopy(WIDE)
    for encoding in ("utf-9", "base64"):
        values["log"]["encoding"] = encoding
        with pytest.raises(InputError, match=r"plant\.toml: log\.encoding: .*" + encoding):
            plant_log_from_dict(values, "plant.toml")
    values["log"] |= {"encoding": "utf-8", "header_rows": 0}
    with pytest.raises(InputError, match=r"log\.header_rows must be 1 or more, got 0"):
        plant_log_from_dict(values, "plant.toml")


def test_a_file_without_a_header_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "u.dat"
    path.write_text("2.50521E-01,3674.0\n2.5E-01,3675.0\n")
    with pytest.raises(DatasetError, match=r"the first row looks like numbers \(2\.50521E-01, 367"):
        draft_plant_log(path)


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (["31/01/2024 23:59:00", "01/02/2024 00:00:00"], "%d/%m/%Y %H:%M:%S%.f"),
        (["05/01/2024 23:59:00", "06/01/2024 00:00:00"], "%d/%m/%Y %H:%M:%S%.f"),
        (["01/05/2024 23:59:00", "01/06/2024 00:00:00"], "%m/%d/%Y %H:%M:%S%.f"),
        (["31.01.24 23:59:00", "01.02.24 00:00:00"], "%d.%m.%y %H:%M:%S%.f"),
        (["01/31/2024 11:59:00 PM", "02/01/2024 12:00:00 AM"], "%m/%d/%Y %I:%M:%S %p"),
        (["31-Jan-24 23:59:00", "01-Feb-24 00:00:00.5"], "%d-%b-%y %H:%M:%S%.f"),
        (["31.01.2024 23:59", "01.02.2024 00:00"], "%d.%m.%Y %H:%M"),
    ],
)
def test_stamps_of_other_countries(tmp_path: Path, stamps: list[str], expected: str) -> None:
    """Where both orders of day and month fit, the one that keeps the rows close together."""
    path = tmp_path / "log.csv"
    path.write_text("time,A,V.OP\n" + "".join(f"{s},{i}.5,{i}\n" for i, s in enumerate(stamps)))
    assert drafted(path)["log"]["timestamp_format"] == expected


def test_a_year_of_two_digits_is_not_the_year_24(tmp_path: Path) -> None:
    """Its nanoseconds wrapped to the year 1777, without a word."""
    values = copy.deepcopy(WIDE)
    values["log"]["timestamp_format"] = "%d.%m.%Y %H:%M:%S"
    path = tmp_path / "log.csv"
    path.write_text("time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE\n31.01.24 10:00:00,1,1,1,AUTO\n")
    with pytest.raises(DatasetError, match=r"row 2: cannot read '31\.01\.24 10:00:00' by the for"):
        convert_log(plant_log_from_dict(values, "plant.toml"), folder=tmp_path)


def test_an_order_of_day_and_month_that_nothing_decides_is_doubted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,A,V.OP\n05/01/2024 01:00:00,1.5,1\n05/01/2024 02:00:00,1.6,2\n")
    assert "# TODO is the month or the day first?" in draft_plant_log(path)


def test_ranges_come_from_all_files(command: Any, tmp_path: Path) -> None:
    """Those of the first file alone cost two thirds of the rows of the others."""
    (tmp_path / "export").mkdir()
    for i in range(3):
        column = [f"{10 * i + m / 10:g}" for m in range(20)]
        write(tmp_path / "export" / f"{i}.csv", ["A"], [column])
    command("init", *(f"export/{i}.csv" for i in range(3)), "--out", "plant.toml")
    values = tomllib.loads(Path("plant.toml").read_text())
    assert values["log"]["files"] == ["export/0.csv", "export/1.csv", "export/2.csv"]
    assert values["name"] == "export", "0, 1 and 2 have nothing in common but their folder"
    assert values["tag"][0]["low"] < 0
    assert values["tag"][0]["high"] > 21.9
    with pytest.raises(DatasetError, match=r"other\.csv: no column 'A'"):
        draft_plant_log("export/0.csv", write(tmp_path / "other.csv", ["B"], [["1"]]))
    assert "name the log to look at: neorl-envs init export.csv" in command.refused("init")


def test_a_log_is_named_by_what_its_files_have_in_common(tmp_path: Path) -> None:
    """Reports of four files were headed by the name of the first."""
    paths = [write(tmp_path / f"july_{i}.csv", ["A"], [["1.5", "1.6"]]) for i in (1, 12)]
    assert drafted(*paths)["name"] == "july"
    assert drafted(paths[1])["name"] == "july_12"


def test_a_second_log_in_a_folder_has_a_configuration_of_its_own(
    command: Any, tmp_path: Path
) -> None:
    """It replaced the first one under --overwrite."""
    for name in ("first", "second"):
        write(tmp_path / f"{name}.csv", ["A"], [["1.5", "1.6", "1.7"]])
        command("init", f"{name}.csv")
        error = command.refused("init", f"{name}.csv")
    assert "second.toml exists" in error
    assert tomllib.loads(Path("plant.toml").read_text())["log"]["files"] == ["first.csv"]
    assert tomllib.loads(Path("second.toml").read_text())["log"]["files"] == ["second.csv"]
    command("convert", "second.csv")
    assert Path("second.h5").is_file()


def test_units_of_the_long_layout(tmp_path: Path) -> None:
    rows = [
        [f"2024-01-01T00:0{m}:00Z", tag, value, unit]
        for m in range(9)
        for tag, value, unit in (("T1", "20.5", "°C" if m < 7 else "K"), ("V.OP", f"{m}", "%"))
    ]
    table = pl.DataFrame(rows, schema=["ts", "tag", "value", "uom"], orient="row")
    (tmp_path / "log.csv").write_text(table.write_csv())
    text = draft_plant_log(tmp_path / "log.csv")
    assert 'unit_column = "uom"' in text
    assert 'unit = "°C"\nconversions = {K = [1.0, 0.0]}  # TODO factor and offset to °C' in text
    assert tags_of(tomllib.loads(text))["V.OP"]["unit"] == "%"
