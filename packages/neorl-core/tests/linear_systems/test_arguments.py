"""What the functions of linear systems say of bad arguments, and options that few calls give."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.linear_systems import (
    identify_linear,
    zero_order_hold,
)

ONE, TWO = np.ones((1, 1)), np.eye(2)
A = np.asarray([[0.9, 0.2], [-0.1, 0.7]])
B = np.asarray([[0.5, 0.1], [0.2, 1.0]])


def test_a_matrix_that_is_not_square_is_named_with_its_axes():
    for wrong in (np.ones((2, 3)), np.ones(2)):
        with pytest.raises(ValueError, match=r"^a must .*\(state, state\)"):
            zero_order_hold(wrong, TWO, dt=1.0)


def test_a_matrix_that_does_not_fit_is_named_with_its_axes():
    message = (
        "b must have the axes (state, act) of sizes (2, any), got shape (1, 1); "
        "transpose it or check the other matrices"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        zero_order_hold(TWO, np.ones((1, 1)), dt=1.0)


def test_numbers_that_are_not_positive_are_named():
    log = np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2)), *np.zeros((2, 3), bool)
    with pytest.raises(ValueError, match=r"^dt must"):
        zero_order_hold(TWO, TWO, dt=0.0)
    with pytest.raises(ValueError, match=r"^ridge must"):
        identify_linear(*log, ridge=-1.0)


@pytest.mark.nightly
def test_the_wider_of_two_dtypes_is_kept():
    narrow, wide = np.float32, np.float64
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        for first, second in ((narrow, wide), (wide, narrow)):
            held = zero_order_hold(A.astype(first), B.astype(second), dt=0.5)
            assert [part.dtype for part in held] == [wide, wide]


def test_a_log_without_inputs_is_identified():
    obs = np.asarray([[1.0], [0.5], [0.25], [2.0]])
    ends = np.zeros(4, bool)
    model = identify_linear(obs, np.zeros((4, 0)), 0.5 * obs + 1, ends, ends)
    assert model.b.shape == (1, 0)
    assert int(model.rows) == 4
    np.testing.assert_allclose([model.a[0, 0], model.offset[0]], [0.5, 1.0], rtol=1e-5)


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
