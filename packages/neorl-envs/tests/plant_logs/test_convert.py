"""Known episodes, written as historians write them, come back exactly or masked."""

import copy
import gzip
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from neorl_core import InputError
from neorl_envs import Dataset, DatasetError, read_dataset, write_dataset
from neorl_envs.plant_logs import _tables as tables
from neorl_envs.plant_logs import convert_log, plant_log_from_dict
from neorl_envs.plant_logs._stamps import Clock

from .conftest import PERIOD, START, WIDE, Tank, stamp, wide_lines


def changed(**tables_of: Any) -> dict[str, Any]:
    """The configuration of the wide export with other keys."""
    values = copy.deepcopy(WIDE)
    for name, table in tables_of.items():
        values[name] = {**values.get(name, {}), **table} if isinstance(table, dict) else table
    return values


def converted(folder: Path, values: dict[str, Any], **options: Any) -> Dataset:
    return convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder, **options)


def known_rows(tank: Tank) -> np.ndarray:
    """Samples that begin a row of which all is known: not the first, and not the last, of each
    of the three stretches (the reward needs the valve one sample before)."""
    return np.r_[1:99, 101:179, 181:239]


def check_known(dataset: Dataset, tank: Tank, rows: np.ndarray) -> None:
    """The unmasked rows are these samples, number by number in float32."""
    columns: Any = dataset.transitions
    used = columns.mask
    assert dataset.time is not None
    np.testing.assert_array_equal(dataset.time[used], tank.at[rows])
    for name, start in (("obs", 0), ("next_obs", 1)):
        expected = np.stack([tank.level[rows + start], tank.setpoint[rows + start]], axis=1)
        np.testing.assert_array_equal(getattr(columns, name)[used], np.float32(expected))
    np.testing.assert_array_equal(columns.action[used, 0], np.float32(tank.valve[rows]))
    reward = -np.abs(tank.level[rows + 1] - tank.setpoint[rows + 1])
    reward -= 0.01 * np.abs(tank.valve[rows] - tank.valve[rows - 1])
    np.testing.assert_allclose(columns.reward[used], reward, rtol=1e-6, atol=1e-7)
    over = np.maximum(tank.level[rows + 1] - 1.2, 0)
    np.testing.assert_allclose(columns.cost[used, 0], over, rtol=1e-6, atol=1e-7)
    assert dataset.mode is not None
    np.testing.assert_array_equal(dataset.mode[used, 0], tank.mode[rows] == "MAN")


def test_a_clean_export_comes_back_exactly(tank: Tank, wide: Path) -> None:
    dataset = converted(wide, WIDE)
    check_known(dataset, tank, known_rows(tank))
    np.testing.assert_array_equal(dataset.episode_lengths, [98, 78, 58])
    assert dataset.transitions.mask is not None
    assert dataset.transitions.mask.all()
    assert not np.asarray(dataset.transitions.terminated).any()
    provenance = dataset.attributes["provenance"]
    assert provenance["files"][0]["name"] == "log.csv"
    assert len(provenance["files"][0]["sha256"]) == 64
    assert provenance["configuration"]["tag"][0]["tag"] == "LI-1.PV"
    again = read_dataset(write_dataset(wide / "log.h5", dataset))
    assert again.content_hash == dataset.content_hash
    assert again.attributes == dataset.attributes


def test_terms_of_the_reward_are_columns_with_names_units_and_worth(
    tank: Tank, wide: Path, tmp_path: Path
) -> None:
    terms = [
        {
            "name": "deviation",
            "expression": "abs(level - setpoint) / 60",
            "unit": "m h",
            "worth": -60.0,
        },
        {"name": "travel", "expression": "abs(valve - before_valve)", "unit": "%", "worth": -0.01},
        {"name": "volume", "expression": "level / (level - level)", "unit": "m3"},
    ]
    values = changed(term=terms)
    dataset = converted(wide, values)
    used, amounts = np.asarray(dataset.transitions.mask), np.asarray(dataset.term)
    named = [{key: term[key] for key in ("name", "unit")} for term in terms]
    worth = [-60.0, -0.01, 0.0]
    assert dataset.attributes["terms"] == [
        {**one, "worth": each} for one, each in zip(named, worth, strict=True)
    ]
    assert used.any()
    assert np.isnan(amounts[:, 2]).all(), "an amount that is no number is unknown, no row masked"
    np.testing.assert_allclose(
        amounts[used, :2] @ worth[:2], dataset.transitions.reward[used], rtol=1e-5, atol=1e-6
    )
    path = write_dataset(tmp_path / "log.h5", dataset)
    np.testing.assert_array_equal(read_dataset(path).term, amounts)
    without = converted(wide, WIDE)
    np.testing.assert_array_equal(without.transitions.mask, used)
    assert without.term is None
    for wrong, message in (
        ({"worth": math.inf}, "worth must be a number"),
        ({"name": "travel"}, "two terms are called 'travel'"),
        ({"expression": "abs(levle)"}, "term 'deviation': 'abs(levle)' uses 'levle'"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            converted(wide, changed(term=[{**terms[0], **wrong}, *terms[1:]]))


def test_constraints_of_the_file_go_with_the_dataset(tank: Tank, wide: Path) -> None:
    tables = [
        {"kind": "rate", "channel": "valve", "up": 2.0, "down": float("inf")},
        {"kind": "sum", "sum": {"valve": 1.0}, "at_most": 90},
    ]
    dataset = converted(wide, changed(constraint=tables))
    assert dataset.attributes["constraints"] == [
        {"kind": "rate", "channel": "valve", "up": 2.0},  # one that is missing means no limit
        tables[1],
    ]
    assert read_dataset(write_dataset(wide / "log.h5", dataset)).attributes == dataset.attributes
    with pytest.raises(InputError, match="constraint must be a list"):
        converted(wide, changed(constraint=3))


def test_the_size_of_blocks_decides_nothing(
    tank: Tank, wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = converted(wide, WIDE)
    monkeypatch.setattr(tables, "BLOCK", 7)
    monkeypatch.setattr("neorl_envs.plant_logs._timeline.MERGE_AT", 50)
    assert converted(wide, WIDE).content_hash == whole.content_hash


LONG = {
    "log": {
        "files": ["a.csv.gz", "b.parquet"],
        "layout": "long",
        "quality_column": "quality",
        "unit_column": "unit",
        "time_zone": "Europe/Vienna",
    }
}


def test_a_messy_export_comes_back_or_is_masked(tank: Tank, tmp_path: Path) -> None:
    """Two files, long, shuffled, with repeated rows, two units, bad qualities and text."""
    random = np.random.default_rng(8)
    names = {"LI-1.PV": tank.level, "LC-1.SP": tank.setpoint, "LC-1.OP": tank.valve}
    rows = [
        [stamp(t, "Europe/Vienna"), tag, str(value), "Good", ""]
        for tag, values in {**names, "LC-1.MODE": tank.mode}.items()
        for t, value in zip(tank.at, values, strict=True)
    ]
    for row in rows:
        row[4] = {"LI-1.PV": "m", "LC-1.SP": "m", "LC-1.OP": "%"}.get(row[1], "")
    for i in range(0, 240, 3):  # every third level in centimetres
        rows[i][2:] = [str(tank.level[i] * 100), "Good", "cm"]
    bad = np.array([20, 21, 60, 150])
    for i in bad:
        rows[i][2:4] = ["9999", "Bad"]
    rows[205][2] = "No Data"
    rows[480 + 120][2] = ""  # a valve position
    rows += [rows[i] for i in random.integers(0, 200, 40) if i not in bad]
    rows += [[stamp(tank.at[5]), "XI-9.PV", "1", "Good", "m"]]
    random.shuffle(rows)
    table = pl.DataFrame(rows, schema=["time", "tag", "value", "quality", "unit"], orient="row")
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(table[:500].write_csv().encode())
    table[500:].write_parquet(tmp_path / "b.parquet")
    values = changed(**LONG)
    values["tag"][0]["conversions"] = {"cm": [0.01, 0.0]}
    values["sampling"]["largest_gap_s"] = 1  # less than a period: nothing older is held
    for tag in values["tag"][:3]:
        tag["largest_gap_s"] = 0
    dataset = converted(tmp_path, values)
    # A value held for one period stands in for one bad sample; that of two bad ones does not.
    held = Tank(tank.at, *(a.copy() for a in (tank.level, tank.setpoint, tank.valve, tank.mode)))
    for i, column in ((20, held.level), (60, held.level), (150, held.level), (205, held.level)):
        column[i] = column[i - 1]
    held.valve[120] = held.valve[119]
    gone = {20, 21}  # rows that begin or end at sample 21
    check_known(dataset, held, np.array([r for r in known_rows(tank) if r not in gone]))
    columns: Any = dataset.transitions
    masked = np.flatnonzero(~columns.mask)
    np.testing.assert_array_equal(dataset.time[masked], tank.at[sorted(gone)])
    assert np.isnan(columns.obs[masked[1], 0])
    assert np.isnan(columns.next_obs[masked[0], 0])
    counted = dataset.attributes["ingestion"]
    assert counted["tags"]["level"] == {"bad quality": 4, "missing": 1}
    assert counted["tags"]["valve"] == {"missing": 1}
    assert counted["unknown_tags"] == ["XI-9.PV"]
    assert counted["repeated"] > 0
    assert counted["out_of_order"] > 100
    assert counted["offsets_from_utc"] == ["+00:00", "+01:00"]


def test_two_values_of_one_stamp_are_no_value(tank: Tank, wide: Path) -> None:
    text = (wide / "log.csv").read_text()
    other = f"{stamp(tank.at[50])},0.5,1.25,{tank.valve[50]},AUTO\n"
    (wide / "log.csv").write_text(text + other + other)
    dataset = converted(wide, WIDE)
    assert dataset.attributes["ingestion"]["tags"]["level"]["contradicting"] == 1
    columns: Any = dataset.transitions
    assert dataset.time is not None
    np.testing.assert_array_equal(dataset.time[~columns.mask], tank.at[[49, 50]])


def test_tags_of_several_rates_are_put_on_one_grid(tmp_path: Path) -> None:
    """A valve every second, a level every two, a laboratory value every ten: NumPy's own lines."""
    seconds = np.arange(START, START + 120)
    random = np.random.default_rng(2)
    valve, level = random.uniform(0, 100, 120), random.uniform(0, 2, 60)
    lines = ["time,valve,level,lab"]
    for i, t in enumerate(seconds):
        values = [valve[i], level[i // 2] if i % 2 == 0 else "", i if i % 10 == 0 else ""]
        lines.append(",".join(map(str, [t, *values])))
    (tmp_path / "log.csv").write_text("\n".join(lines))
    values = {
        "name": "mixed",
        "log": {"files": ["*.csv"], "timestamp": "time", "timestamp_format": "epoch_s"},
        "sampling": {"period_s": 3.0, "largest_gap_s": 3.0},
        "episodes": {"gap_s": 60},
        "reward": {"expression": "lab"},
        "tag": [
            {"name": "level", "role": "observation", "low": 0, "high": 2, "fill": "interpolate"},
            {"name": "valve", "role": "manipulated", "low": 0, "high": 100},
            {
                "name": "lab",
                "role": "auxiliary",
                "fill": "interpolate",
                "largest_gap_s": 10,
                "delay_s": 6,
            },
        ],
    }
    dataset = converted(tmp_path, values)
    assert dataset.time is not None
    columns: Any = dataset.transitions
    rows = (dataset.time - START).astype(int)
    assert set(np.diff(rows)) == {3}
    at = rows[columns.mask]
    expected = np.interp(at, np.arange(0, 120, 2), level)
    np.testing.assert_allclose(columns.obs[columns.mask, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(columns.action[columns.mask, 0], np.float32(valve[at]))
    # The step leads to three seconds later, and what was done then is measured six later still.
    np.testing.assert_allclose(columns.reward[columns.mask], at + 9, rtol=1e-6)
    assert len(at) > 30


AUTUMN = 1_729_985_400 + 240  # 2024-10-27 01:34 local, an hour and a half before the clocks go back


def autumn(tank: Tank) -> Tank:
    tank.at = AUTUMN + PERIOD * np.arange(240)
    return tank


@pytest.mark.parametrize("how", ["order", "earliest", "latest", "mask", "refuse"])
def test_the_hour_that_daylight_saving_repeats(tank: Tank, tmp_path: Path, how: str) -> None:
    tank = autumn(tank)
    lines = wide_lines(tank, zone="Europe/Vienna", how="%d.%m.%Y %H:%M:%S")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = {"timestamp_format": "%d.%m.%Y %H:%M:%S", "time_zone": "Europe/Vienna", "ambiguous": how}
    values = changed(log=log)
    if how == "refuse":
        message = r"log.csv: column 'time', row 28: .*clocks pass it twice: set log.ambiguous"
        with pytest.raises(DatasetError, match=message):
            converted(tmp_path, values)
        return
    dataset = converted(tmp_path, values)
    counted = dataset.attributes["ingestion"]
    assert counted["in_a_repeated_hour"] == 120
    hours = [tuple(one.values())[:3] for one in counted.get("repeated_hours", ())]
    begin, end = "2024-10-27 02:00:00", "2024-10-27 02:59:00"
    assert hours == ([] if how == "order" else [(begin, end, 120 if how == "mask" else 60)])
    if how == "order":
        rows = np.arange(1, 239)
        check_known(dataset, tank, rows)
    elif how == "mask":
        np.testing.assert_array_equal(dataset.episode_lengths, [24, 92])
    else:  # both hours on one: their values contradict, and the other hour is a gap
        assert counted["tags"]["level"]["contradicting"] == 60
        assert dataset.n_rows < 180


@pytest.mark.parametrize("minutes", [1, 30, 60])
def test_both_passes_of_the_repeated_hour_are_read_at_every_interval(minutes: int) -> None:
    """The oracle is the zone's own conversion to local time; one row is there twice.

    At every minute it is one of the repeated hour, which is no jump of the clock.
    """
    at = np.arange(1_729_980_000, 1_730_005_200, 60 * minutes)
    seen = [f"{datetime.fromtimestamp(t, ZoneInfo('Europe/Vienna')):%Y-%m-%d %H:%M:%S}" for t in at]
    twice = 130 if minutes == 1 else 1
    seen.insert(twice, seen[twice])
    values = changed(log={"time_zone": "Europe/Vienna", "ambiguous": "order"})
    clock = Clock(plant_log_from_dict(values, "plant.toml").log, "log.csv")
    stamps = clock.nanoseconds(pl.Series(seen), pl.Series(range(len(seen))))
    np.testing.assert_array_equal(stamps.to_numpy() // 10**9, np.insert(at, twice, at[twice]))


def test_a_time_that_the_clocks_skip_is_refused(tank: Tank, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "\n".join(["time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE", "2024-03-31 02:30:00,1,1,50,AUTO"])
    )
    with pytest.raises(DatasetError, match=r"row 2: .* in Europe/Vienna, whose clocks skip it"):
        converted(tmp_path, changed(log={"time_zone": "Europe/Vienna"}))


def test_trips_shutdowns_batches_modes_and_lengths(tank: Tank, tmp_path: Path) -> None:
    n = 200
    tank.at = START + PERIOD * np.arange(240)
    lines = wide_lines(tank)[: n + 1]
    lines[0] += ",batch,power"
    batch = np.where(np.arange(n) < 60, "A", np.where(np.arange(n) < 70, "", "B"))
    power = np.where((np.arange(n) >= 150) & (np.arange(n) < 160), 0, 1)
    lines[1:] = [f"{line},{b},{p}" for line, b, p in zip(lines[1:], batch, power, strict=True)]
    lines[1 + 180] = lines[1 + 180].replace(f",{tank.level[180]},", ",1.95,")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    episodes = {"running": "power > 0.5", "trip": "level > 1.9"}
    values = changed(episodes=episodes, reward={"expression": "level"})
    values["tag"] += [
        {"name": "batch", "role": "batch", "largest_gap_s": 1},
        {"name": "power", "role": "auxiliary"},
    ]
    dataset = converted(tmp_path, values)
    columns: Any = dataset.transitions
    # Batch A of 60 samples; B from 70 to the power cut, from 160 to the trip at 180, and behind it.
    np.testing.assert_array_equal(dataset.episode_lengths, [60 - 0, 79, 20, 18])
    terminated = np.flatnonzero(columns.terminated)
    assert dataset.time is not None
    np.testing.assert_array_equal(dataset.time[terminated], tank.at[[179]])
    np.testing.assert_allclose(columns.next_obs[terminated[0], 0], 1.95)
    assert columns.mask.all()
    cut = converted(tmp_path, {**values, "episodes": {**values["episodes"], "length": 25}})
    np.testing.assert_array_equal(cut.episode_lengths, [25, 25, 10, 25, 25, 25, 4, 20, 18])
    modes = converted(tmp_path, {**values, "episodes": {**values["episodes"], "mode_change": True}})
    np.testing.assert_array_equal(modes.episode_lengths[:3], [30, 10, 20])
    manual = converted(tmp_path, {**values, "episodes": {**values["episodes"], "manual": "mask"}})
    assert int((~np.asarray(manual.transitions.mask)).sum()) == 10


def test_history_is_stacked_within_an_episode(tank: Tank, wide: Path) -> None:
    values = changed(history={"steps": 3, "actions": True}, reward={"expression": "level"})
    dataset = converted(wide, values)
    names = [channel.name for channel in dataset.spec.obs]
    assert names == [
        *("level", "setpoint", "level[-1]", "setpoint[-1]", "valve[-1]"),
        *("level[-2]", "setpoint[-2]", "valve[-2]"),
    ]
    columns: Any = dataset.transitions
    np.testing.assert_array_equal(dataset.episode_lengths, [97, 77, 57])
    rows = np.r_[2:99, 102:179, 182:239]
    expected = [tank.level[rows], tank.setpoint[rows]]
    for back in (1, 2):
        expected += [tank.level[rows - back], tank.setpoint[rows - back], tank.valve[rows - back]]
    np.testing.assert_array_equal(columns.obs, np.float32(np.stack(expected, axis=1)))


def test_an_end_of_the_range_that_float32_rounded_is_inside(wide: Path) -> None:
    """A historian writes float32 numbers with nine digits; some lie above the declared end."""
    header, *lines = (wide / "log.csv").read_text().splitlines()
    column = header.split(",").index("LI-1.PV")
    written = {3: "1.40000001", 4: "1.40000010", 5: "-0.0000001", 6: "1.40001"}
    for row, text in written.items():
        cells = lines[row].split(",")
        cells[column] = text
        lines[row] = ",".join(cells)
    (wide / "log.csv").write_text("\n".join([header, *lines]) + "\n")
    values = changed()
    values["tag"][0] |= {"low": 0.0, "high": 1.4, "largest_gap_s": 0}
    dataset = converted(wide, {**values, "reward": {"expression": "level"}, "cost": []})
    columns: Any = dataset.transitions
    level = columns.obs[:, 0]
    assert np.nanmax(level) == np.float32(1.4)
    assert np.nanmin(level) == 0.0
    assert dataset.attributes["ingestion"]["tags"]["level"] == {"outside the range": 1}


def test_values_outside_the_range_are_missing(tank: Tank, wide: Path) -> None:
    values = changed()
    values["tag"][0] |= {"high": 120, "factor": 100.0, "unit": "cm", "largest_gap_s": 0}
    dataset = converted(wide, {**values, "reward": {"expression": "level"}, "cost": []})
    outside = int((tank.level * 100 > 120).sum())
    assert dataset.attributes["ingestion"]["tags"]["level"]["outside the range"] == outside > 20
    columns: Any = dataset.transitions
    assert np.nanmax(columns.obs[:, 0]) <= 120
    assert not columns.mask.all()
    assert math.isfinite(float(columns.reward[columns.mask].sum()))
