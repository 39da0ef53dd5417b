import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import linalg

from neorl_core.linear_systems import (
    KalmanFilter,
    StateEstimate,
    kalman_filter,
    kalman_predict,
    kalman_update,
    lq_regulator,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    conditioned,
    flags,
    in_units,
    mapped,
    positive_definite,
    reals,
    rows,
)

FLOATS = ("float32", "float64")
ONE, TWO, PAIR = np.ones((1, 1)), np.eye(2), np.ones(2)
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
FULL = np.asarray([[1.0, 0.5], [-0.3, 1.0]], np.float32)
SENSOR = rows(2, 2, elements=reals(-0.25, 0.25)).map(lambda noise: noise + FULL)
COVARIANCE = st.one_of(positive_definite(2), conditioned(2, decades=3))
NOISES = in_units(st.tuples(COVARIANCE, COVARIANCE))
VECTOR = rows(2, elements=reals(-4, 4))
MEASURED = st.tuples(rows(3, elements=reals(-4, 4)), flags(3)).map(
    lambda drawn: np.where(drawn[1], drawn[0], np.nan).astype(np.float32)
)
BAD_SHAPES = [
    Refusal("square", (jnp.ones((2, 3)), TWO, TWO, TWO)),
    Refusal("(state, state)", (jnp.ones(2), TWO, TWO, TWO)),
]


def even(matrix):
    return (matrix + matrix.T) / 2


def filter_by_scipy(a, c, process, measurement):
    process, measurement = even(process), even(measurement)
    p = linalg.solve_discrete_are(a.T, c.T, process, measurement)
    return KalmanFilter(p @ c.T @ np.linalg.inv(c @ p @ c.T + measurement), p)


def is_the_dual_of_the_regulator(a, c, process, measurement):
    estimator = mapped(kalman_filter, a, c, process, measurement)
    a_turned, c_turned = a.transpose(0, 2, 1), c.transpose(0, 2, 1)
    regulator = mapped(lq_regulator, a_turned, c_turned, process, measurement)
    assert_close(estimator.covariance, regulator.cost_to_go, rtol=1e-4)
    predictor = np.asarray(a) @ np.asarray(estimator.gain)
    assert_close(predictor, np.asarray(regulator.gain).transpose(0, 2, 1), rtol=1e-3, atol=1e-4)


def predicted(mean, covariance, a, process, drift):
    return kalman_predict(StateEstimate(mean, covariance), a, process, drift=drift)


def predicted_by_stacking(mean, covariance, a, process, drift):
    """State and noise as one vector, whose covariance is that of the two side by side."""
    wide = np.hstack([a, np.eye(2)])
    joint = linalg.block_diag(covariance, process)
    return StateEstimate(a @ mean + drift, wide @ even(joint) @ wide.T)


def moves_with_the_drift(mean, covariance, a, process, drift):
    still = mapped(predicted, mean, covariance, a, process, 0 * drift)
    moved = mapped(predicted, mean, covariance, a, process, drift)
    assert_close(moved.mean, still.mean + drift, atol=1e-5)
    assert_close(moved.covariance, still.covariance)


def updated(mean, covariance, reading, c, noise, mask):
    return kalman_update(StateEstimate(mean, covariance), reading, c, noise, mask=mask)


def updated_by_information(mean, covariance, reading, c, noise, mask):
    """Inverse covariances add up; only what is there is looked at."""
    there = mask & np.isfinite(reading)
    c, y, v = c[there], reading[there], even(noise)[np.ix_(there, there)]
    covariance = even(covariance)
    prior = np.linalg.inv(covariance)
    after = np.linalg.inv(prior + c.T @ np.linalg.solve(v, c)) if there.any() else covariance
    return StateEstimate(after @ (prior @ mean + c.T @ np.linalg.solve(v, y)), after)


def what_is_missing_changes_nothing(mean, covariance, reading, c, noise, mask):
    nothing = mapped(updated, mean, covariance, reading * np.nan, c, noise, mask)
    assert_close(nothing.mean, mean, rtol=1e-6)
    assert_close(nothing.covariance, covariance, rtol=1e-6)


def the_covariance_stays_definite(*sample):
    after = np.asarray(mapped(updated, *sample).covariance, np.float64)
    assert np.all(np.linalg.eigvalsh(after) > 0)


ROWS = [
    Row(
        kalman_filter,
        sample=st.tuples(PLANT, SENSOR, NOISES).map(lambda drawn: (*drawn[:2], *drawn[2])),
        oracle=filter_by_scipy,
        laws=[is_the_dual_of_the_regulator],
        edges=[
            Edge((0 * TWO, TWO, TWO, TWO)),
            Edge((TWO, TWO, TWO, TWO)),
            # Exact sensors, and a drifting state that nothing disturbs.
            Edge((TWO, FULL, TWO, 0 * TWO)),
            Edge((2 * TWO, FULL, 0 * TWO, TWO)),
        ],
        refuses=[
            *BAD_SHAPES,
            Refusal("c must have", (TWO, ONE, TWO, TWO)),
            Refusal("process_noise must have", (TWO, TWO, ONE, TWO)),
            Refusal("measurement_noise must have", (TWO, TWO, TWO, ONE)),
        ],
        exempt={"everywhere": "the program is that of lq_regulator"},
        dtypes=FLOATS,
    ),
    Row(
        predicted,
        name="kalman_predict",
        sample=st.tuples(VECTOR, COVARIANCE, PLANT, COVARIANCE, VECTOR),
        oracle=predicted_by_stacking,
        laws=[moves_with_the_drift],
        edges=[Edge((PAIR, 0 * TWO, TWO, 0 * TWO, 0 * PAIR))],
        refuses=[
            Refusal("covariance must be square", (PAIR, TWO[:1], TWO, TWO, PAIR)),
            Refusal("mean must have", (np.ones(3), TWO, TWO, TWO, PAIR)),
            Refusal("a must have", (PAIR, TWO, ONE, TWO, PAIR)),
            Refusal("process_noise must have", (PAIR, TWO, TWO, ONE, PAIR)),
            Refusal("drift must have", (PAIR, TWO, TWO, TWO, np.ones(3))),
        ],
        dtypes=FLOATS,
    ),
    Row(
        updated,
        name="kalman_update",
        sample=st.tuples(
            VECTOR,
            COVARIANCE,
            MEASURED,
            rows(3, 2, elements=reals(-1.5, 1.5)),
            positive_definite(3),
            flags(3),
        ),
        oracle=updated_by_information,
        laws=[what_is_missing_changes_nothing, the_covariance_stays_definite],
        edges=[
            Edge((PAIR, TWO, np.ones(0), np.ones((0, 2)), np.ones((0, 0)), np.ones(0, bool))),
        ],
        refuses=[
            Refusal("mean must have", (np.ones(3), TWO, PAIR, TWO, TWO, None)),
            Refusal("c must have", (PAIR, TWO, PAIR, ONE, TWO, None)),
            Refusal("measurement_noise must have", (PAIR, TWO, PAIR, TWO, ONE, None)),
            Refusal("reading must have", (PAIR, TWO, np.ones(3), TWO, TWO, None)),
            Refusal("mask and reading", (PAIR, TWO, PAIR, TWO, TWO, np.ones(3, bool))),
        ],
        dtypes=FLOATS,
    ),
]
