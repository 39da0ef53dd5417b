"""``neorl-train loop``: from a table to an answer, and what it refuses."""

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from neorl_train._command.main import main


def table(path: Path, rows: int = 1500) -> Path:
    """A loop whose output is at its upper limit."""
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2024-03-01T10:00:00") + 10 * np.arange(rows).astype("m8[s]")
    level = 40 + rng.normal(0, 0.1, rows)
    lines = ["time,LIC-7.PV,LIC-7.SP,LIC-7.OP"]
    lines += [f"{t},{y:.3f},45.0,100.0" for t, y in zip(stamps, level, strict=True)]
    lines[5] = lines[5].replace(lines[5].split(",")[1], "NULL")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_gets_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "log.csv")
    assert main(["loop", str(path)]) == 0
    text = capsys.readouterr().out
    assert "LIC-7: MEND THE VALVE OR SENSOR" in text
    assert "at a limit 100% of the time" in text
    assert "Traceback" not in text
    assert main(["loop", str(path), "--json"]) == 0
    (loop,) = json.loads(capsys.readouterr().out)["loops"]
    assert loop["cause"] == "saturation"
    assert loop["model"]["usable"] is False
    assert {"name", "value", "word"} == set(loop["health"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pv", "LIC-7.PV"], "both --pv and --op"),
        (["--sp", "45"], "name its columns"),
        (["--pv", "LIC-7.PV", "--op", "LIC-7.OP", "--pv-range", "5"], "two numbers"),
        (["--pv", "LIC-8.PV", "--op", "LIC-7.OP"], "LIC-7.PV"),
        (
            ["--pv", "LIC-7.PV", "--op", "LIC-7.OP", "--faceplate.proportional-band", "200",
             "--faceplate.direction", "reverse"],
            "so give both (--pv-range and --op-range)",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    path = table(tmp_path / "log.csv", 300)
    assert main(["loop", str(path), *words]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert not told.out


@pytest.mark.parametrize("day", ["2024-03-31", "2024-10-27"])
def test_the_hour_that_clocks_repeat_is_told_and_the_one_that_they_skip_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], day: str
) -> None:
    """A log in Vienna's local time without a zone, with few rows so that nothing is identified."""
    begin = np.datetime64(f"{day}T00:00", "s").astype(int).item() - 3600
    lines = ["time,LIC-7.PV,LIC-7.SP,LIC-7.OP"]
    for minute in range(180):
        local = datetime.fromtimestamp(begin + 60 * minute, ZoneInfo("Europe/Vienna"))
        lines.append(f"{local:%Y-%m-%d %H:%M:%S},{40 + np.sin(minute):.3f},45.0,{minute}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    assert main(["loop", str(path)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    if day == "2024-03-31":
        assert not told
        return
    (line,) = told
    assert line.startswith(f"left out: 60 rows from {day} 02:00:00 to {day} 02:59:00: their stamps")
    assert main(["loop", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == [line]


def test_a_file_that_is_absent_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", "nowhere.csv"]) == 2
    assert "there is no file nowhere.csv" in capsys.readouterr().err


def test_a_loop_with_few_rows_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "log.csv")
    head, *rows = path.read_text().splitlines()
    more = [f"{row},{i if i < 50 else ''},{i % 9}" for i, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},TIC-8.PV,TIC-8.OP", *more]) + "\n")
    assert main(["loop", str(path)]) == 0
    text = capsys.readouterr().out
    assert "TIC-8: CANNOT TELL\n  Too few rows" in text
    assert "LIC-7: MEND THE VALVE OR SENSOR" in text


def test_a_table_without_stamps_needs_its_period(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("PV,OP\n" + "".join(f"{i % 7},{50 + i % 5}\n" for i in range(300)))
    assert main(["loop", str(path), "--pv", "PV", "--op", "OP"]) == 2
    assert "--period" in capsys.readouterr().err
