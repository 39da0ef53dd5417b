"""SAC, TD3, PPO and DQN learn Gymnasium's classics, restated as plants, from nothing."""

import jax
import numpy as np
import pytest

from neorl_agents import DQN, PPO, SAC, TD3
from neorl_agents.learning import Networks, Steps
from neorl_envs.classics import CartPole, Pendulum
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train_online
from neorl_train.configuration import FineTuningConfig, OnlineConfig
from neorl_train.training import Plan

RATES = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
SMALL = {"networks": Networks(hidden=(64, 64)), **RATES}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "learner",
    [
        SAC(steps=Steps(batch_size=128, optimiser="sac", reward_scale="none"), **SMALL),
        TD3(steps=Steps(batch_size=128, reward_scale="none"), **SMALL),
    ],
    ids=["sac", "td3"],
)
def test_it_swings_the_pendulum_up(learner):
    """Half a minute each. Doing nothing earns about -1,200; codes that work reach -250 or more."""
    settings = FineTuningConfig(environments=2, updates_per_step=1, warm_up=1000)
    plan = Plan(12_000, 1_000, 12_000)
    (policy,) = train_online(learner, Pendulum(), (0,), plan, settings=settings).policies
    episodes = score_episodes(Pendulum(), policy, jax.random.split(jax.random.key(9), 32))
    assert np.mean(scores(Pendulum(), episodes)) > -250


@pytest.mark.nightly
def test_ppo_swings_the_pendulum_up():
    """300,000 steps of 16 episodes side by side; measured: -159 and -160 (seeds 0 and 1)."""
    learner = PPO(discount=0.95, learning_rate=5e-4, rollout=128, epochs=10, minibatches=32)
    plan, settings = Plan(150, 50, 150), OnlineConfig(environments=16)
    (policy,) = train_online(learner, Pendulum(), (0,), plan, settings=settings).policies
    episodes = score_episodes(Pendulum(), policy, jax.random.split(jax.random.key(9), 32))
    assert np.mean(scores(Pendulum(), episodes)) > -250


@pytest.mark.nightly
def test_dqn_balances_the_pole():
    """500,000 steps of ten episodes, as CleanRL's; measured over seeds 0 to 4: 500 each."""
    steps = Steps(batch_size=128, optimiser="adam", reward_scale="none")
    learner = DQN(learning_rate=2.5e-4, priority=0.0, double=False, dueling=False, steps=steps)
    settings = OnlineConfig(environments=10, warm_up=10_000, capacity=10_000)
    plan = Plan(49_000, 4_900, 49_000)
    (policy,) = train_online(learner, CartPole(), (0,), plan, settings=settings).policies
    episodes = score_episodes(CartPole(), policy, jax.random.split(jax.random.key(9), 32))
    assert np.mean(scores(CartPole(), episodes)) > 400
