"""Known systems in float64, and logs that say too little."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.linear_systems import (
    LinearModel,
    identify_linear,
    zero_order_hold,
)

# An eager call would compile every operation by itself.
zero_order_hold = jax.jit(zero_order_hold)
identify_linear = jax.jit(identify_linear, static_argnames="delay")

# The double mass-spring-damper of the public data set, as recovered from its log.
MASSES = np.asarray(
    [[1, 0, 0.2, 0], [0, 1, 0, 0.2], [-0.04, 0.02, 0.92, 0.04], [0.02, -0.04, 0.04, 0.92]]
)
FORCES = np.asarray([[0, 0], [0, 0], [0.3, 0], [0, 0.3]])


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@pytest.mark.nightly
def test_a_step_of_the_hold_is_the_solution_of_the_differential_equation():
    """An undamped oscillator under a constant force turns on a circle around ``force``."""
    rate, dt = 3.0, 0.4
    ad, bd = zero_order_hold(np.asarray([[0, rate], [-rate, 0]]), np.asarray([[0], [rate]]), dt=dt)
    turn, lean = np.cos(rate * dt), np.sin(rate * dt)
    np.testing.assert_allclose(ad, [[turn, lean], [-lean, turn]], rtol=1e-13)
    np.testing.assert_allclose(bd, [[1 - turn], [lean]], rtol=1e-12)
    assert np.isnan(zero_order_hold(1e7 * np.eye(1), np.eye(1), dt=1.0)[0]).all()


def simulated(delays, noise=0.0):
    rng = np.random.default_rng(1)
    forces = rng.normal(size=(300, 2))
    ends = np.zeros(300, bool)
    ends[[99, 180, 299]] = True
    obs, following = np.empty((300, 4)), np.empty((300, 4))
    state, start = rng.normal(size=4), 0
    for t in range(300):
        obs[t] = state
        held = [forces[t - d, i] if t - d >= start else 0.0 for i, d in enumerate(delays)]
        state = MASSES @ state + FORCES @ held + 0.5 + noise * rng.normal(size=4)
        following[t] = state
        if ends[t]:
            state, start = rng.normal(size=4), t + 1
    return obs, forces, following, ends & (np.arange(300) == 99), ends


def test_the_masses_are_found_in_their_log():
    model = identify_linear(*simulated((1, 4)), delay=(1, 4))
    assert isinstance(model, LinearModel)
    np.testing.assert_allclose(model.a, MASSES, atol=1e-11)
    np.testing.assert_allclose(model.b, FORCES, atol=1e-11)
    np.testing.assert_allclose(model.offset, 0.5, atol=1e-11)
    assert int(model.rank) == 7
    assert int(model.rows) == 300 - 3 * 4
    wrong = identify_linear(*simulated((1, 4)), delay=0)
    assert np.all(np.asarray(wrong.residual)[2:] > 0.1)


def test_noise_blurs_the_model_and_a_ridge_shrinks_it():
    log = simulated((0, 0), noise=0.05)
    model = identify_linear(*log, delay=0)
    np.testing.assert_allclose(model.a, MASSES, atol=0.05)
    np.testing.assert_allclose(model.residual, 0.05, rtol=0.2)
    sizes = [np.abs(identify_linear(*log, ridge=ridge).b).sum() for ridge in (0.0, 10.0)]
    assert sizes[0] > 2 * sizes[1]


def test_a_log_without_excitation_is_reported():
    obs, forces, following, *ends = simulated((0, 0))
    still = identify_linear(obs, 0 * forces + 7.0, following, *ends)
    assert int(still.rank) == 5
    assert np.all(np.asarray(still.b) == 0)
    same = identify_linear(obs, np.repeat(forces[:, :1], 2, axis=1), following, *ends)
    assert int(same.rank) == 6
    np.testing.assert_allclose(same.b[:, 0], same.b[:, 1], atol=1e-10)
    short = identify_linear(obs, forces, following, *ends, delay=200)
    assert int(short.rows) == 0
    assert all(np.isnan(part).all() for part in short[:4])


def test_of_a_log_with_a_broken_row_nothing_is_told():
    """A NaN made its column a constant, and the model a zero that looked like a fit."""
    log = simulated((1, 4))
    clean = identify_linear(*log, delay=(1, 4))
    for column, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
        corrupted = [np.array(part) for part in log]
        corrupted[column][40, 0] = value
        model = identify_linear(*corrupted, delay=(1, 4))
        assert all(np.isnan(part).all() for part in model[:4])
        assert (int(model.rank), int(model.rows)) == (0, int(clean.rows))
        # Rows without their delayed inputs stay out, whatever they hold.
        corrupted = [np.array(part) for part in log]
        corrupted[column][1, 1] = value
        if column != 1:
            np.testing.assert_array_equal(identify_linear(*corrupted, delay=(1, 4)).a, clean.a)


@pytest.mark.parametrize("stiffness", [1e2, 1e3, 1e4, 5e4])
def test_a_stiff_plant_loses_the_digits_that_the_docstring_says(stiffness):
    a, b = np.asarray([[-stiffness, 1.0], [0.0, -1e-3]]), np.asarray([[0.0], [1.0]])
    ad, _ = zero_order_hold(jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32), dt=1.0)
    slow = np.exp(-1e-3)
    assert abs(float(ad[1, 1]) / slow - 1) < 4e-8 * stiffness + 1e-6
    with jax.enable_x64(True):
        ad, _ = zero_order_hold(jnp.asarray(a), jnp.asarray(b), dt=1.0)
        assert abs(float(ad[1, 1]) / slow - 1) < 1e-16 * stiffness + 1e-14
