"""Intervals on a decision process of two states, whose values are known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.sampling import bootstrap_weights
from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    weighted_doubly_robust,
    wpdis,
)
from neorl_train.choosing import bootstrap
from neorl_train.choosing._value_estimates import (
    ensemble_estimate,
    mean_estimate,
    reach_of_members,
)

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
    actual = bootstrap(estimator, logged(20_000, np.random.default_rng(0)), DISCOUNT, 0, 0.95)
    assert actual.low < actual.value < actual.high
    assert abs(actual.value - exact()[0, 0]) < 0.03 * exact()[0, 0]


@pytest.mark.nightly
@pytest.mark.parametrize("estimator", [wpdis, weighted_doubly_robust])
def test_the_interval_covers_at_its_level(estimator):
    """600 logs of 200 episodes: 95 % with a tolerance of three standard errors and the bias."""
    truth, rng = exact()[0, 0], np.random.default_rng(1)
    inside = []
    for seed in range(600):
        actual = bootstrap(estimator, logged(200, rng), DISCOUNT, seed, 0.95)
        inside.append(actual.low <= truth <= actual.high)
    assert 0.92 <= np.mean(inside) <= 0.98, np.mean(inside)


def fitted(state, action, after, weight):
    """Fitted Q evaluation without an error of networks: the value that weighted counts give."""
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, (state, action, after), weight[:, None])
    moves = counts / counts.sum(axis=-1, keepdims=True)
    values = np.zeros(2)
    for _ in range(STEPS):
        values = (ASKED * (REWARD + DISCOUNT * moves @ values)).sum(axis=1)
    return values[0]


def visited(count, rng):
    """State, action and next state of every step of some episodes."""
    state, columns = np.zeros(count, int), []
    for _ in range(STEPS):
        action = (rng.uniform(size=count) > LOGGED[state, 0]).astype(int)
        after = (rng.uniform(size=count) > MOVES[state, action, 0]).astype(int)
        columns.append((state, action, after))
        state = after
    return [np.stack(column, axis=1) for column in zip(*columns, strict=True)]


def test_the_reach_of_four_members_covers_the_error_of_a_fit_at_its_level():
    """600 logs of 200 episodes, each fitted by four members to their bootstraps of the episodes."""
    truth, rng, inside = exact()[0, 0], np.random.default_rng(2), []
    draw = jax.jit(lambda seed: bootstrap_weights(jax.random.key(seed), 200, 4))
    for seed in range(600):
        log, weights = visited(200, rng), np.asarray(draw(seed))
        means = np.array([fitted(*log, weight) for weight in weights.T])
        inside.append(abs(means.mean() - truth) <= reach_of_members(means, 0.95))
    assert 0.92 <= np.mean(inside) <= 0.98, np.mean(inside)


def test_the_interval_of_an_ensemble_adds_both_variations_by_squares():
    values = np.random.default_rng(0).normal(5.0, 1.0, (4, 50)) + np.arange(4.0)[:, None]
    actual = ensemble_estimate(values, 0.95)
    between = 1.96 * values.mean(axis=0).std(ddof=1) / np.sqrt(50)
    # Student's quantile for three degrees of freedom.
    members = 3.1824 * np.sqrt(1 + 1 / 4) * values.mean(axis=1).std(ddof=1)
    assert actual.value == pytest.approx(values.mean())
    assert actual.high - actual.value == pytest.approx(np.hypot(between, members), rel=1e-4)
    assert actual.value - actual.low == pytest.approx(actual.high - actual.value)
    single = values[:1]
    assert ensemble_estimate(single, 0.95) == mean_estimate(single[0], 0.95)
    assert reach_of_members(single.mean(axis=1), 0.95) == 0
