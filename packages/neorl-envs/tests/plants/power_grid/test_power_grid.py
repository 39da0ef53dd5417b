"""The grid against the published operating point and modes, and against SciPy's Radau."""

from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from neorl_core import highs, lows
from neorl_core.control import UniformPolicy
from neorl_envs.blocks import constant_values
from neorl_envs.plants import PowerGrid
from neorl_envs.plants.power_grid import Constants, Machines, bad_policy
from neorl_envs.plants.power_grid import _physics as physics
from neorl_envs.plants.power_grid._physics import world_at_start

RADAU = np.load(Path(__file__).with_name("radau.npz"))


@pytest.fixture(scope="module")
def env() -> PowerGrid:
    return PowerGrid()


@jax.jit
def steady(c: Constants) -> Any:
    """Power flow and Jacobian of the machines in the steady state."""
    schedule = physics.steady_state(c)
    z = physics.with_loads(schedule.ports[0], jnp.zeros(2, jnp.complex128))[:4]
    flat, unravel = jax.flatten_util.ravel_pytree(schedule.start)

    def slopes(x: Any) -> Any:
        result = physics.rates(c, schedule, z, jnp.zeros(8), unravel(x))
        return jax.flatten_util.ravel_pytree(result)[0]

    return physics.power_flow(c), slopes(flat), jax.jacfwd(slopes)(flat)


def test_power_flow_and_modes_are_the_published_ones() -> None:
    # Operating point: Kundur's table. Modes: manual excitation, regulators, and stabilisers.
    cases = {
        (0.0, 0.0): (complex(-0.092, 3.41), 1.083, 1.119),
        (200.0, 0.0): (complex(0.014, 3.83), 1.143, 1.178),
        (200.0, 20.0): (complex(-0.714, 3.79), 1.31, 1.37),
    }
    with jax.enable_x64(True):
        # governors blocked, as in the book
        c = constant_values(Constants(), dtype=jnp.float64)._replace(droop=jnp.asarray(1e9))
        for (exciter, stabiliser), (inter_area, first, second) in cases.items():
            now = c._replace(exciter=jnp.asarray(exciter), stabiliser=jnp.asarray(stabiliser))
            flow, slopes, jacobian = jax.device_get(steady(now))
            values = np.linalg.eigvals(jacobian)
            modes = values[(values.imag > 2) & (values.imag < 12)]
            modes = modes[np.argsort(modes.imag)]
            assert abs(modes[0] - inter_area) < 0.006
            hertz = modes.imag / (2 * np.pi)
            np.testing.assert_allclose(hertz[1:3], [first, second], atol=0.006)
            np.testing.assert_allclose(slopes, 0, atol=1e-11)
    np.testing.assert_allclose(flow.voltage, RADAU["voltage"], atol=1e-10)
    np.testing.assert_allclose(flow.injected, RADAU["power"], atol=1e-9)
    # As the book prints it.
    angles = np.rad2deg(np.angle(flow.voltage[:4]))
    np.testing.assert_allclose(angles - angles[2], [27.0, 17.3, 0, -10.2], atol=0.1)
    np.testing.assert_allclose(100 * flow.injected.imag, [185, 235, 176, 202], atol=0.5)
    np.testing.assert_allclose(100 * flow.injected.real, [700, 700, 719, 700], atol=0.2)
    np.testing.assert_allclose(abs(flow.voltage[6:9]), [0.961, 0.949, 0.971], atol=6e-4)
    assert abs(flow.tie - 400.3) < 0.1


def after_a_load_step(env: PowerGrid, dtype: Any) -> Any:
    """States and steps of five seconds after 100 MW more at bus 7."""
    with jax.enable_x64(dtype == jnp.float64):
        params = env.default_params("clean", dtype=dtype)

        @jax.jit
        def run(params: Any) -> Any:
            state, _ = env.reset(params, jax.random.key(0))
            world = state.disturbance
            step = jnp.zeros_like(world.step).at[0, 0].set(100.0)
            times = jnp.asarray((0.0, 1e9), dtype)
            state = state._replace(disturbance=world._replace(step=step, step_time=times))

            def one(state: Any, _: Any) -> Any:
                state, answer = env.step(params, state, jnp.zeros(8, dtype), jax.random.key(0))
                return state, (state.plant, answer)

            return jax.lax.scan(one, state, None, length=5)[1]

        plant, answer = jax.device_get(run(params))
        return np.stack(plant, axis=1), answer


def test_a_load_step_is_that_of_an_independent_integration(env: PowerGrid) -> None:
    actual, answer = after_a_load_step(env, jnp.float64)
    np.testing.assert_allclose(actual, RADAU["states"][1:], rtol=0, atol=2e-7)
    speed = Machines._fields.index("speed")
    single, same = after_a_load_step(env, jnp.float32)
    error = 60 * np.abs(single[:, speed] - actual[:, speed])
    assert error.max() < 1e-5  # Hz
    np.testing.assert_allclose(same.obs, answer.obs, rtol=1e-4, atol=0.02)
    # What is generated is what the loads, the lines and the armatures take.
    generated, loads = answer.obs[:, 4:8].sum(axis=1), answer.obs[:, 28:30].sum(axis=1)
    losses = generated - loads
    assert np.all((losses > 60) & (losses < 110))
    errors = answer.obs[:, 30:32].sum(axis=1)
    np.testing.assert_allclose(errors, 600 * answer.obs[:, :4].mean(axis=1) * 2, rtol=1e-9)


def test_no_circuit_trips_beside_a_step_of_the_load() -> None:
    c = constant_values(Constants(), dtype=jnp.float32)._replace(outage=jnp.asarray(1.0))
    result = jax.vmap(lambda key: world_at_start(c, key))(jax.random.split(jax.random.key(3), 500))
    gap = np.asarray(result.outage_time)[:, None] - np.asarray(result.step_time)
    assert not ((gap > -12) & (gap < 30)).any()
    assert (gap < 0).any()
    assert np.asarray(result.closing_time).max() < 300


def test_an_outage_is_drawn_apart_from_the_loads() -> None:
    c = constant_values(Constants(), dtype=jnp.float32)
    keys = jax.random.split(jax.random.key(4), 5000)
    actual = jax.device_get(jax.vmap(lambda key: world_at_start(c, key))(keys))
    tripped = actual.outage_time < 300
    assert abs(tripped.mean() - c.outage) < 4 * np.sqrt(0.2 * 0.8 / len(keys))
    quantities = [*actual.wander.T, *actual.step_time.T, *actual.step.sum(axis=2).T, actual.outage]
    for quantity in quantities:
        assert scipy.stats.ks_2samp(quantity[tripped], quantity[~tripped]).pvalue > 1e-3
    np.testing.assert_allclose(actual.wander.mean(axis=0), 0, atol=4 * c.load_sd / np.sqrt(5000))
    np.testing.assert_allclose(actual.wander.std(axis=0), c.load_sd, rtol=4 / np.sqrt(2 * 5000))


@pytest.mark.nightly
def test_the_reference_keeps_what_a_bad_policy_breaks(env: PowerGrid, totals: Any) -> None:
    check_ranks(env, totals, 24)


@pytest.mark.nightly
def test_controllers_rank_as_they_should_over_many_episodes(env: PowerGrid, totals: Any) -> None:
    ordinary = check_ranks(env, totals, 1000)
    low, high = jnp.asarray(lows(env.spec.action)), jnp.asarray(highs(env.spec.action))
    chance = totals(env, UniformPolicy(low, high), 200)
    assert ordinary > chance.score.mean() + 5


def check_ranks(env: PowerGrid, totals: Any, episodes: int) -> float:
    """Checks, and gives the mean score of the ordinary controller."""
    ordinary, strong = (totals(env, policy, episodes) for policy in env.tunings().values())
    bad = totals(env, bad_policy(), min(episodes, 100))
    assert strong.score.mean() > ordinary.score.mean() + 1
    assert strong.kept_each.mean(axis=0).min() >= 0.99
    assert bad.kept_each.mean(axis=0).max() <= 0.5
    return ordinary.score.mean()


@pytest.mark.nightly
def test_no_constant_reference_does_as_well(env: PowerGrid, constant_scores: Any) -> None:
    assert constant_scores(env, 200, 8).max() < -10


def test_hostile_actions_stay_finite_and_compile_once(env: PowerGrid) -> None:
    params = jax.jit(env.default_params)()
    state, _ = jax.jit(env.reset)(params, jax.random.key(0))
    step = jax.jit(env.step)
    low, high = np.asarray(lows(env.spec.obs)), np.asarray(highs(env.spec.obs))
    for value in (np.nan, np.inf, -np.inf, 1e30):
        for _ in range(25):
            state, answer = step(params, state, jnp.full(8, value), jax.random.key(1))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, answer)))
        assert (answer.obs >= low).all()
        assert (answer.obs <= high).all()
    assert step._cache_size() == 1
    assert [channel.name for channel in env.spec.cost] == ["frequency", "voltage"]
    assert (env.spec.n_obs, env.spec.n_action) == (32, 8)
