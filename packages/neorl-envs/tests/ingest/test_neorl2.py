from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_envs import DatasetError, read_dataset


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
    "objects": (("obs", np.array([None] * 8)), "'obs': expected numbers, got Python objects"),
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
