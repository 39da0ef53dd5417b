"""Fitted Q evaluation against closed forms, and the rows that it is given."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtri

from neorl_agents.models import FittedQEvaluation, with_next_actions
from neorl_agents.testing import learner_laws, sized, statistics_of
from neorl_core import InputError, Transition
from neorl_core.control import ConstantPolicy

from .fitted_q_plants import (
    CHAIN,
    CHAIN_DISCOUNT,
    DISCOUNT,
    KEY,
    LUCK,
    SPEC,
    STAY,
    A,
    affine_learner,
    chain_log,
    linear_log,
    trained,
    values_of_holding,
)

# By day the plainest form and the fullest.
LAWS = {
    f"{costs}-{quantiles}-{members}-{name}": pytest.param(
        law, marks=[pytest.mark.nightly] * ((costs, members) == (True, 1))
    )
    for costs, quantiles, members in ((False, 0, 1), (True, 0, 1), (True, 3, 1), (True, 3, 2))
    for name, law in learner_laws(
        lambda costs=costs, quantiles=quantiles, members=members: sized(
            FittedQEvaluation(evaluates_costs=costs, quantiles=quantiles, members=members),
            hidden=(8,),
            batch_size=32,
        )
    ).items()
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    law()


@pytest.fixture
def linear():
    return affine_learner()


@pytest.mark.parametrize("held", [20.0, 80.0])
def test_on_a_linear_plant_it_finds_the_closed_form(linear, held):
    """Row N23: fitted Q evaluation finds the value of a linear plant."""
    log = with_next_actions(linear_log(), ConstantPolicy(jnp.asarray([held])))
    state, metrics = trained(linear, log, SPEC, (1e-1, 1e-2, 1e-3), 1500)
    for obs, action in ((-1.0, 10.0), (0.5, 90.0)):
        value = linear.value(state, jnp.asarray([obs]), jnp.asarray([action]))
        reward, cost = values_of_holding(held, obs, action)
        np.testing.assert_allclose(value.reward, reward, atol=0.05)
        np.testing.assert_allclose(value.cost, [cost], rtol=2e-3)
    mean_of_log = np.mean([values_of_holding(held, o, a)[0] for o, a in
                           zip(log.obs[:, 0], log.action[:, 0], strict=True)])  # fmt: skip
    np.testing.assert_allclose(metrics["q"][-1], mean_of_log, atol=0.05)


def test_on_a_linear_plant_with_noise_the_quantiles_are_those_of_the_normal_return(linear):
    """Disturbances of deviation ``s`` give a normal return with the variance in closed form.

    The disturbance of step t enters the return with ``2 discount^(t + 1) / (1 - discount a)``.
    Sixteen quantiles are narrower than the distribution that they follow, by a tenth here.
    """
    held, spread, count = 20.0, 0.5, 16
    # Every observation and action with every disturbance, so that neither is related to it.
    plain = jax.tree.map(lambda x: np.repeat(x, count, axis=0), linear_log(8))
    disturbance = np.tile(ndtri((np.arange(count) + 0.5) / count), 8)
    spread /= np.std(disturbance[:count])
    plain = plain._replace(next_obs=plain.next_obs + np.float32(spread * disturbance[:, None]))
    log = with_next_actions(plain, ConstantPolicy(jnp.asarray([held])))
    learner = sized(linear, quantiles=count)
    state, metrics = trained(learner, log, SPEC, (1e-1, 1e-2, 3e-3), 600)
    deviation = 2 * DISCOUNT * 0.5 / ((1 - DISCOUNT * A) * np.sqrt(1 - DISCOUNT**2))
    normal = ndtri((np.arange(count) + 0.5) / count)
    for obs, action in ((-1.0, 10.0), (0.5, 90.0)):
        of_action = state, jnp.asarray([obs]), jnp.asarray([action])
        actual, value = learner.return_quantiles(*of_action), learner.value(*of_action)
        reward, cost = values_of_holding(held, obs, action)
        assert np.mean(np.abs(actual.reward - reward - deviation * normal)) < 0.12 * deviation
        assert np.std(actual.reward) == pytest.approx(deviation * np.std(normal), rel=0.12)
        # The cost has no randomness: every quantile is its sum.
        np.testing.assert_allclose(actual.cost, np.full((1, count), cost), rtol=2e-3)
        np.testing.assert_allclose(value.reward, np.mean(actual.reward), rtol=1e-5)
        assert abs(float(value.reward) - reward) < 0.06 * deviation
    mean_of_log = np.mean([values_of_holding(held, o, a)[0] for o, a in
                           zip(log.obs[:, 0], log.action[:, 0], strict=True)])  # fmt: skip
    assert abs(float(metrics["q"][-1]) - mean_of_log) < 0.06 * deviation


def exact_return_of_chain(values, steps=14):
    """Possible discounted sums from the first state with their probabilities, by enumeration."""
    outcomes = {(0, 0.0): 1.0}
    ended: dict[float, float] = {}
    for step in range(steps):
        following: dict[tuple[int, float], float] = {}
        for (state, total), p in outcomes.items():
            for value, p_value in values(state):
                reached = round(total + CHAIN_DISCOUNT**step * value, 2)
                for stays, p_move in ((True, STAY), (False, 1 - STAY)):
                    after, mass = state + (not stays), p * p_value * p_move
                    if after == 3:
                        ended[reached] = ended.get(reached, 0) + mass
                    else:
                        key = (after, reached)
                        following[key] = following.get(key, 0) + mass
        outcomes = following
    assert sum(outcomes.values()) < 1e-3
    totals = np.array(sorted(ended))
    return totals, np.array([ended[total] for total in totals])


def test_on_a_chain_of_states_the_distribution_is_the_enumerated_one(linear):
    count, log = 16, chain_log()
    learner = sized(linear, quantiles=count, discount=CHAIN_DISCOUNT)
    state, _ = trained(learner, log, CHAIN, (3e-2, 3e-3), 800)
    actual = learner.return_quantiles(state, jnp.eye(3)[0], jnp.zeros(1))
    ordinary = sized(linear, discount=CHAIN_DISCOUNT)
    mean, _ = trained(ordinary, log, CHAIN, (3e-2, 3e-3), 800)
    value = ordinary.value(mean, jnp.eye(3)[0], jnp.zeros(1))
    levels = (np.arange(count) + 0.5) / count
    for quantiles, fitted, values in (
        (actual.reward, value.reward, lambda s: ((1.0, LUCK[s]), (0.0, 1 - LUCK[s]))),
        (actual.cost[0], value.cost[0], lambda s: ((float(s == 1), 1.0),)),
    ):
        totals, mass = exact_return_of_chain(values)
        at_levels = np.minimum(np.searchsorted(np.cumsum(mass), levels), len(totals) - 1)
        exact, exact_mean = totals[at_levels], totals @ mass / mass.sum()
        deviation = np.sqrt((totals - exact_mean) ** 2 @ mass)
        assert np.mean(np.abs(quantiles - exact)) < 0.12 * deviation
        assert abs(float(np.mean(quantiles)) - exact_mean) < 0.1 * deviation
        assert abs(float(fitted) - exact_mean) < 0.05 * deviation


def test_only_a_learner_with_quantiles_has_a_distribution(linear):
    state = linear.init(SPEC, statistics_of(linear_log()), KEY)
    with pytest.raises(ValueError, match="quantiles must be above 0"):
        linear.return_quantiles(state, jnp.zeros(1), jnp.zeros(1))


class Recalls(eqx.Module):
    """Answers with the steps that it has seen, in hundreds, and the action that it learned of."""

    def initial_carry(self):
        return jnp.zeros(2)

    def __call__(self, carry, obs, key=None):
        return carry.at[0].add(1), (100 * carry[0] + carry[1])[None]

    def sent(self, carry, action):
        return carry.at[1].set(action[0])


def episodes():
    ends = np.array([0, 0, 1, 0, 1, 0, 0], bool)
    terminated = np.array([0, 0, 1, 0, 0, 0, 0], bool)
    action = np.arange(7.0, dtype=np.float32)[:, None]
    obs = np.zeros((7, 1), np.float32)
    return Transition(
        obs, action, np.zeros(7, np.float32), next_obs=obs, next_action=action * 0,
        terminated=terminated, truncated=ends & ~terminated,
    )  # fmt: skip


def test_without_a_policy_the_logs_own_actions_stand_where_they_are_known():
    rows = with_next_actions(episodes())
    # Behind a termination nothing follows; of the last rows of the others nobody knows what did.
    np.testing.assert_array_equal(rows.mask, [True, True, True, True, False, True, False])
    np.testing.assert_array_equal(rows.next_action[:, 0], [1, 2, 0, 4, 0, 6, 0])


def test_a_policy_with_memory_begins_anew_with_every_episode_and_behind_gaps():
    rows = episodes()._replace(mask=np.array([1, 1, 1, 1, 1, 0, 1], bool))
    chosen = with_next_actions(rows, Recalls()).next_action[:, 0]
    # Hundreds: steps of the piece so far. Units: what was done in the row before.
    np.testing.assert_array_equal(chosen[rows.mask], [100, 201, 302, 103, 204, 106])


def test_what_cannot_be_evaluated_is_refused():
    with pytest.raises(InputError, match="column next_obs of the log is missing"):
        with_next_actions(episodes()._replace(next_obs=None))
    alone = jax.tree.map(lambda x: x[:1], episodes()._replace(truncated=np.ones(7, bool)))
    with pytest.raises(InputError, match="needs rows with a next row in the same episode"):
        with_next_actions(alone)
    for settings, words in (
        ({"encoder": "history"}, "networks.encoder must be 'none'"),
        ({"n_step": 3}, "n_step must be 1, got 3"),
    ):
        with pytest.raises(ValueError, match=words):
            sized(FittedQEvaluation(), **settings).validate()
