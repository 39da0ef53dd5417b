import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import area_under_roc, brier_skill, calibration_error
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    in_units,
    mapped,
    rows,
)

# Few values, so that ties are common.
COARSE = rows(7, elements=st.integers(-3, 3).map(float))
# Whole weights, which an oracle can repeat.
TIMES = rows(7, elements=st.integers(0, 3).map(float))
# No multiple of a quarter: in the middle of bins, whatever the dtype.
SAID = rows(7, elements=st.integers(0, 15).map(lambda i: (2 * i + 1) / 32))
PREDICTED = st.tuples(SAID, flags(7), TIMES)
BINS = st.sampled_from([{"bins": 1}, {"bins": 4}, {"bins": 8}])


def repeated(*columns, weights):
    return [np.repeat(column, weights.astype(int)) for column in columns]


def by_the_rank_test(scores, positive, weights):
    scores, positive = repeated(scores, positive.astype(bool), weights=weights)
    if positive.all() or not positive.any():
        return np.asarray(np.nan)
    result = stats.mannwhitneyu(scores[positive], scores[~positive]).statistic
    return np.asarray(result / (positive.sum() * (~positive).sum()))


def the_other_group_has_the_rest(scores, positive, weights):
    area = mapped(area_under_roc, scores, positive, weights)
    assert_close(mapped(area_under_roc, scores, ~positive, weights), 1 - area, atol=1e-5)
    assert_close(mapped(area_under_roc, -scores, positive, weights), 1 - area, atol=1e-5)


def only_the_order_counts(scores, positive, weights):
    area = mapped(area_under_roc, scores, positive, weights)
    assert_close(mapped(area_under_roc, np.cbrt(scores), positive, weights), area)


def by_a_loop(probability, outcome, weights, *, bins):
    if not weights.sum():
        return np.asarray(np.nan)
    total = 0.0
    for b in range(bins):
        inside = (b / bins <= probability) & ((b + 1) / bins > probability)
        inside |= (b == bins - 1) & (probability == 1)
        if weights[inside].sum():
            rate, predicted = (
                np.average(x[inside], weights=weights[inside]) for x in (outcome, probability)
            )
            total += weights[inside].sum() / weights.sum() * abs(rate - predicted)
    return np.asarray(total)


def never_above_the_mean_distance(probability, outcome, weights, *, bins):
    error = mapped(calibration_error, probability, outcome, weights, bins=bins)
    distance = np.abs(probability - outcome)
    with np.errstate(invalid="ignore"):
        most = (distance * weights).sum(axis=1) / weights.sum(axis=1)
    assert np.all((error <= most + 1e-5) | np.isnan(most))


def one_less_what_is_left_of_the_variance(probability, outcome, weights):
    probability, outcome = repeated(probability, outcome.astype(float), weights=weights)
    if not len(outcome) or np.ptp(outcome) == 0:
        return np.asarray(np.nan)
    return np.asarray(1 - np.mean((probability - outcome) ** 2) / np.var(outcome))


def the_rate_has_no_skill_and_the_truth_all(probability, outcome, weights):
    total = np.maximum(weights.sum(axis=1, keepdims=True), 1)
    rate = (weights * outcome).sum(axis=1, keepdims=True) / total
    both = (rate[:, 0] > 0) & (rate[:, 0] < 1)
    rates = np.broadcast_to(rate, outcome.shape).astype(np.float32)
    plain = np.asarray(mapped(brier_skill, rates, outcome, weights))
    assert_close(1 + plain[both], np.ones(both.sum()), atol=1e-5)
    truth = np.asarray(mapped(brier_skill, outcome.astype(np.float32), outcome, weights))
    assert_close(truth[both], np.ones(both.sum()))
    assert np.isnan(plain[~both]).all()


def the_unit_of_weights_is_free(function):
    def law(probability, outcome, weights, **options):
        plain = mapped(function, probability, outcome, weights, **options)
        for unit in (np.float32(2.0**-100), np.float32(2.0**100)):
            scaled = mapped(function, probability, outcome, unit * weights, **options)
            assert_close(scaled, plain)

    return law


def refusals(name, label):
    yes = jnp.zeros(2, bool)
    return [
        Refusal("(sample)", (jnp.ones((2, 2)), jnp.ones((2, 2), bool))),
        Refusal(f"{name} and {label} must have one shape", (jnp.ones(3), yes)),
        Refusal("weights must have one shape", (jnp.ones(2), yes, jnp.ones(3))),
        Refusal("negative", (jnp.ones(2), yes, jnp.asarray([1.0, -1.0]))),
    ]


OUTSIDE = Refusal("[0, 1]", (jnp.asarray([0.5, 1.5]), jnp.asarray([True, False])))
YES, NO = np.ones(4, bool), np.zeros(4, bool)
HALF = np.array([True, False, True, False])
NOTHING = (np.zeros(0), np.zeros(0, bool), np.zeros(0))

ROWS = [
    Row(
        area_under_roc,
        sample=st.tuples(in_units(COARSE), flags(7), TIMES),
        oracle=by_the_rank_test,
        laws=[
            the_other_group_has_the_rest,
            only_the_order_counts,
            the_unit_of_weights_is_free(area_under_roc),
        ],
        edges=[
            Edge((np.zeros(4), HALF, np.ones(4))),
            Edge((np.array([0.0, -0.0, 1.0, 1.0]), HALF, np.array([1.0, 2.0, 3.0, 1.0]))),
            Edge((np.arange(4.0), YES, np.ones(4))),
            Edge((np.arange(4.0), NO, np.ones(4))),
            Edge(NOTHING),
        ],
        refuses=refusals("scores", "positive"),
        differentiable=False,
        exempt={"finite": "NaN where one group has no weight"},
    ),
    Row(
        calibration_error,
        sample=PREDICTED,
        options=BINS,
        oracle=by_a_loop,
        laws=[never_above_the_mean_distance, the_unit_of_weights_is_free(calibration_error)],
        edges=[
            Edge((np.array([0.0, 0.25, 0.5, 1.0]), HALF, np.ones(4)), {"bins": 4}),
            Edge((np.ones(4), YES, np.ones(4)), {"bins": 15}),
            Edge((np.ones(4), YES, np.zeros(4)), {"bins": 15}),
            Edge(NOTHING, {"bins": 2}),
        ],
        refuses=[
            *refusals("probability", "outcome"),
            OUTSIDE,
            Refusal("bins", (jnp.ones(2), jnp.zeros(2, bool)), {"bins": 0}),
        ],
        differentiable=False,
        exempt={"finite": "NaN where nothing has a weight"},
    ),
    Row(
        brier_skill,
        sample=PREDICTED,
        oracle=one_less_what_is_left_of_the_variance,
        laws=[the_rate_has_no_skill_and_the_truth_all, the_unit_of_weights_is_free(brier_skill)],
        edges=[
            Edge((np.array([0.0, 0.25, 0.5, 1.0]), HALF, np.ones(4))),
            Edge((np.full(4, 0.5), YES, np.ones(4))),
            Edge((np.full(4, 0.5), HALF, np.array([1.0, 0.0, 1.0, 0.0]))),
            Edge(NOTHING),
        ],
        refuses=[*refusals("probability", "outcome"), OUTSIDE],
        differentiable=False,
        exempt={"finite": "NaN where all samples are alike"},
    ),
]
