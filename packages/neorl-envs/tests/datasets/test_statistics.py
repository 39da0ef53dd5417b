from typing import Any

import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs.datasets import _checks as _dataset_checks
from neorl_envs.datasets import data_statistics, dataset_from_columns


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
