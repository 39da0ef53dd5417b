"""Importance sampling on a decision process of two states, whose values are known exactly."""

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    weighted_doubly_robust,
    wpdis,
)
from neorl_train.selection import bootstrapped

MOVES = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.1, 0.9]]])  # state, action, next
REWARD = np.array([[1.0, 0.0], [0.0, 2.0]])
LOGGED = np.array([[0.5, 0.5], [0.6, 0.4]])
ASKED = np.array([[0.3, 0.7], [0.4, 0.6]])
STEPS, DISCOUNT = 6, 0.9


def exact():
    """Values of the asked policy by backward induction, shape ``(time + 1, state)``."""
    values = np.zeros((STEPS + 1, 2))
    for t in reversed(range(STEPS)):
        q = REWARD + DISCOUNT * MOVES @ values[t + 1]
        values[t] = (ASKED * q).sum(axis=1)
    return values


def logged(count, rng):
    state, columns = np.zeros(count, int), []
    values = exact()
    for t in range(STEPS):
        action = (rng.uniform(size=count) > LOGGED[state, 0]).astype(int)
        q = REWARD + DISCOUNT * MOVES @ values[t + 1]
        ratio = np.log(ASKED[state, action] / LOGGED[state, action])
        columns.append((ratio, REWARD[state, action], q[state, action], values[t][state]))
        state = (rng.uniform(size=count) > MOVES[state, action, 0]).astype(int)
    ratio, reward, q, value = (np.stack(c, axis=1) for c in zip(*columns, strict=True))
    # A model of the values that is wrong by a fifth: what it is wrong by must be corrected.
    arrays = [jnp.asarray(x, jnp.float32) for x in (ratio, reward, 0.8 * q, 0.8 * value)]
    return LoggedTrajectories(arrays[0], arrays[1], None, arrays[2], arrays[3])


@pytest.mark.parametrize(
    "estimator", [pytest.param(wpdis, marks=pytest.mark.nightly), weighted_doubly_robust]
)
def test_the_estimate_is_that_of_the_exact_values(estimator):
    actual = bootstrapped(estimator, logged(20_000, np.random.default_rng(0)), DISCOUNT, 0, 0.95)
    assert actual.low < actual.value < actual.high
    assert abs(actual.value - exact()[0, 0]) < 0.03 * exact()[0, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("estimator", [wpdis, weighted_doubly_robust])
def test_the_interval_covers_at_its_level(estimator):
    """600 logs of 200 episodes: 95 % with a tolerance of three standard errors and the bias."""
    truth, rng = exact()[0, 0], np.random.default_rng(1)
    inside = []
    for seed in range(600):
        actual = bootstrapped(estimator, logged(200, rng), DISCOUNT, seed, 0.95)
        inside.append(actual.low <= truth <= actual.high)
    assert 0.92 <= np.mean(inside) <= 0.98, np.mean(inside)
