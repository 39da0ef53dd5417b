"""Bounds of actions that are wrong, known only while the program runs: NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from neorl_core import control

KEY = jax.random.key(0)


BOUNDED = {
    "StateFeedback": lambda *ends: control.StateFeedback(jnp.eye(3), *[jnp.zeros(3)] * 2, *ends),
    "BaseStock": lambda *ends: control.BaseStock(jnp.zeros(3), jnp.eye(3), *ends),
    "UniformPolicy": control.UniformPolicy,
}


@pytest.mark.parametrize("name", BOUNDED)
def test_an_action_whose_bounds_cross_is_nan(name):
    low, high = jnp.asarray([-1.0, 1.0, 0.0]), jnp.zeros(3)
    act = jax.jit(lambda policy: policy((), jnp.zeros(3), KEY)[1])
    assert np.isnan(act(BOUNDED[name](low, high))).tolist() == [False, True, False]
    with pytest.raises(ValueError, match=r"^low must not be above high, .*; .*"):
        BOUNDED[name](low, high)((), jnp.zeros(3), KEY)
    # Also where the policy is a constant of the program.
    with pytest.raises(ValueError, match=r"^low must not be above high, .*; .*"):
        jax.jit(lambda obs: BOUNDED[name](low, high)((), obs, KEY)[1])(jnp.zeros(3))


def test_a_range_without_an_end_has_no_uniform_draw():
    draw = jax.jit(lambda policy: policy((), jnp.zeros(2), KEY)[1])
    endless = control.UniformPolicy(jnp.asarray([0.0, -jnp.inf]), jnp.ones(2))
    assert np.isnan(draw(endless)).tolist() == [False, True]
    wide = jnp.full(2, 3e38)
    assert np.isnan(draw(control.UniformPolicy(-wide, wide))).all()


def test_a_draw_without_a_key_is_refused():
    with pytest.raises(ValueError, match=r"^key must be a random key, got None; .*"):
        control.UniformPolicy(-jnp.ones(2), jnp.ones(2))((), jnp.zeros(2), None)


def test_the_density_of_a_uniform_policy_is_that_of_scipy():
    low, high = np.array([-1.0, 2.0], np.float32), np.array([3.0, 2.5], np.float32)
    policy = control.UniformPolicy(jnp.asarray(low), jnp.asarray(high))
    for action in ([0.0, 2.2], [-1.0, 2.5], [3.5, 2.2]):
        expected = scipy.stats.uniform(low, high - low).logpdf(action).sum()
        actual = policy.log_prob((), jnp.zeros(1), jnp.asarray(action))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
