"""The shells around the pure environment."""

import subprocess
import sys
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import neorl_envs
from neorl_core import unit_interval
from neorl_envs.plants import ChemicalReactor

NAME, PHYSICAL = "neorl/ChemicalReactor-v0", "neorl/ChemicalReactor-physical-v0"


def random_episode(env: gymnasium.Env, seed: int, steps: int = 20) -> np.ndarray:
    obs, _ = env.reset(seed=seed)
    rng = np.random.default_rng(0)
    seen = [obs]
    for _ in range(steps):
        obs, reward, *_ = env.step(rng.uniform(-1, 1, 3).astype(np.float32))
        seen.append(np.append(obs, reward))
    return np.concatenate(seen)


def test_the_checker_passes_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(NAME)
        check_env(env.unwrapped)
    assert env.observation_space.shape == (12,)
    assert env.action_space.shape == (3,)
    assert (env.action_space.low == -1).all()


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized:UserWarning")
def test_the_physical_shell_passes_with_its_one_expected_warning() -> None:
    env = gymnasium.make(PHYSICAL)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.high[0] == 30_000.0


def test_equal_seeds_give_equal_episodes() -> None:
    env = gymnasium.make(NAME)
    first = random_episode(env, 7)
    np.testing.assert_array_equal(first, random_episode(env, 7))
    np.testing.assert_array_equal(first, random_episode(gymnasium.make(NAME), 7))
    assert (first != random_episode(env, 8)).any()


def test_a_second_reset_without_a_seed_is_reproducible_too() -> None:
    def two_episodes() -> np.ndarray:
        env = gymnasium.make(NAME)
        env.reset(seed=1)
        return env.reset()[0]

    np.testing.assert_array_equal(two_episodes(), two_episodes())


def test_it_is_the_pure_environment(env: ChemicalReactor) -> None:
    """Given parameters and no noise, shell and pure functions show the same numbers."""
    params = env.default_params("clean")
    shell, raw = gymnasium.make(NAME), gymnasium.make(PHYSICAL)
    first, _ = shell.reset(seed=0, options={"params": params})
    raw.reset(seed=0, options={"params": params})
    state, obs = env.reset(params, jax.random.key(0))
    np.testing.assert_array_equal(first, obs)
    scale = unit_interval(env.spec.action)
    step = jax.jit(env.step)
    for action in np.float32([[-0.5, 0.2, 0.1], [0.3, -1.0, 1.0], [1.0, 0.0, 0.0]]):
        physical = scale.to_physical(jnp.asarray(action))
        state, answer = step(params, state, physical, jax.random.key(0))
        obs, reward, terminated, truncated, info = shell.step(action)
        np.testing.assert_allclose(obs, answer.obs, rtol=1e-6)
        np.testing.assert_allclose(raw.step(np.asarray(physical))[0], answer.obs, rtol=1e-6)
        assert reward == pytest.approx(float(answer.reward), abs=1e-5)
        assert (terminated, truncated) == (False, False)
        np.testing.assert_allclose(info["cost"], answer.cost, atol=1e-5)
        np.testing.assert_allclose(info["applied"], answer.applied, rtol=1e-6)
        assert info["cost_sum"] == pytest.approx(float(answer.cost.sum()), abs=1e-5)
        assert info["success"] is False
        assert isinstance(info["T_R_margin"], float)


def test_misuse_is_refused() -> None:
    env = gymnasium.make(NAME).unwrapped
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        env.step(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array', got 'human'"):
        neorl_envs.interfaces._gymnasium.GymnasiumEnv("ChemicalReactor-v0", render_mode="human")
    with pytest.raises(ValueError, match="preset must be"):
        gymnasium.make(NAME, preset="dirty")
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        gymnasium.make_vec(NAME, num_envs=0)


def test_a_picture_of_the_episode() -> None:
    env = gymnasium.make(NAME, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    for _ in range(5):
        env.step(np.zeros(3, np.float32))
    later = env.render()
    assert isinstance(first, np.ndarray)
    assert isinstance(later, np.ndarray)
    assert first.shape == later.shape
    assert first.dtype == np.uint8
    assert (first != later).any()


def test_importing_registers_and_does_nothing_else() -> None:
    code = (
        "import sys, neorl_envs, gymnasium\n"
        "assert 'neorl/ChemicalReactor-v0' in gymnasium.registry\n"
        "assert 'neorl/ChemicalReactor-physical-v0' in gymnasium.registry\n"
        "assert not {'matplotlib', 'tyro', 'neorl_envs.interfaces._gymnasium'} & set(sys.modules)\n"
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"  # refused once a backend runs
        "neorl_envs.interfaces._gymnasium_names.register_environments()\n"  # twice is no error
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
