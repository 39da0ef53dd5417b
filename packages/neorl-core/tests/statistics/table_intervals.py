import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from scipy import stats

from neorl_core.statistics import (
    Interval,
    paired_difference_interval,
    student_interval,
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
]
