import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    holm,
    rank_correlation,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    decades,
    in_units,
    mapped,
    reals,
    rows,
)

# Few values, so that ties are common.
COARSE = rows(7, elements=st.integers(-3, 3).map(float))
PAIR = st.tuples(in_units(COARSE), rows(7, elements=decades()))


def spearman_by_scipy(first, second):
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return np.asarray(np.nan)
    return np.asarray(stats.spearmanr(first, second).statistic)


def symmetric_and_odd(first, second):
    plain = mapped(rank_correlation, first, second)
    assert_close(mapped(rank_correlation, second, first), plain, atol=1e-5)
    assert_close(mapped(rank_correlation, -first, second), -plain, atol=1e-5)


def holm_by_rejecting(p_values):
    """The least level at which stepping down from the smallest rejects each hypothesis."""
    adjusted = np.zeros(len(p_values))
    order = np.argsort(p_values)
    for place, test in enumerate(order):
        steps = [(len(order) - j) * p_values[order[j]] for j in range(place + 1)]
        adjusted[test] = min(1.0, max(steps))
    return adjusted


def between_the_plain_and_bonferroni(p_values):
    adjusted = mapped(holm, p_values)
    assert np.all(adjusted >= p_values - 1e-6)
    assert np.all(adjusted <= np.minimum(1, 7 * p_values) + 1e-6)


def follows_the_order_given(function):
    def law(p_values):
        assert_close(mapped(function, p_values[:, ::-1]), mapped(function, p_values)[:, ::-1])

    return law


def correction_row(function, oracle, law):
    return Row(
        function,
        sample=st.tuples(rows(7, elements=st.one_of(reals(0, 1), decades(1e-30, 1).map(abs)))),
        oracle=oracle,
        laws=[law, follows_the_order_given(function)],
        edges=[Edge((np.zeros(0),)), Edge((np.full(3, 0.25),)), Edge((np.array([0.0, 1.0]),))],
        refuses=[
            Refusal("(test)", (jnp.ones((2, 2)),)),
            Refusal("[0, 1]", (jnp.array([0.5, 1.5]),)),
            Refusal("[0, 1]", (jnp.array([0.5, jnp.nan]),)),
        ],
        differentiable=False,
    )


ROWS = [
    Row(
        rank_correlation,
        sample=PAIR,
        oracle=spearman_by_scipy,
        laws=[symmetric_and_odd],
        edges=[Edge((np.arange(4.0), np.ones(4))), Edge((np.arange(4.0), -np.arange(4.0)))],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3))),
            Refusal("length 2", (jnp.ones(1), jnp.ones(1))),
            Refusal("(item)", (jnp.ones((2, 2)), jnp.ones((2, 2)))),
        ],
        differentiable=False,
        exempt={"finite": "NaN where one side does not vary"},
    ),
    correction_row(holm, holm_by_rejecting, between_the_plain_and_bonferroni),
]
