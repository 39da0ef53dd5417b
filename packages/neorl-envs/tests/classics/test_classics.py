"""The classics step by step beside Gymnasium's own."""

import gymnasium
import jax
import numpy as np
import pytest

from neorl_envs.classics import CartPole, CartPoleState, Pendulum, PendulumState
from neorl_envs.plants._protocol import check_plant


@pytest.mark.parametrize("plant", [CartPole(), Pendulum()], ids=lambda plant: plant.name)
def test_it_is_a_plant(plant):
    check_plant(plant.name, plant)


def test_the_pendulum_is_that_of_gymnasium():
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    theirs.reset(seed=0)
    rng, plant = np.random.default_rng(0), Pendulum()
    theirs.state = np.array([2.5, -0.5])
    state = PendulumState(*np.float32([2.5, -0.5]), np.int32(0))
    step = jax.jit(plant.step)
    for _ in range(30):
        action = rng.uniform(-2.5, 2.5, 1).astype(np.float32)
        obs, reward, *_ = theirs.step(action)
        state, ours = step(None, state, action, jax.random.key(0))
        np.testing.assert_allclose(ours.obs, obs, atol=2e-4)
        np.testing.assert_allclose(ours.reward, reward, rtol=2e-3, atol=2e-3)


def test_the_cart_is_that_of_gymnasium_until_the_pole_falls():
    theirs = gymnasium.make("CartPole-v1").unwrapped
    rng, step = np.random.default_rng(1), jax.jit(CartPole().step)
    for episode in range(5):
        obs, _ = theirs.reset(seed=episode)
        state = CartPoleState(np.float32(obs), np.int32(0))
        ended = False
        while not ended:
            side = int(rng.integers(2))
            obs, reward, ended, *_ = theirs.step(side)
            action = rng.uniform(0, 0.4, 2).astype(np.float32)
            action[side] += 0.5
            state, ours = step(None, state, action, jax.random.key(0))
            np.testing.assert_allclose(ours.obs, obs, rtol=1e-4, atol=1e-5)
            assert (float(ours.reward), bool(ours.terminated)) == (reward, ended)
            assert ours.applied.tolist() == [1 - side, side]
        assert bool(ours.info.trip)


def test_episodes_end_at_the_limits_of_gymnasium():
    for plant, name in ((CartPole(), "CartPole-v1"), (Pendulum(), "Pendulum-v1")):
        assert plant.spec.horizon == gymnasium.spec(name).max_episode_steps
    state = CartPoleState(np.zeros(4, np.float32), np.int32(499))
    _, last = CartPole().step(None, state, np.float32([1, 0]), jax.random.key(0))
    assert bool(last.truncated)
    assert not bool(last.terminated)
    assert bool(last.info.success)
