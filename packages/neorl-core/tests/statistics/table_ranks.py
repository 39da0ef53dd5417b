import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    benjamini_hochberg,
    benjamini_yekutieli,
    holm,
    rank_correlation,
    regret_at_k,
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


def regret_by_search(estimates, values, *, k):
    chosen = sorted(range(len(values)), key=lambda item: -estimates[item])[:k]
    return np.asarray(max(values) - max(values[item] for item in chosen))


def more_tries_never_cost(estimates, values, *, k):
    more = mapped(regret_at_k, estimates, values, k=min(k + 1, 7))
    assert np.all(more <= mapped(regret_at_k, estimates, values, k=k))


def the_truth_has_no_regret(estimates, values, *, k):
    assert not np.any(mapped(regret_at_k, values, values, k=k))


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


def between_the_plain_and_holms(p_values):
    adjusted = mapped(benjamini_hochberg, p_values)
    assert np.all(adjusted >= p_values - 1e-6)
    assert np.all(adjusted <= mapped(holm, p_values) + 1e-6)


def no_easier_than_under_independence(p_values):
    easier = mapped(benjamini_hochberg, p_values)
    harmonic = sum(1 / j for j in range(1, 8))
    assert_close(mapped(benjamini_yekutieli, p_values), np.minimum(1, harmonic * easier), atol=1e-5)


def follows_the_order_given(function):
    def law(p_values):
        assert_close(mapped(function, p_values[:, ::-1]), mapped(function, p_values)[:, ::-1])

    return law


def by_scipy(method):
    return lambda p_values: stats.false_discovery_control(p_values, method=method)


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
    Row(
        regret_at_k,
        sample=PAIR,
        options=st.sampled_from([{"k": 1}, {"k": 3}]),
        oracle=regret_by_search,
        laws=[more_tries_never_cost, the_truth_has_no_regret],
        edges=[Edge((np.zeros(3), np.arange(3.0)), {"k": 3})],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3)), {"k": 1}),
            Refusal("between 1 and the 2 items", (jnp.ones(2), jnp.ones(2)), {"k": 3}),
            Refusal("between 1 and the 2 items", (jnp.ones(2), jnp.ones(2)), {"k": 0}),
        ],
        differentiable=False,
    ),
    correction_row(holm, holm_by_rejecting, between_the_plain_and_bonferroni),
    correction_row(benjamini_hochberg, by_scipy("bh"), between_the_plain_and_holms),
    correction_row(benjamini_yekutieli, by_scipy("by"), no_easier_than_under_independence),
]
