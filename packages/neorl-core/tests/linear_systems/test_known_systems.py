"""Control of known systems in float64, and of logs that say too little."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from neorl_core import linear_systems
from neorl_core.linear_systems import (
    IntegralRegulator,
    KalmanFilter,
    LinearModel,
    Regulator,
    controllable,
    delay_residuals,
    discrete_lyapunov,
    discrete_riccati,
    finite_horizon_regulator,
    identify_linear,
    integral_regulator,
    is_stable,
    kalman_filter,
    lq_regulator,
    observable,
    spectral_radius,
    zero_order_hold,
)
from neorl_core.statistics import student_interval

# An eager call would compile every operation by itself.
(
    controllable,
    discrete_lyapunov,
    discrete_riccati,
    integral_regulator,
    is_stable,
    kalman_filter,
    lq_regulator,
    observable,
    spectral_radius,
    zero_order_hold,
) = map(
    jax.jit,
    (
        controllable,
        discrete_lyapunov,
        discrete_riccati,
        integral_regulator,
        is_stable,
        kalman_filter,
        lq_regulator,
        observable,
        spectral_radius,
        zero_order_hold,
    ),
)
finite_horizon_regulator = jax.jit(finite_horizon_regulator, static_argnames="horizon")
identify_linear = jax.jit(identify_linear, static_argnames="delay")
delay_residuals = jax.jit(delay_residuals, static_argnames="longest")

# The double mass-spring-damper of the public data set, as recovered from its log.
MASSES = np.asarray(
    [[1, 0, 0.2, 0], [0, 1, 0, 0.2], [-0.04, 0.02, 0.92, 0.04], [0.02, -0.04, 0.04, 0.92]]
)
FORCES = np.asarray([[0, 0], [0, 0], [0.3, 0], [0, 0.3]])
ONE = np.ones((1, 1))


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def test_the_regulator_of_the_masses_pays_what_it_says():
    state_cost, force_cost = np.diag([1.0, 1.0, 0.1, 0.1]), 0.01 * np.eye(2)
    regulator = lq_regulator(MASSES, FORCES, state_cost, force_cost)
    assert isinstance(regulator, Regulator)
    expected = linalg.solve_discrete_are(MASSES, FORCES, state_cost, force_cost)
    np.testing.assert_allclose(regulator.cost_to_go, expected, rtol=1e-9)
    state, paid = np.asarray([1.0, -0.5, 0.2, 0.0]), 0.0
    start = state
    for _ in range(600):
        force = -np.asarray(regulator.gain) @ state
        paid += state @ state_cost @ state + force @ force_cost @ force
        state = MASSES @ state + FORCES @ force
    np.testing.assert_allclose(paid, start @ expected @ start, rtol=1e-9)
    closed = MASSES - FORCES @ np.asarray(regulator.gain)
    weight = state_cost + np.asarray(regulator.gain).T @ force_cost @ np.asarray(regulator.gain)
    np.testing.assert_allclose(discrete_lyapunov(closed.T, weight), expected, rtol=1e-8)
    assert spectral_radius(closed) < 1
    assert controllable(MASSES, FORCES)
    assert controllable(MASSES, FORCES[:, :1])
    assert observable(MASSES, np.eye(4)[:1])


def test_riccati_is_solved_up_to_large_systems_and_slow_loops():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(20, 20)) / 4
    b = rng.normal(size=(20, 4))
    ours = discrete_riccati(a, b, np.eye(20), np.eye(4))
    np.testing.assert_allclose(
        ours, linalg.solve_discrete_are(a, b, np.eye(20), np.eye(4)), rtol=1e-8, atol=1e-8
    )
    slow = discrete_riccati(np.eye(1), np.eye(1), 1e-10 * np.eye(1), np.eye(1))
    np.testing.assert_allclose(slow, 5e-11 + np.sqrt(1e-10 + 25e-22), rtol=1e-6)


@pytest.mark.nightly
def test_a_long_horizon_is_an_endless_one():
    q, r = np.eye(4), np.eye(2)
    plan = finite_horizon_regulator(MASSES, FORCES, q, r, 0 * q, horizon=400)
    endless = lq_regulator(MASSES, FORCES, q, r)
    np.testing.assert_allclose(plan.gain[0], endless.gain, rtol=1e-8)
    np.testing.assert_allclose(plan.cost_to_go[0], endless.cost_to_go, rtol=1e-8)
    nothing = finite_horizon_regulator(MASSES, FORCES, q, r, 3 * q, horizon=0)
    assert nothing.gain.shape == (0, 2, 4)
    np.testing.assert_array_equal(nothing.cost_to_go, 3 * q[None])


def test_an_integral_for_nothing_is_emptied_in_two_periods():
    """``z_{k+2} = z_k + dt (x_k + a x_k + b u_k) = 0`` where the input costs nothing."""
    a, b, dt = 0.7 * ONE, 3.0 * ONE, 0.25
    regulator = integral_regulator(a, b, ONE, np.diag([0.0, 1.0]), 0 * ONE, dt=dt)
    assert isinstance(regulator, IntegralRegulator)
    np.testing.assert_allclose(regulator.gain, [[1.7 / 3]], rtol=1e-12)
    np.testing.assert_allclose(regulator.integral_gain, [[1 / (3 * dt)]], rtol=1e-12)
    # More outputs than inputs cannot all be kept.
    two = np.ones((2, 1))
    assert np.isnan(integral_regulator(a, b, two, np.eye(3), ONE).gain).all()


def test_no_other_gain_is_cheaper():
    """The gradient of the true cost over the gain vanishes at the regulator's."""
    q, r = jnp.eye(4), jnp.eye(2)
    gain = lq_regulator(MASSES, FORCES, q, r).gain

    def cost(gain):
        closed = MASSES - FORCES @ gain
        return jnp.trace(discrete_lyapunov(closed.T, q + gain.T @ r @ gain))

    np.testing.assert_allclose(jax.grad(cost)(gain), np.zeros((2, 4)), atol=1e-7)


def test_the_kalman_filter_has_the_error_it_states():
    c, process, noise = np.eye(4)[:2], 0.01 * np.eye(4), 0.25 * np.eye(2)
    estimator = kalman_filter(MASSES, c, process, noise)
    assert isinstance(estimator, KalmanFilter)
    gain = np.asarray(estimator.gain)
    # The error before a measurement obeys a linear system of its own.
    closed = MASSES @ (np.eye(4) - gain @ c)
    driven = process + MASSES @ gain @ noise @ gain.T @ MASSES.T
    stationary = discrete_lyapunov(closed, driven)
    np.testing.assert_allclose(estimator.covariance, stationary, rtol=1e-8)


@pytest.mark.nightly
def test_intervals_cover_the_value_of_a_linear_quadratic_task():
    """Noisy masses under a linear policy: the expected discounted cost is known in closed form."""
    discount, steps, noise, datasets, size = 0.9, 60, 0.2, 400, 24
    weight = jnp.diag(jnp.asarray([1.0, 1.0, 0.1, 0.1]))
    gain = lq_regulator(MASSES, FORCES, weight, jnp.eye(2)).gain
    closed = jnp.asarray(MASSES - FORCES @ np.asarray(gain))
    cost = weight + gain.T @ gain
    # V(x) = x^T X x + c, where X is worth a horizon without end and the tail is below 0.2 %.
    worth = discrete_lyapunov(discount**0.5 * closed.T, cost)
    truth = 4 * worth[0, 0] + discount / (1 - discount) * noise**2 * jnp.trace(worth)

    def cost_of_one(key):
        shocks = noise * jax.random.normal(key, (steps, 4))

        def step(state, shock):
            return closed @ state + shock, state @ cost @ state

        _, costs = jax.lax.scan(step, jnp.asarray([2.0, 0, 0, 0]), shocks)
        return jnp.sum(discount ** jnp.arange(float(steps)) * costs)

    keys = jax.random.split(jax.random.key(2), (datasets, size))
    costs = jax.jit(jax.vmap(jax.vmap(cost_of_one)))(keys)
    intervals = jax.vmap(lambda sample: student_interval(sample, level=0.9))(costs)
    covered = np.mean(np.asarray((intervals.low <= truth) & (truth <= intervals.high)))
    assert abs(covered - 0.9) <= 3 * np.sqrt(0.09 / datasets)


NO_SOLUTION = {
    "a mode that nothing reaches": (2 * np.eye(2), np.asarray([[1.0], [0.0]]), np.eye(2), ONE),
    "a mode that stays and costs nothing": (np.eye(2), np.eye(2), np.zeros((2, 2)), np.eye(2)),
    "an input for nothing that does nothing": (ONE, 0 * ONE, ONE, 0 * ONE),
    "a cost below zero": (ONE / 2, ONE, -9e-6 * ONE, ONE),
    "a number that is none": (np.nan * ONE, ONE, ONE, ONE),
}


@pytest.mark.nightly
@pytest.mark.parametrize("why", NO_SOLUTION)
def test_what_has_no_solution_is_nan_eager_and_compiled(why):
    for call in (linear_systems.lq_regulator, lq_regulator):
        assert all(np.isnan(part).all() for part in call(*NO_SOLUTION[why]))


def test_a_loop_that_does_not_decay_has_no_stationary_covariance():
    for a in (2 * np.eye(2), np.eye(2), np.asarray([[1.5, -0.5], [0.5, 0.5]])):
        assert np.isnan(discrete_lyapunov(a, np.eye(2))).all()
    assert np.isnan(spectral_radius(jnp.asarray([[jnp.nan]])))
    assert not is_stable(jnp.asarray([[jnp.nan]]))


def test_a_defective_mode_on_the_circle_is_not_lost_in_rounding():
    """Its powers grow until nothing but rounding is left of their squares."""
    double = np.asarray([[1.5, -0.5], [0.5, 0.5]], np.float32)
    np.testing.assert_allclose(spectral_radius(double), 1.0, rtol=1e-3)
    assert not is_stable(double)
    assert float(spectral_radius(np.asarray([[1.0, 1.0], [-1.0, -1.0]], np.float32))) == 0


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


def test_the_dead_time_shows():
    left = delay_residuals(*simulated((3, 3), noise=0.01), longest=5)
    assert left.shape == (6, 4)
    assert int(np.argmin(np.sum(left, axis=1))) == 3


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
        assert np.isnan(delay_residuals(*corrupted, longest=5)).all()
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


@pytest.mark.parametrize("back", [0.0, 4e-13, 1e-3])
def test_one_way_couplings_keep_their_noise(back):
    """In units that balance both couplings, what the strong one carries is lost beside one."""
    a = jnp.asarray([[0.0, 0.25], [back, 0.0]])
    q = 0.5 * jnp.eye(2)
    expected = linalg.solve_discrete_lyapunov(np.asarray(a, float), np.asarray(q, float))
    np.testing.assert_allclose(discrete_lyapunov(a, q), expected, rtol=1e-5, atol=1e-9)
