"""DualDICE and OptiDICE on small Markov chains, whose occupancies are known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from neorl_core.losses import dual_dice_loss, opti_dice_loss, opti_dice_weights

GAMMA = 0.9
RNG = np.random.default_rng(5)
# Three states and two actions; the log holds every pair by a known share.
TRANSITION = RNG.dirichlet(np.ones(3), size=(3, 2))
POLICY = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
START = np.asarray([0.6, 0.3, 0.1])
LOG = RNG.dirichlet(np.full(6, 3.0)).reshape(3, 2)
REWARD = RNG.normal(size=(3, 2))


def occupancy(policy):
    """Of states and actions: ``(1 - g) sum_t g^t p_t``, by the linear equation."""
    step = np.einsum("sax,sa->xs", TRANSITION, policy)
    states = np.linalg.solve(np.eye(3) - GAMMA * step, (1 - GAMMA) * START)
    return states[:, None] * policy


def test_the_minimum_of_dual_dice_is_the_ratio_of_occupancies():
    """The expectation of the loss over log and policy, minimised over a table of nu."""
    follows = np.einsum("sax,xb->saxb", TRANSITION, POLICY)

    with jax.enable_x64(True):

        def expected(nu):
            nu = nu.reshape(3, 2)
            # Inside a square of expectations stands the expectation of the next value.
            later = jnp.einsum("saxb,xb->sa", follows, nu)
            first = jnp.sum(START[:, None] * POLICY * nu)
            loss = dual_dice_loss(
                nu, later, jnp.full((3, 2), first), jnp.zeros((3, 2), bool), discount=GAMMA
            )
            return jnp.sum(LOG * loss)

        actual = optimize.minimize(
            jax.jit(expected), np.zeros(6), jac=jax.jit(jax.grad(expected)), tol=1e-12
        )
        nu = actual.x.reshape(3, 2)
        ratio = nu - GAMMA * np.einsum("saxb,xb->sa", follows, nu)
    np.testing.assert_allclose(ratio, occupancy(POLICY) / LOG, rtol=1e-4)


def test_the_minimum_of_opti_dice_is_the_best_occupancy_less_its_divergence():
    """Against the primal: ``max_d E_d r - alpha E_log f(d / log)`` over allowed occupancies."""
    alpha = 0.5
    with jax.enable_x64(True):

        def expected(nu):
            later = jnp.asarray(TRANSITION) @ nu
            value = jnp.broadcast_to(nu[:, None], (3, 2))
            loss = opti_dice_loss(
                value,
                later,
                jnp.full((3, 2), START @ nu),
                jnp.asarray(REWARD),
                jnp.zeros((3, 2), bool),
                discount=GAMMA,
                divergence_weight=alpha,
                divergence="chi2",
            )
            return jnp.sum(LOG * loss)

        actual = optimize.minimize(
            jax.jit(expected), np.zeros(3), jac=jax.jit(jax.grad(expected)), tol=1e-12
        )
        residual = REWARD + GAMMA * TRANSITION @ actual.x - actual.x[:, None]
        weights = opti_dice_weights(
            jnp.asarray(residual), divergence_weight=alpha, divergence="chi2"
        )

    def flow(d):
        d = d.reshape(3, 2)
        return d.sum(axis=1) - (1 - GAMMA) * START - GAMMA * np.einsum("sax,sa->x", TRANSITION, d)

    def loss_of_occupancy(d):
        ratio = d.reshape(3, 2) / LOG
        return alpha * np.sum(LOG * (ratio - 1) ** 2) / 2 - d @ REWARD.ravel()

    primal = optimize.minimize(
        loss_of_occupancy,
        occupancy(POLICY).ravel(),
        constraints={"type": "eq", "fun": flow},
        bounds=[(0, None)] * 6,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(actual.fun, -primal.fun, rtol=1e-6)
    np.testing.assert_allclose(LOG * np.asarray(weights), primal.x.reshape(3, 2), atol=1e-4)
