"""Supports that do not increase, and targets over many orders of magnitude."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.losses import cross_entropy_loss
from neorl_core.targets import (
    categorical_td_target,
    soft_td_target,
    support_mean,
    symexp,
    symlog,
    two_hot,
)


@pytest.mark.parametrize("support", [[0.0, 0.0, 1.0], [1.0, 0.0, -1.0], [0.0, np.nan, 1.0]])
def test_a_support_that_does_not_increase_gives_nan(support):
    points = jnp.asarray(support)
    assert np.isnan(two_hot(jnp.asarray(0.5), points)).all()
    target = categorical_td_target(
        jnp.asarray(0.5), jnp.asarray([0.0, 1.0, 0.0]), jnp.asarray(False), points, discount=0.5
    )
    assert np.isnan(target).all()


@pytest.mark.parametrize("exponential", [True, False])
def test_values_over_eight_decades_come_back_from_their_code(exponential):
    """DreamerV3's 255 places, evenly spaced after the logarithm."""
    even = jnp.linspace(-20.0, 20.0, 255)
    values = jnp.asarray([-3e8, -40.0, -1e-3, 0.0, 0.7, 5e4, 4e8])
    if exponential:
        back = support_mean(two_hot(values, symexp(even)), symexp(even))
    else:
        back = symexp(support_mean(two_hot(symlog(values), even), even))
    np.testing.assert_allclose(back, values, rtol=1e-4, atol=1e-4)


def test_learning_the_cross_entropy_of_a_code_learns_the_value():
    support, value = jnp.linspace(-2.0, 2.0, 9), jnp.asarray(0.8)
    slope = jax.jit(jax.grad(lambda logits: cross_entropy_loss(logits, two_hot(value, support))))
    logits = jnp.zeros(9)
    for _ in range(300):
        logits = logits - 2.0 * slope(logits)
    assert abs(float(support_mean(jax.nn.softmax(logits), support)) - 0.8) < 0.02


def test_a_traced_temperature_outside_its_range_leaves_no_target_behind():
    target = jax.jit(
        lambda temperature: soft_td_target(
            jnp.ones(2), jnp.ones((2, 2)), jnp.ones(2), jnp.asarray([False, True]),
            discount=0.5, temperature=temperature,
        )
    )  # fmt: skip
    assert np.isnan(target(-1.0)).all()
    assert np.isfinite(target(0.0)).all()
