import numpy as np

from neorl_core.statistics import CorrelatedMean, correlated_mean
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import Edge, Refusal, Row, assert_close, mapped, seeds


def wandering(seed):
    """Autoregressions of order one with a row that is masked and one that is lost."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(DRAWS, 300))
    values = np.zeros(noise.shape)
    for t in range(1, 300):
        values[:, t] = 0.7 * values[:, t - 1] + noise[:, t]
    values[:, 40] = np.nan
    valid = np.ones(values.shape, bool)
    valid[:, 100:110] = False
    return (2 * values + 1).astype(np.float32), valid


def mean_by_sums(values, valid):
    values = values[valid & np.isfinite(values)]
    n, mean = len(values), values.mean()
    if np.all(values == values[0]):
        return CorrelatedMean(*(np.asarray(float(x)) for x in (mean, 0, n - 1, 1, n)))
    apart = values - mean
    variance = np.mean(apart**2)
    time = 1.0
    for window in range(1, n):
        time += 2 * np.mean(apart[window:] * apart[:-window]) / variance
        if window >= 5 * max(time, 1):
            break
    time = max(time, 1.0) * (1 + (2 * window + 1) / n)
    independent = n / time
    error = np.sqrt(variance / (1 - min(1 / independent, 0.5)) / independent)
    error = error if independent >= 8 else np.nan
    degrees = max(n / (2 * window + 1), 1)
    return CorrelatedMean(*(np.asarray(x) for x in (mean, error, degrees, time, independent)))


def it_has_no_unit(values, valid):
    plain = mapped(correlated_mean, values, valid)
    other = mapped(correlated_mean, -4 * values, valid)
    assert_close(other.mean, -4 * plain.mean)
    assert_close(other.error, 4 * plain.error, rtol=1e-4)
    assert_close(other[2:], plain[2:], rtol=1e-4)


def what_is_masked_does_not_matter(values, valid):
    plain = mapped(correlated_mean, values, valid)
    assert_close(mapped(correlated_mean, np.where(valid, values, 1e6), valid), plain)


THREE, ON = np.ones(3, np.float32), np.ones(3, bool)

ROWS = [
    Row(
        correlated_mean,
        seeds().map(wandering),
        mean_by_sums,
        laws=[it_has_no_unit, what_is_masked_does_not_matter],
        edges=[Edge((np.full(20, 3.0, np.float32), np.ones(20, bool)))],
        refuses=[
            Refusal("valid must be boolean", (THREE, THREE)),
            Refusal("must have one shape", (THREE, ON[:2])),
            Refusal("float32 or float64", (THREE.astype("float16"), ON)),
        ],
        differentiable=False,
        dtypes=("float32", "float64"),
        rtol=2e-4,  # a sum of many correlations of either sign
    ),
]
