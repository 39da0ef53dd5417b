"""Pipeline against the benchmark's own code, on a recorded trajectory."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs import make
from neorl_envs.plants import Pipeline
from neorl_envs.plants.pipeline import LEVELS, Draw

ENV = Pipeline()
RECORDED = np.load(Path(__file__).parent / "neorl2.npz")


def test_it_repeats_a_trajectory_of_the_benchmark_step_for_step() -> None:
    """Row R01: a trajectory of Pipeline is that of the benchmark."""
    first, actions, obs = (RECORDED[name] for name in ("first", "actions", "obs"))
    params = ENV.default_params()
    params = params._replace(
        initial=jnp.asarray(first[0]), initial_spread=jnp.zeros((), jnp.float32)
    )
    state, shown = ENV.reset(params, jax.random.key(0))
    state = state._replace(disturbance=jnp.asarray(first[1]))
    np.testing.assert_allclose(shown[jnp.arange(52) != 1], np.delete(first, 1), rtol=1e-6)
    targets = np.concatenate([first[1:2], obs[:, 1]])
    assert len(set(targets)) > 1
    changes = np.diff(targets) != 0
    # Draws that lead to the recorded targets.
    level = np.searchsorted(LEVELS, obs[:, 1]).astype(np.int32)
    quiet = ENV.sample_noise(params, jax.random.key(0))

    def step(state, row):
        action, changed, level = row
        noise = quiet._replace(process=Draw(jnp.where(changed, 0.0, 1.0), level))
        state, answer = ENV.step_with_noise(params, state, action[None], noise)
        return state, (answer.obs, answer.reward)

    rows = (jnp.asarray(actions, jnp.float32), changes, level)
    _, (seen, reward) = jax.jit(lambda s, r: jax.lax.scan(step, s, r))(state, rows)
    np.testing.assert_allclose(seen, obs, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(reward, RECORDED["reward"], atol=2e-5)
    assert obs[:, 0].max() == 200.0  # the recording reaches the end of the range


def test_targets_start_anywhere_and_change_three_times_in_a_thousand() -> None:
    env = make("Pipeline-v0")
    params = env.default_params()
    keys = jax.random.split(jax.random.key(0), 20_000)
    starts = jax.vmap(lambda k: env.begin_disturbance(params.constants, k))(keys)
    assert set(np.unique(starts)) == set(LEVELS)
    draws = jax.vmap(lambda k: env.sample_process_noise(params.constants, k))(keys)
    assert abs(np.mean(np.asarray(draws.uniform) < 0.003) - 0.003) < 0.0015
