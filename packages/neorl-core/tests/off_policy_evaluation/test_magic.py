"""MAGIC under every transformation: what it blends, since the weights of a tie may jump."""

import jax
import numpy as np
import pytest

from neorl_core.off_policy_evaluation import LoggedTrajectories, magic
from neorl_core.testing import ROWS, everywhere


def blended(log, key, **options):
    return magic(log, key, **options).blended


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_it_blends_the_same_under_every_transformation(seed):
    rng = np.random.default_rng(seed)
    shape = (ROWS, 3, 4)
    ratio, reward, q_value, value = rng.normal(size=(4, *shape)).astype(np.float32)
    mask = np.cumsum(rng.random(shape) < 0.25, axis=2) == 0
    log = LoggedTrajectories(ratio, reward, mask, q_value, value)
    keys = jax.random.split(jax.random.key(seed), ROWS)
    everywhere(blended, log, keys, rtol=1e-3, atol=1e-3, discount=0.875, resamples=20)
