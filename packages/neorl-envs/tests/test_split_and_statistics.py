from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import Dataset
from neorl_envs.datasets import _checks as _dataset_checks
from neorl_envs.datasets import data_statistics, dataset_from_columns, split_episodes


def random_log(spec: Spec, n: int, seed: int, masked: float = 0.3) -> Dataset:
    rng = np.random.default_rng(seed)
    return dataset_from_columns(
        spec,
        obs=1e4 + rng.normal(size=(n, 2)),
        action=rng.uniform(0, 100, (n, 1)),
        reward=rng.normal(size=n),
        cost=rng.exponential(size=(n, 1)),
        next_obs=rng.normal(size=(n, 2)),
        terminated=rng.random(n) < 0.1,
        truncated=rng.random(n) < 0.1,
        mask=rng.random(n) >= masked,
    )


def test_a_split_partitions_the_episodes(toy_spec: Spec) -> None:
    log = random_log(toy_spec, 500, 0)
    first, rest = split_episodes(log, 0.8, jax.random.key(1))
    assert first.n_episodes == round(0.8 * log.n_episodes)
    assert first.n_episodes + rest.n_episodes == log.n_episodes
    returns = np.concatenate([first.episode_returns(), rest.episode_returns()])
    np.testing.assert_array_equal(np.sort(returns), np.sort(log.episode_returns()))
    again, _ = split_episodes(log, 0.8, jax.random.key(1))
    assert again.content_hash == first.content_hash
    other, _ = split_episodes(log, 0.8, jax.random.key(2))
    assert other.content_hash != first.content_hash
    assert first.attributes["split"]["of"] == log.content_hash
    # In order of time, so that a split of a recording is a recording.
    starts = [part.transitions.action[part.episode_starts, 0] for part in (first, log)]
    where = [np.flatnonzero(starts[1] == start)[0] for start in starts[0]]
    assert where == sorted(where)


def test_both_sides_of_a_split_have_an_episode(toy: Dataset) -> None:
    for fraction in (0.01, 0.99):
        first, rest = split_episodes(toy, fraction, jax.random.key(0))
        assert min(first.n_episodes, rest.n_episodes) == 1


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, float("nan")])
def test_a_split_outside_its_range_is_refused(toy: Dataset, fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction must be between 0 and 1"):
        split_episodes(toy, fraction, jax.random.key(0))


def test_a_single_episode_cannot_be_split(toy: Dataset) -> None:
    single = toy.select_episodes(np.array([0]))
    with pytest.raises(ValueError, match="at least two episodes, got 1"):
        split_episodes(single, 0.5, jax.random.key(0))


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_statistics_agree_with_numpy_for_any_block(
    toy_spec: Spec, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(_dataset_checks, "BLOCK", block)
    log = random_log(toy_spec, 300, 3)
    rows: Any = log.transitions
    seen = data_statistics(log)
    for name in ("obs", "action", "reward", "cost"):
        values = getattr(rows, name)[rows.mask].astype(np.float64)
        field = getattr(seen, name)
        assert field.mean.dtype == np.float32
        assert float(field.count) == rows.mask.sum()
        np.testing.assert_allclose(field.mean, values.mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(field.std, values.std(axis=0), rtol=1e-5)
        np.testing.assert_array_equal(field.min, values.min(axis=0))
        np.testing.assert_array_equal(field.max, values.max(axis=0))
    masks = [log.episode(i).mask for i in range(log.n_episodes)]
    lengths = np.array([np.sum(mask) for mask in masks])
    returns = [np.sum(np.float64(log.episode(i).reward) * m) for i, m in enumerate(masks)]
    assert float(seen.episode_length.count) == (lengths > 0).sum()
    np.testing.assert_allclose(seen.episode_length.mean, lengths[lengths > 0].mean(), rtol=1e-6)
    np.testing.assert_allclose(
        seen.episode_return.std, np.array(returns)[lengths > 0].std(), rtol=1e-5
    )


def test_statistics_of_no_cost_and_of_one_row(toy_spec: Spec, toy_columns: dict) -> None:
    mask = np.zeros(8, np.bool_)
    with pytest.raises(ValueError, match="all 8 rows are masked"):
        data_statistics(dataset_from_columns(toy_spec, **toy_columns, mask=mask))
    mask[4] = True
    seen = data_statistics(dataset_from_columns(toy_spec, **toy_columns, mask=mask))
    assert float(seen.reward.std) == 0.0
    assert float(seen.reward.mean) == 3.0
    assert float(seen.episode_length.count) == 1.0
    bare = Spec(obs=toy_spec.obs, action=toy_spec.action, cost=(), dt=1.0, horizon=4)
    toy_columns.pop("cost")
    assert data_statistics(dataset_from_columns(bare, **toy_columns)).cost.mean.shape == (0,)
