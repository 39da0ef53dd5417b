"""Limits and optimal policies of a constrained decision process, beside a linear program."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import CPQ, FISOR, COptiDICE, IQLLag, TD3BCLag
from neorl_agents.algorithms.constrained._cpq import _safe
from neorl_agents.algorithms.constrained._lagrangian import cost_values
from neorl_agents.artefact import policy_actions
from neorl_agents.learning import Log, begin_training, log_tables, train_chunk
from neorl_agents.testing import Problem, sized, statistics_of
from neorl_core import Channel, CostChannel, as_arrays

from .tabular import HORIZON, STATES, optimum, tabular_problem, value_and_cost
from .test_definitions import chain

DISCOUNT, LIMIT = 0.9, 1.0
SMALL = {"hidden": (32, 32), "batch_size": 128, "discount": DISCOUNT}
PER_COST = {"kd": 0.001, "unit": "cost"}
FAST = {"critic_learning_rate": 3e-3}


@pytest.fixture(scope="module")
def process():
    """Its limit of an episode is that of a discounted cost of ``LIMIT`` spread evenly."""
    return tabular_problem(LIMIT * HORIZON * (1 - DISCOUNT) / (1 - DISCOUNT**HORIZON))


def trained(learner, process, updates):
    """What a learner makes of the log, and its last metrics."""
    rows = {name: getattr(process.log, name) for name in learner.fields if name != "mask"}
    log = process.log._replace(**{name: rows.get(name) for name in process.log._fields})
    tables = jax.tree.map(jnp.asarray, log_tables(learner, process.spec, jax.device_get(log)))
    state = learner.init(process.spec, process.statistics, jax.random.key(0))
    arrays, key, half = as_arrays(learner), jax.random.key(1), updates // 2
    training = begin_training(arrays, Log(), state, tables, key)
    for first in (0, half):
        number = jnp.int32(first)
        training, metrics = train_chunk(
            arrays, Log(), training, tables, number, key, n_updates=half
        )
    return training.learner, metrics


def test_the_linear_program_agrees_with_exact_evaluation():
    """Without a limit the optimum takes the second option always; with one, the limit is met."""
    free = optimum(100.0, DISCOUNT)
    np.testing.assert_allclose(value_and_cost([1, 1, 1], DISCOUNT), free[:2], rtol=1e-9)
    assert free.price == 0
    bound = optimum(LIMIT, DISCOUNT)
    np.testing.assert_allclose(bound.cost, LIMIT, rtol=1e-9)
    assert bound.price > 1
    assert bound.value < 0.4 * free.value


@pytest.mark.parametrize(
    ("learner", "updates", "share", "most"),
    [
        pytest.param(
            sized(
                TD3BCLag(), actor_learning_rate=1e-3, ki=0.01, kp=0.3, **PER_COST, **SMALL, **FAST
            ),
            3_000,
            0.65,
            1.1,
            marks=pytest.mark.nightly,
        ),
        (
            sized(
                IQLLag(), actor_learning_rate=3e-3, value_learning_rate=3e-3, ki=0.01, kp=1.0,
                inverse_temperature=10.0, **PER_COST, **SMALL, **FAST,
            ),
            3_000,
            0.75,
            1.1,
        ),
        pytest.param(
            sized(
                COptiDICE(), alpha=0.2, nu_learning_rate=3e-3, multiplier_learning_rate=3e-3,
                actor_learning_rate=3e-3, hidden=(32, 32), batch_size=128, discount=DISCOUNT,
            ),
            12_000,
            0.75,
            1.4,
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["td3_bc_lag", "iql_lag", "coptidice"],
)  # fmt: skip
def test_the_limit_is_met_and_most_of_the_optimum_earned(process, learner, updates, share, most):
    """Measured: 0.82 of the limit and 74 % of the optimum; 1.00 and 85 %.

    Without a price the same learners cost 3.5 and 4 times the limit. The rest to the optimum is
    the pull of the log, which nothing but an infinite weight takes away. COptiDICE ends at 1.27
    times the limit: the weights of single successors favour lucky ones, so that the policy costs
    more than the distribution that they describe.
    """
    best = optimum(LIMIT, DISCOUNT)
    state, metrics = trained(learner, process, updates)
    action = policy_actions(learner.policy(state), np.eye(STATES, dtype=np.float32))
    value, cost = value_and_cost(action[:, 0], DISCOUNT)
    assert cost < most * LIMIT
    assert cost > 0.6 * LIMIT, "the limit is not used"
    assert value > share * best.value
    assert float(metrics["multiplier"]) > 1
    assert abs(float(metrics["cost_excess"])) < 0.25, "the prediction does not meet the limit"


@pytest.mark.nightly
@pytest.mark.parametrize(("rate", "expected"), [(1e-4, 2.33), (1e-3, 5.0)])
def test_cpq_stays_beyond_the_limit_that_its_actor_left_while_the_costs_were_learned(
    process, rate, expected
):
    """No action is safe in the end, so that nothing moves the actor; 5.03 is without a limit."""
    learner = sized(CPQ(), actor_learning_rate=rate, tau=0.05, **SMALL)
    state, metrics = trained(learner, process, 1_500)
    action = policy_actions(learner.policy(state), np.eye(STATES, dtype=np.float32))
    _, cost = value_and_cost(action[:, 0], DISCOUNT)
    np.testing.assert_allclose(cost, expected * LIMIT, atol=0.3)
    assert float(metrics["safe_actions"]) == 0


def test_a_cost_of_exactly_the_limit_is_safe_to_cpq_and_every_cost_counts():
    above = np.nextafter(np.float32(0.3), np.float32(1))
    cost = jnp.asarray([[0.3, 0.3, above], [2.0, 2.5, 0.0]])
    np.testing.assert_array_equal(_safe(cost, jnp.asarray([0.3, 2.0])), [True, False, False])


@pytest.mark.nightly
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_the_cost_critics_of_iql_lag_go_on_after_a_timeout_and_stop_at_a_termination(ends):
    """Costs of 1, 2, 4 in a row of three states; where the episode is cut off, 4 go on for ever."""
    spec, log, statistics, exact = chain(ends)
    spec = replace(spec, cost=(CostChannel("c", "1", 100.0, "episode"),))
    log = log._replace(cost=log.reward[:, None], reward=np.zeros_like(log.reward))
    learner = sized(
        IQLLag(), critic_learning_rate=3e-3, tau=0.1, hidden=(32, 32), batch_size=96, discount=0.9
    )
    state, _ = trained(learner, Problem(spec, log, statistics), 1_500)
    obs = state.preparation.obs.to_scaled(jnp.asarray(log.obs[:3]))
    actual = cost_values(state.parameters["cost_critics"], obs, jnp.asarray(log.action[:3]))
    unit = state.preparation.cost_unit
    np.testing.assert_allclose(actual[0] * unit, exact, rtol=0.02)


CHAIN = ((1,), (2,), (2,), (3,))
"""What follows each of four states: two lead to one that violates for ever, one never does."""


def chain_problem(violation):
    """A log of the chain; no action matters, so every expectile has the same values."""
    problem, rng = tabular_problem(1.0, rows=2048), np.random.default_rng(1)
    state = rng.integers(4, size=2048)
    state[:64] = 3  # two episodes that keep the limit
    one_hot = np.eye(4, dtype=np.float32)
    following = np.array([after[0] for after in CHAIN])[state]
    log = problem.log._replace(
        obs=jnp.asarray(one_hot[state]),
        next_obs=jnp.asarray(one_hot[following]),
        cost=jnp.asarray((state == 2)[:, None], jnp.float32),
    )
    channels = tuple(Channel(f"s{i}", "1", 0.0, 1.0) for i in range(4))
    spec = replace(problem.spec, obs=channels, cost=(CostChannel("c", "1", 0.5, "step"),))
    return Problem(spec, log, statistics_of(log))


def test_the_feasibility_critic_of_a_chain_is_the_fixed_point():
    """``Q = (1 - g) h + g max(h, V)`` by hand: ``h`` is 3 in the third state and -1 elsewhere."""
    discount, violation = 0.8, 3.0
    exact = np.array([0.0, 0.0, violation, -1.0])
    exact[1] = (1 - discount) * -1 + discount * violation
    exact[0] = (1 - discount) * -1 + discount * exact[1]
    learner = sized(
        FISOR(), violation=violation, tau=0.05, critic_learning_rate=3e-3,
        value_learning_rate=3e-3, hidden=(32,), batch_size=128, discount=discount,
    )  # fmt: skip
    state, metrics = trained(learner, chain_problem(violation), 1_500)
    actual = state.parameters["cost_value"](state.preparation.obs.to_scaled(jnp.eye(4)))[:, 0]
    np.testing.assert_allclose(actual, exact, atol=0.15)
    np.testing.assert_allclose(metrics["feasible"], 0.25, atol=0.05)
