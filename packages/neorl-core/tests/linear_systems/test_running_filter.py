"""The two steps of a Kalman filter, run over time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.linear_systems import (
    StateEstimate,
    kalman_filter,
    kalman_predict,
    kalman_update,
)

# An eager call would compile every operation by itself.
stationary_filter, update = jax.jit(kalman_filter), jax.jit(kalman_update)

A = np.asarray([[1.0, 0.1], [0.0, 0.95]])
C = np.asarray([[1.0, 0.0]])
W, V = np.diag([1e-4, 1e-2]), np.asarray([[0.04]])


def run(start, measured, *, process=W, noise=V):
    """The estimates after every measurement, of float32 or float64 as ``start``."""
    return run_with(start, measured, A, C, process, noise)


@jax.jit
def run_with(start, measured, a, c, process, noise):
    def step(estimate, y):
        after = kalman_update(estimate, y, c, noise)
        return kalman_predict(after, a, process), after

    return jax.lax.scan(step, start, measured)


def start(dtype):
    return StateEstimate(jnp.zeros(2, dtype), 10 * jnp.eye(2, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_becomes_the_stationary_filter(dtype):
    with jax.enable_x64(dtype == "float64"):
        last, after = run(start(dtype), jnp.zeros((400, 1), dtype))
        assert isinstance(last, StateEstimate)
        assert last.covariance.dtype == dtype
        stationary = stationary_filter(A, C, W, V)
        rtol = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(last.covariance, stationary.covariance, rtol=rtol)
        # In Joseph's form and in the short one.
        short = (np.eye(2) - np.asarray(stationary.gain) @ C) @ np.asarray(stationary.covariance)
        np.testing.assert_allclose(after.covariance[-1], short, rtol=rtol)


def test_it_is_the_least_squares_of_all_that_was_measured():
    """The mean after the last measurement, from one regression on the first state and all noise."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(6, 1))
    y[2] = np.nan
    with jax.enable_x64(True):
        _, after = run(start("float64"), jnp.asarray(y))
    # Unknowns: the first state and the disturbance of each period; rows weighted by deviation.
    unknowns = 2 + 2 * 5
    states = [np.hstack([np.eye(2), np.zeros((2, 10))])]
    for k in range(5):
        push = np.zeros((2, unknowns))
        push[:, 2 + 2 * k : 4 + 2 * k] = np.eye(2)
        states.append(A @ states[-1] + push)
    deviation = np.r_[np.full(2, np.sqrt(10)), np.tile(np.sqrt(np.diag(W)), 5)]
    measured = [k for k in range(6) if k != 2]
    design = np.vstack([np.diag(1 / deviation), *[C @ states[k] / 0.2 for k in measured]])
    wanted = np.r_[np.zeros(unknowns), *[y[k] / 0.2 for k in measured]]
    best = np.linalg.lstsq(design, wanted, rcond=None)[0]
    np.testing.assert_allclose(after.mean[-1], states[-1] @ best, rtol=1e-10)
    spread = np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(
        after.covariance[-1], states[-1] @ spread @ states[-1].T, rtol=1e-9, atol=1e-14
    )


@pytest.mark.nightly
def test_a_lost_measurement_leaves_the_prediction():
    for broken in (jnp.nan, jnp.inf, -jnp.inf):
        lost = update(start("float32"), jnp.full(1, broken), C, V)
        np.testing.assert_array_equal(lost.mean, np.zeros(2))
        np.testing.assert_array_equal(lost.covariance, 10 * np.eye(2))
    masked = update(start("float32"), jnp.ones(1), C, V, mask=jnp.zeros(1, bool))
    np.testing.assert_array_equal(masked.mean, np.zeros(2))
    slope = jax.grad(lambda y: update(start("float32"), y, C, V).mean.sum())
    assert float(slope(jnp.full(1, jnp.nan))[0]) == 0
    assert float(slope(jnp.ones(1))[0]) > 0.9


def test_of_two_sensors_with_noise_in_common_one_may_be_lost():
    both = np.asarray([[1.0, 0.0], [1.0, 1.0]])
    noise = np.asarray([[4e-8, 1e-8], [1e-8, 9e-8]])
    one = update(start("float32"), jnp.asarray([2.0, jnp.nan]), both, noise)
    alone = update(start("float32"), jnp.asarray([2.0]), both[:1], noise[:1, :1])
    np.testing.assert_allclose(one.mean, alone.mean, rtol=1e-6)
    np.testing.assert_allclose(one.covariance, alone.covariance, rtol=1e-5, atol=1e-7)


def test_the_covariance_stays_positive_for_a_sensor_without_noise():
    """Where ``(I - K C) P`` becomes negative in float32."""
    _, after = run(start("float32"), jnp.zeros((500, 1)), process=0 * W, noise=1e-8 * V)
    least = np.linalg.eigvalsh(np.asarray(after.covariance, np.float64)).min()
    assert least > -1e-12
    assert np.all(np.isfinite(after.mean))


def test_what_is_measured_twice_without_noise_is_nan():
    twice = np.ones((2, 2))
    after = update(start("float32"), jnp.ones(2), twice, np.zeros((2, 2)))
    assert np.isnan(after.mean).all()
