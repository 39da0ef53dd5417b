"""A tag that says who ran the plant becomes the behaviour of every episode."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import Dataset, read_dataset
from neorl_envs.inspection import dataset_report
from neorl_envs.plant_logs import convert_file, convert_log, plant_log_from_dict

from .conftest import PERIOD, WIDE, Tank, stamp, toml_of, wide_lines

CREW = {"name": "crew", "tag": "CREW", "role": "behaviour"}


def with_crews(tank: Tank, folder: Path, crews: Any, **tag: Any) -> dict[str, Any]:
    """The wide export with one more column, and its configuration."""
    head, *rows = wide_lines(tank)
    lines = [f"{head},CREW", *(f"{row},{crew}" for row, crew in zip(rows, crews, strict=True))]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    values = copy.deepcopy(WIDE)
    values["tag"].append({**CREW, **tag})
    return values


def converted(folder: Path, values: dict[str, Any], **options: Any) -> Dataset:
    return convert_log(plant_log_from_dict(values, "plant.toml"), folder=folder, **options)


def crews_of_episodes(dataset: Dataset) -> list[str]:
    names = dataset.attributes["behaviours"]
    return [names[index] for index in np.asarray(dataset.behaviour)]


def rotating(tank: Tank) -> np.ndarray:
    """Three crews in turns of 35 samples, beginning with the last in the alphabet."""
    return np.array(["C", "A", "B"])[np.arange(len(tank.at)) // 35 % 3]


@pytest.mark.parametrize("numbers", [False, True])
def test_an_episode_ends_where_another_crew_takes_over(
    tank: Tank, wide: Path, *, numbers: bool
) -> None:
    """No row is lost at the change: the plant goes on, and the last row has its true successor."""
    crews = rotating(tank)
    crews = np.where(crews == "A", 1, np.where(crews == "B", 20, 3)) if numbers else crews
    values = with_crews(tank, wide, crews)
    dataset = converted(wide, values)
    plain = copy.deepcopy(values)
    plain["tag"].pop()
    without: Any = converted(wide, plain)
    np.testing.assert_array_equal(dataset.transitions.obs, without.transitions.obs)
    np.testing.assert_array_equal(dataset.transitions.next_obs, without.transitions.next_obs)
    starts = np.asarray(dataset.episode_starts)
    sample = np.searchsorted(tank.at, np.asarray(dataset.time))
    assert crews_of_episodes(dataset) == [str(crew) for crew in crews[sample[starts]]]
    by_row = np.repeat(crews[sample[starts]], dataset.episode_lengths)
    np.testing.assert_array_equal(by_row, crews[sample])
    assert dataset.attributes["behaviours"] == (["3", "1", "20"] if numbers else ["C", "A", "B"])
    assert dataset.n_episodes == 3 + 6  # gaps, and changes of crew elsewhere
    assert without.behaviour is None
    table = dataset_report(dataset)["behaviours"]
    assert sum(row["episodes"] for row in table) == dataset.n_episodes


def test_memory_is_no_part_of_who_ran_the_plant(tank: Tank, wide: Path) -> None:
    """Logged on change, in the long layout, with earlier rows below later ones."""
    values = with_crews(tank, wide, rotating(tank), largest_gap_s=float("inf"))
    lines = [line.split(",") for line in (wide / "log.csv").read_text().splitlines()]
    tags, crews = lines[0][1:], rotating(tank)
    changes = {0, *(np.flatnonzero(crews[1:] != crews[:-1]) + 1)}
    long = [
        f"{row[0]},{tag},{value}"
        for i, row in enumerate(lines[1:])
        for tag, value in zip(tags, row[1:], strict=True)
        if tag != "CREW" or i in changes
    ]
    whole = converted(wide, values)
    (wide / "log.csv").write_text("\n".join(["time,tag,value", *long[::-1]]) + "\n")
    values["log"] |= {"layout": "long", "tag_column": "tag", "value_column": "value"}
    config = plant_log_from_dict(values, "plant.toml")
    again = convert_log(config, folder=wide)
    written = read_dataset(convert_file(config, wide / "log.h5", folder=wide, memory=2e4))
    for dataset in (again, written):
        assert dataset.content_hash == whole.content_hash
        assert crews_of_episodes(dataset) == crews_of_episodes(whole)


def test_missing_names_are_filled_only_if_that_is_declared(tank: Tank, wide: Path) -> None:
    """Held by default, the moves of one crew would be taken for those of the other."""
    crews = np.where(np.arange(240) < 50, "A", np.where(np.arange(240) < 70, "", "B"))
    values = with_crews(tank, wide, crews)
    words = (
        r"^plant\.toml: tag 'crew' \(CREW\) says who ran the plant, and 20 of its values are "
        r"missing; set its largest_gap_s: inf if a name holds until the next one, otherwise .*$"
    )
    with pytest.raises(InputError, match=words):
        converted(wide, values)
    values["tag"][-1]["largest_gap_s"] = float("inf")
    held = converted(wide, values)
    assert crews_of_episodes(held) == ["A", "B", "B", "B"]
    np.testing.assert_array_equal(held.episode_lengths, [69, 29, 78, 58])
    values["tag"][-1]["largest_gap_s"] = PERIOD
    dataset = converted(wide, values)
    assert crews_of_episodes(dataset) == ["A", "B", "B", "B"]
    # A name holds for one period beyond its last sample, which is number 49.
    np.testing.assert_array_equal(dataset.episode_lengths, [50, 29, 78, 58])
    counted = dataset.attributes["ingestion"]["rows"]
    assert counted["left out: behaviour unknown"] == 19


def test_a_tag_that_cannot_say_who_ran_the_plant_is_refused(tank: Tank, wide: Path) -> None:
    values = with_crews(tank, wide, rotating(tank))
    values["tag"][-1]["tag"] = "CREWS"
    with pytest.raises(InputError, match="no column 'CREWS'; did you mean 'CREW'"):
        converted(wide, values)
    values["tag"][-1]["tag"] = "CREW"
    values["tag"].append({"name": "second", "role": "behaviour"})
    with pytest.raises(InputError, match="crew, second have the role 'behaviour'; one tag says"):
        converted(wide, values)
    values = with_crews(tank, wide, [""] * 240, largest_gap_s=float("inf"))
    with pytest.raises(InputError, match=r"no row .* no valid sample of 'crew' \(240 missing\)$"):
        converted(wide, values)


def test_the_commands_suggest_the_role_and_say_who_ran_the_plant(
    command: Any, tank: Tank, wide: Path
) -> None:
    values = with_crews(tank, wide, rotating(tank))
    head = "time,LI-1.PV,LC-1.SP,LC-1.OP,LC-1.MODE"
    text = (wide / "log.csv").read_text().replace(f"{head},CREW", f"{head},Shift")
    rows = [f"{row},pump {number % 97} noisy" for number, row in enumerate(text.splitlines())]
    rows[0] = f"{head},Shift,Shift notes"
    (wide / "log.csv").write_text("\n".join(rows) + "\n")
    command("init", "log.csv")
    drafted = (wide / "plant.toml").read_text()
    assert 'name = "Shift"\nrole = "behaviour"  # TODO who ran the plant' in drafted
    assert '# "Shift notes" holds no numbers' in drafted
    values["tag"][-1]["tag"] = "Shift"
    (wide / "plant.toml").write_text(toml_of(values))
    out = command("convert", "plant.toml", "--out", "tank.h5")
    assert "episodes by who ran the plant: C 3, A 2, B 4" in out.splitlines()
    out = command("inspect", "tank.h5")
    assert "behaviour  episodes" in out
    assert stamp(int(tank.at[0]))[:10] in out
