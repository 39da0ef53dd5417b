"""The clone of a plant's expert, which has an integral, earns what it earned."""

import jax
import numpy as np
import pytest

from neorl_agents import BC
from neorl_agents.testing import sized
from neorl_envs import collect_log, make
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.training import Plan

UPDATES, EPISODES = 20_000, 100


@pytest.mark.nightly
def test_the_clone_of_an_integral_needs_the_last_steps_and_then_earns_what_it_earned():
    """Row N12: on CSTR's expert log, of a PI; within two standard errors with a window of four."""
    env = make("CSTR-v0")
    controllers, plan = quality(env, "expert")
    log = collect_log(env, controllers, n_steps=20_000, key=jax.random.key(0), plan=plan)
    data, keys = training_data(log), jax.random.split(jax.random.key(11), EPISODES)
    score = jax.jit(lambda policy: score_episodes(env, policy, keys).total)
    (expert,) = controllers.values()
    earned = np.asarray(score(expert))

    def below(**memory):
        """By how many standard errors the clone is below the expert."""
        learner = sized(BC(), hidden=(64, 64), batch_size=64, **memory)
        (policy,) = train(learner, data, (0,), Plan(UPDATES, 1_000, UPDATES)).policies
        cloned = np.asarray(score(policy))
        error = np.hypot(earned.std(), cloned.std()) / np.sqrt(EPISODES)
        return (earned.mean() - cloned.mean()) / error

    assert below(encoder="history", history_steps=4) < 2
    assert below() > 3
