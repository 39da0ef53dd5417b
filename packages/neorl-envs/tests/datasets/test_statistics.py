import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import DatasetError, read_dataset, write_dataset
from neorl_envs.datasets import _checks as _dataset_checks
from neorl_envs.datasets import (
    data_statistics,
    dataset_from_columns,
    require_content_hash,
    split_indices,
)


@pytest.mark.parametrize("block", [1, 7, 10_000])
def test_statistics_agree_with_numpy_for_any_block(
    toy_spec: Spec, random_log: Any, monkeypatch: pytest.MonkeyPatch, block: int
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


def test_the_returns_of_episodes_that_kept_their_limits_stand_apart(
    toy_spec: Spec, random_log: Any
) -> None:
    log = random_log(toy_spec, 300, 3)
    rows: Any = log.transitions
    used = np.array([log.episode(i).mask.any() for i in range(log.n_episodes)])
    returns = log.episode_returns()
    costs = {"episode": log.episode_costs(), "step": log.episode_worst_costs()}
    for per, cost in costs.items():
        limits = tuple(
            dataclasses.replace(channel, limit=float(np.median(cost[:, i])), per=per)
            for i, channel in enumerate(toy_spec.cost)
        )
        kept = (cost.astype(np.float32) <= np.float32([c.limit for c in limits])).all(axis=1)
        expected = returns[kept & used]
        assert 0 < len(expected) < used.sum()
        seen: Any = data_statistics(log, limits=limits).kept_return
        assert float(seen.count) == len(expected)
        np.testing.assert_allclose(seen.max, expected.max(), rtol=1e-6)
        np.testing.assert_allclose(seen.mean, expected.mean(), rtol=1e-5)
    never = tuple(dataclasses.replace(channel, limit=0.0) for channel in toy_spec.cost)
    costly = rows._replace(cost=np.abs(rows.cost) + 1)
    none: Any = data_statistics(dataclasses.replace(log, transitions=costly), limits=never)
    assert float(none.kept_return.count) == 0


@pytest.mark.parametrize("block", [7, 10_000])
def test_one_pass_over_a_file_gives_what_a_copy_in_memory_gives(
    toy_spec: Spec, random_log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Bit for bit, of some episodes, with another reward, wherever blocks fall in the file."""
    monkeypatch.setattr(_dataset_checks, "BLOCK", block)
    path = write_dataset(tmp_path / "log.h5", random_log(toy_spec, 300, 3))
    mapped = read_dataset(path, memory_map=True)
    require_content_hash(mapped, str(path))
    chosen, _ = split_indices(mapped.n_episodes, 0.6, jax.random.key(0))

    def reward(own: np.ndarray, cost: np.ndarray) -> np.ndarray:
        return own - 0.3 * cost.sum(axis=1)

    part = read_dataset(path).select_episodes(chosen)
    rows: Any = part.transitions
    part = dataclasses.replace(
        part, transitions=rows._replace(reward=np.float32(reward(rows.reward, rows.cost)))
    )
    seen = data_statistics(
        mapped, episodes=chosen, reward=lambda own, cost: np.float32(reward(own, cost))
    )
    for ours, theirs in zip(
        jax.tree.leaves(seen), jax.tree.leaves(data_statistics(part)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    mapped.__dict__["content_hash"] = "sha256:0"
    with pytest.raises(DatasetError, match="do not match the recorded content hash"):
        require_content_hash(mapped, str(path))
