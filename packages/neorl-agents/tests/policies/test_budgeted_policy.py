"""A policy that counts down its budgets, step by step beside the sums by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks import BudgetedChoice, ensemble, init_mlp, tanh
from neorl_agents.policies import BudgetedPolicy, HistoryPolicy, NetworkPolicy
from neorl_core import Affine

N_OBS, N_ACTION, HORIZON, UNIT, BUDGET = 2, 1, 6, 2.0, 5.0


def costing(price):
    """A network whose one cost of a step is ``price`` times the action sent, in units of 2."""
    network = init_mlp((2 * N_OBS + N_ACTION, 1), jax.random.key(0))
    weights = jnp.zeros_like(network.weights[0]).at[N_OBS, 0].set(price)
    return network.__class__((weights,), (jnp.zeros(1),))


def constant(values, width):
    """A network of fixed outputs whatever comes in."""
    network = init_mlp((width, len(values)), jax.random.key(0), output=tanh)
    zeros = jnp.zeros_like(network.weights[0])
    bias = jnp.arctanh(jnp.asarray(values, jnp.float32))
    return network.__class__((zeros,), (bias,), output=tanh)


def linear(slope, width):
    """Two equal critics of the value ``slope * action``."""

    def member(key):
        network = init_mlp((width + N_ACTION, 1), key)
        weights = jnp.zeros_like(network.weights[0]).at[width, 0].set(slope)
        return network.__class__((weights,), (jnp.zeros(1),))

    return ensemble(2, member, jax.random.key(0))


def choice(width, budget=BUDGET):
    """Two heads, of 0.8 and of 0.1, that critics find worth as much and costing ten times that."""
    return BudgetedChoice(
        constant([0.8, 0.1], width), linear(1.0, width), linear(10.0, width),
        jnp.asarray([budget]), jnp.asarray([1.0]), N_ACTION,
    )  # fmt: skip


def policy(price=0.5, budget=BUDGET):
    """A step costs 1.6 or 0.2 times the price."""
    zero, one = jnp.zeros(N_OBS), jnp.ones(N_OBS)
    maps = Affine(zero, one), Affine(jnp.zeros(1), jnp.ones(1))
    inner = NetworkPolicy(maps[0], choice(N_OBS, budget), maps[1], -jnp.ones(1), jnp.ones(1))
    return BudgetedPolicy(
        inner, costing(price), jnp.asarray([UNIT]), jnp.asarray(HORIZON, jnp.int32)
    )


CHOSEN = jax.jit(lambda policy, carry, obs: policy(carry, obs))
SENT = jax.jit(lambda policy, carry, action: policy.sent(carry, action))


def episode(policy, obs, told=None):
    """Actions, and what was left when each was chosen."""
    carry, actions, left = policy.initial_carry(), [], []
    for step, one in enumerate(obs):
        carry, action = CHOSEN(policy, carry, one)
        actions.append(float(action[0]))
        left.append(float(carry.remaining[0]))
        carry = SENT(policy, carry, action if told is None else told[step])
    return np.array(actions), np.array(left)


CALM = np.zeros((HORIZON, N_OBS), np.float32)


def test_a_step_takes_off_what_it_cost_and_the_rate_of_the_rest_decides():
    # The dear head is worth 8 to its cost critic, the cheap one 1.
    actions, left = episode(policy(price=0.5, budget=8.1), CALM)
    by_hand, expected, expected_left = 8.1, [], []
    for step in range(HORIZON):
        expected_left.append(by_hand)
        expected.append(0.8 if by_hand * HORIZON / (HORIZON - step) >= 8 else 0.1)
        by_hand -= 0.5 * UNIT * expected[-1]
    assert {0.8} == set(expected), "an even spender below its share never changes"
    np.testing.assert_allclose(left, expected_left, atol=1e-5)
    np.testing.assert_allclose(actions, expected, atol=1e-6)


def test_who_spends_too_much_is_held_and_who_spares_may_spend_at_the_end():
    # One dear step costs 8, so that after it 1 is left, which allows the cheap head for a while.
    actions, left = episode(policy(price=5.0, budget=9.0), CALM)
    by_hand, expected = 9.0, []
    for step in range(HORIZON):
        expected.append(0.8 if by_hand * HORIZON / (HORIZON - step) >= 8 else 0.1)
        by_hand = max(by_hand - 5.0 * UNIT * expected[-1], 0)
    assert set(expected) == {0.8, 0.1}
    np.testing.assert_allclose(actions, expected, atol=1e-6)
    assert left.min() == 0, "what is left does not fall below zero"


def test_what_is_not_known_takes_off_the_even_share():
    sent = np.zeros((HORIZON, 1), np.float32)
    sent[1] = np.nan
    obs = CALM.copy()
    obs[4] = np.nan
    _, left = episode(policy(budget=6.0), obs, sent)
    # Sent nothing, which costs nothing: known steps take off nothing.
    np.testing.assert_allclose(
        left, [6, 6, 6 - 6 / 5, 4.8, 4.8 - 4.8 / 3, 3.2 - 3.2 / 2], rtol=1e-5
    )


def test_a_count_below_zero_gives_nothing_back_and_a_horizon_begins_anew():
    twice = np.concatenate([CALM, CALM])
    _, left = episode(policy(price=-0.5), twice)
    np.testing.assert_allclose(left, BUDGET)
    _, left = episode(policy(), twice)
    np.testing.assert_allclose(left[HORIZON:], left[:HORIZON], rtol=1e-6)
    assert left[1] < BUDGET


def test_an_unknown_observation_gives_no_action_and_a_batch_is_refused():
    one = policy()
    _, action = one(one.initial_carry(), jnp.asarray([np.nan, 0.0]))
    assert np.isnan(action).all()
    with pytest.raises(ValueError, match="one observation of shape"):
        one(one.initial_carry(), jnp.zeros((3, N_OBS)))


def test_the_memory_of_the_policy_inside_goes_on():
    """With memory the policy inside sees the window that it would see alone."""
    zero, one = jnp.zeros(N_OBS), jnp.ones(N_OBS)
    maps = Affine(zero, one), Affine(jnp.zeros(1), jnp.ones(1))
    inside = HistoryPolicy(maps[0], choice(5), maps[1], -jnp.ones(1), jnp.ones(1), 1)
    outside = BudgetedPolicy(inside, costing(0.5), jnp.ones(1), jnp.asarray(9, jnp.int32))
    alone, carry = inside.initial_carry(), outside.initial_carry()
    for step in range(3):
        obs, sent = jnp.full(N_OBS, step + 0.5), jnp.asarray([0.1 * step])
        alone, _ = inside(alone, obs)
        carry, _ = outside(carry, obs)
        np.testing.assert_array_equal(carry.inner.window, alone.window)
        alone, carry = inside.sent(alone, sent), outside.sent(carry, sent)
        np.testing.assert_array_equal(carry.inner.sent, alone.sent)
