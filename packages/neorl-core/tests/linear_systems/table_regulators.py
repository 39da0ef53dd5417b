import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import linalg

from neorl_core.linear_systems import (
    IntegralRegulator,
    Regulator,
    discrete_riccati,
    finite_horizon_regulator,
    integral_regulator,
    lq_regulator,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    conditioned,
    in_units,
    mapped,
    positive_definite,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
ONE, TWO, THREE = np.ones((1, 1)), np.eye(2), np.eye(3)
FIRST = np.asarray([[1.0], [0.0]])
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
# Near a matrix of full rank: every pair with it is controllable and observable.
FULL = np.asarray([[1.0, 0.5], [-0.3, 1.0]], np.float32)
ACTUATOR = rows(2, 2, elements=reals(-0.25, 0.25)).map(lambda noise: noise + FULL)
EVEN, TILT = positive_definite(2), rows(2, 2, elements=reals(-0.25, 0.25))
COST = st.one_of(EVEN, conditioned(2, decades=3))
# Money or energy: costs have one unit, which the gain does not know.
COSTS = in_units(st.tuples(COST, COST))
PROBLEM = st.tuples(PLANT, ACTUATOR, COSTS).map(lambda drawn: (*drawn[:2], *drawn[2]))
OUTPUT = rows(1, 2, elements=reals(0.5, 1.5))
# Away from one: the integral of every output is reached.
SETTLING = rows(2, 2, elements=reals(-0.375, 0.375))
BAD_SHAPES = [
    Refusal("square", (jnp.ones((2, 3)), TWO, TWO, TWO)),
    Refusal("square", (jnp.ones((0, 0)), TWO, TWO, TWO)),
    Refusal("(state, state)", (jnp.ones(2), TWO, TWO, TWO)),
]


def even(matrix):
    return (matrix + matrix.T) / 2


def riccati_by_scipy(a, b, q, r, cross=None):
    return linalg.solve_discrete_are(a, b, even(q), even(r), s=cross)


def scales_with_the_costs(a, b, q, r):
    twice = mapped(lq_regulator, a, b, 2 * q, 2 * r)
    once = mapped(lq_regulator, a, b, q, r)
    assert_close(twice, Regulator(once.gain, 2 * once.cost_to_go), rtol=1e-3)


def follows_a_change_of_coordinates(a, b, q, r):
    turn = np.asarray([[0.0, 2.0], [-1.0, 0.0]], np.float32)
    back = np.linalg.inv(turn)
    moved = mapped(lq_regulator, turn @ a @ back, turn @ b, back.T @ q @ back, r).cost_to_go
    here = mapped(lq_regulator, a, b, q, r).cost_to_go
    assert_close(moved, back.T @ here @ back, rtol=1e-3, atol=1e-4)


def riccati_with_cross(a, b, q, r, cross):
    return discrete_riccati(a, b, q, r, cross=cross)


def pays_for_a_tilted_input(a, b, q, r, cross):
    """``u = v - R^{-1} N^T x`` takes the cross term out of the problem."""
    inner = np.linalg.solve(r, cross.transpose(0, 2, 1))
    plain = a - b @ inner, b, q - cross @ inner, r
    x = mapped(riccati_with_cross, a, b, q, r, cross)
    assert_close(mapped(riccati_with_cross, *plain, 0 * cross), x, rtol=1e-3, atol=1e-4)


def regulator_by_scipy(a, b, q, r):
    q, r = even(q), even(r)
    x = linalg.solve_discrete_are(a, b, q, r)
    return Regulator(np.linalg.inv(r + b.T @ x @ b) @ b.T @ x @ a, x)


def the_closed_loop_is_stable(a, b, q, r):
    gain = np.asarray(mapped(lq_regulator, a, b, q, r).gain)
    assert np.all(np.abs(np.linalg.eigvals(a - b @ gain)) < 1)


def plan_by_least_squares(a, b, q, r, terminal, *, horizon):
    """All inputs of the rest of the horizon at once, from the stacked quadratic form."""
    n, m = b.shape
    q, r, terminal = even(q), even(r), even(terminal)
    gains, costs = [], [terminal]
    for left in range(1, horizon + 1):
        free = np.vstack([np.linalg.matrix_power(a, k) for k in range(left + 1)])
        forced = np.zeros((n * (left + 1), m * left))
        for k in range(1, left + 1):
            for j in range(k):
                block = np.linalg.matrix_power(a, k - 1 - j) @ b
                forced[n * k : n * (k + 1), m * j : m * (j + 1)] = block
        weight = linalg.block_diag(*[q] * left, terminal)
        quadratic = forced.T @ weight @ forced + np.kron(np.eye(left), r)
        best = np.linalg.solve(quadratic, forced.T @ weight @ free)
        gains.insert(0, best[:m])
        costs.insert(0, free.T @ weight @ (free - forced @ best))
    return Regulator(np.asarray(gains), np.asarray(costs))


def a_longer_horizon_ends_in_the_same_way(a, b, q, r, terminal, *, horizon):
    short = mapped(finite_horizon_regulator, a, b, q, r, terminal, horizon=horizon)
    longer = mapped(finite_horizon_regulator, a, b, q, r, terminal, horizon=horizon + 2)
    assert_close(longer.gain[:, 2:], short.gain, atol=1e-5)
    assert_close(longer.cost_to_go[:, 2:], short.cost_to_go, atol=1e-5)


def integral_by_scipy(a, b, c, q, r, *, dt):
    wide = np.block([[a, np.zeros((2, 1))], [dt * c, np.ones((1, 1))]])
    inputs = np.vstack([b, np.zeros((1, 2))])
    gain, x = regulator_by_scipy(wide, inputs, q, r)
    return IntegralRegulator(gain[:, :2], gain[:, 2:], x)


def leaves_no_offset(a, b, c, q, r, *, dt):
    """The steady state under a constant load has the output at its target, 3."""
    gain, integral, _ = (np.asarray(part, np.float64) for part in mapped(
        integral_regulator, a, b, c, q, r, dt=dt
    ))  # fmt: skip
    for k in range(len(a)):
        closed = np.block([[a[k] - b[k] @ gain[k], -b[k] @ integral[k]], [dt * c[k], np.eye(1)]])
        push = np.asarray([0.5, -1.0, -dt * 3.0])
        steady = np.linalg.solve(np.eye(3) - closed, push)
        assert_close(c[k] @ steady[:2], np.asarray([3.0]), rtol=1e-4)
        assert np.all(np.abs(np.linalg.eigvals(closed)) < 1)


ROWS = [
    Row(
        riccati_with_cross,
        name="discrete_riccati",
        sample=st.tuples(PLANT, ACTUATOR, in_units(st.tuples(EVEN, EVEN, TILT))).map(
            lambda drawn: (*drawn[:2], *drawn[2])
        ),
        oracle=riccati_by_scipy,
        laws=[pays_for_a_tilted_input],
        edges=[
            Edge((TWO, TWO, TWO, TWO, 0 * TWO)),
            Edge((0 * TWO, TWO, TWO, TWO, 0 * TWO)),
            Edge((3 * TWO, TWO, TWO, 100 * TWO, 0 * TWO)),
            # Inputs for nothing, and unstable modes that cost nothing.
            Edge((3 * TWO, TWO, TWO, 0 * TWO, 0 * TWO)),
            Edge((2 * TWO, FULL, 0 * TWO, TWO, 0 * TWO)),
            Edge((np.diag([2.0, 0.5]), FULL, np.diag([0.0, 1.0]), np.diag([1.0, 0.0]), 0 * TWO)),
        ],
        refuses=[
            *[Refusal(bad.match, (*bad.args, None)) for bad in BAD_SHAPES],
            Refusal("b must have", (TWO, ONE, TWO, TWO, None)),
            Refusal("q must have", (TWO, TWO, ONE, TWO, None)),
            Refusal("r must have", (TWO, TWO, TWO, ONE, None)),
            Refusal("cross must have", (TWO, TWO, TWO, TWO, ONE)),
        ],
        exempt={"everywhere": "the program is that of lq_regulator"},
        dtypes=FLOATS,
    ),
    Row(
        lq_regulator,
        sample=PROBLEM,
        oracle=regulator_by_scipy,
        laws=[
            the_closed_loop_is_stable,
            scales_with_the_costs,
            follows_a_change_of_coordinates,
        ],
        edges=[Edge((0 * TWO, TWO, TWO, TWO)), Edge((TWO, TWO, TWO, TWO))],
        refuses=BAD_SHAPES,
        dtypes=FLOATS,
    ),
    Row(
        finite_horizon_regulator,
        sample=st.tuples(PLANT, ACTUATOR, in_units(st.tuples(COST, COST, COST))).map(
            lambda drawn: (*drawn[:2], *drawn[2])
        ),
        options={"horizon": 3},
        oracle=plan_by_least_squares,
        laws=[a_longer_horizon_ends_in_the_same_way],
        edges=[Edge((0 * TWO, TWO, TWO, TWO, 0 * TWO), {"horizon": 2})],
        refuses=[
            *[Refusal(bad.match, (*bad.args, TWO), {"horizon": 1}) for bad in BAD_SHAPES],
            Refusal("terminal must have", (TWO, TWO, TWO, TWO, ONE), {"horizon": 1}),
            Refusal("horizon", (TWO, TWO, TWO, TWO, TWO), {"horizon": -1}),
        ],
        dtypes=FLOATS,
    ),
    Row(
        integral_regulator,
        sample=st.tuples(
            SETTLING, ACTUATOR, OUTPUT, in_units(st.tuples(positive_definite(3), COST))
        ).map(lambda drawn: (*drawn[:3], *drawn[3])),
        options={"dt": 0.5},
        oracle=integral_by_scipy,
        laws=[leaves_no_offset],
        edges=[Edge((0 * TWO, TWO, np.ones((1, 2)), THREE, TWO), {"dt": 1.0})],
        refuses=[
            Refusal("c must have", (TWO, TWO, ONE, THREE, TWO)),
            Refusal("q must have", (TWO, TWO, TWO[:1], TWO, TWO)),
            Refusal("dt", (TWO, TWO, TWO[:1], THREE, TWO), {"dt": 0.0}),
        ],
        exempt={"everywhere": "the program is that of lq_regulator"},
        dtypes=FLOATS,
    ),
]
