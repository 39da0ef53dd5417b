import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import linalg, signal

from neorl_core.linear_systems import (
    KalmanFilter,
    LinearModel,
    Regulator,
    controllability_matrix,
    controllable,
    delay_residuals,
    discrete_lyapunov,
    discrete_riccati,
    finite_horizon_regulator,
    identify_linear,
    kalman_filter,
    lq_regulator,
    observable,
    spectral_radius,
    zero_order_hold,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    mapped,
    positive_definite,
    reals,
    rows,
    seeds,
)

FLOATS = ("float32", "float64")
ONE, TWO = np.ones((1, 1)), np.eye(2)
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
# Near a matrix of full rank: every pair with it is controllable and observable.
FULL = np.asarray([[1.0, 0.5], [-0.3, 1.0]], np.float32)
ACTUATOR = rows(2, 2, elements=reals(-0.25, 0.25)).map(lambda noise: noise + FULL)
COST = positive_definite(2)
PROBLEM = st.tuples(PLANT, ACTUATOR, COST, COST)
BAD_SHAPES = [
    Refusal("square", (jnp.ones((2, 3)), TWO, TWO, TWO)),
    Refusal("square", (jnp.ones((0, 0)), TWO, TWO, TWO)),
    Refusal("(state, state)", (jnp.ones(2), TWO, TWO, TWO)),
]


def hold_by_scipy(a, b, *, dt):
    ad, bd, *_ = signal.cont2discrete((a, b, np.eye(2), np.zeros((2, 2))), dt)
    return ad, bd


def two_halves_are_a_whole(a, b, *, dt):
    ad, bd = (np.asarray(x, np.float64) for x in mapped(zero_order_hold, a, b, dt=dt / 2))
    whole = ad @ ad, ad @ bd + bd
    assert_close(mapped(zero_order_hold, a, b, dt=dt), whole, rtol=1e-4, atol=1e-5)


def riccati_by_scipy(a, b, q, r, cross=None):
    return linalg.solve_discrete_are(a, b, q, r, s=cross)


def scales_with_the_costs(a, b, q, r):
    twice = mapped(discrete_riccati, a, b, 2 * q, 2 * r)
    assert_close(twice, 2 * mapped(discrete_riccati, a, b, q, r), rtol=1e-3)


def follows_a_change_of_coordinates(a, b, q, r):
    turn = np.asarray([[0.0, 2.0], [-1.0, 0.0]], np.float32)
    back = np.linalg.inv(turn)
    moved = mapped(discrete_riccati, turn @ a @ back, turn @ b, back.T @ q @ back, r)
    assert_close(moved, back.T @ mapped(discrete_riccati, a, b, q, r) @ back, rtol=1e-3, atol=1e-4)


def riccati_with_cross(a, b, q, r, cross):
    return discrete_riccati(a, b, q, r, cross=cross)


def regulator_by_scipy(a, b, q, r):
    x = linalg.solve_discrete_are(a, b, q, r)
    return Regulator(np.linalg.inv(r + b.T @ x @ b) @ b.T @ x @ a, x)


def the_closed_loop_is_stable(a, b, q, r):
    gain = np.asarray(mapped(lq_regulator, a, b, q, r).gain)
    assert np.all(np.abs(np.linalg.eigvals(a - b @ gain)) < 1)


def plan_by_least_squares(a, b, q, r, terminal, *, horizon):
    """All inputs of the rest of the horizon at once, from the stacked quadratic form."""
    n, m = b.shape
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


def filter_by_scipy(a, c, process, measurement):
    p = linalg.solve_discrete_are(a.T, c.T, process, measurement)
    return KalmanFilter(p @ c.T @ np.linalg.inv(c @ p @ c.T + measurement), p)


def is_the_dual_of_the_regulator(a, c, process, measurement):
    estimator = mapped(kalman_filter, a, c, process, measurement)
    a_turned, c_turned = a.transpose(0, 2, 1), c.transpose(0, 2, 1)
    regulator = mapped(lq_regulator, a_turned, c_turned, process, measurement)
    assert_close(estimator.covariance, regulator.cost_to_go, rtol=1e-4)
    predictor = np.asarray(a) @ np.asarray(estimator.gain)
    assert_close(predictor, np.asarray(regulator.gain).transpose(0, 2, 1), rtol=1e-3, atol=1e-4)


def radius_by_eigenvalues(a):
    return np.abs(np.linalg.eigvals(a)).max()


def scales_with_the_matrix(a):
    twice = mapped(spectral_radius, -2 * a)
    assert_close(twice, 2 * mapped(spectral_radius, a), rtol=1e-4)


def lyapunov_by_kronecker(a, q):
    n = len(a)
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


def is_the_dual_of_controllable(a, c, *, tolerance):
    turned = a.transpose(0, 2, 1), c.transpose(0, 2, 1)
    dual = mapped(controllable, *turned, tolerance=tolerance)
    assert_close(mapped(observable, a, c, tolerance=tolerance), dual)


def random_log(seed):
    """Three noisy logs of two episodes each, cut at random."""
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=(DRAWS, 24, n)).astype(np.float32) for n in (2, 2, 2)]
    ends = np.zeros((2, DRAWS, 24), bool)
    for row in range(DRAWS):
        ends[rng.integers(2), row, rng.integers(6, 18)] = True
    return (*columns, *ends)


def rows_inside(terminated, truncated, before):
    inside, start = [], 0
    for row in range(len(terminated)):
        if row and (terminated[row - 1] or truncated[row - 1]):
            start = row
        if row - before >= start:
            inside.append(row)
    return np.asarray(inside)


def model_by_rows(obs, action, next_obs, terminated, truncated, *, delay, before=None):
    before = max(delay) if before is None else before
    kept = rows_inside(terminated, truncated, before)
    design = np.asarray(
        [np.r_[obs[t], [action[t - d, i] for i, d in enumerate(delay)], 1.0] for t in kept]
    )
    fit, *_ = np.linalg.lstsq(design, next_obs[kept], rcond=None)
    left = np.sqrt(np.mean((next_obs[kept] - design @ fit) ** 2, axis=0))
    return LinearModel(
        fit[:2].T,
        fit[2:4].T,
        fit[4],
        left,
        np.asarray(5, np.int32),
        np.asarray(len(kept), np.int32),
    )


def follows_the_units(obs, action, next_obs, terminated, truncated, *, delay):
    ends = terminated, truncated
    plain = mapped(identify_linear, obs, action, next_obs, *ends, delay=delay)
    moved = mapped(identify_linear, 4 * obs + 3, 0.5 * action, 4 * next_obs + 3, *ends, delay=delay)
    assert_close(moved.a, plain.a, rtol=1e-3, atol=1e-4)
    assert_close(moved.b, 8 * np.asarray(plain.b), rtol=1e-3, atol=1e-4)
    assert_close(moved.residual, 4 * np.asarray(plain.residual), rtol=1e-3, atol=1e-4)


def residuals_by_rows(*log, longest):
    fits = [model_by_rows(*log, delay=(d, d), before=longest) for d in range(longest + 1)]
    return np.asarray([fit.residual for fit in fits])


def the_true_delay_leaves_nothing(obs, action, next_obs, terminated, truncated, *, longest):
    late = np.roll(action, 2, axis=1)
    response = (0.5 * obs + late).astype(np.float32)
    left = mapped(delay_residuals, obs, action, response, terminated, truncated, longest=longest)
    assert np.all(np.asarray(left).sum(axis=-1).argmin(axis=1) == 2)


LOG = seeds().map(random_log)
SHORT = jnp.ones((3, 2)), jnp.ones((3, 2)), jnp.ones((3, 2)), *jnp.zeros((2, 3), bool)
WHOLE = integers(2, 2, low=-1, high=1).map(lambda a: a.astype(np.float32))
TOLERANCE = {"tolerance": 1e-4}


def log_refusals(**options):
    obs, action, next_obs, *ends = SHORT
    return [
        Refusal("one shape", (obs, action, next_obs[:, :1], *ends), options),
        Refusal("as many rows", (obs, action[:2], next_obs, *ends), options),
        Refusal("(time, state)", (obs[0], action, next_obs, *ends), options),
        Refusal("3 rows", (obs, action, next_obs, *jnp.zeros((2, 4), bool)), options),
        Refusal("ridge", SHORT, {**options, "ridge": -1.0}),
    ]


ROWS = [
    Row(
        zero_order_hold,
        sample=st.tuples(PLANT, PLANT),
        options=reals(0.125, 2).map(lambda dt: {"dt": float(dt)}),
        oracle=hold_by_scipy,
        laws=[two_halves_are_a_whole],
        edges=[Edge((0 * TWO, TWO), {"dt": 1.0}), Edge((0 * TWO, TWO[:, :0]), {"dt": 1.0})],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO), {"dt": 1.0}),
            Refusal("(2, any)", (TWO, ONE), {"dt": 1.0}),
            Refusal("dt", (TWO, TWO), {"dt": 0.0}),
        ],
        rtol=1e-4,
        atol=1e-5,
        dtypes=FLOATS,
    ),
    Row(
        riccati_with_cross,
        name="discrete_riccati",
        sample=st.tuples(PLANT, ACTUATOR, COST, COST, rows(2, 2, elements=reals(-0.25, 0.25))),
        oracle=riccati_by_scipy,
        laws=[
            lambda *sample: scales_with_the_costs(*sample[:4]),
            lambda *sample: follows_a_change_of_coordinates(*sample[:4]),
        ],
        edges=[
            Edge((ONE, ONE, ONE, ONE, 0 * ONE)),
            Edge((0 * TWO, TWO, TWO, TWO, 0 * TWO)),
            Edge((3 * TWO, TWO, TWO, 100 * TWO, 0 * TWO)),
        ],
        refuses=[
            *[Refusal(bad.match, (*bad.args, None)) for bad in BAD_SHAPES],
            Refusal("b must have", (TWO, ONE, TWO, TWO, None)),
            Refusal("q must have", (TWO, TWO, ONE, TWO, None)),
            Refusal("r must have", (TWO, TWO, TWO, ONE, None)),
            Refusal("cross must have", (TWO, TWO, TWO, TWO, ONE)),
            Refusal("q must be symmetric", (TWO, TWO, -TWO, TWO, None)),
            Refusal("q must be symmetric", (TWO, TWO, np.triu(np.ones((2, 2))), TWO, None)),
            Refusal("r must be symmetric", (TWO, TWO, TWO, 0 * TWO, None)),
            Refusal("not stabilisable", (2 * TWO, TWO[:, :1], TWO, ONE, None)),
            Refusal("not detectable", (2 * TWO, TWO, 0 * TWO, TWO, None)),
        ],
        rtol=1e-3,
        atol=1e-4,
        dtypes=FLOATS,
    ),
    Row(
        lq_regulator,
        sample=PROBLEM,
        oracle=regulator_by_scipy,
        laws=[the_closed_loop_is_stable],
        edges=[Edge((0 * TWO, TWO, TWO, TWO)), Edge((ONE, ONE, ONE, ONE))],
        refuses=BAD_SHAPES,
        rtol=1e-3,
        atol=1e-4,
        dtypes=FLOATS,
    ),
    Row(
        finite_horizon_regulator,
        sample=st.tuples(PLANT, ACTUATOR, COST, COST, COST),
        options={"horizon": 3},
        oracle=plan_by_least_squares,
        laws=[a_longer_horizon_ends_in_the_same_way],
        edges=[Edge((0 * TWO, TWO, TWO, TWO, 0 * TWO), {"horizon": 2})],
        refuses=[
            *[Refusal(bad.match, (*bad.args, TWO), {"horizon": 1}) for bad in BAD_SHAPES],
            Refusal("terminal must have", (TWO, TWO, TWO, TWO, ONE), {"horizon": 1}),
            Refusal("terminal must be", (TWO, TWO, TWO, TWO, -TWO), {"horizon": 1}),
            Refusal("horizon", (TWO, TWO, TWO, TWO, TWO), {"horizon": -1}),
        ],
        rtol=1e-3,
        atol=1e-4,
        dtypes=FLOATS,
    ),
    Row(
        kalman_filter,
        sample=PROBLEM,
        oracle=filter_by_scipy,
        laws=[is_the_dual_of_the_regulator],
        edges=[Edge((0 * TWO, TWO, TWO, TWO)), Edge((ONE, ONE, ONE, ONE))],
        refuses=[
            *BAD_SHAPES,
            Refusal("c must have", (TWO, ONE, TWO, TWO)),
            Refusal("process must have", (TWO, TWO, ONE, TWO)),
            Refusal("measurement must have", (TWO, TWO, TWO, ONE)),
        ],
        rtol=1e-3,
        atol=1e-4,
        dtypes=FLOATS,
    ),
    Row(
        spectral_radius,
        sample=st.tuples(rows(2, 2, elements=reals(-2, 2))),
        oracle=radius_by_eigenvalues,
        laws=[scales_with_the_matrix],
        edges=[Edge((np.zeros((3, 3)),)), Edge((np.asarray([[0.0, 1.0], [-1.0, 0.0]]),))],
        refuses=[Refusal("square", (jnp.ones((2, 3)),))],
        differentiable=False,
        rtol=1e-3,
        atol=1e-3,
        dtypes=FLOATS,
    ),
    Row(
        discrete_lyapunov,
        sample=st.tuples(rows(2, 2, elements=reals(-0.4375, 0.4375)), COST),
        oracle=lyapunov_by_kronecker,
        laws=[linear_in_the_noise],
        edges=[Edge((0 * TWO, TWO))],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("q must have", (0 * TWO, ONE)),
            Refusal("a must be stable", (TWO, TWO)),
        ],
        rtol=1e-4,
        atol=1e-5,
        dtypes=FLOATS,
    ),
    Row(
        controllability_matrix,
        sample=st.tuples(PLANT, rows(2, 1)),
        oracle=reach_by_powers,
        laws=[scales_with_the_inputs],
        edges=[Edge((TWO, np.ones((2, 0))))],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("b must have", (TWO, ONE)),
        ],
        rtol=1e-4,
        dtypes=FLOATS,
    ),
    Row(
        controllable,
        sample=st.tuples(WHOLE, WHOLE.map(lambda a: a[:, :, :1])),
        options=TOLERANCE,
        oracle=controllable_by_rank,
        laws=[feedback_changes_nothing],
        edges=[Edge((TWO, np.ones((2, 0))), TOLERANCE)],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("b must have", (TWO, ONE)),
            Refusal(
                "tolerance must be finite and not negative, got -1.0; check sign and unit",
                (TWO, jnp.ones((2, 0))),
                {"tolerance": -1.0},
            ),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        observable,
        sample=st.tuples(WHOLE, WHOLE.map(lambda a: a[:, :1])),
        options=TOLERANCE,
        oracle=observable_by_rank,
        laws=[is_the_dual_of_controllable],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO)),
            Refusal("c must have", (TWO, ONE)),
            Refusal(
                "tolerance must be finite and not negative, got -1.0; check sign and unit",
                (TWO, TWO),
                {"tolerance": -1.0},
            ),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
    Row(
        identify_linear,
        sample=LOG,
        options={"delay": (1, 3)},
        oracle=model_by_rows,
        laws=[follows_the_units],
        refuses=[
            *log_refusals(delay=0),
            Refusal(
                "delay must be one for all or one for each of the 2 inputs, got (1, 2, 3); "
                "give a tuple of one whole number an input",
                SHORT,
                {"delay": (1, 2, 3)},
            ),
            Refusal(
                "delay must be 0 or more, got -1; give the steps of dead time",
                SHORT,
                {"delay": (0, -1)},
            ),
        ],
        differentiable=False,
        rtol=1e-3,
        atol=2e-5,
        dtypes=FLOATS,
    ),
    Row(
        delay_residuals,
        sample=LOG,
        options={"longest": 3},
        oracle=residuals_by_rows,
        laws=[the_true_delay_leaves_nothing],
        refuses=[*log_refusals(longest=1), Refusal("longest", SHORT, {"longest": -1})],
        differentiable=False,
        rtol=1e-3,
        atol=2e-5,
        dtypes=FLOATS,
    ),
]
