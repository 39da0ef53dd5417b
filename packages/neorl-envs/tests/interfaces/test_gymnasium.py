"""The shells around the pure environment."""

import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from neorl_core import InputError, unit_interval
from neorl_envs import environment_names, make
from neorl_envs.interfaces import gymnax
from neorl_envs.interfaces._gymnasium import GymnasiumEnv
from neorl_envs.interfaces._gymnasium_vector import GymnasiumVectorEnv
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
    """Row N01: a plant passes the checker of Gymnasium."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(NAME)
        check_env(env.unwrapped)
    assert env.observation_space.shape == (12,)
    assert env.action_space.shape == (3,)
    assert (env.action_space.low == -1).all()


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_the_checker_passes_on_every_plant(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(f"neorl/{name}").unwrapped)


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized:UserWarning")
def test_the_physical_shell_passes_with_its_one_expected_warning() -> None:
    env = gymnasium.make(PHYSICAL)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.high[0] == 30_000.0


def test_every_plant_has_both_names_and_its_horizon() -> None:
    for name in environment_names():
        base, version = name.rsplit("-", 1)
        for kind in ("", "-physical"):
            spec = gymnasium.spec(f"neorl/{base}{kind}-{version}")
            assert spec.max_episode_steps == make(name).spec.horizon


def test_equal_seeds_give_equal_episodes() -> None:
    """Row N03: two resets with one seed begin equal episodes."""
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
    with pytest.raises(ValueError, match="render_mode must be None, 'rgb_array' or 'human', got"):
        GymnasiumEnv("ChemicalReactor-v0", render_mode="ansi")
    with pytest.raises(ValueError, match="preset must be"):
        gymnasium.make(NAME, preset="dirty")
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        gymnasium.make_vec(NAME, num_envs=0)


def test_actions_that_are_none_have_a_defined_outcome(tank: Any) -> None:
    env = GymnasiumEnv(tank())
    env.reset(seed=0)
    for wrong in (np.zeros(2), 0.0, np.zeros((1, 1))):
        with pytest.raises(InputError, match=r"an action must have shape \(1,\), got"):
            env.step(wrong)
    with pytest.raises(InputError, match=r"an action must be numbers of shape \(1,\), got 'up'"):
        env.step("up")
    for action, applied, outside in ((0.5, 75, False), (2, 100, True), (np.nan, 50, True)):
        *_, info = env.step(np.asarray([action]))
        np.testing.assert_allclose(info["applied"], [applied])
        np.testing.assert_array_equal(info["outside"], [outside])
    physical = GymnasiumEnv(tank(), physical=True)
    physical.reset(seed=0)
    assert physical.step(np.asarray([101.0]))[4]["outside"].tolist() == [True]


class Physics(NamedTuple):
    rate: Any


def test_options_of_a_reset(tank: Any) -> None:
    class Checked(tank):
        def check_params(self, params: Any) -> None:
            if float(params) < 0:
                raise ValueError(f"constant 'rate' must be positive, got {params} m")

    env = GymnasiumEnv(Checked())
    with pytest.raises(InputError, match="unknown option of reset 'parms'; did you mean 'params'"):
        env.reset(options={"parms": 1.0})
    with pytest.raises(InputError, match=r"params must be made by default_params.*got Physics"):
        env.reset(options={"params": Physics(1.0)})
    with pytest.raises(ValueError, match="'rate' must be positive, got -1"):
        env.reset(options={"params": jnp.asarray(-1.0)})
    env.reset(options={"params": jnp.asarray(0.5)})


def test_information_that_is_no_scalar_or_nothing(tank: Any) -> None:
    """Defect 7: ``()`` and array fields passed neither shell."""

    class Flows(NamedTuple):
        flows: Any
        trip: Any

    class Grid(tank):
        def step(self, params: Any, state: Any, action: Any, key: Any) -> Any:
            state, step = super().step(params, state, action, key)
            return state, step._replace(info=Flows(jnp.arange(4.0), step.terminated))

    for plant, fields in ((Grid(), {"flows", "trip"}), (tank(), set())):
        env, many = GymnasiumEnv(plant), GymnasiumVectorEnv(plant, 2)
        env.reset(seed=0)
        many.reset(seed=0)
        info = env.step(np.zeros(1))[4]
        assert set(info) == {*fields, "cost", "cost_sum", "applied", "outside"}
        infos = many.step(np.zeros((2, 1)))[4]
        assert set(infos) == set(info)
        if fields:
            assert info["flows"].shape == (4,)
            assert info["trip"] is False
            assert infos["flows"].shape == (2, 4)
        _, state = gymnax(plant).reset(jax.random.key(0))
        *_, more = gymnax(plant).step(jax.random.key(0), state, jnp.zeros(1))
        assert set(more) > fields


def test_a_window_follows_the_episode(tank: Any) -> None:
    matplotlib.use("agg")
    env = GymnasiumEnv(tank(), render_mode="human")
    env.reset(seed=0)
    env.step(np.zeros(1))
    from matplotlib import pyplot

    assert pyplot.get_fignums() == [1]
    assert env.render() is None
    env.close()
    assert pyplot.get_fignums() == []


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
        "import sys, neorl_envs\n"
        "assert not {'jax', 'gymnasium'} & set(sys.modules)\n"
        "import neorl_envs.interfaces, gymnasium\n"
        "assert 'neorl/ChemicalReactor-v0' in gymnasium.registry\n"
        "assert 'neorl/ChemicalReactor-physical-v0' in gymnasium.registry\n"
        "assert not {'matplotlib', 'neorl_envs.interfaces._gymnasium'} & set(sys.modules)\n"
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"  # refused once a backend runs
        "neorl_envs.plants._table.register_environments()\n"  # twice is no error
    )
    _run(code)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "code",
    [
        "import gymnasium, neorl_envs; gymnasium.make('neorl/CSTR-v0')",
        "import neorl_envs, gymnasium; gymnasium.make('neorl_envs.interfaces:neorl/CSTR-v0')",
        "import neorl_envs.interfaces._gymnasium, gymnasium; gymnasium.make('neorl/CSTR-v0')",
    ],
)
def test_a_fresh_process_makes_a_plant_by_its_gymnasium_id(code: str) -> None:
    _run(code)


def _run(code: str) -> None:
    completed = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert completed.returncode == 0, completed.stderr.decode()
