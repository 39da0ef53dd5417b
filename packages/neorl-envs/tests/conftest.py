import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Channel, CostChannel, Policy, Spec
from neorl_core.testing import climate
from neorl_envs import Dataset, collect_log, make
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.plants import ChemicalReactor


def pytest_configure() -> None:
    climate(strict_dtypes=True)


class Episodes(NamedTuple):
    """Whole episodes, axes ``(episode, time)``; rows after the end are zero."""

    obs: Array
    reward: Array
    cost: Array
    applied: Array
    alive: Array
    success: Array
    trip: Array
    band_margin: Array
    adiabatic_temperature: Array


@functools.partial(jax.jit, static_argnums=(0, 3))
def run_episodes(env: Any, policy: Policy, keys: Array, spread: float = 0.15) -> Episodes:
    def step(carry: tuple, key: Array) -> tuple[tuple, Episodes]:
        params, state, obs, memory, alive = carry
        memory, action = policy(memory, obs, key)
        state, answer = env.step(params, state, action, key)
        memory = policy.sent(memory, answer.applied)
        info = answer.info
        seen = (answer.obs, answer.reward, answer.cost, answer.applied, alive)
        seen += (info.success, info.trip, info.band_margin, info.adiabatic_temperature)
        rows = jax.tree.map(lambda x: jnp.where(alive, x, jnp.zeros_like(x)), Episodes(*seen))
        alive = alive & ~(answer.terminated | answer.truncated)
        return (params, state, answer.obs, memory, alive), rows

    def episode(key: Array) -> Episodes:
        for_params, for_reset, for_steps = jax.random.split(key, 3)
        params = env.sample_params(for_params, spread=spread)
        state, obs = env.reset(params, for_reset)
        carry = (params, state, obs, policy.initial_carry(), jnp.asarray(True))
        return jax.lax.scan(step, carry, jax.random.split(for_steps, env.spec.horizon))[1]

    return jax.vmap(episode)(keys)


@pytest.fixture(scope="session")
def episodes() -> Any:
    """``episodes(env, policy, keys)``: one compiled program a kind of policy."""
    return run_episodes


@pytest.fixture(scope="session")
def env() -> ChemicalReactor:
    return make("ChemicalReactor-v0")


@pytest.fixture(scope="session")
def log(env: ChemicalReactor) -> Dataset:
    """A plant log of one round of the tunings and a bit more."""
    return collect_log(env, n_steps=1000, key=jax.random.key(3))


@pytest.fixture
def toy_spec() -> Spec:
    return Spec(
        obs=(Channel("level", "m", 0.0, 2.0), Channel("temperature", "K", 280.0, 400.0)),
        action=(Channel("valve", "%", 0.0, 100.0),),
        cost=(CostChannel("overflow", "m", 0.5, "episode"),),
        dt=60.0,
        horizon=4,
    )


@pytest.fixture
def toy_columns() -> dict[str, np.ndarray]:
    """Three episodes of 3, 1 and 4 rows: a trip, a trip in the first row, a time limit."""
    n = 8
    rows = np.arange(n, dtype=np.float32)
    return {
        "obs": np.stack([rows / 8, 300 + rows], axis=1),
        "action": (10 * rows + 5)[:, None],
        "reward": rows - 1,
        "cost": (rows / 16)[:, None],
        "next_obs": np.stack([rows / 8 + 0.125, 301 + rows], axis=1),
        "terminated": np.isin(rows, [2, 3]),
        "truncated": np.isin(rows, [7]),
    }


@pytest.fixture
def toy(toy_spec: Spec, toy_columns: dict[str, np.ndarray]) -> Dataset:
    return dataset_from_columns(
        toy_spec,
        **toy_columns,
        behaviour=np.array([0, 1, 0]),
        behaviour_log_prob=np.linspace(-1, 0, 8),
        attributes={"name": "toy", "behaviours": ["a", "b"]},
    )


@pytest.fixture
def toy_file(toy: Dataset, tmp_path: Path) -> Path:
    from neorl_envs import write_dataset

    return write_dataset(tmp_path / "toy.h5", toy)


@pytest.fixture
def toy_npz(toy_columns: dict[str, np.ndarray], tmp_path: Path) -> Path:
    """The toy log as NeoRL-2 keeps one."""
    arrays = {key: toy_columns[key] for key in ("obs", "action", "next_obs", "reward")}
    arrays["done"] = toy_columns["terminated"].astype(np.float32)
    arrays["truncated"] = toy_columns["truncated"].astype(np.float32)
    np.savez_compressed(tmp_path / "toy.npz", **arrays)
    return tmp_path / "toy.npz"
