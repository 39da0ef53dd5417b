"""Declared rewards and costs against what the plants pay, on logged rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_envs import collect_log, make


@pytest.mark.parametrize(
    ("name", "error"), [("IndustrialBenchmark-v0", 1e-6), ("HVACControl-v0", 0.1)]
)
def test_a_declared_outcome_is_what_the_plant_pays(name, error):
    """HVACControl measures its temperatures with noise, and its heat pumps differ a little."""
    env = make(name)
    log = collect_log(env, env.tunings(), n_steps=1, key=jax.random.key(0))
    rows = log.transitions
    seen = (rows.obs, rows.action, rows.next_obs, np.roll(rows.action, 1, axis=0))
    columns = [jnp.asarray(np.asarray(x), jnp.float32) for x in seen]
    declared = np.asarray(jax.jit(jax.vmap(env.objective))(*columns))
    cost = np.asarray(rows.cost).reshape(len(declared), -1)
    paid = np.concatenate([np.asarray(rows.reward)[:, None], cost], axis=1)
    assert declared.shape == paid.shape
    spread = paid.std(axis=0) + 1e-9
    assert np.all(np.abs(declared - paid).mean(axis=0) <= error * spread)
