"""The container: what it derives, what it refuses, what it adds up."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import Dataset, DatasetError
from neorl_envs.datasets import dataset_from_columns


def test_episodes_and_next_actions_are_derived(toy: Dataset) -> None:
    np.testing.assert_array_equal(toy.episode_starts, [0, 3, 4])
    np.testing.assert_array_equal(toy.episode_ends, [3, 4, 8])
    np.testing.assert_array_equal(toy.episode_lengths, [3, 1, 4])
    assert (toy.n_rows, toy.n_episodes) == (8, 3)
    assert toy.episode_starts.dtype == np.int64
    rows: Any = toy.transitions
    np.testing.assert_array_equal(rows.next_action[:, 0], [15, 25, 0, 0, 55, 65, 75, 0])
    assert rows.obs.dtype == rows.reward.dtype == np.float32
    assert rows.mask.all()


def test_the_last_row_of_a_log_is_marked_truncated(toy_spec: Spec, toy_columns: dict) -> None:
    toy_columns["truncated"] = np.zeros(8, np.bool_)
    given = toy_columns["truncated"].copy()
    rows = dataset_from_columns(toy_spec, **toy_columns).transitions
    assert rows.truncated[-1]
    np.testing.assert_array_equal(toy_columns["truncated"], given)  # the caller's array is his


def test_sums_of_episodes_leave_masked_rows_out(toy_spec: Spec, toy_columns: dict) -> None:
    mask = np.array([1, 0, 1, 1, 1, 1, 1, 0], np.bool_)
    dataset = dataset_from_columns(toy_spec, **toy_columns, mask=mask)
    np.testing.assert_allclose(dataset.episode_returns(), [-1 + 1, 2, 3 + 4 + 5])
    np.testing.assert_allclose(dataset.episode_costs()[:, 0], [2 / 16, 3 / 16, 15 / 16])


def test_episodes_side_by_side_repeat_their_own_last_row(toy_spec: Spec, toy_columns: dict) -> None:
    mask = np.array([1, 0, 1, 1, 1, 1, 1, 0], np.bool_)
    dataset = dataset_from_columns(toy_spec, **toy_columns, mask=mask)
    rows, inside = dataset.padded_rows()
    np.testing.assert_array_equal(rows, [[0, 1, 2, 2], [3, 3, 3, 3], [4, 5, 6, 7]])
    np.testing.assert_array_equal(inside, [[1, 0, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    rows, inside = dataset.padded_rows(slice(2))
    np.testing.assert_array_equal(rows, [[0, 1, 2], [3, 3, 3]])
    np.testing.assert_array_equal(inside, [[1, 0, 1], [1, 0, 0]])


def test_selected_episodes_keep_their_rows_and_labels(toy: Dataset) -> None:
    chosen = toy.select_episodes(np.array([2, 0]))
    np.testing.assert_array_equal(chosen.transitions.reward, [3, 4, 5, 6, -1, 0, 1])
    np.testing.assert_array_equal(chosen.episode_starts, [0, 4])
    np.testing.assert_array_equal(chosen.behaviour, [0, 0])
    assert toy.behaviour_log_prob is not None
    np.testing.assert_array_equal(chosen.behaviour_log_prob[:4], toy.behaviour_log_prob[4:])
    for ours, theirs in zip(chosen.episode(0), toy.episode(2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert chosen.content_hash != toy.content_hash
    with pytest.raises(ValueError, match="at least one episode"):
        toy.select_episodes(np.array([], np.int64))


def test_the_hash_is_of_the_data_and_not_of_its_story(toy: Dataset) -> None:
    assert toy.content_hash.startswith("sha256:")
    assert len(toy.content_hash) == 7 + 64
    renamed = dataclasses.replace(toy, attributes={**toy.attributes, "name": "other"})
    assert renamed.content_hash == toy.content_hash
    reward = np.array(toy.transitions.reward)
    reward[3] = np.nextafter(reward[3], np.float32(9))
    nudged = dataclasses.replace(toy, transitions=toy.transitions._replace(reward=reward))
    assert nudged.content_hash != toy.content_hash
    slower = dataclasses.replace(toy, spec=dataclasses.replace(toy.spec, dt=61.0))
    assert slower.content_hash != toy.content_hash


BAD = {
    "empty": (
        {name: slice(0, 0) for name in ("reward", "terminated", "truncated")},
        "dataset is empty; expected at least one row, got 0",
    ),
    "short obs": ({"obs": slice(0, 7)}, r"column 'obs': expected shape \(8, 2\), got \(7, 2\)"),
    "narrow action": (
        {"action": (slice(None), slice(0, 0))},
        r"column 'action': expected shape \(8, 1\), got \(8, 0\)",
    ),
    "flag": ({"terminated": slice(0, 3)}, r"column 'terminated': expected shape \(8,\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_columns_that_disagree_are_refused(toy_spec: Spec, toy_columns: dict, case: str) -> None:
    cuts, message = BAD[case]
    cut = {name: toy_columns[name][rows] for name, rows in cuts.items()}
    with pytest.raises(DatasetError, match=f"^dataset: .*{message}"):
        dataset_from_columns(toy_spec, **{**toy_columns, **cut})


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_a_number_that_is_not_finite_is_named(
    toy_spec: Spec, toy_columns: dict, value: float
) -> None:
    reward = toy_columns["reward"].astype(np.float64)
    reward[5] = value
    message = "column 'reward', row 5: expected a finite number, got (nan|inf)"
    with pytest.raises(DatasetError, match=message):
        dataset_from_columns(toy_spec, **{**toy_columns, "reward": reward}, source="log")
    obs = toy_columns["obs"].astype(np.float64)
    obs[6, 1] = value
    message = r"'obs', row 6, channel 1: .* \(so in 1 of 8 rows\)"
    with pytest.raises(DatasetError, match=message):
        dataset_from_columns(toy_spec, **{**toy_columns, "obs": obs})
    obs[:, 1] = value
    message = r"'obs', row 0, channel 1: .* \(so in 8 of 8 rows\)"
    with pytest.raises(DatasetError, match=message):
        dataset_from_columns(toy_spec, **{**toy_columns, "obs": obs})


def test_a_mask_chooses_episodes_and_odd_indices_are_refused(toy: Dataset) -> None:
    assert toy.behaviour is not None
    chosen = toy.select_episodes(toy.behaviour == 0)
    np.testing.assert_array_equal(chosen.episode_lengths, [3, 4])
    assert chosen.time is not None
    np.testing.assert_array_equal(chosen.time, toy.time[[0, 1, 2, 4, 5, 6, 7]])
    assert chosen.mode is not None
    assert chosen.mode.shape == (7, 1)
    wrong: dict[str, Any] = {
        "integers": [1.7],
        "from 0 to 2, got -1": [-1],
        "from 0 to 2, got 3": [3],
        "a flag for each of 3": [True, False],
        "at least one episode": [False, False, False],
    }
    for message, indices in wrong.items():
        with pytest.raises(ValueError, match=message):
            toy.select_episodes(np.array(indices))


def test_masked_rows_may_hold_nan(toy_spec: Spec, toy_columns: dict) -> None:
    for name in ("obs", "action", "reward", "cost", "next_obs"):
        toy_columns[name] = np.array(toy_columns[name], np.float32)
        toy_columns[name][5] = np.nan
    mask = np.arange(8) != 5
    with pytest.raises(DatasetError, match="'action', row 5: it is NaN, and row 4 before it"):
        dataset_from_columns(toy_spec, **toy_columns, mask=mask)
    mask[4] = False
    dataset = dataset_from_columns(toy_spec, **toy_columns, mask=mask)
    assert np.isfinite(dataset.episode_returns()).all()
    assert np.isfinite(dataset.episode_costs()).all()
    toy_columns["obs"][5] = np.inf
    with pytest.raises(DatasetError, match="'obs', row 5, channel 0: expected a finite number"):
        dataset_from_columns(toy_spec, **toy_columns, mask=mask)


def test_a_hole_in_time_is_seen(toy_spec: Spec, toy_columns: dict) -> None:
    time = 60.0 * np.arange(8)
    time[6:] += 480
    message = "'time', row 5: expected 60 s to the next row, got 540 s; end the episode there"
    with pytest.raises(DatasetError, match=message):
        dataset_from_columns(toy_spec, **toy_columns, time=time)
    masked = dataset_from_columns(toy_spec, **toy_columns, time=time, mask=np.arange(8) != 5)
    assert masked.time is not None
    toy_columns["truncated"][5] = True
    assert dataset_from_columns(toy_spec, **toy_columns, time=time).n_episodes == 4
    time[7] = time[6]
    with pytest.raises(DatasetError, match="'time', row 6: expected 60 s to the next row, got 0"):
        dataset_from_columns(toy_spec, **toy_columns, time=time, mask=np.arange(8) != 6)


ODD = {
    "flags of two": ({"terminated": [0, 0, 2, 1, 0, 0, 0, 0]}, "'terminated', row 2: .* got 2"),
    "flags of NaN": ({"mask": [1, 1, 1, np.nan, 1, 1, 1, 1]}, "'mask', row 3: .* got nan"),
    "flags in words": ({"truncated": ["no"] * 8}, "'truncated', row 0: expected 0 or 1"),
    "few labels": (
        {"behaviour": [0, 0], "attributes": {"behaviours": ["a"]}},
        r"'behaviour': expected shape \(3,\)",
    ),
    "labels without names": ({"behaviour": [0, 0, 1]}, "'behaviour', row 0: expected an index"),
    "odd modes": ({"mode": np.full((8, 1), 3)}, "'mode', row 0: expected 0 or 1, got 3"),
    "narrow modes": ({"mode": np.zeros(8)}, r"'mode': expected shape \(8, 1\)"),
    "more setpoints than names": (
        {"setpoint": np.zeros((8, 2)), "attributes": {"setpoints": [{"name": "level"}]}},
        r"'setpoint': expected shape \(8, 1\)",
    ),
    "an infinite setpoint": ({"setpoint": np.full((8, 1), np.inf)}, "'setpoint', row 0"),
    "setpoints in words": ({"setpoint": [["high"]] * 8}, "'setpoint': expected numbers"),
    "a stamp that is missing": ({"time": np.full(8, np.nan)}, "'time', row 0"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_does_not_fit_is_refused_by_name(toy_spec: Spec, toy_columns: dict, case: str) -> None:
    changes, message = ODD[case]
    with pytest.raises(DatasetError, match=message):
        dataset_from_columns(toy_spec, **{**toy_columns, **changes})
