"""MAGIC: what it blends, how, and in how much memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.off_policy_evaluation import LoggedTrajectories, magic
from neorl_core.testing import ROWS, everywhere


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("double")
def test_it_sets_a_bias_above_against_one_below():
    # Three estimates: 5 and 1 without spread, and 2, the mean of a reward of 1 and one of 0 or 2,
    # with a narrow interval. A quarter of the first and the rest of the second is about 2 without
    # spread, so the third is not needed.
    n = 40
    reward = jnp.stack([jnp.ones(n), np.arange(n) % 2 * 2.0], axis=1)
    model = jnp.tile(jnp.array([5.0, 0.0]), (n, 1))
    log = LoggedTrajectories(jnp.zeros((n, 2)), reward, None, q_value=model, value=model)
    actual = jax.jit(functools.partial(magic, discount=1.0))(log, jax.random.key(3))
    np.testing.assert_allclose(actual.blended, [5, 1, 2], rtol=1e-5)
    assert float(actual.weights[2]) < 0.01
    assert 0.15 < float(actual.weights[0]) < 0.35
    assert abs(float(actual.estimate) - 2) < 0.3


@pytest.mark.usefixtures("double")
def test_of_single_steps_it_is_the_model_or_the_weights():
    column = jnp.array([[1.0], [3.0]])
    model = jnp.full((2, 1), 7.0)
    log = LoggedTrajectories(jnp.zeros((2, 1)), column, None, q_value=model, value=model)
    blend = jax.jit(functools.partial(magic, discount=1.0, resamples=20))
    actual = blend(log, jax.random.key(3))
    np.testing.assert_allclose(actual.blended, [7, 2], rtol=1e-6)


@pytest.mark.usefixtures("double")
def test_it_needs_little_more_memory_than_its_log():
    """Of 200 drawn copies of the log only a few are there at once."""
    n, time = 1000, 250
    column = jnp.ones((n, time), jnp.float32)
    log = LoggedTrajectories(0 * column, column, None, column, column)
    blend = jax.jit(functools.partial(magic, discount=0.5, resamples=200))
    memory = blend.lower(log, jax.random.key(0)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 200 * column.nbytes / 2


def blended(log, key, **options):
    return magic(log, key, **options).blended


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_it_blends_the_same_under_every_transformation(seed):
    """What it blends, since the weights of a tie may jump."""
    rng = np.random.default_rng(seed)
    shape = (ROWS, 3, 4)
    ratio, reward, q_value, value = rng.normal(size=(4, *shape)).astype(np.float32)
    mask = np.cumsum(rng.random(shape) < 0.25, axis=2) == 0
    log = LoggedTrajectories(ratio, reward, mask, q_value, value)
    keys = jax.random.split(jax.random.key(seed), ROWS)
    everywhere(blended, log, keys, rtol=1e-3, atol=1e-3, discount=0.875, resamples=20)
