import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.statistics import crossed_interval

DATASETS = 4000
SPREADS = [(1.0, 1.0, 1.0), (0.3, 1.0, 1.0), (0.2, 0.8, 0.1), (1.0, 0.3, 0.5), (1.0, 0.0, 1.0)]


def covered(shape, spreads, level):
    """The share of data sets, normal in all parts, whose interval holds the true mean."""
    rows, columns = shape
    draw = np.random.default_rng(0).normal
    samples = (
        draw(size=(DATASETS, rows, 1)) * spreads[0]
        + draw(size=(DATASETS, 1, columns)) * spreads[1]
        + draw(size=(DATASETS, rows, columns)) * spreads[2]
    )
    one = functools.partial(crossed_interval, level=level)
    interval = jax.jit(jax.vmap(one))(jnp.asarray(samples, jnp.float32))
    return float(jnp.mean((interval.low <= 0) & (interval.high >= 0)))


def error(level):
    return 3 * np.sqrt(level * (1 - level) / DATASETS)


@pytest.mark.nightly
@pytest.mark.parametrize("spreads", SPREADS)
@pytest.mark.parametrize(
    "shape", [(8, 8), *(pytest.param(n, marks=pytest.mark.nightly) for n in ((4, 64), (3, 100)))]
)
def test_it_covers_the_mean_of_fresh_rows_and_columns_at_least_as_often_as_it_says(shape, spreads):
    assert covered(shape, spreads, 0.95) >= 0.95 - error(0.95)


@pytest.mark.nightly
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("spreads", [(1.0, 0.0, 0.5), (1.0, 0.3, 0.5), (1.0, 0.1, 0.0)])
def test_it_covers_as_often_as_it_says_where_the_smaller_way_prevails(spreads, level):
    assert abs(covered((4, 64), spreads, level) - level) <= error(level)


def test_it_covers_as_often_as_it_says_where_both_ways_are_long():
    assert abs(covered((40, 40), (1.0, 0.1, 0.5), 0.95) - 0.95) <= error(0.95)


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e6])
def test_it_turns_with_the_unit_of_the_samples(unit):
    samples = np.random.default_rng(1).normal(size=(4, 30)).astype(np.float32)
    interval = jax.jit(crossed_interval)
    there = np.asarray(interval(unit * samples))
    np.testing.assert_allclose(there, unit * np.asarray(interval(samples)), rtol=1e-4)
