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
    with pytest.raises(DatasetError, match="'obs', row 6, channel 1"):
        dataset_from_columns(toy_spec, **{**toy_columns, "obs": obs})
