"""Off-policy estimates on a Markov decision process whose values are known exactly."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import off_policy_evaluation
from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    effective_sample_size,
    weighted_doubly_robust,
    wpdis,
)
from neorl_core.statistics import (
    bootstrap_interval,
)

# An eager call would compile every operation by itself.
wpdis, weighted_doubly_robust, effective_sample_size = map(
    jax.jit, (wpdis, weighted_doubly_robust, effective_sample_size)
)
bootstrap_interval = jax.jit(
    bootstrap_interval, static_argnames=("statistic", "resamples", "method")
)

STATES, ACTIONS, HORIZON, DISCOUNT = 6, 3, 8, 0.9
RNG = np.random.default_rng(7)


class Problem(NamedTuple):
    """A tabular process, a logging and an evaluated policy."""

    start: np.ndarray
    move: np.ndarray
    reward: np.ndarray
    logging: np.ndarray
    evaluated: np.ndarray


PROBLEM = Problem(
    start=RNG.dirichlet(np.ones(STATES)),
    move=RNG.dirichlet(np.ones(STATES), size=(STATES, ACTIONS)),
    reward=RNG.uniform(size=(STATES, ACTIONS)),
    logging=RNG.dirichlet(2 * np.ones(ACTIONS), size=STATES),
    evaluated=RNG.dirichlet(2 * np.ones(ACTIONS), size=STATES),
)


def finite_values(problem):
    """``Q_t`` and ``V_t`` of the evaluated policy, backwards from the horizon."""
    q_values, values = np.zeros((HORIZON, STATES, ACTIONS)), np.zeros((HORIZON + 1, STATES))
    for t in reversed(range(HORIZON)):
        q_values[t] = problem.reward + DISCOUNT * problem.move @ values[t + 1]
        values[t] = np.sum(problem.evaluated * q_values[t], axis=1)
    return q_values, values[:HORIZON]


Q_VALUES, VALUES = finite_values(PROBLEM)
TRUTH = float(PROBLEM.start @ VALUES[0])


def logged(key, bias):
    """One trajectory of the logging policy, with an exact model plus a constant error."""
    table = jax.tree.map(jnp.asarray, PROBLEM)

    def step(state, at):
        t, key = at
        key_action, key_noise, key_move = jax.random.split(key, 3)
        action = jax.random.categorical(key_action, jnp.log(table.logging[state]))
        ratio = jnp.log(table.evaluated[state, action] / table.logging[state, action])
        reward = table.reward[state, action] + 0.1 * jax.random.normal(key_noise)
        model = jnp.asarray(Q_VALUES)[t, state, action] + bias, jnp.asarray(VALUES)[t, state] + bias
        moved = jax.random.categorical(key_move, jnp.log(table.move[state, action]))
        return moved, (ratio, reward, *model)

    key, key_start = jax.random.split(key)
    first = jax.random.categorical(key_start, jnp.log(table.start))
    steps = jnp.arange(HORIZON), jax.random.split(key, HORIZON)
    _, (ratio, reward, q_value, value) = jax.lax.scan(step, first, steps)
    return LoggedTrajectories(ratio, reward, None, q_value, value)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@functools.partial(jax.jit, static_argnums=(1, 2))
def many(key, datasets, size, bias=0.0):
    """Logs of shape ``(dataset, trajectory, time)``."""
    simulate = jax.vmap(jax.vmap(logged, in_axes=(0, None)), in_axes=(0, None))
    return simulate(jax.random.split(key, (datasets, size)), bias)


def one_log(key, size, bias=0.0):
    return jax.tree.map(lambda leaf: leaf[0], many(key, 1, size, bias))


@pytest.mark.nightly
def test_weighted_estimates_converge_to_the_truth():
    data = one_log(jax.random.key(2), 20_000)
    for estimate in (wpdis, weighted_doubly_robust):
        assert abs(float(estimate(data, discount=DISCOUNT)) - TRUTH) < 0.05 * TRUTH, estimate


def test_policies_that_agree_need_no_weights():
    log = one_log(jax.random.key(4), 80)
    log = log._replace(log_ratio=0 * log.log_ratio)
    mean = np.mean(np.asarray(log.reward) @ (DISCOUNT ** np.arange(HORIZON)))
    np.testing.assert_allclose(wpdis(log, discount=DISCOUNT), mean, rtol=1e-13)
    assert float(effective_sample_size(jnp.sum(log.log_ratio, axis=1))) == 80


@pytest.mark.nightly
def test_weights_of_nothing_are_reported():
    never = LoggedTrajectories(jnp.full((3, 2), -jnp.inf), jnp.ones((3, 2)))
    assert np.isnan(wpdis(never, discount=1.0))
    assert float(effective_sample_size(jnp.sum(never.log_ratio, axis=1))) == 0
    assert effective_sample_size(jnp.zeros((0, 2))).tolist() == [0, 0]
    huge = LoggedTrajectories(jnp.asarray([[2000.0], [1999.0]]), jnp.asarray([[1.0], [0.0]]))
    np.testing.assert_allclose(wpdis(huge, discount=1.0), 1 / (1 + np.exp(-1)), rtol=1e-12)


def test_a_weighted_estimate_has_a_bootstrap_interval_over_trajectories():
    data = one_log(jax.random.key(4), 80)
    estimate = functools.partial(wpdis, discount=DISCOUNT)
    interval = bootstrap_interval(data, jax.random.key(12), statistic=estimate, resamples=200)
    np.testing.assert_allclose(interval.estimate, estimate(data), rtol=1e-12)
    assert interval.low < interval.estimate < interval.high
    assert interval.low < TRUTH < interval.high


@pytest.mark.nightly
def test_estimates_of_short_floats_are_computed_in_float32():
    """200 steps of the very numbers: the rest is one rounding of the result."""
    rng = np.random.default_rng(11)
    columns = [0.05 * rng.normal(size=(6, 200)), *rng.uniform(size=(3, 6, 200))]
    short = [jnp.asarray(column, jnp.bfloat16) for column in columns]

    def log(dtype):
        ratio, reward, q_value, value = (column.astype(dtype) for column in short)
        return LoggedTrajectories(ratio, reward, None, q_value, value)

    for estimate in (wpdis, weighted_doubly_robust):
        logs = [log(dtype) for dtype in (jnp.bfloat16, jnp.float64)]
        compiled = jax.jit(functools.partial(estimate, discount=0.99))
        actual, want = map(compiled, logs)
        assert actual.dtype == jnp.bfloat16
        np.testing.assert_allclose(float(actual), float(want), rtol=2**-8, err_msg=str(estimate))


@pytest.mark.nightly
def test_lists_are_taken_as_arrays_are():
    log = LoggedTrajectories([[0.1, 0.2], [0.3, 0.1]], [[1.0, 2.0], [3.0, 4.0]], [[1, 1], [1, 0]])
    log = log._replace(q_value=[[1.0, 1.0]] * 2, value=[[0.5, 0.5]] * 2)
    arrays = LoggedTrajectories(*(np.asarray(column) for column in log))
    for estimate in (off_policy_evaluation.wpdis, off_policy_evaluation.weighted_doubly_robust):
        assert float(estimate(log, discount=0.9)) == float(estimate(arrays, discount=0.9))
    assert float(off_policy_evaluation.effective_sample_size([0.0, 0.0])) == 2
