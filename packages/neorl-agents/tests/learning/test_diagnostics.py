"""What tells that training went wrong, on numbers made by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.learning import UnitRows, held_actions, value_metrics, weight_metrics
from neorl_agents.policies import prepare


def test_the_effective_sample_is_kishs_and_masked_rows_do_not_count():
    weights, mask = jnp.array([1.0, 1.0, 4.0, 100.0]), jnp.array([True, True, True, False])
    result = weight_metrics(weights, mask, 4.0)
    assert result["effective_sample"] == pytest.approx(6**2 / (3 * 18), rel=1e-6)
    assert result["at_ceiling"] == pytest.approx(1 / 3, rel=1e-6)
    assert weight_metrics(jnp.zeros(3), None, 4.0)["effective_sample"] == 0


def test_values_beyond_what_the_rewards_of_the_log_admit_are_counted(problem):
    """Rewards from -1 to 2 at discount 0.5: from -2 to 4, and a twentieth of the width more."""
    preparation = prepare(problem.spec, problem.statistics)

    def beyond(q, low=-1.0, high=2.0, **how):
        within = replace(preparation, reward_range=jnp.array([low, high]))
        result = value_metrics(jnp.array(q), within, rows_of(len(q)), discount=0.5, **how)
        assert result["q"] == pytest.approx(np.mean(q), rel=1e-6)
        return float(result["q_beyond_rewards"])

    q = [-2.35, -2.25, 4.25, 4.35]
    assert beyond(q) == 0.5
    assert beyond(q, penalised=True) == 0.25
    assert beyond(q, entropy=0.1) == 0.25
    # Where all rewards are above zero, ending early earns nothing; likewise below.
    assert beyond([-0.19, -0.21, 4.0], low=1.0) == pytest.approx(1 / 3)
    assert beyond([0.09, 0.11, -2.0], high=-0.5) == pytest.approx(1 / 3)


def rows_of(count, **fields):
    """Rows of which the values' metrics read these fields alone."""
    fixed = {
        "reward": jnp.zeros(count),
        "terminated": jnp.zeros(count, bool),
        "discount": jnp.full(count, 0.5),
    }
    return UnitRows(**(dict.fromkeys(UnitRows._fields) | fixed | fields))


def test_values_that_have_not_climbed_are_told_in_deviations_of_the_rewards(problem):
    """Rewards of 10 +- 1 at discount 0.9 are worth 100; values of 40 stand for 4 a step."""
    preparation = prepare(problem.spec, problem.statistics)
    rows = rows_of(4, reward=jnp.array([9.0, 11.0, 9.0, 11.0]), discount=jnp.full(4, 0.9))

    def off(q, rows=rows, **how):
        result = value_metrics(jnp.full(4, q), preparation, rows, discount=0.9, **how)
        return float(result["q_off_rewards"])

    assert off(100.0) == pytest.approx(0, abs=1e-5)
    assert off(40.0) == pytest.approx(6, rel=1e-5)
    assert off(130.0) == pytest.approx(3, rel=1e-5)
    # What a learner pushes down on purpose is no sign, nor what a reward for entropy adds.
    assert off(40.0, penalised=True) == 0
    assert off(130.0, penalised=True, entropy=1.0) == pytest.approx(2, rel=1e-5)
    # Behind a termination nothing follows; a masked row is in no mean; over two steps 0.81 is left.
    ends = rows._replace(terminated=jnp.array([True, True, False, False]))
    assert off(10.0, ends) == pytest.approx(4.5, rel=1e-5)
    masked = rows._replace(
        reward=rows.reward.at[3].set(1e6), mask=jnp.array([True, True, True, False])
    )
    assert off(100.0, masked) == pytest.approx(1 / 3 / np.sqrt(8 / 9), rel=1e-4)
    assert off(100.0, rows._replace(discount=jnp.full(4, 0.81))) == pytest.approx(9, rel=1e-5)
    assert off(40.0, rows._replace(reward=jnp.full(4, 10.0))) == 0


def test_an_action_is_held_where_its_tanh_is_flat_and_the_log_is_inside():
    action = jnp.array([[1.0, 0.2], [-1.0, 1.0], [1 - 2e-3, -1.0], [-1.0, -1.0]])
    logged = jnp.array([[0.5, 0.2], [-1.0, 0.98], [0.0, -0.995], [0.0, 0.0]])
    mask = jnp.array([True, True, True, False])
    # The first of row one and the second of row two; the others move, or the log is there too.
    assert held_actions(action, logged, mask) == pytest.approx(2 / 6)
    assert jax.jit(held_actions)(action, logged, None) == pytest.approx(4 / 8)
