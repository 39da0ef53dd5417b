import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    interquartile_mean,
    median_task_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
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

SCORES = in_units(rows(5, 3))
FLOATS = ("float32", "float64")


def moves_and_stretches_with_the_scores(function):
    def law(scores):
        plain = mapped(function, scores)
        assert_close(mapped(function, 2 * scores - 7), 2 * plain - 7, atol=1e-5)

    return law


def one_wild_run_does_not_matter(scores):
    wild = scores.copy()
    wild[:, 0, 0] = scores.max(axis=(1, 2))
    wilder = wild.copy()
    wilder[:, 0, 0] = 1e15
    assert_close(
        mapped(interquartile_mean, wilder), mapped(interquartile_mean, wild), rtol=1e-5, scale=1.0
    )


def gap_by_mask(scores, *, gamma):
    return np.mean(np.where(scores < gamma, gamma - scores, 0.0))


def beyond_gamma_nothing_counts(scores, *, gamma):
    assert_close(
        mapped(optimality_gap, np.minimum(scores, np.float32(gamma)), gamma=gamma),
        mapped(optimality_gap, scores, gamma=gamma),
    )


def improvement_by_scipy(first, second):
    shares = [
        stats.mannwhitneyu(first[:, task], second[:, task]).statistic / (len(first) * len(second))
        for task in range(first.shape[1])
    ]
    return np.mean(shares)


def the_other_way_round_is_the_rest(first, second):
    assert_close(
        mapped(probability_of_improvement, second, first),
        1 - mapped(probability_of_improvement, first, second),
        atol=1e-6,
    )


def profile_by_counting(scores, thresholds):
    return np.asarray([np.mean(scores > threshold) for threshold in thresholds])


def one_less_the_distribution_of_the_mirrored(scores, thresholds):
    above = mapped(performance_profile, scores, thresholds)
    at_most = mapped(performance_profile, -scores, -thresholds)
    ties = (scores[:, :, :, None] == thresholds[:, None, None, :]).mean(axis=(1, 2))
    assert_close(above + at_most, 1 - ties, atol=1e-5)


NOT_A_TABLE = [
    Refusal("run, task", (jnp.ones(3),)),
    Refusal("one run and one task", (jnp.ones((0, 3)),)),
]
WHOLE = st.integers(-3, 3).map(float)

ROWS = [
    Row(
        interquartile_mean,
        sample=st.tuples(SCORES),
        oracle=lambda scores: np.asarray(stats.trim_mean(scores, 0.25, axis=None)),
        laws=[
            moves_and_stretches_with_the_scores(interquartile_mean),
            one_wild_run_does_not_matter,
        ],
        edges=[Edge((np.asarray(3.0),)), Edge((np.zeros(4),)), Edge((np.arange(3.0),))],
        refuses=[Refusal("length 1", (jnp.ones(0),))],
    ),
    Row(
        median_task_mean,
        sample=st.tuples(SCORES),
        oracle=lambda scores: np.median(scores.mean(axis=0)),
        laws=[moves_and_stretches_with_the_scores(median_task_mean)],
        edges=[Edge((np.zeros((2, 4)),)), Edge((np.ones((1, 1)),))],
        refuses=NOT_A_TABLE,
    ),
    Row(
        optimality_gap,
        sample=st.tuples(SCORES),
        options=st.one_of(reals(-50, 50), decades()).map(lambda gamma: {"gamma": gamma}),
        oracle=gap_by_mask,
        laws=[beyond_gamma_nothing_counts],
        edges=[Edge((np.ones(3),), {"gamma": 1.0}), Edge((np.asarray(2.0),), {"gamma": 3.0})],
        refuses=[Refusal("length 1", (jnp.ones(0),))],
    ),
    Row(
        probability_of_improvement,
        sample=in_units(st.tuples(rows(4, 2, elements=WHOLE), rows(3, 2, elements=WHOLE))),
        oracle=improvement_by_scipy,
        laws=[the_other_way_round_is_the_rest],
        edges=[Edge((np.zeros((2, 2)), np.zeros((3, 2))))],
        refuses=[
            Refusal("same tasks", (jnp.ones((2, 2)), jnp.ones((2, 3)))),
            Refusal("run, task", (jnp.ones(2), jnp.ones((2, 3)))),
            Refusal("one run and one task", (jnp.ones((2, 0)), jnp.ones((2, 0)))),
        ],
        differentiable=False,
    ),
    Row(
        performance_profile,
        sample=in_units(st.tuples(rows(5, 3), rows(4))),
        oracle=profile_by_counting,
        laws=[one_less_the_distribution_of_the_mirrored],
        edges=[
            Edge((np.ones(3), np.asarray([1.0, 0.999, 1.001]))),
            Edge((np.ones(3), np.zeros(0))),
        ],
        refuses=[
            Refusal("(threshold)", (jnp.ones(3), jnp.ones(()))),
            Refusal("length 1", (jnp.ones(0), jnp.ones(2))),
        ],
        differentiable=False,
        dtypes=FLOATS,
    ),
]
