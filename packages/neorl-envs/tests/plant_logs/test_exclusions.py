"""Periods that ``plant.toml`` leaves out: no row of them, an end of an episode, and a count."""

import copy
import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import Dataset
from neorl_envs.plant_logs import convert_log, plant_log_from_dict
from neorl_envs.plant_logs._configuration_file import plain

from .conftest import PERIOD, START, WIDE, Tank, stamp, toml_of, wide_lines


def excluding(*periods: tuple[Any, Any], **tables: Any) -> dict[str, Any]:
    """The configuration of the wide export without some periods."""
    values = copy.deepcopy(WIDE)
    for name, table in tables.items():
        values[name] = {**values[name], **table}
    values["exclude"] = [{"from": a, "to": b, "reason": "pump overhaul"} for a, b in periods]
    return values


def at(tank: Tank, sample: int) -> str:
    return stamp(int(tank.at[sample]))


def converted(folder: Path, values: dict[str, Any], **options: Any) -> Dataset:
    return convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder, **options)


def test_an_excluded_period_is_as_if_nothing_had_been_recorded(tank: Tank, wide: Path) -> None:
    """Longer than the gap that ends an episode, with tags that hold for one period."""
    values = excluding((at(tank, 50), at(tank, 70)))
    dataset = converted(wide, values)
    lines = wide_lines(tank)
    (wide / "log.csv").write_text("\n".join([*lines[:51], *lines[71:]]) + "\n")
    without = converted(wide, WIDE)
    np.testing.assert_array_equal(dataset.episode_lengths, without.episode_lengths)
    for name, column in dataset.columns():
        np.testing.assert_array_equal(column, dict(without.columns())[name], err_msg=name)
    np.testing.assert_array_equal(dataset.episode_lengths, [48, 28, 78, 58])
    assert dataset.attributes["ingestion"]["excluded"] == [
        {
            "from": at(tank, 50),
            "to": at(tank, 70),
            "reason": "pump overhaul",
            "rows": 21,  # with the one that leads into the period
        }
    ]
    assert dataset.attributes["ingestion"]["rows"]["excluded by plant.toml"] == 21


def test_one_excluded_sample_ends_an_episode_and_is_in_no_expression(
    tank: Tank, wide: Path
) -> None:
    values = excluding((at(tank, 60), at(tank, 61)))
    values["tag"][0]["delay_s"] = 2 * PERIOD
    dataset = converted(wide, values)
    rows: Any = dataset.transitions
    assert dataset.time is not None
    used = dataset.time[np.asarray(rows.mask)]
    left = set(tank.at[1:97].tolist()) - set(used.tolist())
    # The reward of a step looks at the level two periods after its end, and at the last valve.
    assert left == {int(tank.at[sample]) for sample in (57, 59, 60, 61)}
    ends = np.flatnonzero(np.asarray(rows.truncated))
    assert tank.at[58] in dataset.time[ends]


def test_memory_and_time_zones_change_nothing(tank: Tank, wide: Path) -> None:
    """Times without an offset are local, as the stamps of the log are."""
    begin, end = (
        dt.datetime.fromtimestamp(int(tank.at[sample]), dt.timezone(dt.timedelta(hours=1)))
        for sample in (120, 150)
    )
    local = {"time_zone": "Europe/Vienna"}
    whole = converted(wide, excluding((at(tank, 120), at(tank, 150)), log=local))
    for pair in (
        (begin.strftime("%Y-%m-%d %H:%M"), end.strftime("%Y-%m-%d %H:%M")),
        (begin.replace(tzinfo=None), end.replace(tzinfo=None)),  # as TOML without quotes
    ):
        values = excluding(pair, log=local)
        for options in ({}, {"memory": 1.0}):
            again = converted(wide, values, **options)
            assert again.content_hash == whole.content_hash
    config = plant_log_from_dict(values, "plant.toml")
    # As text, in which the gap that no tag sets, NaN, is equal to itself.
    assert repr(plant_log_from_dict(plain(config), "again")) == repr(config)


def test_what_ran_before_and_after_is_judged_without_the_period(tank: Tank, wide: Path) -> None:
    """A condition that looks back over the end of a period is unknown, as behind a gap."""
    values = excluding((at(tank, 50), at(tank, 55)), episodes={"running": "before_level > 0"})
    dataset = converted(wide, values)
    assert dataset.time is not None
    left = set(tank.at[2:99].tolist()) - set(dataset.time.tolist())
    assert left == set(tank.at[49:56].tolist())
    (one,) = dataset.attributes["ingestion"]["excluded"]
    assert one["rows"] == 6


def test_the_commands_say_what_was_left_out_and_why(command: Any, tank: Tank, wide: Path) -> None:
    period = f'\n[[exclude]]\nfrom = "{at(tank, 50)}"\nto = "{at(tank, 70)}"\n'
    text = toml_of(WIDE) + period + 'reason = "level sensor failed"\n'
    (wide / "plant.toml").write_text(text)
    words = f"excluded: 21 rows from {at(tank, 50)} to {at(tank, 70)}: level sensor failed"
    assert words in command("convert", "plant.toml", "--out", "tank.h5").splitlines()
    assert words in command("inspect", "tank.h5")


DAY = dt.datetime.fromtimestamp(START, dt.UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        (
            [("2020-01-01 08:00", "2020-01-02 08:00")],
            r"\[\[exclude\]\] from 2020-01-01 08:00 to 2020-01-02 08:00 \(pump overhaul\): the log "
            rf"has no row in it; its rows reach from {DAY}",
        ),
        (
            [(f"{DAY} 23:00", f"{DAY} 23:00")],
            rf"\[\[exclude\]\] from {DAY} 23:00 to {DAY} 23:00 .*from must be before to",
        ),
        ([(f"{DAY} 23:00", f"{DAY} 22:00")], "from must be before to"),
        ([("yesterday", f"{DAY} 22:00")], "from: cannot read 'yesterday'; write it as 2026-03-01"),
        (
            [(f"{DAY} 22:00", f"{DAY} 23:00"), (f"{DAY} 21:00", f"{DAY} 22:01")],
            rf"from {DAY} 22:00 to .* overlaps from {DAY} 21:00 .*; write one period for both",
        ),
        (
            [("2023-10-29 02:30", "2023-10-29 05:00")],
            "2023-10-29 02:30:00 is ambiguous or does not exist in Europe/Vienna",
        ),
    ],
)
def test_a_period_that_cannot_be_meant_is_refused(
    wide: Path, periods: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        converted(wide, excluding(*periods, log={"time_zone": "Europe/Vienna"}))


def test_a_period_needs_a_reason() -> None:
    values = excluding((f"{DAY} 22:00", f"{DAY} 23:00"))
    del values["exclude"][0]["reason"]
    with pytest.raises(InputError, match=r"plant.toml: exclude.*reason is missing"):
        plant_log_from_dict(values, "plant.toml")
