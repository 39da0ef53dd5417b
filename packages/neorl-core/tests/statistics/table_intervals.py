import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    Interval,
    clopper_pearson_interval,
    paired_difference_interval,
    student_interval,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    counts,
    in_units,
    integers,
    mapped,
    reals,
    rows,
)

LEVELS = reals(0.5, 0.9921875).map(lambda level: {"level": float(level)})


def student_by_scipy(samples, *, level):
    n = samples.shape[0]
    mean, error = samples.mean(axis=0), stats.sem(samples, axis=0)
    half_width = stats.t.ppf((1 + level) / 2, n - 1) * error
    return Interval(mean, mean - half_width, mean + half_width)


def difference_by_scipy(first, second, *, level):
    return student_by_scipy(first - second, level=level)


def moves_and_stretches_with_the_samples(samples, *, level):
    plain = mapped(student_interval, samples, level=level)
    moved = mapped(student_interval, 2 * samples + 3, level=level)
    assert_close(moved, Interval(*(2 * limit + 3 for limit in plain)), rtol=1e-4)
    mirrored = mapped(student_interval, -samples, level=level)
    assert_close(mirrored, Interval(-plain.estimate, -plain.high, -plain.low), rtol=1e-4)


def what_is_common_cancels(first, second, *, level):
    common = np.round(first)
    assert_close(
        mapped(paired_difference_interval, common + first, common + second, level=level),
        mapped(paired_difference_interval, first, second, level=level),
        atol=2e-4,
    )


def clopper_pearson_by_scipy(successes, trials, *, level):
    """By quantiles of the beta distribution: ``binomtest`` searches to 2e-12 of one."""
    delta, failures = (1 - level) / 2, trials - successes
    low = stats.beta.ppf(delta, successes, failures + 1) if successes else 0.0
    high = stats.beta.isf(delta, successes + 1, failures) if failures else 1.0
    return Interval(successes / trials, np.asarray(low), np.asarray(high))


def mirrored(function):
    def failures_are_successes_mirrored(successes, trials, *, level):
        failures = trials - successes
        exact = trials - failures == successes  # What float32 cannot tell apart is another case.
        plain = mapped(function, successes, trials, level=level)
        other = mapped(function, failures, trials, level=level)
        expected = (1 - plain.estimate, 1 - plain.high, 1 - plain.low)
        pairs = zip(other, expected, strict=True)
        for actual, want in ((np.asarray(a)[exact], np.asarray(b)[exact]) for a, b in pairs):
            assert_close(actual, want, atol=1e-5, scale=1.0)

    return failures_are_successes_mirrored


def contains_the_share(function):
    def law(successes, trials, *, level):
        interval = mapped(function, successes, trials, level=level)
        assert np.all(interval.low <= interval.estimate + 1e-6)
        assert np.all(interval.estimate <= interval.high + 1e-6)
        assert np.all((interval.low >= 0) & (interval.high <= 1))

    return law


def successes_of(trials):
    """Every number of up to sixty; of more, shares evenly over the decades, from either end."""
    few = [st.integers(0, min(int(n), 60)).map(float) for n in trials]
    many = [st.floats(0, float(np.log10(n))).map(lambda e: np.floor(10**e)) for n in trials]
    either = [st.one_of(pair) for pair in zip(few, many, strict=True)]
    nearer = st.tuples(*either).map(lambda k: np.minimum(np.asarray(k, np.float32), trials))
    return st.tuples(st.one_of(nearer, nearer.map(lambda k: trials - k)), st.just(trials))


TRIALS = st.one_of(
    integers(low=1, high=60).map(lambda n: n.astype(np.float32)),
    counts(high=1e9).map(lambda n: n + np.float32(1)),
)
COUNTS = TRIALS.flatmap(successes_of)

BAD_COUNTS = [
    Refusal("between 0 and trials", (4, 3)),
    Refusal("between 0 and trials", (-1, 3)),
    Refusal("between 0 and trials", (jnp.array([1, 4]), jnp.array([3, 3]))),
    Refusal("(0, 1)", (1, 3), {"level": 95}),
]


def count_row(function, oracle):
    return Row(
        function,
        sample=COUNTS,
        options=LEVELS,
        oracle=oracle,
        laws=[mirrored(function), contains_the_share(function)],
        edges=[Edge((k, n), {"level": 0.9}) for k, n in ((0.0, 1.0), (1.0, 1.0), (0.0, 299.0))],
        refuses=BAD_COUNTS,
        differentiable=False,
    )


ROWS = [
    Row(
        student_interval,
        sample=in_units(st.tuples(rows(7, 2))),
        options=LEVELS,
        oracle=student_by_scipy,
        laws=[moves_and_stretches_with_the_samples],
        edges=[
            Edge((np.zeros(7),), {"level": 0.95}),
            Edge((np.full((2, 3), 5.0),), {"level": 0.95}),
            Edge((np.zeros((2, 0)),), {"level": 0.95}),
        ],
        refuses=[
            Refusal("length 2", (jnp.ones(1),)),
            Refusal("length 2", (jnp.ones(()),)),
            Refusal("(0, 1)", (jnp.ones(3),), {"level": 1.0}),
        ],
    ),
    Row(
        paired_difference_interval,
        sample=in_units(st.tuples(rows(7), rows(7))),
        options=LEVELS,
        oracle=difference_by_scipy,
        laws=[what_is_common_cancels],
        edges=[Edge((np.ones(7), np.ones(7)), {"level": 0.95})],
        refuses=[
            Refusal("one shape", (jnp.ones(3), jnp.ones(4))),
            Refusal("length 2", (jnp.ones(1), jnp.ones(1))),
        ],
    ),
    count_row(clopper_pearson_interval, clopper_pearson_by_scipy),
]
