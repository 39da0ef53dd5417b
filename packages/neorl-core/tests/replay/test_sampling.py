"""Distribution and stability of counter-based sampling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.replay import batch_indices, epoch_indices, shuffled_position

KEY = jax.random.key(42)


def test_draws_are_uniform():
    rows = jax.vmap(lambda step: batch_indices(KEY, step, 37, 64))(jnp.arange(500))
    assert stats.chisquare(np.bincount(np.ravel(rows), minlength=37)).pvalue > 1e-3


@pytest.mark.nightly
def test_a_position_is_a_number_however_the_steps_are_grouped():
    for function in (batch_indices, epoch_indices):
        together = jax.vmap(lambda step, f=function: f(KEY, step, 50, 8))(jnp.arange(20))
        for step in (0, 7, 19):
            np.testing.assert_array_equal(together[step], function(KEY, step, 50, 8))


@pytest.mark.nightly
def test_draws_are_the_same_in_double_precision():
    single = [function(KEY, 3, 10**6, 5) for function in (batch_indices, epoch_indices)]
    with jax.enable_x64(True):
        for function, rows in zip((batch_indices, epoch_indices), single, strict=True):
            np.testing.assert_array_equal(function(KEY, 3, 10**6, 5), rows)


def test_epochs_have_orders_of_their_own():
    orders = [
        np.concatenate([epoch_indices(KEY, 4 * epoch + i, 40, 10) for i in range(4)])
        for epoch in range(3)
    ]
    for order in orders:
        assert sorted(order.tolist()) == list(range(40))
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[1], orders[2])


@pytest.mark.nightly
@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 256, 257, 1000])
def test_shuffles_are_exact_for_every_n(n):
    images = jax.jit(functools.partial(shuffled_position, KEY, n=n))(np.arange(n))
    assert sorted(images.tolist()) == list(range(n))


@pytest.mark.parametrize(("n", "orders"), [(4, 24), (5, 120)])
def test_every_order_of_a_few_positions_is_equally_likely(n, orders):
    """The network alone gave p = 1e-112 for five positions."""
    keys = jax.random.split(KEY, 100 * orders)
    shuffle = jax.jit(jax.vmap(lambda key: shuffled_position(key, jnp.arange(n), n=n)))
    _, counts = np.unique(np.asarray(shuffle(keys)), axis=0, return_counts=True)
    assert len(counts) == orders
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.nightly
@pytest.mark.parametrize(
    "dtype",
    ["int8", *(pytest.param(d, marks=pytest.mark.nightly) for d in ("uint8", "int16", "uint32"))],
)
def test_a_short_dtype_of_the_step_or_position_changes_nothing(dtype):
    """Positions of 1000 rows do not fit into int8: every row was -1."""
    step, expected = np.asarray(5, dtype), epoch_indices(KEY, 5, 1000, 100)
    np.testing.assert_array_equal(epoch_indices(KEY, step, 1000, 100), expected)
    np.testing.assert_array_equal(
        jax.jit(lambda step: epoch_indices(KEY, step, 1000, 100))(step), expected
    )
    np.testing.assert_array_equal(
        batch_indices(KEY, step, 1000, 100), batch_indices(KEY, 5, 1000, 100)
    )
    for n in (200, 1000):
        place = shuffled_position(KEY, step, n=n)
        np.testing.assert_array_equal(place, shuffled_position(KEY, 5, n=n))


def test_neighbours_land_far_apart():
    images = np.asarray(shuffled_position(KEY, jnp.arange(10_000), n=2**31 - 1), np.int64)
    assert abs(np.corrcoef(images[:-1], images[1:])[0, 1]) < 0.05
    assert stats.kstest(images / (2**31 - 1), "uniform").pvalue > 1e-3


def test_a_position_out_of_range_is_flagged():
    assert shuffled_position(KEY, jnp.asarray([-1, 5, 4]), n=5).tolist()[:2] == [-1, -1]


def test_the_streams_are_stable_across_versions():
    """Golden numbers: a resumed run meets the rows it would have met."""
    assert batch_indices(KEY, 7, 1000, 6).tolist() == BATCH
    assert epoch_indices(KEY, 7, 1000, 6).tolist() == EPOCH


BATCH = [613, 296, 874, 67, 678, 606]
EPOCH = [66, 587, 642, 269, 32, 462]


@pytest.mark.nightly
@pytest.mark.parametrize("draw", [batch_indices, epoch_indices])
def test_steps_outside_their_range(draw):
    """Known ones raise with the range; traced ones give no row."""
    key = jax.random.key(0)
    end = 2**32 if draw is batch_indices else 2**31
    for step in (-1, end, end + 5, jnp.asarray(-3)):
        with pytest.raises(ValueError, match=f"from 0 to {end - 1}, got"):
            draw(key, step, 100, 4)
    assert draw(key, end - 1, 100, 4).min() >= 0
    traced = jax.jit(lambda step: draw(key, step, 100, 4))
    assert traced(-1).tolist() == [-1] * 4
    np.testing.assert_array_equal(traced(7), draw(key, 7, 100, 4))
    np.testing.assert_array_equal(traced(jnp.uint32(7)), draw(key, 7, 100, 4))


@pytest.mark.parametrize("draw", [batch_indices, epoch_indices])
def test_what_is_no_integer_is_refused(draw):
    """1.5 was taken for 1."""
    key = jax.random.key(0)
    for step in (1.5, jnp.asarray(1.0)):
        with pytest.raises(ValueError, match="step must be integers"):
            draw(key, step, 100, 4)
    with pytest.raises(ValueError, match="n must be an integer"):
        draw(key, 1, 100.0, 4)
    with pytest.raises(ValueError, match="batch must be an integer"):
        draw(key, 1, 100, 4.0)
    with pytest.raises(ValueError, match="position must be integers"):
        shuffled_position(key, 0.5, n=5)
    with pytest.raises(ValueError, match="n must be an integer"):
        shuffled_position(key, 1, n=5.0)
    np.testing.assert_array_equal(draw(key, 1, np.int64(100), 4), draw(key, 1, 100, 4))
