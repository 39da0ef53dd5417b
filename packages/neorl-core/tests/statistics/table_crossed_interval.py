import numpy as np
import scipy.stats
from hypothesis import strategies as st

from neorl_core.statistics import Interval, crossed_interval, student_interval
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, mapped, reals, rows

LEVELS = reals(0.5, 0.99).map(lambda level: {"level": float(level)})


def anova(samples, *, level):
    r, c = samples.shape
    total = np.sum((samples - samples.mean()) ** 2)
    between_rows = c * np.sum((samples.mean(axis=1) - samples.mean()) ** 2)
    between_columns = r * np.sum((samples.mean(axis=0) - samples.mean()) ** 2)
    rest = max(total - between_rows - between_columns, 0)
    squares = np.array([between_rows, between_columns, rest])
    degrees = np.array([r - 1, c - 1, (r - 1) * (c - 1)])
    a, b, e = squares / degrees
    by_row, by_column = scipy.stats.t.ppf((1 + level) / 2, degrees[:2]) ** 2
    shared = min(a, b, e) * min(by_row, by_column)
    half = np.sqrt((by_row * a + by_column * b - shared) / (r * c))
    return Interval(samples.mean(), samples.mean() - half, samples.mean() + half)


def one_factor_is_student(samples, *, level):
    by_row = np.repeat(samples[:, :, :1], samples.shape[2], axis=2)
    assert_close(
        mapped(crossed_interval, by_row, level=level),
        mapped(student_interval, samples[:, :, 0], level=level),
        rtol=1e-3,
    )


def symmetric_in_the_factors(samples, *, level):
    assert_close(
        mapped(crossed_interval, np.swapaxes(samples, 1, 2), level=level),
        mapped(crossed_interval, samples, level=level),
        rtol=1e-3,
    )


def shifts_with_the_samples(samples, *, level):
    plain = mapped(crossed_interval, samples, level=level)
    size = np.abs(samples).max(axis=(1, 2), keepdims=True)
    moved = mapped(crossed_interval, samples + size, level=level)
    widths = [interval.high - interval.low for interval in (moved, plain)]
    assert_close(*widths, rtol=1e-3, scale=float(size.max()))


ROWS = [
    Row(
        crossed_interval,
        sample=in_units(st.tuples(rows(3, 5))),
        options=LEVELS,
        oracle=anova,
        laws=[one_factor_is_student, symmetric_in_the_factors, shifts_with_the_samples],
        edges=[Edge((np.zeros((3, 5)),), {"level": 0.95})],
        refuses=[
            Refusal("two rows", (np.ones((1, 5)),)),
            Refusal("two rows", (np.ones((5, 1)),)),
            Refusal("row column", (np.ones(5),)),
            Refusal("(0, 1)", (np.ones((2, 2)),), {"level": 95.0}),
        ],
        # The quantiles of Student at few degrees are found to 3e-4 in float32.
        rtol=1e-3,
    ),
]
