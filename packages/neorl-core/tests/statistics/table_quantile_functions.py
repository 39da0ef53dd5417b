import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import beta_quantile, student_quantile
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, reals, rows


def reflected(p, a, b):
    assert_close(mapped(beta_quantile, p, a, b), 1 - mapped(beta_quantile, 1 - p, b, a), atol=1e-4)


def power_law(p, a, b):
    one = np.ones_like(b)
    assert_close(mapped(beta_quantile, p, a, one), p ** (1 / a), atol=1e-4)


def odd(p, degrees):
    assert_close(
        mapped(student_quantile, 1 - p, degrees),
        -mapped(student_quantile, p, degrees),
        rtol=1e-3,
        atol=1e-4,
    )


def tails_thin_out(p, degrees):
    inner = np.abs(mapped(student_quantile, p, degrees + 1))
    assert np.all(inner <= np.abs(mapped(student_quantile, p, degrees)) + 2e-3)


ROWS = [
    Row(
        beta_quantile,
        sample=st.tuples(
            rows(elements=reals(0.02, 0.98)),
            rows(elements=reals(0.5, 30)),
            rows(elements=reals(0.5, 30)),
        ),
        oracle=lambda p, a, b: stats.beta.ppf(p, a, b),
        laws=[reflected, power_law],
        edges=[Edge((0.0, 2.0, 3.0)), Edge((1.0, 2.0, 3.0)), Edge((0.5, 1.0, 1.0))],
        refuses=[
            Refusal("[0, 1]", (1.5, 1.0, 1.0)),
            Refusal("positive", (0.5, 0.0, 1.0)),
            Refusal("positive", (0.5, 1.0, -1.0)),
            Refusal(
                "probability, a, b must broadcast against each other, got shapes (2,), (3,), (); "
                "give numbers, or arrays of one shape",
                (np.full(2, 0.5), np.ones(3), 1.0),
            ),
        ],
        differentiable=False,
        atol=2e-5,
    ),
    Row(
        student_quantile,
        sample=st.tuples(rows(elements=reals(0.02, 0.98)), rows(elements=reals(1, 1000))),
        oracle=lambda p, degrees: stats.t.ppf(p, degrees),
        laws=[odd, tails_thin_out],
        edges=[
            Edge((0.5, 3.0)),
            Edge((0.0, 3.0)),
            Edge((1.0, 3.0)),
            Edge((0.975, 1e7)),
            Edge((0.0, 1e7)),
        ],
        refuses=[
            Refusal("[0, 1]", (-0.1, 1.0)),
            Refusal("positive", (0.5, 0.0)),
            Refusal(
                "probability, degrees must broadcast against each other, got shapes (2,), (3,); "
                "give numbers, or arrays of one shape",
                (np.full(2, 0.5), np.ones(3)),
            ),
        ],
        differentiable=False,
        exempt={"finite": "infinite at 0 and 1"},
        rtol=2e-4,
        atol=2e-5,
    ),
]
