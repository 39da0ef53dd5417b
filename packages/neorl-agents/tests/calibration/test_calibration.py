"""Maps and intervals against formulas and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.calibration import episode_interval, identity_map, isotonic_map
from neorl_core import InputError

RNG = np.random.default_rng(3)
SCORE = np.round(RNG.normal(size=300), 1)
LABEL = RNG.uniform(size=300) < 1 / (1 + np.exp(-SCORE))
PROBABILITY = 1 / (1 + np.exp(-2 * SCORE))


def least_increasing(values, sizes):
    """The increasing fit: the largest over the left of the least mean to the right."""
    n = len(values)
    mean = lambda a, b: np.average(values[a : b + 1], weights=sizes[a : b + 1])  # noqa: E731
    return np.array(
        [max(min(mean(a, b) for b in range(i, n)) for a in range(i + 1)) for i in range(n)]
    )


def test_pools_are_those_of_the_formula_and_no_two_scores_become_equal():
    order = np.argsort(SCORE, kind="stable")
    x, place = np.unique(SCORE[order], return_inverse=True)
    size = np.bincount(place)
    expected = least_increasing(np.bincount(place, LABEL[order]) / size, size)
    fitted = isotonic_map(SCORE[:, None], LABEL[:, None].astype(float))
    knots_x, knots_y = np.asarray(fitted.x[0], np.float64), np.asarray(fitted.y[0], np.float64)
    centres, values = [], []
    for value in np.unique(expected.round(12)):
        pool = np.abs(expected - value) < 1e-9
        centres.append(np.average(x[pool], weights=size[pool]))
        values.append(value)
    np.testing.assert_allclose(knots_x, centres, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(knots_y, values, rtol=1e-6, atol=1e-6)
    grid = np.linspace(-4, 4, 200, dtype=np.float32)
    mapped = np.asarray(jax.vmap(fitted)(jnp.asarray(grid[:, None])))[:, 0]
    assert (np.diff(mapped) > 0).all()
    wanted = 0.999 * np.interp(grid, knots_x, knots_y) + 0.001 * grid
    np.testing.assert_allclose(mapped, wanted, atol=1e-5)


def test_outputs_with_different_numbers_of_pools_share_one_map():
    scores = np.stack([SCORE, PROBABILITY], axis=1)
    seen = np.stack([np.zeros(300), LABEL.astype(float)], axis=1)
    both = isotonic_map(scores, seen)
    alone = isotonic_map(scores[:, 1:], seen[:, 1:])
    for value in (0.0, 0.3, 0.99):
        first, second = both(jnp.asarray([value, value], jnp.float32))
        np.testing.assert_allclose(second, alone(jnp.asarray([value], jnp.float32))[0], rtol=1e-5)
        np.testing.assert_allclose(first, 1e-3 * value, atol=1e-6)


def test_the_identity_has_no_knots():
    x = jnp.asarray([-3.0, 0.2, 7.0])
    assert identity_map(3)(x).tolist() == x.tolist()


def test_the_interval_of_a_mean_has_the_width_of_independent_episodes():
    episode = np.repeat(np.arange(100), 20)
    level = np.repeat(RNG.normal(size=100), 20)
    low, high = episode_interval(lambda x, w: float(x @ w / w.sum()), episode, level)
    deviation = level[::20].std() / np.sqrt(100)
    np.testing.assert_allclose(high - low, 2 * 1.96 * deviation, rtol=0.15)
    with pytest.raises(InputError, match="at least two episodes, got 1"):
        episode_interval(lambda x, w: 0.0, np.zeros(5, int), np.ones(5))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: isotonic_map(np.zeros((0, 1)), np.zeros((0, 1))), "with at least one row"),
        (lambda: isotonic_map(np.full((2, 1), np.nan), np.zeros((2, 1))), "must be finite"),
    ],
)
def test_bad_columns_are_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
