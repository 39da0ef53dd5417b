from typing import Any

import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns


def drawn_log(spec: Spec, n: int, seed: int) -> Dataset:
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
        mask=rng.random(n) >= 0.3,
    )


@pytest.fixture
def random_log() -> Any:
    """``random_log(spec, rows, seed)``: episodes of random lengths, some rows masked."""
    return drawn_log
