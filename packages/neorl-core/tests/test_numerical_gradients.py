"""Gradients are not only finite but right: central differences in float64, by chex."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.distributions import (
    categorical_entropy,
    categorical_kl,
    categorical_log_probability,
    diagonal_gaussian_kl,
    diagonal_gaussian_log_density,
    tanh_gaussian_entropy,
    tanh_gaussian_latent_log_density,
    tanh_gaussian_log_density,
)
from neorl_core.losses import (
    cql_regulariser,
    edac_diversity,
    expectile_loss,
    gaussian_nll,
    huber_loss,
    quantile_huber_loss,
    soft_clamp,
)
from neorl_core.returns import n_step_returns, td_lambda_returns

RNG = np.random.default_rng(11)
FIVE = functools.partial(RNG.normal, size=5)
ENDED = np.asarray([False, False, True, False, False])


def at_levels(predictions, targets):
    return quantile_huber_loss(predictions, targets, jnp.linspace(0.1, 0.9, 5), delta=0.7)


def mixed(reward, value):
    return td_lambda_returns(reward, value, ENDED, discount=0.9, lam=0.8)


def windowed(reward, value):
    return n_step_returns(reward, value, ENDED, n=3, discount=0.9)


def chosen(logits):
    return categorical_log_probability(jnp.int32(2), logits)


def corrected(q_data, q_samples):
    return cql_regulariser(q_data[0], q_samples, jnp.linspace(-1.0, 1.0, 5), temperature=0.6)


CASES = {
    "categorical_entropy": (categorical_entropy, 1),
    "categorical_kl": (categorical_kl, 2),
    "categorical_log_probability": (chosen, 1),
    "cql_regulariser": (corrected, 2),
    "diagonal_gaussian_kl": (diagonal_gaussian_kl, 4),
    "diagonal_gaussian_log_density": (diagonal_gaussian_log_density, 3),
    "expectile_loss": (functools.partial(expectile_loss, expectile=0.8), 2),
    "gaussian_nll": (gaussian_nll, 3),
    "huber_loss": (functools.partial(huber_loss, delta=0.5), 2),
    "n_step_returns": (windowed, 2),
    "quantile_huber_loss": (at_levels, 2),
    "soft_clamp": (lambda x: soft_clamp(x, -1.0, 0.5), 1),
    "tanh_gaussian_entropy": (tanh_gaussian_entropy, 2),
    "tanh_gaussian_latent_log_density": (tanh_gaussian_latent_log_density, 3),
    "td_lambda_returns": (mixed, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_slopes(name):
    function, count = CASES[name]
    with jax.enable_x64(True):
        args = tuple(jnp.asarray(FIVE()) for _ in range(count))
        weights = jnp.cos(jnp.arange(5.0))

        def weighted(*args):
            outputs = jnp.ravel(function(*args))
            return jnp.sum(outputs * weights[: outputs.size])

        chex.assert_numerical_grads(jax.jit(weighted), args, order=1, rtol=1e-3, atol=1e-5)


def test_gradients_of_matrices_and_bounded_actions():
    with jax.enable_x64(True):
        gradients = jnp.asarray(RNG.normal(size=(3, 2)))
        chex.assert_numerical_grads(jax.jit(edac_diversity), (gradients,), order=1, rtol=1e-3)
        action, mean, log_std = (jnp.asarray(RNG.uniform(-0.7, 0.7, 2)) for _ in range(3))
        density = jax.jit(tanh_gaussian_log_density)
        chex.assert_numerical_grads(density, (action, mean, log_std), order=1, rtol=1e-3)
