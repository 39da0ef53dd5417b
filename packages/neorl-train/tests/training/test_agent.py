"""The object with train, predict, save and load beside the pure functions that it calls."""

import jax
import numpy as np
import pytest

from neorl_agents import BC, load_policy
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_envs import collect_log, make
from neorl_train import Agent, train
from neorl_train.training import Plan


@pytest.fixture(scope="module")
def log():
    return collect_log(make("DMSD-v0"), n_steps=300, key=jax.random.key(0))


@pytest.fixture(scope="module")
def agent(log):
    return Agent(_small()).train(log, updates=40, seed=3)


def _small():
    return sized(BC(), hidden=(8, 8), batch_size=16)


def test_it_acts_as_the_policy_of_the_training_loop_does(log, agent):
    obs = log.transitions.obs[:5]
    (policy,) = train(_small(), log, (3,), Plan(40, 40, 40)).policies
    want = [policy(policy.initial_carry(), one, None)[1] for one in obs]
    np.testing.assert_allclose(agent.predict(obs), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(agent.predict(obs[2]), want[2], rtol=1e-5, atol=1e-5)


def test_a_saved_agent_predicts_the_same_and_is_an_artefact(tmp_path, log, agent):
    agent.save(tmp_path / "bc.safetensors")
    again = Agent.load(tmp_path / "bc.safetensors")
    obs = log.transitions.obs[:7]
    np.testing.assert_array_equal(again.predict(obs), agent.predict(obs))
    assert load_policy(tmp_path / "bc.safetensors").metadata["seed"] == 3
    assert repr(again) == repr(agent) == "Agent(BC, 40 updates)"
    with pytest.raises(InputError, match="loaded from a file, which contains only the policy"):
        again.train(log, updates=40)


def test_names_and_hyperparameters_make_the_learner():
    assert Agent("iql", expectile=0.8).algorithm.expectile == 0.8
    with pytest.raises(InputError, match="did you mean 'iql'"):
        Agent("iqll")
    with pytest.raises(InputError, match=r"iql: .*expectil"):
        Agent("iql", expectil=0.8)
    with pytest.raises(
        InputError,
        match="expectile cannot be set here, because a learner has its own hyperparameters",
    ):
        Agent(_small(), expectile=0.8)


def test_what_cannot_be_done_is_one_line(tmp_path, log, agent):
    untrained = Agent("bc")
    assert repr(untrained) == "Agent(BC, not trained)"
    for call in (lambda: untrained.predict(np.zeros(6)), lambda: untrained.save(tmp_path / "x")):
        with pytest.raises(InputError, match="not trained; call train"):
            call()
    with pytest.raises(InputError, match=r"one observation of 6 channels .* got shape \(7,\)"):
        agent.predict(np.zeros(7))
    with pytest.raises(InputError, match="positive multiple of 1, got 0"):
        untrained.train(log, updates=0)
