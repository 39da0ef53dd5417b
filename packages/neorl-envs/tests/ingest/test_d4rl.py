from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neorl_envs import DatasetError, read_dataset


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
