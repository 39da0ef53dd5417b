"""Loops of a historian's export without a configuration: names, days apart, missing stamps."""

from pathlib import Path

import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs.datasets import LoopTags, loops_of
from neorl_envs.plant_logs import draft_plant_log, loop_columns, read_loop_log

MESSY = """Zeit;FIC-101.PV [kg/h];FIC-101.SP;FIC-101.OP;FIC-101.MODE;Bemerkung
01.03.2024 10:00:00;51,2;50,0;33,1;AUTO;ä
01.03.2024 10:00:10;NULL;50,0;33,2;AUTO;
01.03.2024 10:00:20;51,0;50,0;33,3;MAN;
01.03.2024 10:00:30;50,9;50,5;33,3;MAN;
01.03.2024 10:00:40;50,8;50,5;33,4;AUTO;
"""
APART = "id,date,time,FT_1,FV_1\n" + "".join(
    f"{9 - i},2024-11-27,10:{9 - i:02d}:00,{20.5 - i},{40 + i / 4}\n" for i in range(10)
)


def obs(log, name: str) -> np.ndarray:
    names = [channel.name for channel in log.datasets[0].spec.obs]
    return np.asarray(log.datasets[0].transitions.obs)[:, names.index(name)]


def test_a_loop_is_found_in_a_messy_export(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_bytes(MESSY.encode("cp1252"))
    log = read_loop_log(path)
    assert log.loops == (
        LoopTags("FIC-101", "FIC_101_PV", "FIC_101_OP", "FIC_101_SP", "FIC_101_MODE"),
    )
    assert log.datasets[0].mode[:, 0].tolist() == [False, False, True, True]
    np.testing.assert_allclose(obs(log, "FIC_101_SP"), [50, 50, 50, 50.5])
    measured = obs(log, "FIC_101_PV")
    np.testing.assert_allclose(measured[[0, 2, 3]], [51.2, 51.0, 50.9], rtol=1e-6)
    assert log.stamped
    assert log.guessed == ("FIC_101_PV", "FIC_101_OP")
    # Rows in manual count as such although nobody named the column that says so.
    named = read_loop_log(path, loop=LoopTags("F", "FIC-101.PV", "FIC-101.OP"))
    assert named.loops == (LoopTags("F", "FIC_101_PV", "FIC_101_OP", "", "FIC_101_MODE"),)
    np.testing.assert_array_equal(named.datasets[0].mode, log.datasets[0].mode)
    with pytest.raises(InputError, match="column with numbers") as refusal:
        read_loop_log(path, loop=LoopTags("F", "FIC-101.PV", "FIC-101"))
    assert "MODE" not in str(refusal.value)


def test_days_beside_times_are_joined_and_put_in_order(tmp_path: Path) -> None:
    path = tmp_path / "apart.csv"
    path.write_text(APART)
    loop = LoopTags("FIC-1", "FT_1", "FV_1")
    log = read_loop_log(path, loop=loop, measurement_range=(0, 30), output_range=(0, 100))
    assert log.datasets[0].spec.dt == 60.0
    np.testing.assert_allclose(obs(log, "FT_1"), np.arange(11.5, 20.5))
    assert (log.datasets[0].spec.obs[0].low, log.datasets[0].spec.obs[0].high) == (0.0, 30.0)
    assert log.guessed == ()
    assert 'date = "date"' in draft_plant_log(path)


def test_a_table_without_stamps_has_a_row_a_second(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("PV,OP\n" + "".join(f"{i % 7},{50 + i % 5}\n" for i in range(30)))
    log = read_loop_log(path, loop=LoopTags("L", "PV", "OP"))
    assert not log.stamped
    np.testing.assert_allclose(obs(log, "PV"), np.arange(29) % 7)
    with pytest.raises(InputError, match="timestamps"):
        draft_plant_log(path)


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (LoopTags("L", "FT_2", "FV_1"), "did you mean 'FT_1'|FT_1"),
        (None, "name its columns with --pv and --op"),
        (LoopTags("L", "FT_1", "FV_1", "", "FT_1"), "no word for automatic"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, loop: LoopTags | None, words: str) -> None:
    path = tmp_path / "apart.csv"
    path.write_text(APART)
    with pytest.raises(InputError, match=words):
        read_loop_log(path, loop=loop)


def test_a_dataset_shows_its_loops_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    path.write_bytes(MESSY.encode("cp1252"))
    (found,) = loops_of(read_loop_log(path).datasets[0])
    assert found == LoopTags("FIC_101", "FIC_101_PV", "FIC_101_OP", "FIC_101_SP")


def test_rows_without_a_readable_stamp_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    rows = [f"2024-03-01T10:{i:02d}:00,{20 + i},{40 + i}" for i in range(50)]
    rows[20], rows[40] = "#N/A" + rows[20][19:], rows[40][19:]
    path.write_text("\n".join(["time,TIC-1.PV,TIC-1.OP", *rows]) + "\n")
    found = loop_columns(path)
    assert (found.rows, found.unreadable, found.period_s, found.stamped) == (50, 2, 60.0, True)
    log = read_loop_log(path, loop=found.loops[0], period_s=60.0)
    measured = np.arange(20.0, 69.0)
    measured[[20, 40]] = [39.0, 59.0]  # The value before is held, as over every short gap.
    np.testing.assert_allclose(obs(log, "TIC_1_PV"), measured)
    assert 'unreadable = "mask"  # TODO' in draft_plant_log(path)


def test_the_order_of_day_and_month_survives_a_bad_stamp(tmp_path: Path) -> None:
    """Most rows may be read either way; those of the thirteenth and a bad one must not decide."""
    path = tmp_path / "export.csv"
    days = [12] * 60 + [13] * 3
    rows = [f"{d:02d}/03/2024 {i % 24:02d}:{i % 60:02d}:00,{i},1" for i, d in enumerate(days)]
    path.write_text("\n".join(["time,a,b", rows[0], "?,1,1", *rows[1:]]) + "\n")
    assert "%d/%m/%Y" in draft_plant_log(path)


@pytest.mark.parametrize(
    ("head", "scale", "high"),
    [("TIC-1.OP", 1.0, 100.0), ("TIC-1.OP", 0.01, 1.0), ("TIC-1.OP [%]", 0.01, 100.0)],
)
def test_an_output_is_in_percent_or_a_fraction(
    tmp_path: Path, head: str, scale: float, high: float
) -> None:
    path = tmp_path / "export.csv"
    rows = [f"2024-03-01T10:{i:02d}:00,{20 + i},{scale * (i + 2):.2f}" for i in range(50)]
    path.write_text("\n".join([f"time,TIC-1.PV,{head}", *rows]) + "\n")
    log = read_loop_log(path)
    (channel,) = log.datasets[0].spec.action
    assert (channel.low, channel.high) == (0.0, high)


def test_two_columns_of_one_name_are_refused_unless_they_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    head = "time,TIC-1.PV,TIC-1.PV,TIC-1.OP"
    for other in (0, 1):
        rows = [f"2024-03-01T10:{i:02d}:00,{i},{i + other},{i % 7}" for i in range(50)]
        path.write_text("\n".join([head, *rows]) + "\n")
        assert len(loop_columns(path).twins) == other
        if other:
            with pytest.raises(InputError, match="two columns are called"):
                read_loop_log(path)
        second = LoopTags("L", "TIC-1.PV_duplicated_0", "TIC-1.OP")
        log = read_loop_log(path, loop=second)
        assert obs(log, "TIC_1_PV_duplicated_0")[3] == 3 + other
