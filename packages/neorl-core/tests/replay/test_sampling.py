"""Distribution and stability of counter-based sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.replay import (
    batch_indices,
)

KEY = jax.random.key(42)


def test_draws_are_uniform():
    rows = jax.vmap(lambda step: batch_indices(KEY, step, 37, 64))(jnp.arange(500))
    assert stats.chisquare(np.bincount(np.ravel(rows), minlength=37)).pvalue > 1e-3


@pytest.mark.nightly
def test_a_position_is_a_number_however_the_steps_are_grouped():
    together = jax.vmap(lambda step: batch_indices(KEY, step, 50, 8))(jnp.arange(20))
    for step in (0, 7, 19):
        np.testing.assert_array_equal(together[step], batch_indices(KEY, step, 50, 8))


@pytest.mark.nightly
def test_draws_are_the_same_in_double_precision():
    single = batch_indices(KEY, 3, 10**6, 5)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(batch_indices(KEY, 3, 10**6, 5), single)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_a_short_dtype_of_the_step_changes_nothing(dtype):
    step, expected = np.asarray(5, dtype), batch_indices(KEY, 5, 1000, 100)
    np.testing.assert_array_equal(batch_indices(KEY, step, 1000, 100), expected)
    compiled = jax.jit(lambda step: batch_indices(KEY, step, 1000, 100))
    np.testing.assert_array_equal(compiled(step), expected)


def test_the_stream_is_stable_across_versions():
    """Golden numbers: a resumed run meets the rows it would have met."""
    assert batch_indices(KEY, 7, 1000, 6).tolist() == [613, 296, 874, 67, 678, 606]


@pytest.mark.nightly
def test_steps_outside_their_range():
    """Known ones raise with the range; traced ones give no row."""
    key = jax.random.key(0)
    for step in (-1, 2**32, 2**32 + 5, jnp.asarray(-3)):
        with pytest.raises(ValueError, match=f"from 0 to {2**32 - 1}, got"):
            batch_indices(key, step, 100, 4)
    assert batch_indices(key, 2**32 - 1, 100, 4).min() >= 0
    traced = jax.jit(lambda step: batch_indices(key, step, 100, 4))
    assert traced(-1).tolist() == [-1] * 4
    np.testing.assert_array_equal(traced(7), batch_indices(key, 7, 100, 4))
    np.testing.assert_array_equal(traced(jnp.uint32(7)), batch_indices(key, 7, 100, 4))


def test_what_is_no_integer_is_refused():
    """1.5 was taken for 1."""
    key = jax.random.key(0)
    for step in (1.5, jnp.asarray(1.0)):
        with pytest.raises(ValueError, match="step must be integers"):
            batch_indices(key, step, 100, 4)
    with pytest.raises(ValueError, match="n must be an integer"):
        batch_indices(key, 1, 100.0, 4)
    with pytest.raises(ValueError, match="batch must be an integer"):
        batch_indices(key, 1, 100, 4.0)
    np.testing.assert_array_equal(
        batch_indices(key, 1, np.int64(100), 4), batch_indices(key, 1, 100, 4)
    )
