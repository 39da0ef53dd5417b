import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.linear_systems import (
    controllability_matrix,
    controllable,
    detectable,
    discrete_lyapunov,
    is_stable,
    observable,
    spectral_radius,
    stabilisable,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    conditioned,
    in_units,
    integers,
    mapped,
    positive_definite,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
ONE, TWO = np.ones((1, 1)), np.eye(2)
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
WHOLE = integers(2, 2, low=-1, high=1).map(lambda a: a.astype(np.float32))
# Eigenvalues on the circle and defective ones are frequent, and all is exact.
HALVES = integers(2, 2, low=-3, high=3).map(lambda a: (a / 2).astype(np.float32))
NOISE = in_units(st.one_of(positive_definite(2), conditioned(2)))
INPUT = WHOLE.map(lambda a: a[:, :, :1])
OUTPUT = WHOLE.map(lambda a: a[:, :1])
TOLERANCE = {"tolerance": 1e-4}
# Powers of two: what is at the circle stays there.
UNITS = np.asarray([2.0**-10, 2.0**14], np.float32)
NO_NAN = "true and false cannot be NaN; see test_reachability.py"
NEGATIVE = "tolerance must be finite and not negative, got -1.0; check sign and unit"


def radius_by_eigenvalues(a):
    return np.abs(np.linalg.eigvals(a)).max()


def scales_with_the_matrix(a):
    twice = mapped(spectral_radius, -2 * a)
    assert_close(twice, 2 * mapped(spectral_radius, a), rtol=1e-4)


def stable_by_jury(a):
    trace, determinant = a[0, 0] + a[1, 1], a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    return np.asarray(abs(determinant) < 1 and abs(trace) < 1 + determinant)


def stays_in_other_units(a):
    moved = a * UNITS[:, None] / UNITS
    assert_close(mapped(is_stable, moved), mapped(is_stable, a))


def lyapunov_by_kronecker(a, q):
    n, q = len(a), (q + q.T) / 2
    return np.linalg.solve(np.eye(n * n) - np.kron(a, a), q.ravel()).reshape(n, n)


def linear_in_the_noise(a, q):
    twice = mapped(discrete_lyapunov, a, 2 * q)
    assert_close(twice, 2 * mapped(discrete_lyapunov, a, q), rtol=1e-4)


def reach_by_powers(a, b):
    return np.hstack([np.linalg.matrix_power(a, k) @ b for k in range(len(a))])


def scales_with_the_inputs(a, b):
    twice = mapped(controllability_matrix, a, 2 * b)
    assert_close(twice, 2 * mapped(controllability_matrix, a, b))


def controllable_by_rank(a, b, *, tolerance):
    return np.asarray(np.linalg.matrix_rank(reach_by_powers(a, b)) == len(a))


def observable_by_rank(a, c, *, tolerance):
    return controllable_by_rank(a.T, c.T, tolerance=tolerance)


def feedback_changes_nothing(a, b, *, tolerance):
    gain = np.asarray([[1.0, -1.0]], np.float32)
    closed = mapped(controllable, a + b @ gain, b, tolerance=tolerance)
    assert_close(closed, mapped(controllable, a, b, tolerance=tolerance))


def units_change_nothing(a, b, *, tolerance):
    for function in (controllable, stabilisable):
        moved = mapped(
            function, a * UNITS[:, None] / UNITS, 1e-5 * b * UNITS[:, None], tolerance=tolerance
        )
        assert_close(moved, mapped(function, a, b, tolerance=tolerance))


def stabilisable_by_hand(a, b, *, tolerance):
    """One input: what it does not reach is the rest of the trace, if ``b`` is an eigenvector."""
    if not b.any():
        return stable_by_jury(a)
    if np.linalg.det(reach_by_powers(a, b)) != 0:
        return np.asarray(True)
    own = (b.T @ a @ b).item() / (b.T @ b).item()
    return np.asarray(abs(np.trace(a) - own) < 1)


def detectable_by_hand(a, c, *, tolerance):
    return stabilisable_by_hand(a.T, c.T, tolerance=tolerance)


def is_the_dual(function, dual):
    def law(a, c, *, tolerance):
        turned = a.transpose(0, 2, 1), c.transpose(0, 2, 1)
        assert_close(
            mapped(function, a, c, tolerance=tolerance), mapped(dual, *turned, tolerance=tolerance)
        )

    return law


def pair_refusals(name, misfit):
    return [
        Refusal("square", (jnp.ones((2, 3)), TWO)),
        Refusal(f"{name} must have", (TWO, misfit)),
        Refusal(NEGATIVE, (TWO, TWO), {"tolerance": -1.0}, traced=NO_NAN),
    ]


def judgement(function, other, oracle, law, name):
    return Row(
        function,
        sample=st.tuples(HALVES, other),
        options=TOLERANCE,
        oracle=oracle,
        laws=[law],
        refuses=pair_refusals(name, ONE),
        differentiable=False,
        exempt={"scalars": NO_NAN},
        dtypes=FLOATS,
    )


ROWS = [
    Row(
        spectral_radius,
        sample=in_units(st.tuples(rows(2, 2, elements=reals(-2, 2)))),
        oracle=radius_by_eigenvalues,
        laws=[scales_with_the_matrix],
        edges=[Edge((np.zeros((3, 3)),)), Edge((np.asarray([[0.0, 1.0], [-1.0, 0.0]]),))],
        refuses=[Refusal("square", (jnp.ones((2, 3)),))],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        is_stable,
        sample=st.tuples(HALVES),
        oracle=stable_by_jury,
        laws=[stays_in_other_units],
        refuses=[Refusal("square", (jnp.ones((2, 3)),))],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        discrete_lyapunov,
        sample=st.tuples(rows(2, 2, elements=reals(-0.4375, 0.4375)), NOISE),
        oracle=lyapunov_by_kronecker,
        laws=[linear_in_the_noise],
        edges=[Edge((0 * TWO, TWO))],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("q must have", (0 * TWO, ONE)),
        ],
        dtypes=FLOATS,
    ),
    Row(
        controllability_matrix,
        sample=st.tuples(PLANT, in_units(rows(2, 1))),
        oracle=reach_by_powers,
        laws=[scales_with_the_inputs],
        edges=[Edge((TWO, np.ones((2, 0))))],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("b must have", (TWO, ONE)),
        ],
        dtypes=FLOATS,
    ),
    Row(
        controllable,
        sample=st.tuples(WHOLE, INPUT),
        options=TOLERANCE,
        oracle=controllable_by_rank,
        laws=[feedback_changes_nothing, units_change_nothing],
        edges=[Edge((TWO, np.ones((2, 0))), TOLERANCE)],
        refuses=pair_refusals("b", ONE),
        differentiable=False,
        exempt={"scalars": NO_NAN},
        dtypes=FLOATS,
    ),
    judgement(observable, OUTPUT, observable_by_rank, is_the_dual(observable, controllable), "c"),
    judgement(stabilisable, INPUT, stabilisable_by_hand, units_change_nothing, "b"),
    judgement(detectable, OUTPUT, detectable_by_hand, is_the_dual(detectable, stabilisable), "c"),
]
