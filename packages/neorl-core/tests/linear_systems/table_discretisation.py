import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import signal

from neorl_core.linear_systems import tustin, with_integrals, zero_order_hold
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, mapped, reals, rows

FLOATS = ("float32", "float64")
ONE, TWO = np.ones((1, 1)), np.eye(2)
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
PERIOD = reals(0.125, 2).map(lambda dt: {"dt": float(dt)})
# Eigenvalues within 0.875 of -1: neither 0 nor 2 / dt is one of them.
DAMPED = rows(2, 2, elements=reals(-0.4375, 0.4375)).map(lambda a: a - np.asarray(TWO, np.float32))


def hold_by_scipy(a, b, *, dt):
    ad, bd, *_ = signal.cont2discrete((a, b, np.eye(2), np.zeros((2, 2))), dt)
    return ad, bd


def two_halves_are_a_whole(a, b, *, dt):
    ad, bd = (np.asarray(x, np.float64) for x in mapped(zero_order_hold, a, b, dt=dt / 2))
    whole = ad @ ad, ad @ bd + bd
    assert_close(mapped(zero_order_hold, a, b, dt=dt), whole, rtol=1e-4, atol=1e-5)


def tustin_by_scipy(a, b, c, d, *, dt):
    return signal.cont2discrete((a, b, c, d), dt, method="bilinear")[:4]


def keeps_the_steady_gain(a, b, c, d, *, dt):
    ad, bd, cd, dd = (np.asarray(x, np.float64) for x in mapped(tustin, a, b, c, d, dt=dt))
    steady = cd @ np.linalg.solve(np.eye(2) - ad, bd) + dd
    assert_close(steady, d - c @ np.linalg.solve(a.astype(np.float64), b), rtol=1e-3, atol=1e-4)


def integrals_by_hand(a, b, c, *, dt):
    wide = np.zeros((3, 3))
    wide[:2, :2], wide[2:, :2], wide[2, 2] = a, dt * c, 1
    return wide, np.vstack([b, np.zeros((1, b.shape[1]))])


def sums_the_outputs(a, b, c, *, dt):
    wide = np.asarray(mapped(with_integrals, a, b, c, dt=dt)[0], np.float64)
    start = np.broadcast_to(np.asarray([[1.0], [-2.0], [0.0]]), (len(a), 3, 1))
    seen = start[:, :2] + a.astype(np.float64) @ start[:, :2]
    assert_close((wide @ wide @ start)[:, 2:], dt * c @ seen, rtol=1e-4, atol=1e-5)


ROWS = [
    Row(
        zero_order_hold,
        sample=st.tuples(PLANT, in_units(PLANT)),
        options=PERIOD,
        oracle=hold_by_scipy,
        laws=[two_halves_are_a_whole],
        edges=[
            Edge((0 * TWO, TWO), {"dt": 1.0}),
            Edge((0 * TWO, TWO[:, :0]), {"dt": 1.0}),
            # A slow plant once a week, and inputs in two units.
            Edge((-1e-6 * TWO, TWO), {"dt": 604800.0}),
            Edge((-TWO, np.diag([1e12, 1e-12])), {"dt": 1.0}),
        ],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO), {"dt": 1.0}),
            Refusal("(2, any)", (TWO, ONE), {"dt": 1.0}),
            Refusal("dt", (TWO, TWO), {"dt": 0.0}),
        ],
        dtypes=FLOATS,
    ),
    Row(
        tustin,
        sample=st.tuples(DAMPED, PLANT, in_units(st.tuples(PLANT, PLANT))).map(
            lambda drawn: (*drawn[:2], *drawn[2])
        ),
        options=PERIOD,
        oracle=tustin_by_scipy,
        laws=[keeps_the_steady_gain],
        edges=[
            Edge((0 * TWO, TWO, TWO, TWO), {"dt": 1.0}),
            Edge((0 * TWO, TWO[:, :0], TWO[:1], TWO[:1, :0]), {"dt": 1.0}),
        ],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO, TWO, TWO), {"dt": 1.0}),
            Refusal("b must have", (TWO, ONE, TWO, TWO), {"dt": 1.0}),
            Refusal("c must have", (TWO, TWO, ONE, TWO), {"dt": 1.0}),
            Refusal("d must have", (TWO, TWO, TWO, ONE), {"dt": 1.0}),
            Refusal("dt", (TWO, TWO, TWO, TWO), {"dt": -1.0}),
        ],
        dtypes=FLOATS,
    ),
    Row(
        with_integrals,
        sample=st.tuples(PLANT, PLANT, in_units(rows(1, 2, elements=reals(-1.5, 1.5)))),
        options=PERIOD,
        oracle=integrals_by_hand,
        laws=[sums_the_outputs],
        edges=[Edge((TWO, TWO, np.ones((1, 2))), {"dt": 1.0})],
        refuses=[
            Refusal("square", (jnp.ones((2, 3)), TWO, TWO)),
            Refusal("b must have", (TWO, ONE, TWO)),
            Refusal("c must have", (TWO, TWO, ONE)),
            Refusal("dt", (TWO, TWO, TWO), {"dt": 0.0}),
        ],
        dtypes=FLOATS,
    ),
]
