"""Gradients of losses, returns and densities beside differences in float64, in both modes."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import distributions, losses, returns

_DRAWS = np.random.default_rng(7)
X, Y = _DRAWS.normal(size=5), _DRAWS.normal(size=5)
ENDS = np.array([False, False, True, False, False])
QUANTILE = (np.arange(5) + 0.5) / 5
POINTS = {"discount": 0.97, "lam": 0.9}

FUNCTIONS = {
    "expectile_loss": (lambda x: losses.expectile_loss(x, Y, expectile=0.8).sum(), (X,)),
    "huber_loss": (lambda x: losses.huber_loss(x, Y, delta=0.3).sum(), (X,)),
    "quantile_huber_loss": (lambda x: losses.quantile_huber_loss(x, Y, QUANTILE), (X,)),
    "gaussian_nll": (lambda m, s: losses.gaussian_nll(m, s, Y).sum(), (X, 0.3 * X)),
    "soft_clamp": (lambda x: losses.soft_clamp(x, -1.0, 1.0).sum(), (X,)),
    "generalised_advantages": (
        lambda r, v: (returns.generalised_advantages(r, v, v + 0.1, ENDS, **POINTS) ** 2).sum(),
        (X, Y),
    ),
    "td_lambda_returns": (
        lambda r, v: (returns.td_lambda_returns(r, v, ENDS, **POINTS) ** 2).sum(),
        (X, Y),
    ),
    "diagonal_gaussian_log_prob": (
        lambda m, s: distributions.diagonal_gaussian_log_prob(Y, m, s),
        (X, 0.3 * X),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_that_of_differences(name):
    function, arguments = FUNCTIONS[name]
    with jax.enable_x64(True):
        values = [jnp.asarray(argument, jnp.float64) for argument in arguments]
        chex.assert_numerical_grads(jax.jit(function), values, order=1, atol=1e-6, rtol=1e-6)
