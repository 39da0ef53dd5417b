import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    Interval,
    bootstrap_interval,
    stratified_bootstrap_interval,
)
from neorl_core.testing import (
    Refusal,
    Row,
    assert_close,
    in_units,
    keys,
    mapped,
    reals,
    rows,
)

RESAMPLES = 60
# Integers: their sums are exact, so ties are ties in every precision.
WHOLE = st.integers(-50, 50).map(float)
UNITS = {"base": 2, "low": -30, "high": 30}
KEY, RAW_KEY = jax.random.key(0), np.zeros(2, np.uint32)


@functools.partial(jax.jit, static_argnums=(1, 2))
def bits(key_data, shape, count):
    keys = jax.random.split(jax.random.wrap_key_data(key_data), count)
    return jax.vmap(lambda key: jax.random.bits(key, shape, jnp.uint32))(keys)


def drawn_rows(key_data, shape, count):
    """The upper word of 32 random bits times the number of rows."""
    words = np.asarray(bits(key_data, shape, count)).astype(np.uint64)
    return list((words * np.uint64(shape[0])) >> np.uint64(32))


def replicates_one_by_one(samples, key, *, resamples):
    drawn = drawn_rows(key, samples.shape[:1], resamples)
    return np.stack([samples[rows].mean(axis=0) for rows in drawn])


def interval_by_definition(samples, key, *, level, resamples, method):
    replicates = replicates_one_by_one(samples, key, resamples=resamples)
    estimate = samples.mean(axis=0)
    tails = np.asarray([(1 - level) / 2, (1 + level) / 2])
    if method == "percentile":
        return Interval(estimate, *np.quantile(replicates, tails, axis=0))
    limits = np.empty((2, *estimate.shape))
    for place in np.ndindex(estimate.shape):
        at = (slice(None), *place)
        limits[at] = bca_limits(samples[at], replicates[at], tails)
    return Interval(estimate, *limits)


def bca_limits(samples, replicates, tails):
    estimate = samples.mean()
    share = stats.percentileofscore(replicates, estimate, kind="mean") / 100
    share = np.clip(share, 0.5 / len(replicates), 1 - 0.5 / len(replicates))
    bias = stats.norm.ppf(share)
    left_out = np.asarray([np.delete(samples, i).mean() for i in range(len(samples))])
    influence = left_out.mean() - left_out
    spread = np.sum(influence**2)
    acceleration = np.sum(influence**3) / (6 * spread**1.5) if spread > 1e-20 else 0.0
    shifted = bias + stats.norm.ppf(tails)
    return np.quantile(replicates, stats.norm.cdf(bias + shifted / (1 - acceleration * shifted)))


def moves_and_stretches_with_the_samples(samples, key, **options):
    plain = mapped(bootstrap_interval, samples, key, **options)
    # A shift rounds, and among equal samples rounding decides which replicates lie below the
    # estimate: the bias that BCa corrects. Doubling is exact.
    shift = 0 if options["method"] == "bca" else 3
    moved = mapped(bootstrap_interval, 2 * samples + shift, key, **options)
    assert_close(moved, Interval(*(2 * limit + shift for limit in plain)), rtol=1e-4)


def of_no_quantity_there_are_none(samples, key, **options):
    interval = mapped(bootstrap_interval, samples[:, :, :0], key, **options)
    assert {limit.shape for limit in interval} == {(len(samples), 0)}


def stratified_one_by_one(scores, key, *, level, resamples):
    drawn = drawn_rows(key, scores.shape, resamples)
    aggregates = [
        stats.trim_mean(np.take_along_axis(scores, rows, axis=0), 0.25, axis=None) for rows in drawn
    ]
    limits = np.quantile(aggregates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(stats.trim_mean(scores, 0.25, axis=None), *limits)


def tasks_with_one_score_have_no_spread(scores, key, *, level, resamples):
    constant = np.repeat(scores[:, :1], scores.shape[1], axis=1)
    interval = mapped(
        stratified_bootstrap_interval, constant, key, level=level, resamples=resamples
    )
    assert_close(interval.low, interval.high, atol=1e-5)
    assert_close(interval.low, interval.estimate, atol=1e-5)


LEVELS = reals(0.5, 0.9375).map(float)

ROWS = [
    Row(
        bootstrap_interval,
        sample=st.tuples(in_units(rows(7, 2, elements=WHOLE), **UNITS), keys()),
        options=st.fixed_dictionaries(
            {
                "level": LEVELS,
                "resamples": st.just(RESAMPLES),
                "method": st.sampled_from(["percentile", "bca"]),
            }
        ),
        oracle=interval_by_definition,
        laws=[moves_and_stretches_with_the_samples, of_no_quantity_there_are_none],
        refuses=[
            Refusal("length 2", (jnp.ones(1), KEY)),
            Refusal("(0, 1)", (jnp.ones(3), KEY), {"level": 0.0}),
            Refusal("resamples", (jnp.ones(3), KEY), {"resamples": 0}),
            Refusal("percentile, bca", (jnp.ones(3), KEY), {"method": "basic"}),
        ],
        differentiable=False,
        # A limit of BCa is read where two normal quantiles, found in float32, point.
        rtol=1e-4,
        atol=2e-5,
    ),
    Row(
        stratified_bootstrap_interval,
        sample=st.tuples(in_units(rows(5, 3)), keys()),
        options=LEVELS.map(lambda level: {"level": level, "resamples": RESAMPLES}),
        oracle=stratified_one_by_one,
        laws=[tasks_with_one_score_have_no_spread],
        refuses=[
            Refusal("run, task", (jnp.ones(3), KEY)),
            Refusal("length 2", (jnp.ones((1, 3)), KEY)),
            Refusal("one task", (jnp.ones((2, 0)), KEY)),
            Refusal("(0, 1)", (jnp.ones((2, 3)), KEY), {"level": 2.0}),
            Refusal("resamples", (jnp.ones((2, 3)), KEY), {"resamples": 0}),
        ],
        differentiable=False,
        # Quantiles between neighbours of sixty rounded replicates.
        atol=1e-5,
    ),
]
