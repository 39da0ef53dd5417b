"""What one update beside the equations (``test_equations.py``) does not show of learners.

The faults of public implementations that a rule would have found are named in it.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import AWAC, CQL, EDAC, IQL, SACN, XQL, ReBRAC
from neorl_agents.learning import UnitRows, regression_weights
from neorl_agents.testing import sized

from .by_hand import KEY, SMALL, method, started, wide


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def in_units(learner, seed=0):
    """The rows of an update as networks could see them."""
    rng, shape = np.random.default_rng(seed), (learner.batches_per_update, learner.batch_size)
    action = rng.uniform(-0.9, 0.9, size=(2, *shape, 2))
    return UnitRows(
        obs=rng.normal(size=(*shape, 4)),
        action=action[0],
        reward=rng.normal(size=shape),
        cost=None,
        next_obs=rng.normal(size=(*shape, 4)),
        next_action=action[1],
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        mask=None,
        discount=np.full(shape, learner.discount),
        mc_return=None,
    )


class TestReBRAC:
    @pytest.fixture
    def case(self):
        learner, state = started(ReBRAC)
        return learner, state, in_units(learner)

    def test_rows_at_a_seam_carry_no_penalty(self, case):
        """unifloral and others take the first action of the next episode."""
        learner, state, rows = case
        heavy, free = (replace(learner, critic_weight=np.array(x)) for x in (100.0, 0.0))
        at = np.arange(32)[None, :].repeat(2, 0) % 2 == 0
        foreign = np.where(at[..., None], 0.99, rows.next_action)
        seam = rows._replace(truncated=at)
        targets = method("critic_targets")
        with_penalty = np.asarray(targets(heavy, state, seam, KEY))
        np.testing.assert_array_equal(
            with_penalty, targets(heavy, state, seam._replace(next_action=foreign), KEY)
        )
        without = np.asarray(targets(free, state, rows, KEY))
        np.testing.assert_allclose(with_penalty[at], without[at])
        assert np.all(with_penalty[~at] < without[~at])

    def test_it_explores_with_the_stated_deviation(self, case):
        learner, state, _ = case
        louder = replace(learner, exploration_std=np.array(0.25)).explore(state)
        np.testing.assert_allclose(np.exp(louder.log_std), [0.25, 0.25])


class TestIQL:
    def test_weights_are_a_hundred_from_the_logarithm_of_a_hundred_on(self):
        at = np.log(100.0) / 3
        weights = regression_weights(IQL(), jnp.asarray([at - 1e-9, at, at + 1e-9, 1e9]), None)
        np.testing.assert_allclose(weights, 100, rtol=1e-8)
        assert weights[0] < 100
        np.testing.assert_array_equal(weights[2:], 100)

    def test_only_the_rate_of_the_actor_falls(self, problem):
        """unifloral applies the schedule to every network."""
        learner, state = started(IQL)
        learner = replace(learner, decay_updates=np.int32(10))
        batch, update = jax.tree.map(wide, problem.batch(sized(IQL(), **SMALL))), method("update")
        late = state.with_counters(updates=np.int32(10))
        early, ended = (update(learner, s, batch, KEY)[0] for s in (state, late))
        np.testing.assert_array_equal(
            ended.parameters["actor"].mean.weights[0], state.parameters["actor"].mean.weights[0]
        )
        assert not np.array_equal(
            early.parameters["actor"].mean.weights[0], state.parameters["actor"].mean.weights[0]
        )
        np.testing.assert_array_equal(
            ended.parameters["value"].weights[0], early.parameters["value"].weights[0]
        )
        np.testing.assert_array_equal(
            ended.parameters["critics"].weights[0], early.parameters["critics"].weights[0]
        )


@pytest.mark.parametrize("kind", [CQL, SACN, EDAC, AWAC, IQL, XQL])
def test_acting_is_the_mean_whatever_the_deviation(kind, problem):
    """And takes no key: an evaluation that draws measures another policy."""
    learner = sized(kind(), **SMALL)
    state = learner.init(problem.spec, problem.statistics, KEY)
    actor = jax.tree.map(lambda leaf: leaf + 0.3, state.parameters["actor"])
    state = state.with_parameters(actor=actor)
    obs = problem.log.obs[0]
    policy = learner.policy(state)
    acted = [policy((), obs, key)[1] for key in (None, jax.random.key(1), jax.random.key(2))]
    np.testing.assert_array_equal(acted[0], acted[1])
    np.testing.assert_array_equal(acted[0], acted[2])
    if hasattr(actor, "log_std"):
        mean, wider = actor.mean, replace(actor, log_std=actor.log_std + 3)
    else:
        bias, act = actor.biases[-1], len(acted[0])
        mean, wider = actor, replace(actor, biases=(*actor.biases[:-1], bias.at[act:].add(3.0)))
    spread = learner.policy(state.with_parameters(actor=wider))
    np.testing.assert_array_equal(spread((), obs)[1], acted[0])
    unit = np.tanh(
        centre(mean, np.asarray(state.preparation.obs.to_scaled(obs), float))[: len(acted[0])]
    )
    assert np.abs(unit).max() > 0.3, "so large that a tanh is no straight line"
    low, high = np.asarray(state.preparation.low), np.asarray(state.preparation.high)
    np.testing.assert_allclose(2 * (acted[0] - low) / (high - low) - 1, unit, atol=1e-5)


def centre(network, x):
    """What a perceptron gives before its output function."""
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ np.asarray(weight) + np.asarray(bias), 0)
    return x @ np.asarray(layers[-1][0]) + np.asarray(layers[-1][1])
