"""Other people's layouts, read by the stated rules."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from neorl_core.testing import shared_data
from neorl_envs import DatasetError, read_dataset, write_dataset
from neorl_envs.inspection import dataset_report


def test_neorl2_rules(toy_npz: Path, toy_columns: dict) -> None:
    dataset = read_dataset(toy_npz)
    rows: Any = dataset.transitions
    np.testing.assert_array_equal(rows.terminated, toy_columns["terminated"])
    np.testing.assert_array_equal(rows.truncated, toy_columns["truncated"])
    np.testing.assert_array_equal(rows.next_obs, np.float32(toy_columns["next_obs"]))
    assert rows.cost.shape == (8, 0)
    assert rows.next_action[2] == rows.next_action[3] == rows.next_action[7] == 0
    spec = dataset.spec
    assert [c.name for c in spec.obs] == ["obs_0", "obs_1"]
    assert [(c.unit, c.low, c.high) for c in spec.action] == [("?", 5.0, 75.0)]
    assert (spec.obs[1].low, spec.obs[1].high) == (300.0, 307.0)
    assert (spec.dt, spec.horizon, spec.cost) == (1.0, 4, ())
    assert "CC-BY-4.0" in dataset.attributes["attribution"]
    with pytest.raises(DatasetError, match="only the dataset file can be mapped; convert it once"):
        read_dataset(toy_npz, memory_map=True)


NPZ = {
    "no truncated": (("truncated", None), "expected the keys of NeoRL-2 .*; 'truncated' is miss"),
    "half a flag": (("done", np.full(8, 0.5)), "column 'done', row 0: expected 0 or 1, got 0.5"),
    "short obs": (("obs", np.zeros((5, 2))), r"column 'obs': expected shape \(8, 2\), got \(5, 2"),
    "flat obs": (("obs", np.zeros(8)), r"column 'obs': expected 2 axes, got shape \(8,\)"),
    "NaN": (("reward", np.full(8, np.nan)), "column 'reward', row 0: expected a finite number"),
    "flags": (
        ("done", np.zeros(7)),
        r"column 'done': expected shape \(8,\) like the reward, got \(7,\)",
    ),
    "objects": (("obs", np.array([None] * 8)), "expected a complete .npz of plain arrays"),
}


@pytest.mark.parametrize("case", NPZ)
def test_npz_that_does_not_fit(toy_npz: Path, case: str) -> None:
    (key, value), message = NPZ[case]
    with np.load(toy_npz) as archive:
        arrays = dict(archive)
    arrays.pop(key)
    np.savez(toy_npz, **arrays, **({} if value is None else {key: value}))
    with pytest.raises(DatasetError, match=message) as caught:
        read_dataset(toy_npz)
    assert str(toy_npz) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_without_rows(toy_npz: Path) -> None:
    with np.load(toy_npz) as archive:
        empty = {key: array[:0] for key, array in archive.items()}
    np.savez(toy_npz, **empty)
    with pytest.raises(DatasetError, match="the dataset is empty; expected at least one row"):
        read_dataset(toy_npz)


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


FACTS = {
    # rows, episodes, shortest, longest, terminated, truncated, mean return
    "DMSD-high-100000-train": (100_000, 1000, 100, 100, 0, 1000, 494.45),
    "DMSD-high-20000-val": (20_000, 200, 100, 100, 0, 200, None),
    "Simglucose-high-100000-train": (100_257, 280, 28, 480, 111, 169, None),
    "Simglucose-high-20000-val": (20_018, 62, None, 480, 30, 32, None),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_the_shared_data(name: str, tmp_path: Path) -> None:
    rows, episodes, shortest, longest, terminated, truncated, mean = FACTS[name]
    dataset = read_dataset(shared_data("neorl2", f"{name}.npz"))
    report = dataset_report(dataset)
    assert (report["rows"], report["episodes"]) == (rows, episodes)
    assert (report["terminated"], report["truncated"]) == (terminated, truncated)
    lengths = report["episode_length"]
    assert lengths["max"] == longest
    assert shortest is None or lengths["min"] == shortest
    assert mean is None or round(report["episode_return"]["mean"], 2) == mean
    assert [(c.low, c.high) for c in dataset.spec.action] == [(-1.0, 1.0)] * dataset.spec.n_action
    # Converted once, it is the same data.
    converted = read_dataset(write_dataset(tmp_path / "converted.h5", dataset), memory_map=True)
    assert converted.content_hash == dataset.content_hash
    assert converted.attributes["attribution"] == dataset.attributes["attribution"]


def test_the_report_of_dmsd_says_that_nothing_terminated() -> None:
    report = dataset_report(read_dataset(shared_data("neorl2", "DMSD-high-100000-train.npz")))
    assert (len(report["obs"]), len(report["action"])) == (6, 2)
    assert "no row is terminated: a log without a single trip is valid" in report["notes"]
    assert report["duplicate_rows"] == 0


def test_the_report_of_simglucose_finds_what_is_known_of_it() -> None:
    dataset = read_dataset(shared_data("neorl2", "Simglucose-high-100000-train.npz"))
    report = dataset_report(dataset)
    assert report["duplicate_rows"] == 145
    assert report["action"][0]["saturated"] == pytest.approx(0.82, abs=0.005)
    # Four channels never move. The list of facts counts the two whose deviation is also zero, to
    # 1e-6, when it is added up in float32.
    constant = [i for i, channel in enumerate(report["obs"]) if channel["constant"]]
    assert constant == [2, 10, 17, 18]
    assert sum(np.asarray(dataset.transitions.obs).std(axis=0) < 1e-6) == 2
