"""Least squares over the simplex against every set of entries not zero."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.off_policy_evaluation._simplex_quadratic import simplex_quadratic


def minimiser_by_sets(matrix: np.ndarray) -> np.ndarray:
    """The best of ``A^-1 1`` on every set of entries where that is not negative."""
    n, best = len(matrix), (np.inf, np.zeros(len(matrix)))
    for size in range(1, n + 1):
        for chosen in map(list, itertools.combinations(range(n), size)):
            inside = matrix[np.ix_(chosen, chosen)]
            weights = np.linalg.solve(inside, np.ones(size))
            weights /= weights.sum()
            if np.all(weights >= 0):
                point = np.zeros(n)
                point[chosen] = weights
                best = min(best, (weights @ inside @ weights, point), key=lambda pair: pair[0])
    return best[1]


def matrices(condition: float) -> np.ndarray:
    """Forty rotations of one spectrum that falls geometrically."""
    collected = []
    for seed in range(40):
        basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))
        collected.append((basis * np.geomspace(1, 1 / condition, 5)) @ basis.T)
    return np.array(collected)


@pytest.mark.parametrize(("condition", "iterations"), [(10.0, 50), (1e3, 400)])
def test_few_steps_reach_the_minimiser(condition: float, iterations: int) -> None:
    """So few that neither plain nor unchecked steps with momentum would do."""
    given = matrices(condition)
    solve = jax.jit(jax.vmap(functools.partial(simplex_quadratic, iterations=iterations)))
    actual = np.asarray(solve(jnp.asarray(given, jnp.float32)))
    wanted = np.array([minimiser_by_sets(matrix) for matrix in given])
    np.testing.assert_allclose(actual, wanted, atol=3e-5)


def test_one_step_is_enough_for_the_unit_matrix() -> None:
    np.testing.assert_allclose(simplex_quadratic(jnp.eye(2), iterations=1), [0.5, 0.5])


def test_of_an_ill_conditioned_matrix_the_value_is_nearly_least() -> None:
    """What MAGIC minimises is an estimated error; a few per cent of it do not matter."""
    given = matrices(1e4)
    actual = np.asarray(jax.jit(jax.vmap(simplex_quadratic))(jnp.asarray(given, jnp.float32)))
    np.testing.assert_allclose(actual.sum(axis=1), 1, rtol=1e-5)
    for matrix, x in zip(given, actual.astype(np.float64), strict=True):
        best = minimiser_by_sets(matrix)
        assert x @ matrix @ x <= 1.05 * (best @ matrix @ best)


def test_a_matrix_of_one_or_with_nan() -> None:
    assert simplex_quadratic(jnp.ones((1, 1))).tolist() == [1.0]
    assert np.isnan(simplex_quadratic(jnp.full((2, 2), jnp.nan))).all()
