import math

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import (
    Interval,
    conditional_value_at_risk,
    conformal_quantile,
    empirical_bernstein_interval,
    hcope_lower_bound,
    hcope_threshold,
    hoeffding_interval,
    weighted_conformal_quantile,
    weighted_quantile,
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

UNIT = st.tuples(rows(7, elements=reals(0, 1)))
POSITIVE = in_units(st.tuples(rows(7, elements=reals(0, 50))))
# Of weights, only shares matter.
SOME = reals(0.0625, 4)
WEIGHTS = in_units(rows(7, elements=SOME))
RANGE = {"low": 0.0, "high": 1.0}
# A range is often far wider than what is seen in it, as that of weighted returns.
WIDTH = decades(1, 1e9).map(abs)
LEVELS = st.fixed_dictionaries(
    {
        "level": reals(0.5, 0.9375).map(float),
        "low": WIDTH.map(lambda width: -width),
        "high": WIDTH.map(lambda width: max(1.0, width)),
    }
)


def hoeffding_by_hand(samples, *, low, high, level):
    width = high - low
    half = width * math.sqrt(math.log(2 / (1 - level)) / (2 * len(samples)))
    return Interval(samples.mean(), samples.mean() - half, samples.mean() + half)


def bernstein_by_hand(samples, *, low, high, level):
    n, term = len(samples), math.log(4 / (1 - level))
    half = np.std(samples, ddof=1) * math.sqrt(2 * term / n) + 7 * (high - low) * term / (3 * n - 3)
    return Interval(samples.mean(), samples.mean() - half, samples.mean() + half)


def follows_units(function):
    def law(samples, *, low, high, level):
        plain = mapped(function, samples, low=low, high=high, level=level)
        moved = mapped(function, 8 * samples + 2, low=8 * low + 2, high=8 * high + 2, level=level)
        assert_close(moved, Interval(*(8 * limit + 2 for limit in plain)), rtol=1e-4)
        for unit in (np.float32(2.0**-30), np.float32(2.0**30)):
            ends = {"low": low * float(unit), "high": high * float(unit)}
            moved = mapped(function, samples * unit, **ends, level=level)
            assert_close(moved, Interval(*(unit * limit for limit in plain)), rtol=1e-4)

    return law


def hcope_by_hand(samples, *, threshold, level):
    n, term, cut = len(samples), math.log(2 / (1 - level)), np.minimum(samples, threshold)
    pairs = np.sum((cut[:, None] - cut[None, :]) ** 2)
    return cut.mean() - 7 * threshold * term / (3 * (n - 1)) - math.sqrt(term / (n - 1) * pairs) / n


def outliers_beyond_the_threshold_do_not_matter(samples, *, threshold, level):
    cut = np.minimum(samples, np.float32(threshold))
    assert_close(
        mapped(hcope_lower_bound, cut, threshold=threshold, level=level),
        mapped(hcope_lower_bound, samples, threshold=threshold, level=level),
        atol=1e-5,
    )


def promised(samples, threshold, size, level):
    term, cut = math.log(2 / (1 - level)), np.minimum(samples, threshold)
    spread = np.std(cut, ddof=1) * math.sqrt(2 * term / size)
    return cut.mean() - spread - 7 * threshold * term / (3 * (size - 1))


def no_held_out_value_promises_more(samples, *, size, level):
    chosen = np.asarray(mapped(hcope_threshold, samples, size=size, level=level))
    for row, c in zip(samples.astype(np.float64), chosen, strict=True):
        best = max((promised(row, other, size, level) for other in row if other > 0), default=-1e9)
        assert promised(row, max(c, 1e-30), size, level) >= best - 1e-3 * (1 + abs(best))


def conformal_by_rank(scores, *, miscoverage):
    rank = math.ceil((len(scores) + 1) * (1 - miscoverage) - 1e-6)
    return np.append(np.sort(scores), np.inf)[max(rank, 1) - 1]


def a_better_score_never_raises_it(scores, *, miscoverage):
    lower = mapped(conformal_quantile, scores - 1, miscoverage=miscoverage)
    assert_close(lower, mapped(conformal_quantile, scores, miscoverage=miscoverage) - 1, atol=1e-5)


def weighted_conformal_by_scan(scores, weights, weight, *, miscoverage):
    total = weights.sum() + weight
    for score in np.sort(scores):
        if weights[scores <= score].sum() / total >= 1 - miscoverage - 1e-7:
            return score
    return np.asarray(np.inf)


def equal_weights_are_no_weights(scores, weights, weight, *, miscoverage):
    equal = mapped(
        weighted_conformal_quantile,
        scores,
        0 * weights + 2,
        0 * weight + 2,
        miscoverage=miscoverage,
    )
    assert_close(equal, mapped(conformal_quantile, scores, miscoverage=miscoverage))


def quantile_by_scan(samples, weights, *, quantile):
    total, reached = weights.sum(), 0.0
    for index in np.argsort(samples, kind="stable"):
        reached += weights[index]
        if reached / total >= quantile - 1e-6:
            return samples[index]
    return samples.max()


def a_weight_of_two_is_two_samples(samples, weights, *, quantile):
    twice = np.concatenate([samples, samples[:, :1]], axis=1)
    one = np.ones_like(samples)
    double = one.copy()
    double[:, 0] = 2
    assert_close(
        mapped(weighted_quantile, samples, double, quantile=quantile),
        mapped(weighted_quantile, twice, quantile=quantile),
    )


def tail_mean_by_integration(samples, weights, *, tail):
    """The quantile function, averaged over a fine grid of probabilities below tail."""
    order = np.argsort(samples)
    edges = np.append(0, np.cumsum(weights[order]) / weights.sum())
    inside = np.diff(np.minimum(edges, tail))
    return np.sum(inside * samples[order]) / tail


def between_the_least_and_the_mean(samples, weights, *, tail):
    lowest = np.asarray(mapped(conditional_value_at_risk, samples, weights, tail=tail))
    mean = np.asarray(mapped(conditional_value_at_risk, samples, weights, tail=1.0))
    assert_close(mean, (samples * weights).sum(axis=1) / weights.sum(axis=1), atol=1e-5)
    room = 1e-5 * np.abs(samples).max(axis=1)
    assert np.all(lowest <= mean + room)
    assert np.all(lowest >= samples.min(axis=1) - room)


def range_row(function, oracle, least):
    return Row(
        function,
        sample=UNIT,
        options=LEVELS,
        oracle=oracle,
        laws=[follows_units(function)],
        edges=[Edge((np.full(7, 0.5),), {"level": 0.9, **RANGE})],
        refuses=[
            Refusal("(sample)", (jnp.ones((2, 2)),), RANGE),
            Refusal(f"length {least}", (jnp.ones(least - 1),), RANGE),
            Refusal("[0.0, 1.0]", (jnp.asarray([0.5, 2.0]),), RANGE),
            Refusal("[0.0, 1.0]", (jnp.asarray([0.5, jnp.nan]),), RANGE),
            Refusal("(0, 1)", (jnp.ones(2),), {"level": 1.0, **RANGE}),
            *(
                Refusal(
                    f"{end} must be one number, got shape (2, 1); "
                    "index it, or use jax.vmap for several",
                    (jnp.ones(2),),
                    {**RANGE, end: jnp.full((2, 1), RANGE[end])},
                )
                for end in RANGE
            ),
        ],
    )


# Whole percentages away from the steps of the empirical distribution of seven samples.
QUANTILES = st.sampled_from([0.05, 0.3, 0.5, 0.9])

ROWS = [
    range_row(hoeffding_interval, hoeffding_by_hand, 1),
    range_row(empirical_bernstein_interval, bernstein_by_hand, 2),
    Row(
        hcope_lower_bound,
        sample=POSITIVE,
        options=st.fixed_dictionaries(
            {
                "threshold": st.one_of(reals(1, 40), decades().map(lambda c: abs(c) or 1.0)),
                "level": reals(0.5, 0.984375).map(float),
            }
        ),
        oracle=hcope_by_hand,
        laws=[outliers_beyond_the_threshold_do_not_matter],
        edges=[Edge((np.zeros(3),), {"threshold": 1.0, "level": 0.95})],
        refuses=[
            Refusal("negative", (jnp.asarray([1.0, -1.0]),), {"threshold": 1.0}),
            Refusal("length 2", (jnp.ones(1),), {"threshold": 1.0}),
            Refusal("(sample)", (jnp.ones((2, 2)),), {"threshold": 1.0}),
            Refusal("threshold", (jnp.ones(2),), {"threshold": 0.0}),
            Refusal("level", (jnp.ones(2),), {"threshold": 1.0, "level": 1.0}),
        ],
    ),
    Row(
        hcope_threshold,
        sample=POSITIVE,
        options=st.sampled_from([{"size": 100, "level": 0.9375}, {"size": 9, "level": 0.5}]),
        oracle=None,
        laws=[no_held_out_value_promises_more],
        edges=[Edge((np.zeros(3),), {"size": 9})],
        refuses=[
            Refusal("negative", (jnp.asarray([1.0, -1.0]),), {"size": 9}),
            Refusal("size", (jnp.ones(2),), {"size": 1}),
            Refusal("level", (jnp.ones(2),), {"size": 9, "level": 0.0}),
        ],
        differentiable=False,
        exempt={"oracle": "equal promises tie in rounding: the law compares what is promised"},
    ),
    Row(
        conformal_quantile,
        sample=in_units(st.tuples(rows(7))),
        options=st.sampled_from([0.05, 0.125, 0.25, 0.3, 0.9]).map(
            lambda miscoverage: {"miscoverage": miscoverage}
        ),
        oracle=conformal_by_rank,
        laws=[a_better_score_never_raises_it],
        edges=[
            Edge((np.zeros(0),), {"miscoverage": 0.5}),
            *[Edge((np.arange(float(n)),), {"miscoverage": 1 / (n + 1)}) for n in (9, 19, 99)],
            *[Edge((np.arange(n - 1.0),), {"miscoverage": 1 / (n + 1)}) for n in (9, 19, 99)],
            Edge((np.arange(3.0),), {"miscoverage": 0.9999999}),
        ],
        refuses=[
            Refusal("(sample)", (jnp.ones((2, 2)),)),
            Refusal("miscoverage", (jnp.ones(2),), {"miscoverage": 0.0}),
        ],
        differentiable=False,
        exempt={"finite": "infinite where too few scores were seen"},
    ),
    Row(
        weighted_conformal_quantile,
        sample=st.tuples(
            in_units(rows(7)),
            in_units(st.tuples(rows(7, elements=SOME), rows(elements=SOME))),
        ).map(lambda drawn: (drawn[0], *drawn[1])),
        options=st.sampled_from([0.05, 0.15, 0.3, 0.9]).map(
            lambda miscoverage: {"miscoverage": miscoverage}
        ),
        oracle=weighted_conformal_by_scan,
        laws=[equal_weights_are_no_weights],
        edges=[Edge((np.zeros(0), np.zeros(0), 1.0), {"miscoverage": 0.5})],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3), 1.0)),
            Refusal("negative", (jnp.ones(2), jnp.asarray([1.0, -1.0]), 1.0)),
            Refusal("negative", (jnp.ones(2), jnp.ones(2), -1.0)),
            Refusal("miscoverage", (jnp.ones(2), jnp.ones(2), 1.0), {"miscoverage": 1.0}),
            Refusal(
                "weight must be one number, got shape (1,); index it, or use jax.vmap for several",
                (jnp.ones(2), jnp.ones(2), jnp.ones(1)),
            ),
        ],
        differentiable=False,
        exempt={"finite": "infinite where too little weight was seen"},
    ),
    Row(
        weighted_quantile,
        sample=st.tuples(in_units(rows(7)), WEIGHTS),
        options=QUANTILES.map(lambda p: {"quantile": p}),
        oracle=quantile_by_scan,
        laws=[a_weight_of_two_is_two_samples],
        edges=[Edge((np.arange(4.0), np.ones(4)), {"quantile": p}) for p in (0.0, 0.25, 0.75, 1.0)],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3)), {"quantile": 0.5}),
            Refusal("length 1", (jnp.ones(0),), {"quantile": 0.5}),
            Refusal("[0, 1]", (jnp.ones(2),), {"quantile": 50}),
        ],
        differentiable=False,
    ),
    Row(
        conditional_value_at_risk,
        sample=st.tuples(in_units(rows(7)), WEIGHTS),
        options=reals(0.0625, 1).map(lambda tail: {"tail": float(tail)}),
        oracle=tail_mean_by_integration,
        laws=[between_the_least_and_the_mean],
        edges=[
            Edge((np.zeros(3), np.ones(3)), {"tail": 0.5}),
            Edge((np.arange(4.0), np.ones(4)), {"tail": 0.5}),
            Edge((np.arange(4.0), np.ones(4)), {"tail": 1.0}),
        ],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3)), {"tail": 0.5}),
            Refusal("(0, 1]", (jnp.ones(2),), {"tail": 0.0}),
            Refusal("[0, 1]", (jnp.ones(2),), {"tail": 1.5}),
        ],
    ),
]
