from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neorl_envs import DatasetError, read_dataset, write_dataset


@pytest.fixture
def d4rl(toy_columns: dict, tmp_path: Path) -> Path:
    names = {"obs": "observations", "action": "actions", "reward": "rewards"}
    names |= {"terminated": "terminals", "truncated": "timeouts", "next_obs": "next_observations"}
    with h5py.File(tmp_path / "d4rl.h5", "w") as file:
        for ours, theirs in names.items():
            file[theirs] = toy_columns[ours]
    return tmp_path / "d4rl.h5"


def test_d4rl_rules(d4rl: Path, toy_columns: dict) -> None:
    rows: Any = read_dataset(d4rl).transitions
    np.testing.assert_array_equal(rows.truncated, toy_columns["truncated"])
    np.testing.assert_array_equal(rows.next_obs, np.float32(toy_columns["next_obs"]))
    assert rows.mask.all()


def test_d4rl_without_next_observations_masks_what_it_cannot_know(d4rl: Path) -> None:
    with h5py.File(d4rl, "r+") as file:
        del file["next_observations"]
        del file["timeouts"]
    rows: Any = read_dataset(d4rl).transitions
    np.testing.assert_array_equal(rows.truncated, [0, 0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(rows.mask, [1, 1, 1, 1, 1, 1, 1, 0])
    inside = [0, 1, 4, 5, 6]
    np.testing.assert_array_equal(rows.next_obs[inside], rows.obs[np.add(inside, 1)])
    np.testing.assert_array_equal(rows.next_obs[[2, 3, 7]], rows.obs[[2, 3, 7]])


def test_d4rl_that_does_not_fit(d4rl: Path) -> None:
    with h5py.File(d4rl, "r+") as file:
        del file["next_observations"]
        del file["terminals"]
        file["terminals"] = np.zeros(5)
        del file["timeouts"]
    with pytest.raises(DatasetError, match=r"'terminals': expected shape \(8,\) like the reward"):
        read_dataset(d4rl)


def test_d4rl_with_missing_observations(d4rl: Path) -> None:
    with h5py.File(d4rl, "r+") as file:
        obs = file["observations"][:5]
        del file["next_observations"]
        del file["observations"]
        file["observations"] = obs
    with pytest.raises(DatasetError, match=r"'observations': expected 8 rows .* got shape \(5, 2"):
        read_dataset(d4rl)


def nested(path: Path, toy_columns: dict) -> Path:
    """The toy log with dictionaries of observations, as of a robot with several sensors."""
    with h5py.File(path, "w") as file:
        for name, column in (
            ("observations", toy_columns["obs"]),
            ("next_observations", toy_columns["next_obs"]),
        ):
            file[f"{name}/tank/level"] = column[:, 0]
            file[f"{name}/jacket"] = np.stack([column[:, 1], -column[:, 1]], axis=1)
        file["actions/valve"] = toy_columns["action"][:, 0]
        file["rewards"] = toy_columns["reward"]
        file["terminals"] = toy_columns["terminated"]
        file["timeouts"] = toy_columns["truncated"]
    return path


def test_dictionaries_of_observations_become_channels_with_dotted_names(
    tmp_path: Path, toy_columns: dict
) -> None:
    dataset = read_dataset(nested(tmp_path / "robot.h5", toy_columns))
    rows: Any = dataset.transitions
    assert [c.name for c in dataset.spec.obs] == ["jacket.0", "jacket.1", "tank.level"]
    assert [c.name for c in dataset.spec.action] == ["valve"]
    level, jacket = toy_columns["obs"].T
    np.testing.assert_array_equal(rows.obs, np.float32([jacket, -jacket, level]).T)
    assert (rows.next_obs[:, 2] == np.float32(toy_columns["next_obs"][:, 0])).all()
    assert dataset.attributes["inferred"] == "units ('?'), ranges, period (1 s) and horizon"
    # Written as the dataset file it keeps the names.
    again = read_dataset(write_dataset(tmp_path / "flat.h5", dataset))
    assert again.spec == dataset.spec


def test_nested_observations_that_do_not_fit(tmp_path: Path, toy_columns: dict) -> None:
    path = nested(tmp_path / "robot.h5", toy_columns)
    with h5py.File(path, "r+") as file:
        file.move("next_observations/jacket", "next_observations/shell")
    with pytest.raises(DatasetError, match=r"'next_observations': expected the channels of 'obs"):
        read_dataset(path)
    with h5py.File(path, "r+") as file:
        file.move("next_observations/shell", "next_observations/jacket")
        file["observations/self"] = file["observations"]  # a group that holds itself
    with pytest.raises(DatasetError, match="groups lie more than 16 deep in one another"):
        read_dataset(path)
    with h5py.File(path, "r+") as file:
        del file["observations/self"]
        del file["rewards"]
        file["rewards/sum"] = np.zeros(8)
    with pytest.raises(DatasetError, match="column 'rewards': expected an array, got a group"):
        read_dataset(path)
