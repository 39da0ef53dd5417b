"""Limits and optimal policies of a constrained decision process, beside a linear program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import IQLLag, TD3BCLag
from neorl_agents.artefact import policy_actions
from neorl_agents.learning import Log, begin_training, log_tables, train_chunk
from neorl_agents.testing import sized
from neorl_core import as_arrays

from .tabular import HORIZON, STATES, optimum, tabular_problem, value_and_cost

DISCOUNT, LIMIT = 0.9, 1.0
SMALL = {"hidden": (32, 32), "batch_size": 128, "discount": DISCOUNT}
FAST = {"critic_learning_rate": 3e-3}


@pytest.fixture(scope="module")
def process():
    """Its limit of an episode is that of a discounted cost of ``LIMIT`` spread evenly."""
    return tabular_problem(LIMIT * HORIZON * (1 - DISCOUNT) / (1 - DISCOUNT**HORIZON))


def trained(learner, process, updates):
    """The exact value and cost of what a learner makes of the log, and its last metrics."""
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
    action = policy_actions(learner.policy(training.learner), np.eye(STATES, dtype=np.float32))
    return *value_and_cost(action[:, 0], DISCOUNT), metrics


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
    ("learner", "updates", "share"),
    [
        pytest.param(
            sized(TD3BCLag(), actor_learning_rate=1e-3, ki=0.01, kp=0.3, **SMALL, **FAST),
            3_000,
            0.65,
            marks=pytest.mark.nightly,
        ),
        (
            sized(
                IQLLag(), actor_learning_rate=3e-3, value_learning_rate=3e-3, ki=0.01, kp=1.0,
                inverse_temperature=10.0, **SMALL, **FAST,
            ),
            3_000,
            0.75,
        ),
    ],
    ids=["td3_bc_lag", "iql_lag"],
)  # fmt: skip
def test_the_limit_is_met_and_most_of_the_optimum_earned(process, learner, updates, share):
    """Measured: 0.82 of the limit and 74 % of the optimum; 1.00 and 85 %.

    Without a price the same learners cost 3.5 and 4 times the limit. The rest to the optimum is
    the pull of the log, which nothing but an infinite weight takes away.
    """
    best = optimum(LIMIT, DISCOUNT)
    value, cost, metrics = trained(learner, process, updates)
    assert cost < 1.1 * LIMIT
    assert cost > 0.6 * LIMIT, "the limit is not used"
    assert value > share * best.value
    assert float(metrics["multiplier"]) > 1
