"""Matrices that are not what they must be give NaN, eager and compiled alike."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import federated, linear_systems

EYE = jnp.eye(2)
MISJUDGED = {
    "negative": jnp.diag(jnp.asarray([1.0, -0.2])),
    "unsymmetric": jnp.asarray([[1.0, 0.5], [0.0, 1.0]]),
    "NaN": jnp.full((2, 2), jnp.nan),
    "infinite": jnp.inf * EYE,
}
SINGULAR = {"singular": jnp.ones((2, 2)), "zero": 0 * EYE}
# Function, and which of its matrices is judged.
DEFINITE = {
    "discrete_riccati, q": (linear_systems.discrete_riccati, 2),
    "discrete_riccati, r": (linear_systems.discrete_riccati, 3),
    "lq_regulator, q": (linear_systems.lq_regulator, 2),
    "lq_regulator, r": (linear_systems.lq_regulator, 3),
    "finite_horizon_regulator, q": (linear_systems.finite_horizon_regulator, 2),
    "finite_horizon_regulator, r": (linear_systems.finite_horizon_regulator, 3),
    "finite_horizon_regulator, terminal": (linear_systems.finite_horizon_regulator, 4),
    "kalman_filter, process_noise": (linear_systems.kalman_filter, 2),
    "kalman_filter, measurement_noise": (linear_systems.kalman_filter, 3),
}


def of_matrices(name):
    """The function of the one matrix that is judged; a stable system, so that any ``q`` will do."""
    function, place = DEFINITE[name]
    finite = function is linear_systems.finite_horizon_regulator
    args = [0.5 * EYE, EYE, EYE, EYE] + [EYE] * finite
    options = {"horizon": 2} if finite else {}
    return lambda matrix: function(*args[:place], matrix, *args[place + 1 :], **options)


# The others run the same compiled program.
COMPILED = ("lq_regulator, q", "finite_horizon_regulator, terminal")


@pytest.mark.nightly
@pytest.mark.parametrize("name", DEFINITE)
def test_a_matrix_that_is_not_semidefinite_gives_nan(name):
    call = of_matrices(name)
    judged = jax.jit(call) if name in COMPILED else call
    for word, matrix in (MISJUDGED | SINGULAR).items():
        # Covariances of squared metres per second are as small as costs of pascals.
        for size in (1.0, 1e-9):
            result = judged(size * matrix)
            for leaf in jax.tree.leaves(result):
                good = np.isfinite if word in SINGULAR else np.isnan
                assert good(leaf).all(), (word, size)
        chex.assert_trees_all_close(call(matrix), judged(matrix), rtol=1e-6)
    # Scales far apart are no reason, nor is what rounding leaves of symmetry.
    uneven = jnp.diag(jnp.asarray([1.0, 1e-8])).at[0, 1].set(1e-12)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(judged(uneven)))


@pytest.mark.nightly
def test_a_matrix_is_judged_apart_from_the_others_and_from_the_slope():
    call = of_matrices("discrete_riccati, r")
    batch = jax.jit(jax.vmap(call))(jnp.stack([EYE, MISJUDGED["negative"]]))
    assert np.isfinite(batch[0]).all()
    assert np.isnan(batch[1]).all()
    slope = jax.jit(jax.grad(lambda matrix: call(matrix)[0, 0]))(EYE)
    step = 1e-2 * EYE
    nearby = (call(EYE + step) - call(EYE - step))[0, 0] / 2e-2
    np.testing.assert_allclose(slope[0, 0], nearby, rtol=1e-3)


@pytest.mark.nightly
def test_a_wide_semidefinite_matrix_is_not_taken_for_rounding():
    wide = jnp.ones((60, 60))
    call = jax.jit(
        lambda q: linear_systems.discrete_riccati(jnp.eye(60) / 2, jnp.eye(60), q, jnp.eye(60))
    )
    assert np.isfinite(call(wide)).all()
    assert np.isnan(call(wide - jnp.eye(60) / 100)).all()


@pytest.mark.parametrize(
    "step", [federated.gossip_step, lambda _, mixing: federated.mixing_rate(mixing)]
)
def test_a_traced_mixing_whose_sums_are_not_one_gives_nan(step):
    call = jax.jit(lambda mixing: jax.tree.leaves(step(jnp.eye(2), mixing))[0])
    rows_only = jnp.asarray([[1.0, 0.0], [1.0, 0.0]])
    for mixing in (rows_only, rows_only.T, jnp.ones((2, 2)), jnp.full((2, 2), jnp.nan)):
        assert np.isnan(call(mixing)).all()
    steep = jnp.asarray([[301.0, -300.0], [-300.0, 301.0]])
    for mixing in (EYE, jnp.full((2, 2), 0.5), steep, steep.at[0, 0].add(1e-3)):
        assert np.isfinite(call(mixing)).all()
    assert np.isnan(call(steep.at[0, 0].add(1e-1))).all()
