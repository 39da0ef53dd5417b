"""The commands from a log to a report."""

import builtins
import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_envs import read_dataset
from neorl_envs.inspection import dataset_report
from neorl_envs.plant_logs import convert_log, plant_log_from_dict, read_plant_log

from .conftest import WIDE, Tank, toml_of, wide_lines


def test_a_log_is_drafted_and_converted(command: Any, wide: Path) -> None:
    error = command.refused("convert", "log.csv")
    assert "no plant.toml beside it; draft one: neorl-envs init log.csv" in error
    assert "4 tags, 7 lines to complete" in command("init", "log.csv")
    drafted = read_plant_log("plant.toml")
    assert [tag.role for tag in drafted.tags] == ["observation", "setpoint", "manipulated", "mode"]
    assert drafted.sampling.period_s == 60
    assert "plant.toml exists; choose another --out" in command.refused("init", "log.csv")
    text = Path("plant.toml").read_text()
    text = text.replace('expression = "0"', 'expression = "-abs(LI_1_PV - LC_1_SP)"')
    Path("plant.toml").write_text(text)
    out = command("convert", "plant.toml", "--out", "tank.h5")
    assert "Next: neorl-envs inspect tank.h5" in out
    dataset = read_dataset("tank.h5")
    assert dataset.n_rows > 200
    Path("elsewhere").mkdir()
    Path("elsewhere/tank.h5").write_bytes(Path("tank.h5").read_bytes())
    error = command.refused("convert", "elsewhere/tank.h5")
    assert "needs no conversion: the reader 'neorl' reads it; go on with: neorl-envs insp" in error
    # Another log with the same configuration.
    (wide / "later.csv").write_text((wide / "log.csv").read_text())
    command("convert", "plant.toml", "later.csv", "--out", "later.h5")
    assert read_dataset("later.h5").content_hash == dataset.content_hash
    printed = json.loads(command("convert", "log.csv", "--json"))
    np.testing.assert_array_equal(read_dataset("log.h5").time, dataset.time)
    assert (printed["file"], printed["rows"]) == ("log.h5", dataset.n_rows)
    assert printed["ingestion"] == dataset.attributes["ingestion"]
    assert any("is still" in line or "still marked TODO" in line for line in printed["warnings"])


def test_a_draft_that_nobody_completed_is_told(command: Any, wide: Path) -> None:
    note = "the reward is constant: nothing can be learned from it"
    command("init", "log.csv")
    out = command("convert", "plant.toml", "--out", "draft.h5")
    assert "warning: the reward is constant (0): nothing can be learned from it" in out
    assert "warning: the unit of LI_1_PV, LC_1_SP, LC_1_OP" in out
    assert "warning: 7 lines of plant.toml are still marked TODO" in out
    assert f"warning: {note}" in command("inspect", "draft.h5")
    text = Path("plant.toml").read_text().replace('"0"', '"-abs(LI_1_PV - LC_1_SP)"')
    text = text.replace('"?"', '"m"').replace("# TODO", "#")
    Path("plant.toml").write_text(text.replace("# length = 500", "length = 50"))
    assert "warning" not in command("convert", "plant.toml", "--out", "done.h5")
    assert note not in dataset_report(read_dataset("done.h5"))["notes"]


def test_what_of_a_log_cannot_be_used_is_told(command: Any, wide: Path) -> None:
    """A range in another unit, or too few episodes, costs a training; the conversion says so."""
    command("init", "log.csv")
    text = Path("plant.toml").read_text()
    high = next(line for line in text.splitlines() if line.startswith("high = "))
    Path("plant.toml").write_text(text.replace(high, "high = 1.1", 1))
    out = command("convert", "plant.toml", "--out", "log.h5")
    dataset = read_dataset("log.h5")
    outside = dataset.attributes["ingestion"]["tags"]["LI_1_PV"]["outside the range"]
    assert outside > 20
    assert f"warning: {outside} values of LI_1_PV lie outside its range, " in out
    Path("plant.toml").write_text(text)
    out = command("convert", "plant.toml", "--out", "whole.h5")
    n = read_dataset("whole.h5").n_episodes
    assert n < 4
    needed = (
        f"warning: training holds out whole episodes and needs at least 4, but this log has {n}"
    )
    assert needed in out
    assert "no sample" not in out
    assert "lie outside" not in out
    assert "never moves" not in out
    (wide / "held.csv").write_text(_with_column((wide / "log.csv").read_text(), "LC-1.OP", "50.0"))
    out = command("convert", "plant.toml", "held.csv", "--out", "held.h5")
    assert "warning: LC_1_OP never moves: it is 50 ? in every row" in out


def test_a_fraction_that_is_declared_as_percent_is_told(command: Any, wide: Path) -> None:
    command("init", "log.csv")
    head, valve = Path("plant.toml").read_text().split('name = "LC_1_OP"')
    low, high = (
        next(line for line in valve.splitlines() if line.startswith(end)) for end in ("low", "high")
    )
    valve = valve.replace('unit = "?"', 'unit = "%"', 1)
    valve = valve.replace(low, "low = 0.0", 1).replace(high, "high = 100.0", 1)
    whole = head + 'name = "LC_1_OP"' + valve
    Path("plant.toml").write_text(whole)
    assert "as a fraction of 1 would" not in command("convert", "plant.toml", "--out", "percent.h5")
    Path("plant.toml").write_text(whole.replace("high = 100.0", "high = 100.0\nfactor = 0.01", 1))
    told = command("convert", "plant.toml", "--out", "fraction.h5")
    assert "warning: LC_1_OP lies between 0." in told
    assert "write factor = 100 for it in plant.toml" in told


def test_rows_that_the_export_lost_are_counted(command: Any, wide: Path) -> None:
    """Held values filled a quarter of the rows without a word."""
    command("init", "log.csv")
    out = command("convert", "plant.toml", "--out", "whole.h5")
    assert "no observed or manipulated tag has a sample" not in out
    before = read_dataset("whole.h5").attributes["ingestion"].get("empty_periods", 0)
    head, *rows = Path("log.csv").read_text().splitlines()
    lost = [row for i, row in enumerate(rows) if i % 4 != 1]
    Path("log.csv").write_text("\n".join([head, *lost]) + "\n")
    out = command("convert", "plant.toml", "--out", "log.h5")
    dataset = read_dataset("log.h5")
    empty = dataset.attributes["ingestion"]["empty_periods"]
    assert empty == len(rows) - len(lost) + before
    assert f"no observed or manipulated tag has a sample in {empty} periods of 1 min" in out
    assert "export it again" in out
    assert any(f"{empty} periods have no sample" in n for n in dataset_report(dataset)["notes"])


def test_an_hour_that_comes_twice_is_told(command: Any, wide: Path) -> None:
    """Under the wrong zone both hours fell together and were masked without a word."""
    lines = [line.replace("Z,", ",") for line in (wide / "log.csv").read_text().splitlines()]
    stamps = [f"2024-10-27 {h:02d}:{m:02d}:00" for h in (1, 2, 2, 3) for m in range(60)]
    rows = [
        ",".join([stamp, *line.split(",")[1:]])
        for stamp, line in zip(stamps, lines[1:], strict=False)
    ]
    (wide / "autumn.csv").write_text("\n".join([lines[0], *rows]) + "\n")
    command("init", "autumn.csv", "--out", "autumn.toml")
    out = command("convert", "autumn.toml", "--out", "a.h5")
    expected = (
        "left out: 60 rows from 2024-10-27 02:00:00 to 2024-10-27 02:59:00: their stamps are those "
        "of rows above them, as when clocks are set back, and values that differ from those count "
        'as missing; state the zone as log.time_zone in plant.toml, with log.ambiguous = "order"'
    )
    assert expected in out.splitlines()
    assert expected in " ".join(command("inspect", "a.h5").split())
    assert "differ from another value with the same timestamp, and count as missing" in out
    text = Path("autumn.toml").read_text().replace("# ambiguous", "ambiguous")
    Path("autumn.toml").write_text(text.replace('"UTC"', '"Europe/Vienna"'))
    out = command("convert", "autumn.toml", "--out", "b.h5")
    assert "differ from another value" not in out
    assert "left out: 60 rows from" not in out


def _with_column(text: str, name: str, value: str) -> str:
    """A CSV whose column has one value."""
    head, *rows = text.splitlines()
    place = head.split(",").index(name)
    cut = [row.split(",") for row in rows]
    held = [",".join([*row[:place], value, *row[place + 1 :]]) for row in cut]
    return "\n".join([head, *held]) + "\n"


def test_the_tag_that_masks_most_rows_is_named(command: Any, tank: Tank, tmp_path: Path) -> None:
    """A laboratory value every 30 rows masked 97 % of them; only their number was told."""
    lines = wide_lines(tank)
    rows = [f"{line},{'3.1' if i % 30 == 0 else ''}" for i, line in enumerate(lines[1:101])]
    Path("log.csv").write_text("\n".join([lines[0] + ",QI-9", *rows]) + "\n")
    values = copy.deepcopy(WIDE)
    lab = {"name": "lab", "tag": "QI-9", "role": "observation", "low": 0.0, "high": 9.0}
    values["tag"].append(lab)
    Path("plant.toml").write_text(toml_of(values))
    out = command("convert", "plant.toml", "--out", "log.h5")
    counted = read_dataset("log.h5").attributes["ingestion"]
    # A value counts for one period behind its own: of each 30 rows two know it, of 99 rows eight.
    assert counted["unknown"] == {"lab": {"rows": 91, "alone": 91, "mean_spacing_s": 1800.0}}
    assert "log.h5: 61 rows (58 masked)" in out
    assert (
        "from 99 rows of the running plant; 56 masked: obs unknown; 38 left out: unknown at an end "
        "of an episode; 2 masked: next_obs unknown"
    ) in out
    expected = (
        "warning: lab is unknown in 91 of 99 rows, in 91 of them alone; its values are 30 min "
        "apart on average; set its largest_gap_s in plant.toml to how long a value holds (inf if "
        "it is logged on change), or remove the tag"
    )
    assert expected in out.splitlines()
    text = " ".join(command("inspect", "log.h5").split())
    words = "lab is unknown in 91 rows, in 91 of them alone; its values are 30 min apart"
    assert words in text
    Path("plant.toml").write_text(toml_of(values).replace("9.0", "9.0\nlargest_gap_s = 1800"))
    assert "unknown in" not in command("convert", "plant.toml", "--out", "whole.h5")
    assert int(np.asarray(read_dataset("whole.h5").transitions.mask).sum()) == 98
    late = [f"{lines[0]},QI-9", *(f"{row.rpartition(',')[0]}," for row in rows[:30]), *rows[30:]]
    Path("log.csv").write_text("\n".join(late) + "\n")
    out = command("convert", "plant.toml", "--out", "late.h5")
    assert "lab is unknown in 30 of 99 rows" in out
    assert "its largest_gap_s, 30 min, bridges that, so these rows are before its first" in out
    assert "logged on change" not in out


def test_the_hint_to_install_the_extra_works_without_an_index_of_ours(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It named neorl-envs[etl], which is on no index: the name could be anyone's."""
    monkeypatch.setitem(sys.modules, "neorl_envs.plant_logs", None)
    error = ModuleNotFoundError("No module named 'polars'", name="polars")

    def refused(name: str, *args: object, **kwargs: object) -> object:
        if name == "neorl_envs" and "plant_logs" in (args[2] if len(args) > 2 else ()):
            raise error
        return plain(name, *args, **kwargs)

    plain = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refused)
    (tmp_path / "log.csv").write_text("time,a\n")
    line = command.refused("init", tmp_path / "log.csv")
    assert 'pip install "./packages/neorl-envs[etl]"' in line
    assert " neorl-envs[" not in line


def test_a_failed_conversion_leaves_nothing(command: Any, wide: Path) -> None:
    command("init", "log.csv")
    (wide / "log.csv").write_text((wide / "log.csv").read_text().replace("1.25,", "high,", 1))
    error = command.refused("convert", "plant.toml")
    assert "tag 'LC_1_SP', row 42: expected a number, got 'high'" in error
    assert len(error.splitlines()) == 1
    assert sorted(path.name for path in wide.iterdir()) == ["log.csv", "plant.toml"]


DRAFTS = {
    "semicolons and commas": (
        "Zeit;TI1;Ventil.OP\n"
        + "".join(f"01.02.2024 10:{m:02d}:00;{m},5;{m}\n" for m in range(20)),
        ['separator = ";"', 'decimal = ","', 'timestamp = "Zeit"', '"%d.%m.%Y %H:%M:%S%.f"'],
    ),
    "long": (
        "ts,tag,value,quality\n"
        + "".join(
            f"2024-02-01T10:{m:02d}:00Z,{tag},{m},Good\n"
            for m in range(20)
            for tag in ("A", "B.OP")
        ),
        ['layout = "long"', 'quality_column = "quality"', 'tag = "B.OP"\nrole = "manipulated"'],
    ),
    "a dead instrument": (
        "time,A,B_valve,TI9\n"
        + "".join(f"2024-02-01 10:{m:02d}:00,{m},{m},NaN\n" for m in range(20)),
        ['# "TI9" holds no numbers in the rows looked at', 'name = "A"', 'name = "B_valve"'],
    ),
    "text and gaps": (
        "time,A,note,B_valve,B_valve_q\n"
        + "".join(
            f"2024-02-01 10:{m:02d}:00,{'Bad' if m == 3 else m},ok,{m},Good\n" for m in range(20)
        ),
        ['missing = ["Bad"]', '# "note" holds no numbers (ok)', 'quality = "B_valve_q"'],
    ),
}


@pytest.mark.parametrize("case", DRAFTS)
def test_drafts_of_other_exports(command: Any, tmp_path: Path, case: str) -> None:
    text, expected = DRAFTS[case]
    Path("log.csv").write_text(text)
    command("init", "log.csv")
    drafted = Path("plant.toml").read_text()
    for words in expected:
        assert words in drafted
    command("convert", "plant.toml", "--out", "log.h5")
    assert read_dataset("log.h5").n_rows >= 15


BAD = {
    "missing": ("no.csv", None, "no.csv: no such file"),
    "empty": ("log.csv", "", "log.csv: the log is empty"),
    "no rows": ("log.csv", "time,a\n", "log.csv: the log has no row"),
    "no stamps": ("log.csv", "a,b\n1,2\n", "log.csv: no column holds timestamps"),
}


@pytest.mark.parametrize("case", BAD)
def test_logs_of_which_nothing_can_be_drafted(command: Any, tmp_path: Path, case: str) -> None:
    name, content, message = BAD[case]
    if content is not None:
        Path(name).write_text(content)
    error = command.refused("init", name)
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_reward_of_a_converted_log_is_computed_again(wide: Path) -> None:
    dataset = convert_log(plant_log_from_dict(WIDE, "plant.toml"), folder=wide)
    check = dataset_report(dataset)["reward_check"]
    assert check["checked"]
    assert check["rows"] == dataset.n_rows - 3  # the first of every episode needs the one before
    assert check["largest_difference"] < check["tolerance"]
    np.asarray(dataset.transitions.reward)[5] += 1
    report = dataset_report(dataset)
    assert report["reward_check"]["largest_difference"] == pytest.approx(1, abs=1e-3)
    assert "the reward differs from its expression by up to 1" in report["notes"]
