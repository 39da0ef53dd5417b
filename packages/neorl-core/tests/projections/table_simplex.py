import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import optimize

from neorl_core.projections import project_simplex, simplex_quadratic
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    mapped,
    positive_definite,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
SMALL = reals(-2, 2)


def least_quadratic(matrix):
    scale = np.abs(matrix).max() or 1.0
    n = len(matrix)
    found = [
        optimize.minimize(
            lambda x: x @ matrix @ x / scale,
            start,
            jac=lambda x: 2 * matrix @ x / scale,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        ).x
        for start in [np.full(n, 1 / n), *np.eye(n)[:2]]
    ]
    return min(found, key=lambda x: x @ matrix @ x)


def projection_by_bisection(values):
    low, high = values.min() - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(values - low, 0)


def projecting_twice_changes_nothing(values):
    once = np.asarray(mapped(project_simplex, values))
    assert_close(mapped(project_simplex, once), once, atol=1e-5)
    assert_close(mapped(project_simplex, values + 3), once, atol=2e-5)


def satisfies_the_optimality_conditions(matrix):
    """On the simplex ``A x`` is least, and equal, where ``x`` is positive."""
    x = np.asarray(mapped(simplex_quadratic, matrix), np.float64)
    assert_close(x.sum(axis=1), np.ones(3), atol=1e-5)
    gradient = np.einsum("rij,rj->ri", matrix.astype(np.float64), x)
    least = gradient.min(axis=1, keepdims=True)
    size = np.abs(matrix).max(axis=(1, 2))[:, None]
    assert np.all(x * (gradient - least) <= 1e-4 * size)


ROWS = [
    Row(
        project_simplex,
        sample=st.tuples(rows(5, elements=SMALL)),
        oracle=projection_by_bisection,
        laws=[projecting_twice_changes_nothing],
        edges=[Edge((np.zeros(3),)), Edge((np.asarray([100.0, 0.0]),)), Edge((np.ones(1),))],
        refuses=[
            Refusal("values must have the axes (item)", (jnp.ones((2, 2)),)),
            Refusal("values needs a first axis of length 1", (jnp.ones(0),)),
        ],
        dtypes=FLOATS,
    ),
    Row(
        simplex_quadratic,
        sample=st.tuples(positive_definite(4)),
        oracle=least_quadratic,
        laws=[satisfies_the_optimality_conditions],
        edges=[
            Edge((np.eye(3),)),
            Edge((np.ones((1, 1)),)),
        ],
        refuses=[
            Refusal("matrix must have the axes (item, item)", (jnp.ones(2),)),
            Refusal("matrix needs a first axis of length 1", (jnp.ones((0, 0)),)),
            Refusal("square", (jnp.ones((2, 3)),)),
            Refusal(
                "iterations must be 1 or more, got 0; give the number of steps",
                (jnp.eye(2),),
                {"iterations": 0},
            ),
        ],
        differentiable=False,
        rtol=1e-3,
        atol=1e-4,
        dtypes=FLOATS,
    ),
]
