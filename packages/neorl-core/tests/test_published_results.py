"""What papers of offline RL state about formulas: TD3+BC, IQL, CQL, ReBRAC, EDAC and safe RL.

Rules of off-policy evaluation are tested beside the estimators, in ``off_policy_evaluation``.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from neorl_core.costs import (
    discounted_cost_limit,
    discounted_cost_target,
    pid_multiplier_init,
    pid_multiplier_step,
    reachability_target,
    step_cost_limit,
)
from neorl_core.losses import (
    advantage_weights,
    cal_ql_clamp,
    cql_regulariser,
    edac_diversity,
    expectile_loss,
    td3_bc_policy_loss,
)
from neorl_core.returns import segment_n_step_returns, segment_td_lambda_returns
from neorl_core.targets import clipped_double_td_target, regularised_td_target, td_target

RNG = np.random.default_rng(7)
OBS = jnp.asarray(RNG.normal(size=(16, 3)), jnp.float32)
LOGGED = jnp.asarray(RNG.uniform(-1, 1, (16, 2)), jnp.float32)
THETA = jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32) / 4
SAMPLE = jnp.asarray(RNG.normal(size=31), jnp.float32)


# TD3+BC, with a linear policy and a quadratic critic.


def critic(obs, action):
    return 3 - jnp.sum(jnp.square(action - obs[:, :2]), axis=-1)


@functools.partial(jax.jit, static_argnames="free_lambda")
def td3_bc_gradient(theta, scale, alpha, *, free_lambda=False):
    def loss(theta):
        action = jnp.tanh(OBS @ theta)
        q = scale * critic(OBS, action)
        if free_lambda:  # What it would be if lambda were differentiated.
            distance = jnp.mean(jnp.square(action - LOGGED))
            return distance - alpha * jnp.mean(q) / jnp.mean(jnp.abs(q))
        return td3_bc_policy_loss(q, action, LOGGED, alpha=alpha)

    return jax.grad(loss)(theta)


@pytest.mark.parametrize("scale", [1e-3, 0.5, 40.0, 1e4])
def test_td3_bc_the_policy_gradient_is_invariant_to_the_scale_of_q(scale):
    np.testing.assert_allclose(
        td3_bc_gradient(THETA, scale, 2.5), td3_bc_gradient(THETA, 1.0, 2.5), rtol=1e-4, atol=1e-6
    )


def test_td3_bc_lambda_carries_no_gradient():
    size = jnp.mean(jnp.abs(critic(OBS, jnp.tanh(OBS @ THETA))))

    def fixed_lambda(theta):
        action = jnp.tanh(OBS @ theta)
        value = jnp.mean(critic(OBS, action))
        return jnp.mean(jnp.square(action - LOGGED)) - 2.5 / size * value

    expected = jax.jit(jax.grad(fixed_lambda))(THETA)
    np.testing.assert_allclose(td3_bc_gradient(THETA, 1.0, 2.5), expected, rtol=1e-4, atol=1e-6)
    other = td3_bc_gradient(THETA, 1.0, 2.5, free_lambda=True)
    assert np.max(np.abs(other - expected)) > 1e-2


def test_td3_bc_alpha_zero_is_behaviour_cloning():
    cloning = jax.jit(jax.grad(lambda theta: jnp.mean((jnp.tanh(OBS @ theta) - LOGGED) ** 2)))
    np.testing.assert_allclose(td3_bc_gradient(THETA, 1.0, 0.0), cloning(THETA), rtol=1e-5)


# Implicit Q-learning.


@jax.jit
def expectile_slope(m, expectile):
    return jax.grad(
        lambda m: jnp.mean(expectile_loss(m * jnp.ones(31), SAMPLE, expectile=expectile))
    )(m)


def fitted_expectile(expectile):
    """Where the loss itself is least."""
    return optimize.brentq(lambda m: float(expectile_slope(jnp.float32(m), expectile)), -9, 9)


def direct_expectile(sample, expectile):
    """The root of ``sum w (x - m) = 0``."""

    def balance(m):
        gap = sample - m
        return np.sum(np.where(gap > 0, expectile, 1 - expectile) * gap)

    return optimize.brentq(balance, sample.min() - 1, sample.max() + 1, xtol=1e-14)


@pytest.mark.parametrize("expectile", [0.05, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_iql_the_minimiser_is_the_expectile(expectile):
    exact = direct_expectile(np.asarray(SAMPLE, np.float64), expectile)
    assert fitted_expectile(expectile) == pytest.approx(exact, abs=1e-5)


def test_iql_one_half_is_half_the_squared_error():
    loss = expectile_loss(jnp.zeros(31), SAMPLE, expectile=0.5)
    np.testing.assert_allclose(loss, SAMPLE**2 / 2, rtol=1e-6)


def test_iql_expectiles_grow_to_the_maximum():
    levels = [fitted_expectile(tau) for tau in (0.1, 0.5, 0.7, 0.9, 0.99, 0.9999)]
    assert np.all(np.diff(levels) > 0)
    assert levels[1] == pytest.approx(float(SAMPLE.mean()), abs=1e-5)
    assert levels[-1] == pytest.approx(float(SAMPLE.max()), abs=2e-2)
    assert levels[-1] < SAMPLE.max()


@pytest.mark.parametrize("beta", [0.5, 3.0, 10.0])
def test_iql_the_weight_is_exactly_100_from_ln_100_on(beta):
    # One rounding unit above ln 100, where exp in float32 is not below 100.
    edge = np.float32((np.log(100) + 1e-6) / beta)
    weights = advantage_weights(
        jnp.asarray([edge, 2 * edge, 1e30, np.inf]), inverse_temperature=beta
    )
    assert weights.tolist() == [100.0] * 4
    below = advantage_weights(jnp.asarray([0.99 * edge]), inverse_temperature=beta)
    assert float(below[0]) < 100


def fixed_point(reward, follows, terminated, expectile, sweeps=400):
    """IQL's V and Q on a tabular log: rows are (state, action); ``follows`` is the next state."""
    states = len(reward)
    value = np.zeros(states)
    for _ in range(sweeps):
        q = np.stack([
            td_target(
                jnp.asarray(row), jnp.asarray(value[nexts], jnp.float32), ended, discount=0.9
            )
            for row, nexts, ended in zip(reward, follows, terminated, strict=True)
        ])  # fmt: skip
        value = np.asarray([direct_expectile(row.astype(np.float64), expectile) for row in q])
    return value, q


def test_iql_scaling_rewards_and_inverse_temperature_leaves_the_weights():
    reward = RNG.normal(size=(4, 3)).astype(np.float32)
    follows = RNG.integers(0, 4, (4, 3))
    terminated = jnp.asarray(RNG.uniform(size=(4, 3)) < 0.3)
    weights = []
    for scale in (1.0, 8.0):
        value, q = fixed_point(scale * reward, follows, terminated, 0.7, sweeps=60)
        advantage = jnp.asarray(q - value[:, None], jnp.float32)
        weights.append(advantage_weights(advantage, inverse_temperature=3.0 / scale))
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-4)
    assert np.ptp(weights[0]) > 0.5


def test_iql_a_termination_stops_the_bootstrap_and_a_timeout_does_not():
    reward, value = jnp.ones(2), jnp.full(2, 10.0)
    trip, timeout = jnp.array([True, False]), jnp.array([False, True])
    np.testing.assert_allclose(td_target(reward, value, trip, discount=0.9), [1.0, 10.0])
    for returns in (
        functools.partial(segment_n_step_returns, n=5),
        functools.partial(segment_td_lambda_returns, lam=0.7),
    ):
        result = returns(reward, value, trip, timeout, discount=0.9)
        np.testing.assert_allclose(result, [1.0, 10.0])


# CQL and Cal-QL.


def test_cql_logsumexp_of_a_linear_critic_in_closed_form():
    """Uniform actions in [-1, 1]: ``log E[exp(w a) / density] = log(2 sinh(w) / w)``."""
    slope, count = 1.7, 4001
    actions = (2 * jnp.arange(count) + 1) / count - 1
    term = cql_regulariser(jnp.zeros(()), slope * actions, jnp.full(count, -jnp.log(2.0)))
    exact = np.log(2 * np.sinh(slope) / slope)
    assert float(term) - np.log(count) == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("constant", [-30.0, 0.0, 12.5])
def test_cql_a_constant_critic_leaves_the_sum_of_inverse_densities(constant):
    log_prob = jnp.asarray([-0.7, -0.7, 1.3, 0.2, -4.0])
    term = cql_regulariser(jnp.asarray(constant), jnp.full(5, constant), log_prob)
    assert float(term) == pytest.approx(float(np.log(np.sum(np.exp(-log_prob)))), abs=1e-5)


def test_cql_gradients_over_samples_and_data_cancel():
    for density in (None, jnp.asarray([0.3, -1.0, 2.0])):
        gradients = jax.grad(lambda q, s, d=density: cql_regulariser(q, s, d), argnums=(0, 1))(
            jnp.asarray(0.4), jnp.asarray([1.0, -2.0, 0.5])
        )
        assert float(gradients[0]) + float(gradients[1].sum()) == pytest.approx(0, abs=1e-6)


def test_cql_the_clamp_of_cal_ql_lifts_policy_samples_only():
    random, policy, reference = jnp.asarray([-5.0, 7.0]), jnp.asarray([-5.0, 7.0]), jnp.asarray(1.0)
    clamped = jnp.concatenate([random, cal_ql_clamp(policy, reference)])
    assert clamped.tolist() == [-5.0, 7.0, 1.0, 7.0]
    # Above the reference everywhere, Cal-QL is CQL.
    low = jnp.asarray(-9.0)
    assert cal_ql_clamp(policy, low).tolist() == policy.tolist()


# ReBRAC.


def test_rebrac_no_weight_is_td3_and_the_episode_boundary_is_masked():
    reward, values = jnp.ones(3), jnp.asarray([[4.0, 5.0, 6.0], [5.0, 4.0, 7.0]])
    policy, log = jnp.ones((3, 2)), jnp.asarray([[0.0, 1.0], [jnp.nan] * 2, [jnp.nan] * 2])
    trip, boundary = jnp.array([False, False, True]), jnp.array([False, True, False])
    target = functools.partial(
        regularised_td_target, reward, values, policy, log, trip, boundary, discount=0.5
    )
    plain = clipped_double_td_target(reward, values, trip, discount=0.5)
    assert target(weight=0.0).tolist() == plain.tolist() == [3.0, 3.0, 1.0]
    # One squared unit of distance in the first row; neither end of the log pays.
    assert target(weight=2.0).tolist() == [2.0, 3.0, 1.0]


def test_rebrac_the_penalty_is_summed_over_action_channels():
    wide = regularised_td_target(
        jnp.zeros(1), jnp.zeros((1, 1)), jnp.ones((1, 5)), jnp.zeros((1, 5)),
        jnp.zeros(1, bool), jnp.zeros(1, bool), discount=1.0, weight=1.0,
    )  # fmt: skip
    assert wide.tolist() == [-5.0]


# EDAC, with linear critics: the gradient in the action is the weight itself.


def diversity_of(weights):
    def q(weight, action):
        return weight @ action

    gradients = jax.vmap(jax.grad(q, argnums=1), in_axes=(0, None))(
        weights, jnp.asarray([0.3, -0.8])
    )
    return float(edac_diversity(gradients))


def test_edac_linear_critics_give_the_sum_of_cosines():
    weights = RNG.normal(size=(5, 2))
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = (cosines.sum() - np.trace(cosines)) / 4
    assert diversity_of(jnp.asarray(weights, jnp.float32)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.nightly
def test_edac_identical_critics_give_their_number_and_orthogonal_ones_zero():
    assert diversity_of(jnp.tile(jnp.asarray([[0.2, -3.0]]), (10, 1))) == pytest.approx(
        10, abs=1e-4
    )
    assert diversity_of(jnp.asarray([[2.0, 0.0], [0.0, -5.0]])) == pytest.approx(0, abs=1e-6)


# Safe RL.


def test_safe_rl_the_pid_multiplier_by_hand():
    """Costs 12, 12, 8 against a limit of 10, one-step delay, no smoothing."""
    gains = {"kp": 0.1, "ki": 0.5, "kd": 2.0, "smoothing": 0.0}
    state, seen = pid_multiplier_init(jnp.asarray(10.0), delay=1), []
    for cost in (12.0, 12.0, 8.0):
        state, multiplier = pid_multiplier_step(
            state, jnp.asarray(cost), jnp.asarray(10.0), **gains
        )
        seen.append(float(multiplier))
    # P: 0.2, 0.2, -0.2; I: 1, 2, 1; D: 2 x 2, 0, 0.
    assert seen == pytest.approx([5.2, 2.2, 0.8])


@jax.jit
def unwinding(max_integral):
    """Updates until the multiplier falls below one half, after 1,000 updates of error 10."""

    def update(state, cost):
        return pid_multiplier_step(
            state,
            cost,
            jnp.asarray(25.0),
            kp=0.1,
            ki=0.01,
            kd=0.01,
            max_integral=max_integral,
            max_multiplier=1e9,
        )

    costs = jnp.where(jnp.arange(12_000) < 1000, 35.0, 24.0)
    _, history = jax.lax.scan(update, pid_multiplier_init(jnp.asarray(25.0), delay=10), costs)
    return jnp.max(history), jnp.argmax((jnp.arange(12_000) >= 1000) & (history < 0.5)) - 1000


def test_safe_rl_a_clamped_integrator_unwinds_ten_times_faster():
    """Simulated by hand: peak 101 and 9,939 updates; with a ceiling of 10, 940."""
    peak, free = unwinding(1e9)
    assert float(peak) == pytest.approx(101, abs=1)
    assert int(free) == pytest.approx(9939, abs=15)
    assert int(unwinding(10.0)[1]) == pytest.approx(940, abs=2)


def test_safe_rl_thresholds_are_in_the_units_of_what_they_bound():
    assert float(discounted_cost_limit(10.0, horizon=300, discount=0.99)) == pytest.approx(
        3.17, abs=5e-3
    )
    # A mean over rows of w c is compared with limit / T, not with the discounted threshold.
    assert float(step_cost_limit(10.0, horizon=300)) == pytest.approx(10 / 300)
    # A cost spread evenly over the episode meets both thresholds at once.
    even = np.full(300, 10 / 300)
    assert np.sum(0.99 ** np.arange(300) * even) == pytest.approx(
        float(discounted_cost_limit(10.0, horizon=300, discount=0.99)), rel=1e-5
    )


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.999])
def test_safe_rl_reachability_on_a_chain_of_three_states(discount):
    """0 -> 1 -> 2, where 2 violates and terminates; 3 -> 3 is safe for ever."""
    constraint = jnp.asarray([-1.0, -1.0, 2.0, -1.0])
    follows, terminated = np.asarray([1, 2, 2, 3]), jnp.asarray([False, False, True, False])
    value = constraint
    for _ in range(4):  # From the constraint itself, a chain of three is done in three sweeps.
        value = chain_sweep(constraint, value[follows], terminated, discount)
    at_1 = (1 - discount) * -1 + discount * 2
    at_0 = (1 - discount) * -1 + discount * at_1
    np.testing.assert_allclose(value, [at_0, at_1, 2.0, -1.0], rtol=1e-4)
    # Infeasible where the violation is met, feasible where it never is.
    if discount > 0.6:
        assert (np.asarray(value) > 0).tolist() == [True, True, True, False]


@jax.jit
def chain_sweep(constraint, following, terminated, discount):
    return reachability_target(constraint, following, terminated, discount=discount)


def test_safe_rl_a_cost_critic_on_a_chain_with_timeout_and_with_termination():
    """One state that costs 1 for ever: the timeout bootstraps, the termination does not."""
    for terminated, expected in ((False, 1 / (1 - 0.9)), (True, 1.0)):
        value = jnp.zeros(1)
        for _ in range(300):
            value = discounted_cost_target(
                jnp.ones(1), value[None], jnp.asarray([terminated]), discount=0.9
            )
        assert float(value[0]) == pytest.approx(expected, rel=1e-4)
