"""Off-policy estimates on a Markov decision process whose values are known exactly."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    Magic,
    doubly_robust_return,
    effective_sample_size,
    magic,
    marginalised_doubly_robust,
    marginalised_return,
    pdis_return,
    tis_return,
    weighted_doubly_robust,
    wis,
    wpdis,
)
from neorl_core.statistics import (
    bootstrap_interval,
    empirical_bernstein_interval,
    hcope_lower_bound,
    hoeffding_interval,
    student_interval,
)

# An eager call would compile every operation by itself.
wis, wpdis, weighted_doubly_robust = map(jax.jit, (wis, wpdis, weighted_doubly_robust))
tis_return, pdis_return, doubly_robust_return, effective_sample_size = map(
    jax.jit, (tis_return, pdis_return, doubly_robust_return, effective_sample_size)
)
marginalised_doubly_robust = jax.jit(marginalised_doubly_robust)
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


def test_unbiased_estimates_are_unbiased_if_either_part_is_right():
    datasets = 100
    data = many(jax.random.key(0), datasets, 100)
    biased_model = many(jax.random.key(1), datasets, 100, 0.3)
    wrong_ratios = data._replace(log_ratio=0.5 * data.log_ratio)
    returns = {
        "tis": (tis_return, data),
        "pdis": (pdis_return, data),
        "dr": (doubly_robust_return, data),
        "dr, wrong model": (doubly_robust_return, biased_model),
        "dr, wrong ratios": (doubly_robust_return, wrong_ratios),
    }
    spreads = {}
    for name, (estimate, sample) in returns.items():
        one = functools.partial(estimate, discount=DISCOUNT)
        estimates = np.asarray(jnp.mean(jax.jit(jax.vmap(jax.vmap(one)))(sample), axis=1))
        z = (estimates.mean() - TRUTH) / (estimates.std(ddof=1) / datasets**0.5)
        assert abs(z) < 4, (name, z)
        spreads[name] = estimates.std()
    assert spreads["dr"] < 0.7 * spreads["pdis"] < 0.7 * spreads["tis"]


@pytest.mark.nightly
def test_weighted_estimates_converge_to_the_truth():
    data = one_log(jax.random.key(2), 20_000)
    for estimate in (wis, wpdis, weighted_doubly_robust):
        assert abs(float(estimate(data, discount=DISCOUNT)) - TRUTH) < 0.05 * TRUTH, estimate


@pytest.mark.nightly
def test_magic_is_as_good_as_the_better_of_model_and_weights():
    keys = jax.random.split(jax.random.key(5), 60)
    blend = functools.partial(magic, discount=DISCOUNT, resamples=60)

    def errors(bias):
        result = jax.jit(jax.vmap(blend))(many(jax.random.key(4), 60, 80, bias), keys)
        columns = (result.estimate, result.blended[:, 0], result.blended[:, -1])
        return [float(np.sqrt(np.mean((column - TRUTH) ** 2))) for column in columns]

    blended, model, weighted = errors(0.0)
    assert model < blended < 1.05 * weighted
    blended, model, weighted = errors(3.0)
    assert weighted < blended < 0.3 * model


@pytest.mark.nightly
def test_the_longest_part_of_magic_is_the_weighted_doubly_robust_estimate():
    data = one_log(jax.random.key(4), 80, 1.0)
    actual = jax.jit(functools.partial(magic, discount=DISCOUNT))(data, jax.random.key(5))
    assert isinstance(actual, Magic)
    expected = weighted_doubly_robust(data, discount=DISCOUNT)
    np.testing.assert_allclose(actual.blended[-1], expected, rtol=1e-12)
    np.testing.assert_allclose(actual.blended[0], data.value[:, 0].mean(), rtol=1e-12)


def test_a_marginalised_return_is_not_normalised_unless_asked():
    ratio, reward = 2 * jnp.ones(4), 3 * jnp.ones(4)
    assert float(marginalised_return(ratio, reward, discount=0.5)) == 12


def test_the_closed_and_the_recursive_doubly_robust_estimates_are_one():
    log = jax.tree.map(lambda leaf: np.asarray(leaf[0]), one_log(jax.random.key(4), 80, 1.0))
    rho, powers = np.cumprod(np.exp(log.log_ratio)), DISCOUNT ** np.arange(HORIZON)
    before = np.append(1.0, rho[:-1])
    closed = np.sum(powers * (rho * (log.reward - log.q_value) + before * log.value))
    np.testing.assert_allclose(doubly_robust_return(log, discount=DISCOUNT), closed, rtol=1e-13)


def test_policies_that_agree_need_no_weights():
    log = one_log(jax.random.key(4), 80)
    log = log._replace(log_ratio=0 * log.log_ratio)
    mean = np.mean(np.asarray(log.reward) @ (DISCOUNT ** np.arange(HORIZON)))
    for estimate in (wis, wpdis):
        np.testing.assert_allclose(estimate(log, discount=DISCOUNT), mean, rtol=1e-13)
    assert float(effective_sample_size(jnp.sum(log.log_ratio, axis=1))) == 80


@pytest.mark.nightly
def test_weights_of_nothing_are_reported():
    never = LoggedTrajectories(jnp.full((3, 2), -jnp.inf), jnp.ones((3, 2)))
    assert np.isnan(wis(never, discount=1.0))
    assert np.isnan(wpdis(never, discount=1.0))
    single = functools.partial(tis_return, discount=1.0)
    assert np.all(np.asarray(jax.vmap(single)(never)) == 0)
    assert float(effective_sample_size(jnp.sum(never.log_ratio, axis=1))) == 0
    assert effective_sample_size(jnp.zeros((0, 2))).tolist() == [0, 0]
    huge = LoggedTrajectories(jnp.asarray([[2000.0], [1999.0]]), jnp.asarray([[1.0], [0.0]]))
    np.testing.assert_allclose(wis(huge, discount=1.0), 1 / (1 + np.exp(-1)), rtol=1e-12)


def test_a_weighted_estimate_has_a_bootstrap_interval_over_trajectories():
    data = one_log(jax.random.key(4), 80)
    estimate = functools.partial(wis, discount=DISCOUNT)
    interval = bootstrap_interval(data, jax.random.key(12), statistic=estimate, resamples=200)
    np.testing.assert_allclose(interval.estimate, estimate(data), rtol=1e-12)
    assert interval.low < interval.estimate < interval.high
    assert interval.low < TRUTH < interval.high


# The discounted occupancy, by linear algebra: what marginalised estimates rest on.


def pairs(policy):
    """Transition matrix and start distribution over state-action pairs."""
    move = np.einsum("sap,pb->sapb", PROBLEM.move, policy)
    size = STATES * ACTIONS
    return move.reshape(size, size), (PROBLEM.start[:, None] * policy).ravel()


def occupancy(policy):
    move, start = pairs(policy)
    return (1 - DISCOUNT) * np.linalg.solve(np.eye(len(start)) - DISCOUNT * move.T, start)


def density_ratio_by_dual_dice(weights):
    """The minimiser over nu of ``E_D[(nu - g P nu)^2] / 2 - (1 - g) E_0[nu]``, and its ratio."""
    move, start = pairs(PROBLEM.evaluated)
    bellman = np.eye(len(start)) - DISCOUNT * move
    dual = np.linalg.solve(bellman.T @ np.diag(weights) @ bellman, (1 - DISCOUNT) * start)
    return bellman @ dual


def test_marginalised_estimates_are_exact_with_exact_parts():
    """Every state-action pair is one sample, weighted by how often the log has it."""
    logged_share = occupancy(PROBLEM.logging)
    ratio = density_ratio_by_dual_dice(logged_share)
    np.testing.assert_allclose(ratio, occupancy(PROBLEM.evaluated) / logged_share, rtol=1e-11)
    move, start = pairs(PROBLEM.evaluated)
    reward = PROBLEM.reward.ravel()
    q_value = np.linalg.solve(np.eye(len(start)) - DISCOUNT * move, reward)
    value = np.sum(PROBLEM.evaluated * q_value.reshape(STATES, ACTIONS), axis=1)
    truth = PROBLEM.start @ value
    # Importance of a pair within the plain mean over pairs.
    share = logged_share * len(logged_share)
    estimate = marginalised_return(ratio * share, reward, discount=DISCOUNT)
    np.testing.assert_allclose(estimate, truth, rtol=1e-11)

    def double(ratio, q_value):
        state_value = np.sum(PROBLEM.evaluated * q_value.reshape(STATES, ACTIONS), axis=1)
        return marginalised_doubly_robust(
            jnp.atleast_1d(PROBLEM.start @ state_value),
            ratio * share,
            reward,
            q_value,
            (PROBLEM.move @ state_value).ravel(),
            jnp.zeros(len(reward), bool),
            discount=DISCOUNT,
        )

    wrong = RNG.normal(size=len(reward))
    np.testing.assert_allclose(double(ratio, wrong), truth, rtol=1e-10)
    np.testing.assert_allclose(double(np.abs(wrong), q_value), truth, rtol=1e-10)
    assert abs(double(np.abs(wrong), wrong) - truth) > 0.1


@pytest.mark.nightly
def test_lower_bounds_of_a_heavy_tailed_estimate_cover():
    """Importance weighted returns: long to the right, so that lower bounds are the easy side."""
    datasets, size = 300, 60
    data = many(jax.random.key(9), datasets, size)
    weighted = jax.jit(jax.vmap(jax.vmap(functools.partial(tis_return, discount=DISCOUNT))))
    returns = jnp.maximum(weighted(data), 0)
    largest = float(np.max(PROBLEM.evaluated / PROBLEM.logging)) ** HORIZON * 15
    keys = jax.random.split(jax.random.key(10), datasets)
    percentile = functools.partial(
        bootstrap_interval, level=0.9, resamples=200, method="percentile"
    )
    bca = functools.partial(bootstrap_interval, level=0.9, resamples=200, method="bca")
    in_range = {"low": 0.0, "high": largest, "level": 0.9}
    bounds = {
        "hoeffding": jax.vmap(functools.partial(hoeffding_interval, **in_range))(returns).low,
        "bernstein": jax.vmap(functools.partial(empirical_bernstein_interval, **in_range))(
            returns
        ).low,
        "hcope": jax.vmap(functools.partial(hcope_lower_bound, threshold=8.0, level=0.95))(returns),
        "student": jax.vmap(functools.partial(student_interval, level=0.9))(returns).low,
        "percentile": jax.vmap(percentile)(returns, keys).low,
        "bca": jax.vmap(bca)(returns, keys).low,
    }
    error = 3 * np.sqrt(0.05 * 0.95 / datasets)
    for name, bound in bounds.items():
        assert np.mean(np.asarray(bound) <= TRUTH) >= 0.95 - error, name
    means = {name: float(np.mean(bound)) for name, bound in bounds.items()}
    assert means["hoeffding"] < means["bernstein"] < means["hcope"] < means["student"]
    assert means["percentile"] < means["bca"]


@pytest.mark.parametrize("interval", [hoeffding_interval, empirical_bernstein_interval])
def test_bounds_from_the_range_hold_for_coins(interval):
    coins = jax.random.bernoulli(jax.random.key(11), 0.1, (2000, 30)).astype(float)
    bounds = functools.partial(interval, low=0.0, high=1.0, level=0.9)
    limits = jax.jit(jax.vmap(bounds))(coins)
    assert np.mean(np.asarray(limits.low) <= 0.1) >= 0.95
    assert np.mean(np.asarray(limits.high) >= 0.1) >= 0.95


def test_what_lies_outside_the_range_is_flagged_under_jit():
    bad = jnp.asarray([0.5, 2.0])
    assert np.isnan(jax.jit(hoeffding_interval)(bad, low=0.0, high=1.0).low)
    assert np.isnan(jax.jit(empirical_bernstein_interval)(bad, low=0.0, high=1.0).high)
    assert np.isnan(jax.jit(hcope_lower_bound)(-bad, threshold=1.0))


@pytest.mark.nightly
def test_a_return_of_zero_is_zero_under_any_weight():
    huge = LoggedTrajectories(jnp.asarray([1000.0, 0.0]), jnp.zeros(2))
    log = huge._replace(q_value=jnp.zeros(2), value=jnp.zeros(2))
    later = jnp.asarray([0.0, 1.0])
    for estimate in (tis_return, pdis_return, doubly_robust_return):
        value, slope = jax.value_and_grad(functools.partial(estimate, discount=1.0))(log)
        assert float(value) == 0
        assert np.all(np.isfinite(slope.log_ratio))
        assert float(estimate(log._replace(reward=later), discount=1.0)) == np.inf
        assert float(estimate(log._replace(reward=later), discount=0.0)) == 0
        assert float(estimate(log._replace(reward=-later), discount=1.0)) == -np.inf
        never = log._replace(log_ratio=jnp.asarray([-jnp.inf, 1000.0]), reward=later)
        assert float(estimate(never, discount=1.0)) == 0
        reached = log._replace(log_ratio=jnp.asarray([1.0, 1000.0]), reward=later)
        assert float(estimate(reached, discount=0.0)) == 0
        # A return of zero under a weight that is a number keeps its slope in the rewards.
        usual = log._replace(log_ratio=jnp.log(jnp.asarray([2.0, 3.0])))
        slope = jax.grad(functools.partial(estimate, discount=1.0))(usual)
        expected = [6, 6] if estimate is tis_return else [2, 6]
        np.testing.assert_allclose(slope.reward, expected, rtol=1e-6)


@pytest.mark.nightly
def test_estimates_of_short_floats_are_computed_in_float32():
    """200 steps of the very numbers: the rest is one rounding of the result."""
    rng = np.random.default_rng(11)
    columns = [0.05 * rng.normal(size=(6, 200)), *rng.uniform(size=(3, 6, 200))]
    short = [jnp.asarray(column, jnp.bfloat16) for column in columns]

    def log(dtype):
        ratio, reward, q_value, value = (column.astype(dtype) for column in short)
        return LoggedTrajectories(ratio, reward, None, q_value, value)

    def first(log):
        return jax.tree.map(lambda leaf: leaf[0], log)

    singles = tis_return, pdis_return, doubly_robust_return
    for estimate in (*singles, wis, wpdis, weighted_doubly_robust):
        logs = [log(dtype) for dtype in (jnp.bfloat16, jnp.float64)]
        logs = map(first, logs) if estimate in singles else logs
        compiled = jax.jit(functools.partial(estimate, discount=0.99))
        actual, want = map(compiled, logs)
        assert actual.dtype == jnp.bfloat16
        np.testing.assert_allclose(float(actual), float(want), rtol=2**-8, err_msg=str(estimate))
    key = jax.random.key(0)
    blend = jax.jit(functools.partial(magic, discount=0.99))
    actual, want = (blend(log(d), key) for d in (jnp.bfloat16, jnp.float32))
    assert {leaf.dtype for leaf in actual} == {jnp.dtype(jnp.bfloat16)}
    np.testing.assert_allclose(float(actual.estimate), float(want.estimate), rtol=2**-8)


@pytest.mark.nightly
def test_lists_are_taken_as_arrays_are():
    log = LoggedTrajectories([[0.1, 0.2], [0.3, 0.1]], [[1.0, 2.0], [3.0, 4.0]], [[1, 1], [1, 0]])
    log = log._replace(q_value=[[1.0, 1.0]] * 2, value=[[0.5, 0.5]] * 2)
    arrays = LoggedTrajectories(*(np.asarray(column) for column in log))
    for estimate in (wis, wpdis, weighted_doubly_robust):
        assert float(estimate(log, discount=0.9)) == float(estimate(arrays, discount=0.9))
    key = jax.random.key(0)
    ours, theirs = (magic(given, key, discount=0.9, resamples=9) for given in (log, arrays))
    assert float(ours.estimate) == float(theirs.estimate)
    single = LoggedTrajectories(*(column[0] for column in log))
    for estimate in (tis_return, pdis_return, doubly_robust_return):
        assert np.isfinite(estimate(single, discount=0.9))
    rows = [0.5, 2.0], [1.0, 3.0]
    assert float(marginalised_return(*rows, discount=0.5)) == 6.5
    double = marginalised_doubly_robust([1.0], *rows, *rows, [False, True], discount=0.5)
    assert np.isfinite(double)
    assert float(effective_sample_size([0.0, 0.0])) == 2
