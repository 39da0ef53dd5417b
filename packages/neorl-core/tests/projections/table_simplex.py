import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.projections import project_simplex
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    mapped,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
# Beside entries of size one, and of the scores of a critic.
SCORES = st.one_of(reals(-2, 2), decades())


def projection_by_bisection(values):
    low, high = values.min() - 1, values.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(values - low, 0)


def projecting_twice_changes_nothing(values):
    once = np.asarray(mapped(project_simplex, values))
    assert_close(mapped(project_simplex, once), once, atol=1e-5)
    # What the offset rounds off, in units of the entries.
    offset = np.float32(3)
    exact = (values + offset) - offset
    assert_close(
        mapped(project_simplex, values + offset), mapped(project_simplex, exact), atol=2e-5
    )


ROWS = [
    Row(
        project_simplex,
        sample=st.tuples(rows(5, elements=SCORES)),
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
