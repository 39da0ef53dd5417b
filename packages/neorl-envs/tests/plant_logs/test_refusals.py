"""Bad logs and bad configurations: each is refused in one line that names what is wrong."""

import copy
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from neorl_core import InputError
from neorl_envs.plant_logs import Expression, convert_log, plant_log_from_dict, read_plant_log
from neorl_envs.plant_logs._convert import spec_of

from .conftest import WIDE, Tank, wide_lines


def refused(folder: Path, message: str, values: dict[str, Any] = WIDE) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match=message) as caught:
        convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder)
    assert "\n" not in str(caught.value)
    assert sorted(folder.iterdir()) == before


HEAD = "time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE\n"


def row(minute: int, stamp: str = "2024-01-01T00:{:02d}:00Z", values: str = "1,1,50,AUTO") -> str:
    return f"{stamp.format(minute)},{values}\n"


ROWS = "".join(row(minute) for minute in range(9))
LOGS = {
    "nothing": ("", "cannot read it as a table"),
    "no rows": (
        HEAD,
        "no row of the log can be used: no valid sample of 'level', 'setpoint', 'valve'",
    ),
    "one row": (
        HEAD + row(0),
        "no row of the log can be used: 1 times 'samples without a successor'",
    ),
    "another column": (HEAD.replace("LC-1.OP", "LC-1.OUT") + ROWS, "no column 'LC-1.OP'; did you"),
    "an open quote": ('"' + HEAD + ROWS, r"no column 'time' \(it has time,LI-1"),
    "another stamp column": (HEAD.replace("time", "when") + ROWS, "no column 'time'"),
    "text among numbers": (
        HEAD + ROWS + row(9, values="I/O Timeout,1,50,AUTO"),
        r"log.csv: tag 'level', row 11: expected a number, got 'I/O Timeout'; add the text to log",
    ),
    "an infinite value": (
        HEAD + ROWS + row(9, values="1,1,inf,AUTO"),
        "tag 'valve', row 11: .*'inf'",
    ),
    "a stamp in words": (
        HEAD + ROWS + row(9, "yesterday"),
        "column 'time', row 11: cannot read 'yesterday' as an ISO 8601 timestamp",
    ),
    "no stamp": (HEAD + ROWS + row(9, ""), "row 11: cannot read None as an ISO 8601 timestamp"),
    "a day that is none": (
        HEAD + row(0, "2024-02-30T00:00:00Z"),
        "row 2: cannot read '2024-02-30T",
    ),
    "two kinds of stamps": (
        HEAD + ROWS + row(9, "2024-01-01T00:09:00"),
        "row 11: cannot read '2024-01-01T00:09:00' beside timestamps that name their offset",
    ),
    "a tag that is never there": (
        HEAD + "".join(row(minute, values=",1,50,AUTO") for minute in range(9)),
        r"no valid sample of 'level' \(9 missing\)$",
    ),
    "another unit": (
        HEAD
        + row(0, values="Bad,1,50,AUTO")
        + "".join(row(minute, values=f"{100 + minute},1,50,AUTO") for minute in range(1, 9)),
        r"of 'level' \(1 missing; 8 outside the range 0 to 2 m, from 101 to 108: check low and ",
    ),
    "all qualities bad": (
        HEAD + "".join(row(minute, values="Bad,1,50,AUTO") for minute in range(9)),
        "no valid sample of 'level'",
    ),
    "ragged": (HEAD + ROWS + row(9, values="1,2,3,4,5,6,7"), "cannot read it as a table"),
    "a stamp far away": (
        HEAD + row(0, "1970-01-01T00:00:00Z") + ROWS,
        "look for a timestamp far from the others",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_bad_logs(tmp_path: Path, case: str) -> None:
    content, message = LOGS[case]
    (tmp_path / "log.csv").write_text(content)
    values = copy.deepcopy(WIDE)
    if case == "a stamp far away":
        values["episodes"]["gap_s"] = 1e12
        values["sampling"] |= {"period_s": 1}
    refused(tmp_path, message, values)


def test_damaged_files(tank: Tank, tmp_path: Path) -> None:
    text = "\n".join(wide_lines(tank)).encode()
    values = copy.deepcopy(WIDE)
    for name, content in {
        "log.csv.gz": gzip.compress(text)[:800],
        "bad.csv.gz": b"\x1f\x8bnothing",
        "log.parquet": b"PAR1nothing",
        "bytes.csv": HEAD.encode() + b"\xff\xfe,1,2,3,4\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        values["log"]["files"] = [name]
        refused(tmp_path, f"{name}: ", values)
    values["log"]["files"] = ["no*.csv"]
    refused(tmp_path, r"plant.toml: log.files: no file 'no\*.csv' in", values)
    pl.DataFrame({"time": [True], "LI-1.PV": [1.0]}).write_parquet(tmp_path / "odd.parquet")
    values["log"]["files"] = ["odd.parquet"]
    refused(tmp_path, "no column 'LC-1.SP'", values)


@pytest.mark.parametrize("key", ["running", "trip"])
def test_a_condition_that_is_a_number_is_refused(wide: Path, tank: Tank, key: str) -> None:
    """Any number other than zero would count as true, such as every level of a tank."""
    values = copy.deepcopy(WIDE)
    values["episodes"][key] = "level"
    time = np.datetime_as_string(np.datetime64(int(tank.at[0]), "s"))
    message = (
        f"plant.toml: episodes.{key}: 'level' must be true or false (1 or 0), got "
        f"{tank.level[0]:g} at {time}Z; compare it with a number, such as 'level > 0.5'"
    )
    refused(wide, re.escape(message), values)
    values["episodes"][key] = "CASE WHEN level < 99 THEN 1 ELSE 0 END"
    if key == "running":
        convert_log(plant_log_from_dict(values, "plant.toml"), folder=wide)


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    lines = ["time,tag,value,unit", "2024-01-01T00:00:00Z,LI-1.PV,1,ft"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    values = copy.deepcopy(WIDE)
    values["log"] |= {"layout": "long", "unit_column": "unit"}
    refused(tmp_path, "tag 'level', row 2: unit 'ft' is neither 'm' nor one of its conv", values)


def put(*path: Any) -> Callable[[dict], None]:
    """Sets the value at a path of keys; removes it where the value is ``None``."""

    def change(values: dict[str, Any]) -> None:
        *folders, key, value = path
        for folder in folders:
            values = values[folder]
        if value is None:
            del values[key]
        else:
            values[key] = value

    return change


CONFIGURATIONS = {
    "unknown table": (put("sampling_", {}), "unknown key 'sampling_'; did you mean"),
    "unknown key": (
        put("log", "timestmp", "t"),
        r"in \[log\] 'timestmp'; did you mean 'timestamp'",
    ),
    "missing key": (put("log", "timestamp", None), "plant.toml: log.timestamp is missing"),
    "missing tables": (put("episodes", None), "plant.toml: episodes.gap_s is missing"),
    "text for a number": (
        put("sampling", "period_s", "60"),
        "sampling.period_s must be a number, got '60'",
    ),
    "true for a number": (put("sampling", "period_s", True), "must be a number, got True"),
    "a fraction of rows": (put("episodes", "length", 1.5), "must be an integer, got 1.5"),
    "text for a list": (put("log", "files", "a.csv"), "log.files must be a list, got 'a.csv'"),
    "text for a table": (put("reward", "1"), r"reward must be a table, got '1'"),
    "a role": (
        put("tag", 0, "role", "state"),
        "unknown value of tag 'level'.role: 'state'; .* known: observation",
    ),
    "no period": (put("sampling", "period_s", 0), "sampling.period_s must be above 0 s, got 0"),
    "no gap": (put("episodes", "gap_s", float("nan")), "episodes.gap_s must be above 0 s, got nan"),
    "negative length": (put("episodes", "length", -1), "episodes.length must be 0 or more"),
    "no history": (put("history", {"steps": 0}), "history.steps must be from 1 to 1000, got 0"),
    "no manipulated": (put("tag", 2, "role", "auxiliary"), "no tag has the role 'manipulated'"),
    "one name twice": (put("tag", 1, "name", "level"), "two tags are called 'level'"),
    "one column twice": (put("tag", 1, "tag", "LI-1.PV"), "two tags are called 'LI-1.PV'"),
    "no range": (
        put("tag", 2, "low", None),
        "tag 'valve': low and high must be numbers with low <",
    ),
    "an empty range": (put("tag", 2, "low", 100), "low < high, got 100.0 and 100.0"),
    "a valve on a line": (put("tag", 2, "fill", "interpolate"), "is held between samples"),
    "a delay off the grid": (
        put("tag", 0, "delay_s", 90),
        "must be a multiple of the period of 60 s, got 90",
    ),
    "a delayed valve": (put("tag", 2, "delay_s", 60), "a manipulated has no transport delay"),
    "a factor of zero": (put("tag", 0, "factor", 0), "factor must not be 0"),
    "half a conversion": (
        put("tag", 0, "conversions", {"ft": [0.3]}),
        r"conversions.ft must be \[f",
    ),
    "no automatic": (put("tag", 3, "automatic", []), "list the words that mean automatic"),
    "a mode of nothing": (put("tag", 3, "of", ["valv"]), "'valv'; did you mean 'valve'?"),
    "a reserved name": (
        put("tag", 0, "name", "before_x"),
        "must not be empty or begin with 'before_'",
    ),
    "a cost without a name": (
        put("cost", 0, "name", ""),
        "plant.toml: a cost channel needs a name",
    ),
    "order in a long log": (
        put("log", {"files": ["a"], "timestamp": "t", "layout": "long", "ambiguous": "order"}),
        "needs rows in order of time",
    ),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_bad_configurations(case: str) -> None:
    change, message = CONFIGURATIONS[case]
    values = copy.deepcopy(WIDE)
    change(values)
    with pytest.raises(InputError, match=message) as caught:
        spec_of(plant_log_from_dict(values, "plant.toml"), np.ones(1, np.bool_), "plant.toml")
    assert "plant.toml" in str(caught.value) or "tag 'mode'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_keys_are_told_together() -> None:
    """They were told one at a time: `episodes is missing`, then `episodes.gap_s is missing`."""
    values = copy.deepcopy(WIDE)
    for place, key in ((values["log"], "files"), (values["tag"][1], "role"), (values, "episodes")):
        del place[key]
    del values["cost"][0]["unit"]
    message = "log.files, episodes.gap_s, tag 'setpoint'.role, cost 'overflow'.unit are missing"
    with pytest.raises(InputError, match=message):
        plant_log_from_dict(values, "plant.toml")


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.toml: cannot read it: No such file"):
        read_plant_log(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"bad\.toml: not valid TOML"):
        read_plant_log(tmp_path / "bad.toml")


EXPRESSIONS = {
    "level +": "cannot read",
    "leval": "uses 'leval', which is not a tag; did you mean 'level'",
    "sum(level)": "looks beyond its row",
    "level - avg(level)": "looks beyond its row",
    "row_number() over (order by level)": "looks beyond its row",
    "level, valve": "cannot read",
    "__import__('os')": "cannot read",
    "(select 1)": "cannot compute",
    "read_csv('/etc/passwd')": "cannot read",
    "level = 'high'": "cannot compute",
    "*": "cannot read",
    "": "cannot read",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_bad_expressions(text: str) -> None:
    with pytest.raises(InputError, match=EXPRESSIONS[text]) as caught:
        Expression(text, ["level", "valve"], "plant.toml: reward.expression")
    assert "\n" not in str(caught.value)


def test_a_condition_on_an_unknown_tag_is_unknown(tank: Tank) -> None:
    """SQL would take the ELSE branch, and a masked value would have decided the reward."""
    expression = Expression("CASE WHEN level > 1 THEN -valve ELSE 5 END", ["level", "valve"], "x")
    level, valve = np.array([2, np.nan, 0.5, 2]), np.array([3, 3, np.nan, np.nan])
    np.testing.assert_array_equal(
        expression({"level": level, "valve": valve}), [-3, np.nan, np.nan, np.nan]
    )
    constant = Expression("1.5", ["level"], "x")
    np.testing.assert_array_equal(constant({"level": level}), np.full(4, 1.5))


@pytest.mark.parametrize("text", ["a / 100", "-abs(a - 2705) / 3 - abs(b - 50) / 60"])
def test_a_division_by_a_number_stays_in_its_row(text: str) -> None:
    value = Expression(text, ["a", "b"], "reward")({"a": np.r_[1.0, 7.0], "b": np.r_[2.0, 3.0]})
    a, b = np.r_[1.0, 7.0], np.r_[2.0, 3.0]
    expected = a / 100 if text == "a / 100" else -abs(a - 2705) / 3 - abs(b - 50) / 60
    np.testing.assert_allclose(value, expected, rtol=1e-12)
