"""What a log cannot teach is said in one line, before anything is compiled.

Of learners under limits, of sequences and of models; that of costs and limits is in
``test_limits.py``.
"""

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_agents.learning import log_tables
from neorl_agents.policies import prepare
from neorl_agents.testing import make_problem, statistics_of
from neorl_core import InputError

SAFE = {name for name, kind in ALGORITHMS.items() if kind.keeps_limits and not kind.needs_rollouts}
MODELS = {"mopo", "mobile", "combo", "rambo", "morel"}
NAMES = sorted(SAFE | MODELS | {"dt", "cdt"})


def learner_of(name):
    """What reads the log first: the model, of a learner that has one."""
    learner = ALGORITHMS[name]()
    return learner.fitted_model() if name in MODELS else learner


@pytest.fixture(scope="module")
def problem():
    """Limits that some episodes keep."""
    return make_problem(n_cost=1)


def refused(name, problem, rows):
    learner = learner_of(name)
    with pytest.raises(InputError) as said:
        log_tables(learner, problem.spec, rows)
    message = str(said.value)
    assert "\n" not in message
    assert type(learner).__name__ in message or "a model" in message
    return message


@pytest.fixture
def kept(problem):
    """The log of the problem, with costs that one episode keeps."""
    cost = np.array(problem.log.cost)
    cost[:64] = 0
    return jax.tree.map(np.asarray, problem.log)._replace(cost=cost)


@pytest.mark.parametrize("name", NAMES)
def test_one_episode_is_refused(name, problem, kept):
    never = np.zeros(len(kept.reward), bool)
    message = refused(name, problem, kept._replace(terminated=never, truncated=never))
    assert "one episode" in message
    assert "log more, or split" in message or "record or split into more" in message


@pytest.mark.parametrize("name", NAMES)
def test_actions_that_never_move_are_refused_by_name(name, problem, kept):
    still = np.repeat(kept.action[:1], len(kept.action), axis=0)
    message = refused(name, problem, kept._replace(action=still))
    assert all(channel.name in message for channel in problem.spec.action)
    assert "never move" in message


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_observation_is_taken(name, problem, kept):
    """Its scale is a thousandth of its measuring range, so that nothing becomes infinite."""
    assert np.ptp(kept.obs[:, -1]) == 0
    assert jax.tree.leaves(log_tables(learner_of(name), problem.spec, kept))
    maps = prepare(problem.spec, statistics_of(problem.log))
    assert float(maps.obs.scale[-1]) > 0
    assert np.isfinite(np.asarray(maps.obs.to_scaled(kept.obs[0]))).all()
