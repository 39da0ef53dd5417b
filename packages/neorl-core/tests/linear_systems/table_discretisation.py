import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import signal

from neorl_core.linear_systems import (
    zero_order_hold,
)
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, mapped, reals, rows

FLOATS = ("float32", "float64")
ONE, TWO = np.ones((1, 1)), np.eye(2)
PLANT = rows(2, 2, elements=reals(-1.5, 1.5))
PERIOD = reals(0.125, 2).map(lambda dt: {"dt": float(dt)})


def hold_by_scipy(a, b, *, dt):
    ad, bd, *_ = signal.cont2discrete((a, b, np.eye(2), np.zeros((2, 2))), dt)
    return ad, bd


def two_halves_are_a_whole(a, b, *, dt):
    ad, bd = (np.asarray(x, np.float64) for x in mapped(zero_order_hold, a, b, dt=dt / 2))
    whole = ad @ ad, ad @ bd + bd
    assert_close(mapped(zero_order_hold, a, b, dt=dt), whole, rtol=1e-4, atol=1e-5)


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
]
