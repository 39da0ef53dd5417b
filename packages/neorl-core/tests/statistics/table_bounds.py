import math

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import (
    conditional_value_at_risk,
    conformal_quantile,
    weighted_conformal_quantile,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    in_units,
    mapped,
    reals,
    rows,
)

# Of weights, only shares matter.
SOME = reals(0.0625, 4)
WEIGHTS = in_units(rows(7, elements=SOME))


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


ROWS = [
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
