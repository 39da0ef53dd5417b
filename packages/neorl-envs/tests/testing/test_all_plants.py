"""Every plant keeps every law."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import highs, lows
from neorl_envs import collect_log, environment_names, make
from neorl_envs.recording import quality
from neorl_envs.testing import LAWS, check_environment

# As published: one target drawn at the start, or seldom.
WITHOUT_CHANCE = ("DMSD-v0", "Pipeline-v0")
# As their pages say: setpoints are the task, and in the benchmark noise is the plant.
CHANCE_WHEN_CLEAN = ("CSTR-v0", "IndustrialBenchmark-v0")
# Two thirds of what all plants cost: by night; by day the tests of each see to what it does.
STEPS = 200
LARGE = ("PowerGrid-v0", "RobotAssembly-v0", "SteelAnnealing-v0", "WaterTreatment-v0")


NIGHTLY = pytest.mark.nightly


def by_day(names: Iterable[str]) -> list[Any]:
    return [pytest.param(n, marks=NIGHTLY) if n in LARGE else n for n in names]


@pytest.mark.parametrize("name", by_day(environment_names()))
def test_a_plant_keeps_the_laws(name: str) -> None:
    result = check_environment(make(name), eager=False)
    assert len(result) == len(LAWS)  # and whether it is a plant, less the eager one
    assert [finding for finding in result if finding.fault] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_a_plant_keeps_the_laws_eagerly_and_with_other_seeds(name: str) -> None:
    for seed, eager in ((1, True), (2, False), (3, False)):
        result = check_environment(make(name), seed=seed, eager=eager)
        assert [finding for finding in result if finding.fault] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_1024_worlds_step_in_one_call_as_single_ones_do(name: str) -> None:
    env: Any = make(name)
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))

    def one(key: Any) -> Any:
        for_params, for_reset, for_action, for_step = jax.random.split(key, 4)
        params = env.sample_params(for_params)
        state, _ = env.reset(params, for_reset)
        action = jax.random.uniform(for_action, low.shape, minval=low, maxval=high)
        return env.step(params, state, action, for_step)[1]

    keys = jax.random.split(jax.random.key(0), 1024)
    many = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(keys))
    assert many.obs.shape == (1024, env.spec.n_obs)
    assert len(np.unique(many.obs, axis=0)) > 1000
    span = np.asarray(highs(env.spec.obs)) - np.asarray(lows(env.spec.obs))
    single = jax.jit(one)
    for i in (0, 511, 1023):
        alone = single(keys[i])
        np.testing.assert_allclose(many.obs[i] / span, alone.obs / span, atol=1e-5)
        np.testing.assert_allclose(many.reward[i], alone.reward, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [n if n == "CSTR-v0" else pytest.param(n, marks=NIGHTLY) for n in environment_names()],
)
def test_a_scan_over_many_worlds_gives_what_a_loop_of_single_steps_gives(name: str) -> None:
    """Row N02: a compiled scan of 200 steps beside a Python loop, to 1e-5 of every range."""
    env: Any = make(name)
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))

    def begin(key: Any) -> Any:
        params = env.sample_params(key)
        return params, env.reset(params, jax.random.fold_in(key, 1))[0]

    def step(params: Any, state: Any, key: Any) -> Any:
        for_action, for_step = jax.random.split(key)
        action = jax.random.uniform(for_action, low.shape, minval=low, maxval=high)
        return env.step(params, state, action, for_step)

    def episode(key: Any) -> Any:
        params, state = begin(key)
        keys = jax.random.split(jax.random.fold_in(key, 2), STEPS)
        return jax.lax.scan(lambda state, key: step(params, state, key), state, keys)[1]

    keys = jax.random.split(jax.random.key(3), 4)
    many = jax.tree.map(np.asarray, jax.jit(jax.vmap(episode))(keys))
    single_begin, single_step = jax.jit(begin), jax.jit(step)
    params, state = single_begin(keys[1])
    span = np.asarray(highs(env.spec.obs)) - np.asarray(lows(env.spec.obs))
    for i, key in enumerate(jax.random.split(jax.random.fold_in(keys[1], 2), STEPS)):
        state, alone = single_step(params, state, key)
        np.testing.assert_allclose(many.obs[1, i] / span, alone.obs / span, atol=1e-5)
        assert bool(many.terminated[1, i]) == bool(alone.terminated)


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_logged_actions_are_what_the_plant_received(name: str) -> None:
    """Inside their box; replayed in the pure plant, each is applied as it was logged."""
    env: Any = make(name)
    who, plan = quality(env, "mixed")
    log = collect_log(env, who, plan=plan, n_steps=1, key=jax.random.key(5), spread=0.15)
    rows: Any = log.episode(0)
    low, high = np.float32(lows(env.spec.action)), np.float32(highs(env.spec.action))
    assert ((rows.action >= low) & (rows.action <= high)).all()

    @jax.jit
    def replayed(actions: Any) -> Any:
        params = env.default_params("clean")
        state, _ = env.reset(params, jax.random.key(0))

        def step(state: Any, action: Any) -> Any:
            state, answer = env.step(params, state, action, jax.random.key(0))
            return state, answer.applied

        return jax.lax.scan(step, state, actions)[1]

    np.testing.assert_allclose(replayed(rows.action), rows.action, rtol=1e-6, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_chance_is_drawn_before_the_step_and_off_in_clean(name: str) -> None:
    """``step`` is ``step_with_noise`` of what ``sample_noise`` draws; ``clean`` draws no effect."""
    env: Any = make(name)
    middle = (jnp.asarray(lows(env.spec.action)) + jnp.asarray(highs(env.spec.action))) / 2

    @jax.jit
    def run(params: Any, start: Any, key: Any) -> Any:
        def one(states: Any, key: Any) -> Any:
            state, split = states
            noise = env.sample_noise(params, key)
            split, apart = env.step_with_noise(params, split, middle, noise)
            state, answer = env.step(params, state, middle, key)
            return (state, split), (answer, apart)

        state, _ = env.reset(params, start)
        return jax.lax.scan(one, (state, state), jax.random.split(key, 30))[1]

    start, keys = jax.random.key(0), jax.random.split(jax.random.key(1))
    chances = {"plant": name not in WITHOUT_CHANCE, "clean": name in CHANCE_WHEN_CLEAN}
    for preset, chance in chances.items():
        (first, apart), (second, _) = (run(env.default_params(preset), start, key) for key in keys)
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(apart), strict=True):
            np.testing.assert_array_equal(a, b)
        differs = np.any(np.asarray(first.obs) != np.asarray(second.obs))
        assert differs == chance, preset
