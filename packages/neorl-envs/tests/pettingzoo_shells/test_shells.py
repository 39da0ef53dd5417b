"""PettingZoo's own checkers, and the shells beside the pure functions."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from neorl_core import as_arrays
from neorl_envs.pettingzoo_shells import SimultaneousShell, StrictShell
from neorl_envs.worlds import treasure_hunt

WORLD = treasure_hunt("2a24efc", n_agents=3, size=(6, 6), horizon=8, spawn=0.3)


def test_the_checkers_find_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A view is not an image, and a Box without bounds is said to be suspicious.
        warnings.filterwarnings("ignore", message=".*[Oo]bservation.*")
        api_test(StrictShell(WORLD), num_cycles=30)
        parallel_api_test(SimultaneousShell(WORLD), num_cycles=30)
        seed_test(lambda: StrictShell(WORLD), num_cycles=10)
        parallel_seed_test(lambda: SimultaneousShell(WORLD), num_cycles=10)


def test_a_strict_episode_is_that_of_the_world() -> None:
    shell, world = StrictShell(WORLD), as_arrays(WORLD)
    shell.reset(seed=3)
    rng, rewards = np.random.default_rng(0), []
    for_world, key = jax.random.split(jax.random.key(3))
    state, earned = world.reset(for_world), []
    for _ in range(8):
        for_draws, key = jax.random.split(key)
        state = world.begin_turn(state, world.draw(for_draws))
        for agent in range(3):
            obs, _, terminated, truncated, _ = shell.last()
            assert np.array_equal(obs, world.observe(state, agent))
            assert not terminated
            assert not truncated
            action = int(rng.integers(4))
            name = shell.agent_selection
            shell.step(action)
            rewards.append(shell.rewards[name])
            state, reward = world.act(state, agent, jnp.asarray(action))
            earned.append(float(reward))
    assert rewards == earned
    assert all(shell.truncations.values())
    assert not any(shell.terminations.values())
