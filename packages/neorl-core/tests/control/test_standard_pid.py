"""The standard form beside its transfer function in SciPy, and the range of each number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

from neorl_core.control import standard_pid

LOOP = {"gain": 2.0, "integral_time": 40.0, "setpoint": 10.0, "low": -1e3, "high": 1e3, "dt": 5.0}


def outputs(pid, readings):
    carry, out = pid.initial_carry(), []
    for reading in readings:
        carry, action = pid(carry, jnp.atleast_1d(jnp.asarray(reading, jnp.float32)))
        out.append(np.asarray(action))
    return np.asarray(out)


def test_a_pi_loop_is_the_discrete_transfer_function_of_its_formula():
    """``u/e = Kc (1 + dt/Ti / (1 - z^-1))``, simulated by SciPy."""
    readings = np.random.default_rng(0).normal(10, 3, 60).astype(np.float32)
    kc, ti, dt = LOOP["gain"], LOOP["integral_time"], LOOP["dt"]
    want = signal.lfilter([kc * (1 + dt / ti), -kc], [1, -1], LOOP["setpoint"] - readings)
    np.testing.assert_allclose(
        outputs(standard_pid(**LOOP), readings)[:, 0], want, rtol=2e-5, atol=1e-4
    )


def test_a_ramp_meets_the_derivative_time():
    """Once the filter has settled, a ramp of ``s`` per second takes ``Kc Td s`` off the output."""
    ramp = 0.5 * LOOP["dt"] * np.arange(40)
    with_derivative = standard_pid(**LOOP, derivative_time=8.0)
    gap = outputs(standard_pid(**LOOP), ramp) - outputs(with_derivative, ramp)
    np.testing.assert_allclose(gap[-1, 0], 2.0 * 8.0 * 0.5, rtol=1e-4)


def test_numbers_hold_for_every_loop_and_sequences_for_one_each():
    pid = standard_pid(
        **{**LOOP, "gain": [2.0, -1.0], "setpoint": [10.0, 5.0]}, measured=[1, 0],
        derivative_time=8.0, derivative_filter=[10.0, 5.0], tracking_time=20.0,
    )  # fmt: skip
    assert pid.measured == (1, 0)
    np.testing.assert_allclose(pid.ki, [2 / 40, -1 / 40])
    np.testing.assert_allclose(pid.tau, [0.8, 1.6])
    np.testing.assert_allclose(pid.tracking_time, [20.0, 20.0])
    assert {leaf.dtype for leaf in jax.tree.leaves(pid)} == {jnp.dtype(jnp.float32)}
    _, action = jax.jit(lambda obs: pid(pid.initial_carry(), obs))(jnp.array([4.0, 9.0]))
    np.testing.assert_allclose(action, [2 * (1 + 5 / 40), -(1 + 5 / 40)], rtol=1e-6)


def test_no_integral_time_means_no_integral():
    np.testing.assert_array_equal(standard_pid(**{**LOOP, "integral_time": np.inf}).ki, [0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"integral_time": 0.0}, "integral_time must be positive, got .0.0.; leave it out"),
        ({"derivative_time": -1.0}, "derivative_time must not be negative"),
        ({"gain": np.nan}, "gain must be finite"),
        ({"low": 2e3}, "low must not be above high"),
        ({"gain": [1.0, 2.0], "setpoint": [1.0, 2.0, 3.0]}, "gain must be one number or one for"),
        ({"dt": 0.0}, "dt"),
        ({"derivative_filter": 0.0}, "derivative_filter"),
    ],
)
def test_a_number_out_of_range_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        standard_pid(**{**LOOP, **change})
