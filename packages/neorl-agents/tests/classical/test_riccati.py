"""Riccati's equation against its own recursion, and what has no solution."""

import numpy as np
import pytest

from neorl_agents.classical._identification import stabilising_solution

from .conftest import by_recursion

ONE, TWO = np.ones((1, 1)), np.eye(2)


def plant(rng, n, m, radius):
    a = rng.normal(size=(n, n))
    a *= radius / np.abs(np.linalg.eigvals(a)).max()
    root = rng.normal(size=(n + m, n + m))
    cost = root @ root.T / n
    return a, rng.normal(size=(n, m)), cost[:n, :n], cost[n:, n:], cost[:n, n:]


@pytest.mark.parametrize("radius", [0.5, 0.99, 1.2])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (20, 4)])
def test_the_solution_is_the_limit_of_the_recursion(size, radius):
    problem = plant(np.random.default_rng(size), *size, radius)
    x, gain = stabilising_solution(*problem)
    expected, best = by_recursion(*problem)
    np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(gain, best, rtol=1e-7, atol=1e-8 * np.abs(best).max())


def test_dead_time_and_states_that_cost_nothing_are_no_obstacle():
    """A lag behind thirty periods of dead time: most states cost nothing by themselves."""
    a = np.diag(np.ones(30), -1)
    a[0, 0], a[1, 0], a[0, 30] = 0.95, 0.0, 1.0
    b, q = np.zeros((31, 1)), np.zeros((31, 31))
    b[1, 0] = q[0, 0] = 1.0
    problem = a, b, q, 0.1 * ONE, np.zeros((31, 1))
    x, gain = stabilising_solution(*problem)
    expected, best = by_recursion(*problem)
    np.testing.assert_allclose(x, expected, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(gain, best, atol=1e-8)


def test_an_unstable_mode_that_costs_nothing_is_mirrored_at_the_unit_circle():
    _, gain = stabilising_solution(2 * ONE, ONE, 0 * ONE, ONE, 0 * ONE)
    np.testing.assert_allclose(2 - gain, 0.5 * ONE, rtol=1e-12)


NO_SOLUTION = {
    "a mode that no input reaches": (2 * TWO, np.asarray([[1.0], [0.0]]), TWO, ONE),
    "a mode that stays and costs nothing": (TWO, TWO, 0 * TWO, TWO),
    "an input for nothing that does nothing": (ONE, 0 * ONE, ONE, 0 * ONE),
    "a number that is none": (np.nan * ONE, ONE, ONE, ONE),
}


@pytest.mark.parametrize("why", NO_SOLUTION)
def test_where_no_gain_stabilises_there_is_none(why):
    a, b, q, r = NO_SOLUTION[why]
    assert stabilising_solution(a, b, q, r, np.zeros_like(b)) is None
