"""What the functions of linear systems say of bad arguments, and options that few calls give."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from neorl_core.linear_systems import (
    controllability_matrix,
    controllable,
    delay_residuals,
    detectable,
    discrete_lyapunov,
    discrete_riccati,
    finite_horizon_regulator,
    identify_linear,
    kalman_filter,
    lq_regulator,
    observable,
    spectral_radius,
    stabilisable,
    zero_order_hold,
)

ONE, TWO = np.ones((1, 1)), np.eye(2)
A = np.asarray([[0.9, 0.2], [-0.1, 0.7]])
B = np.asarray([[0.5, 0.1], [0.2, 1.0]])
Q, R = np.diag([1.0, 0.5]), np.diag([0.3, 0.6])
CROSS = np.asarray([[0.1, -0.05], [0.02, 0.1]])
PAIRS = [
    (zero_order_hold, {"dt": 1.0}),
    (controllability_matrix, {}),
    (controllable, {}),
]
SQUARE = [
    (zero_order_hold, (TWO,), {"dt": 1.0}),
    (spectral_radius, (), {}),
    (discrete_lyapunov, (TWO,), {}),
    (controllability_matrix, (TWO,), {}),
    (controllable, (TWO,), {}),
    (observable, (TWO,), {}),
    (discrete_riccati, (TWO, TWO, TWO), {}),
    (finite_horizon_regulator, (TWO, TWO, TWO, TWO), {"horizon": 1}),
    (kalman_filter, (TWO, TWO, TWO), {}),
]


@pytest.mark.parametrize(("function", "others", "options"), SQUARE)
def test_a_matrix_that_is_not_square_is_named_with_its_axes(function, others, options):
    with pytest.raises(ValueError, match=r"^a must be square with axes \(state, state\)"):
        function(np.ones((2, 3)), *others, **options)
    with pytest.raises(ValueError, match=r"^a .*\(state, state\)"):
        function(np.ones(2), *others, **options)


def misfits():
    """Function, arguments with one that does not fit, and how the message begins."""
    state = "(state, state) of sizes (2, 2)"
    for function, options in PAIRS:
        yield function, (TWO, ONE), options, "b", "(state, act) of sizes (2, any)"
    yield discrete_lyapunov, (0 * TWO, ONE), {}, "q", state
    yield observable, (TWO, ONE), {}, "c", "(measurement, state) of sizes (any, 2)"
    yield kalman_filter, (A, ONE, Q, R), {}, "c", "(measurement, state) of sizes (any, 2)"
    yield kalman_filter, (A, B, ONE, R), {}, "process_noise", state
    noise = "(measurement, measurement) of sizes (2, 2)"
    yield kalman_filter, (A, B, Q, ONE), {}, "measurement_noise", noise
    yield discrete_riccati, (A, ONE, Q, R), {}, "b", "(state, act) of sizes (2, any)"
    yield discrete_riccati, (A, B, ONE, R), {}, "q", state
    yield discrete_riccati, (A, B, Q, ONE), {}, "r", "(act, act) of sizes (2, 2)"
    cross = {"cross": ONE}
    yield discrete_riccati, (A, B, Q, R), cross, "cross", "(state, act) of sizes (2, 2)"
    horizon = {"horizon": 1}
    yield finite_horizon_regulator, (A, B, Q, R, ONE), horizon, "terminal", state


@pytest.mark.parametrize(("function", "given", "options", "name", "axes"), list(misfits()))
def test_a_matrix_that_does_not_fit_is_named_with_its_axes(function, given, options, name, axes):
    result = "shape (1, 1); transpose it or check the other matrices"
    message = f"{name} must have the axes {axes}, got {result}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function(*given, **options)


def test_numbers_that_are_not_positive_are_named():
    log = np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)), *np.zeros((2, 3), bool)
    with pytest.raises(ValueError, match=r"^dt must"):
        zero_order_hold(TWO, TWO, dt=0.0)
    with pytest.raises(ValueError, match=r"^ridge must"):
        identify_linear(*log, ridge=-1.0)
    with pytest.raises(ValueError, match=r"^ridge must"):
        delay_residuals(*log, longest=1, ridge=-1.0)


@pytest.mark.nightly
def test_a_cross_term_enters_the_gain():
    with jax.enable_x64(True):
        regulator = lq_regulator(A, B, Q, R, cross=CROSS)
        plan = finite_horizon_regulator(A, B, Q, R, 2 * Q, horizon=2, cross=CROSS)
    x = linalg.solve_discrete_are(A, B, Q, R, s=CROSS)
    gain = np.linalg.solve(R + B.T @ x @ B, B.T @ x @ A + CROSS.T)
    np.testing.assert_allclose(regulator.cost_to_go, x, rtol=1e-10)
    np.testing.assert_allclose(regulator.gain, gain, rtol=1e-10)
    # The cost of a fixed gain over one period is a quadratic form, whatever the gain.
    x = 2 * Q
    for step in (1, 0):
        gain = np.linalg.solve(R + B.T @ x @ B, B.T @ x @ A + CROSS.T)
        np.testing.assert_allclose(plan.gain[step], gain, rtol=1e-10)
        closed, half = A - B @ gain, CROSS @ gain
        x = Q + gain.T @ R @ gain - half - half.T + closed.T @ x @ closed
        np.testing.assert_allclose(plan.cost_to_go[step], x, rtol=1e-10)


@pytest.mark.nightly
def test_the_wider_of_two_dtypes_is_kept():
    narrow, wide = np.float32, np.float64
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        for first, second in ((narrow, wide), (wide, narrow)):
            held = zero_order_hold(A.astype(first), B.astype(second), dt=0.5)
            assert [part.dtype for part in held] == [wide, wide]
            assert discrete_riccati(A.astype(first), B.astype(second), Q, R).dtype == wide


def test_the_dtype_of_the_system_is_kept_whatever_the_others_have():
    a = A.astype(np.float32)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        assert jax.jit(discrete_lyapunov)(a, Q).dtype == np.float32
        assert jax.jit(controllability_matrix)(a, B).dtype == np.float32
        estimator = jax.jit(kalman_filter)(a, B.astype(np.float32), Q.astype(np.float32), R)
        assert {part.dtype for part in estimator} == {np.dtype(np.float64)}
        assert controllable(a, B).dtype == bool
        assert controllable(a, B[:, :0]).dtype == bool


def test_a_tolerance_is_compared_with_the_distance_to_a_pair_that_is_not():
    nearly = np.asarray([[0.8, 0.6], [0.6, 0.8]])
    for tolerance, expected in ((0.18, True), (0.22, False)):
        assert bool(controllable(TWO, 7.0 * nearly, tolerance=tolerance)) is expected
        assert bool(observable(TWO, 7.0 * nearly, tolerance=tolerance)) is expected
        assert bool(stabilisable(TWO, 7.0 * nearly, tolerance=tolerance)) is expected
        assert bool(detectable(0.5 * TWO, 7.0 * nearly, tolerance=tolerance))


def test_slow_and_fast_modes_are_compared_at_one_size():
    last = np.asarray([[0.0], [1.0]])
    with jax.enable_x64(True):
        for pull in (1e8, 1e-17):
            assert controllable(np.asarray([[0.0, pull], [0.0, 0.0]]), last)
    assert controllable(0 * TWO, TWO), "a block of zeros takes nothing away"


def test_the_tolerance_by_default_is_the_rounding_of_the_dtype():
    nearly = np.asarray([[1.0, 1.0], [1.0, 1.0 + 1e-7]])
    assert not controllable(TWO.astype(np.float32), nearly.astype(np.float32))
    with jax.enable_x64(True):
        assert not controllable(TWO.astype(np.float32), nearly.astype(np.float32))
        assert controllable(TWO, nearly)


def test_a_log_without_inputs_is_identified():
    obs = np.asarray([[1.0], [0.5], [0.25], [2.0]])
    ends = np.zeros(4, bool)
    model = identify_linear(obs, np.zeros((4, 0)), 0.5 * obs + 1, ends, ends)
    assert model.b.shape == (1, 0)
    assert int(model.rows) == 4
    np.testing.assert_allclose([model.a[0, 0], model.offset[0]], [0.5, 1.0], rtol=1e-5)


def test_no_delay_is_a_longest_delay_too():
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(12, 3)), rng.normal(size=(12, 1))
    after = obs + action @ np.asarray([[1.0, 2.0, 3.0]])
    ends = np.zeros(12, bool)
    left = delay_residuals(obs, action, after, ends, ends, longest=0)
    assert left.shape == (1, 3)
    np.testing.assert_allclose(left, np.zeros((1, 3)), atol=1e-5)


@pytest.mark.nightly
def test_the_counts_of_a_model_are_integers():
    rng = np.random.default_rng(1)
    obs, action = rng.normal(size=(9, 2)), rng.normal(size=(9, 1))
    ends = np.zeros(9, bool)
    for double in (False, True):
        with jax.enable_x64(double):
            model = identify_linear(obs, action, obs, ends, ends, ridge=0.1)
            assert {model.rank.dtype, model.rows.dtype} == {np.dtype(np.int32)}
    single = identify_linear(obs[:1], action[:1], obs[:1] + 1, ends[:1], ends[:1])
    assert int(single.rows) == 1
    np.testing.assert_allclose(single.a, jnp.zeros((2, 2)))
