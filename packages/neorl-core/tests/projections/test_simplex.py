"""Least squares over the simplex against every set of entries not zero, and projections."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.projections import project_simplex, simplex_quadratic


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
    found = []
    for seed in range(40):
        basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))
        found.append((basis * np.geomspace(1, 1 / condition, 5)) @ basis.T)
    return np.array(found)


@pytest.mark.parametrize(("condition", "iterations"), [(10.0, 50), (1e3, 400)])
def test_few_steps_reach_the_minimiser(condition: float, iterations: int) -> None:
    """So few that neither plain nor unchecked steps with momentum would do."""
    given = matrices(condition)
    solve = jax.jit(jax.vmap(functools.partial(simplex_quadratic, iterations=iterations)))
    found = np.asarray(solve(jnp.asarray(given, jnp.float32)))
    wanted = np.array([minimiser_by_sets(matrix) for matrix in given])
    np.testing.assert_allclose(found, wanted, atol=3e-5)


def test_one_step_is_enough_for_the_unit_matrix() -> None:
    np.testing.assert_allclose(simplex_quadratic(jnp.eye(2), iterations=1), [0.5, 0.5])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e8, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ([1e7, 1e7 - 0.5, 0.0], [0.5, 0.5, 0.0]),  # In float32 the second is 1e7 too.
        ([4e6, 4e6 - 0.5, 0.0], [0.75, 0.25, 0.0]),
        ([1e7, 1e7 - 1.0, -1e30], [1.0, 0.0, 0.0]),
        ([-3e38, 3e38], [0.0, 1.0]),
    ],
)
def test_a_projection_onto_the_simplex_sums_to_one_far_from_it(values, expected):
    given = np.asarray(values, np.float32)
    np.testing.assert_allclose(project_simplex(given), expected, atol=1e-6)
    slope = jax.jacobian(project_simplex)(jnp.asarray(given))
    assert np.all(np.isfinite(slope))


def test_a_common_offset_changes_no_projection():
    values = np.asarray([0.25, -0.5, 0.125, 0.0], np.float32)
    for offset in (2.0**10, 2.0**20, -(2.0**20)):
        np.testing.assert_array_equal(
            project_simplex(values + np.float32(offset)), project_simplex(values)
        )
