"""DMSD against the benchmark's published data, and its regulator against SciPy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_discrete_are

from neorl_envs.plants import DMSD
from neorl_envs.plants.dmsd import REGULATOR, Masses, Targets

ENV = DMSD()
A = np.array([[1, 0, 0.2, 0], [0, 1, 0, 0.2], [-0.04, 0.02, 0.92, 0.04], [0.02, -0.04, 0.04, 0.92]])


@jax.jit
def steps(masses: Masses, targets: jax.Array, time: jax.Array, force: jax.Array):
    """One step from every given state."""
    params = ENV.default_params()
    state, _ = ENV.reset(params, jax.random.key(0))

    def one(masses, target, time, force):
        here = state._replace(plant=masses, disturbance=Targets(target, target), time=time)
        return ENV.step(params, here, force, jax.random.key(0))[1]

    return jax.vmap(one)(masses, targets, time, force)


def test_one_step_is_the_recovered_linear_system() -> None:
    """Row R01: a step of DMSD is that of the benchmark's rules."""
    rng = np.random.default_rng(0)
    x, target, force = rng.normal(size=(50, 4)), rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    force = 40 * force  # beyond the ends too
    arrays = [jnp.asarray(a, jnp.float32) for a in (x[:, :2], x[:, 2:], target, force)]
    answer = steps(Masses(*arrays[:2]), arrays[2], jnp.zeros(50, jnp.int32), arrays[3])
    push = np.clip(force, -30, 30) / 30
    expected = x @ A.T + 0.3 * np.hstack([np.zeros((50, 2)), push])
    np.testing.assert_allclose(answer.obs[:, :4], expected, atol=2e-6)
    distance = np.abs(expected[:, :2] - target)
    np.testing.assert_allclose(answer.reward, -np.log(distance + 0.01).sum(1), atol=5e-4)


def test_it_repeats_the_published_data(shared_data: Callable[..., Path]) -> None:
    with np.load(shared_data("neorl2", "DMSD-high-20000-val.npz")) as file:
        data = {name: file[name] for name in ("obs", "action", "next_obs", "reward")}
    obs, force = data["obs"], 30 * data["action"]
    masses = Masses(jnp.asarray(obs[:, :2]), jnp.asarray(obs[:, 2:4]))
    following = jnp.asarray(data["next_obs"][:, 4:])
    answer = steps(masses, following, jnp.zeros(len(obs), jnp.int32), jnp.asarray(force))
    np.testing.assert_allclose(answer.obs, data["next_obs"], atol=2e-6)
    np.testing.assert_allclose(answer.reward, data["reward"].ravel(), atol=2e-4)


def test_the_target_in_force_changes_at_step_fifty_at_most() -> None:
    params = ENV.default_params()
    keys = jax.random.split(jax.random.key(0), 2000)
    targets = jax.vmap(lambda key: ENV.begin_disturbance(params.constants, key))(keys)
    changed = np.asarray(targets.first != targets.second)
    assert abs(changed.mean() - 0.5) < 0.05
    assert np.abs(np.asarray(targets)).max() <= 1.5
    state, _ = ENV.reset(params, jax.random.key(3))
    state = state._replace(disturbance=Targets(jnp.zeros(2), jnp.ones(2)))
    shown = []
    step = jax.jit(ENV.step)
    for _ in range(51):
        state, answer = step(params, state, jnp.zeros(2), jax.random.key(0))
        shown.append(float(answer.obs[4]))
    assert shown == [0.0] * 49 + [1.0] * 2


def test_the_regulator_solves_its_riccati_equation_and_scores_as_published() -> None:
    B = np.vstack([np.zeros((2, 2)), 0.01 * np.eye(2)])
    Q, R = np.diag([1.0, 1.0, 0.0, 0.0]), 0.01 / 900 * np.eye(2)
    X = solve_discrete_are(A, B, Q, R)
    np.testing.assert_allclose(REGULATOR, np.linalg.solve(R + B.T @ X @ B, B.T @ X @ A), rtol=1e-6)
    heavier = DMSD(shifted=True).default_params().constants.mass
    np.testing.assert_array_equal(heavier, np.float32([30, 30]))


def test_the_reference_scores_97_of_100(episodes: Any) -> None:
    keys = jax.random.split(jax.random.key(0), 400)
    result = np.asarray(episodes(ENV, ENV.tunings()["LQR"], keys).reward).sum(axis=1)
    score = 100 * (result - 30.60) / (849.51 - 30.60)
    assert abs(score.mean() - 97.5) < 1.5
