import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.projections import limit_rate, project_box
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    decades,
    in_units,
    mapped,
    reals,
    rows,
)

ACT, OBS = 2, 3


def nearest_in_the_box(x, low, high):
    return np.asarray([sorted((a, v, b))[1] for v, a, b in zip(x, low, high, strict=True)])


def idempotent_and_not_expansive(x, low, high):
    once = np.asarray(mapped(project_box, x, low, high))
    np.testing.assert_array_equal(mapped(project_box, once, low, high), once)
    step = 2 * np.abs(x).max(axis=1, keepdims=True)
    other = np.asarray(mapped(project_box, x + step, low, high))
    assert np.all(np.abs(other - once) <= step * (1 + 1e-5))
    assert np.all((once >= low) & (once <= high))


def box(x, low, width):
    return project_box(x, low, low + width)


def boxed_by_hand(x, low, width):
    return nearest_in_the_box(x, low, np.float64(np.float32(low) + np.float32(width)))


def box_law(x, low, width):
    idempotent_and_not_expansive(x, low, low + width)


def reachable_by_cases(x, previous, rate, *, dt):
    reach = rate * dt
    return np.asarray(
        [p + min(max(v - p, -r), r) for v, p, r in zip(x, previous, reach, strict=True)]
    )


def arrives_to_the_bit_and_never_too_fast(x, previous, rate, *, dt):
    free = np.full_like(rate, np.inf)
    np.testing.assert_array_equal(mapped(limit_rate, x, previous, free, dt=dt), x)
    moved = np.abs(np.asarray(mapped(limit_rate, x, previous, rate, dt=dt)) - previous)
    assert np.all(moved <= rate * dt * (1 + 1e-5) + 1e-6 * np.abs(previous))
    held = mapped(limit_rate, x, previous, np.zeros_like(rate), dt=dt)
    np.testing.assert_array_equal(held, previous)


PERIOD = st.one_of(reals(0.125, 4), decades(1e-6, 1e6).map(lambda dt: abs(dt) or 1.0))
LOWS, HIGHS = rows(ACT, elements=reals(-9, -1)), rows(ACT, elements=reals(1, 9))
ONE = jnp.ones(1)
SECOND = {"dt": 1.0}

ROWS = [
    Row(
        box,
        name="project_box",
        sample=in_units(st.tuples(rows(ACT), rows(ACT), rows(ACT, elements=reals(0, 50)))),
        oracle=boxed_by_hand,
        exempt={"slope": "the oracle rounds the upper end to float32"},
        laws=[box_law],
        edges=[Edge((np.zeros(2), np.zeros(2), np.zeros(2))), Edge((np.zeros(0),) * 3)],
    ),
    Row(
        project_box,
        sample=in_units(st.tuples(rows(ACT), LOWS, HIGHS)),
        oracle=nearest_in_the_box,
        laws=[idempotent_and_not_expansive],
        refuses=[
            Refusal("x and low must have one shape", (jnp.ones(2), jnp.ones(1), jnp.ones(2))),
            Refusal("x and high must have one shape", (jnp.ones(2), jnp.ones(2), jnp.ones(3))),
            Refusal("low must not be above high", (jnp.ones(1), jnp.ones(1), jnp.zeros(1))),
        ],
    ),
    Row(
        limit_rate,
        sample=in_units(st.tuples(rows(ACT), rows(ACT), rows(ACT, elements=reals(0, 50)))),
        options=PERIOD.map(lambda dt: {"dt": dt}),
        oracle=reachable_by_cases,
        laws=[arrives_to_the_bit_and_never_too_fast],
        edges=[
            Edge((np.ones(2), np.ones(2), np.zeros(2)), {"dt": 1.0}),
            Edge((np.zeros(0), np.zeros(0), np.zeros(0)), {"dt": 1.0}),
        ],
        refuses=[
            Refusal(
                "x and previous must have one shape",
                (jnp.ones(2), jnp.ones(1), jnp.ones(2)),
                {"dt": 1.0},
            ),
            Refusal(
                "x and rate must have one shape",
                (jnp.ones(2), jnp.ones(2), jnp.ones(1)),
                {"dt": 1.0},
            ),
            Refusal("rate must not be negative", (ONE, ONE, -ONE), SECOND),
            Refusal("rate must not be", (ONE, ONE, jnp.nan * ONE), SECOND),
            Refusal(
                "dt must be finite and positive",
                (jnp.ones(1), jnp.ones(1), jnp.ones(1)),
                {"dt": 0.0},
            ),
            Refusal(
                "dt must be one number, got shape (2, 1); index it, or use jax.vmap for several",
                (jnp.ones(2), jnp.ones(2), jnp.ones(2)),
                {"dt": jnp.ones((2, 1))},
            ),
        ],
    ),
]
