import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.projections import project_simplex
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    mapped,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
SMALL = reals(-2, 2)


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
]
