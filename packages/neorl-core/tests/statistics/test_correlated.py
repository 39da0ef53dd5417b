"""How often an interval of a correlated mean covers the truth."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from neorl_core.statistics import CorrelatedMean, correlated_mean


def wandering(rng, pole: float, *shape: int) -> np.ndarray:
    """Autoregressions of order one with variance one, along the last axis."""
    start = 2000
    noise = rng.normal(size=(*shape[:-1], shape[-1] + start))
    return lfilter([1.0], [1.0, -pole], noise)[..., start:] * np.sqrt(1 - pole**2)


def of_each(series: np.ndarray) -> CorrelatedMean:
    return jax.vmap(correlated_mean)(series.astype(np.float32), np.isfinite(series))


def covered(means: CorrelatedMean, truth: float) -> float:
    """Share of Student's intervals of 95 % that hold the truth."""
    reach = stats.t.ppf(0.975, means.degrees) * means.error
    return float(np.mean(np.abs(means.mean - truth) <= reach))


@pytest.mark.parametrize(("pole", "n"), [(0.0, 400), (0.9, 2000), (0.98, 4000)])
def test_an_interval_covers_the_mean_of_an_autoregression(pole, n):
    series = wandering(np.random.default_rng(1), pole, 300, n)
    means = of_each(series)
    # 300 draws of 0.95 have a standard deviation of 0.013.
    assert covered(means, 0.0) > 0.91
    assert covered(of_each(np.abs(series)), np.sqrt(2 / np.pi)) > 0.90
    assert np.mean(means.time) == pytest.approx((1 + pole) / (1 - pole), rel=0.2)
    # A few of the errors are too large, so their mean square is above the variance.
    assert 0.8 < np.nanmean(means.error**2) / np.var(means.mean) < 1.8


def test_the_usual_interval_would_not_cover_it():
    one = wandering(np.random.default_rng(2), 0.98, 4000)
    mean = correlated_mean(one, np.isfinite(one))
    assert mean.error > 5 * np.std(one) / np.sqrt(len(one))
    assert mean.independent < 100


def test_a_short_series_has_no_error():
    slow = wandering(np.random.default_rng(3), 0.995, 500)
    assert np.isnan(correlated_mean(slow, np.isfinite(slow)).error)
    lost = correlated_mean(np.asarray([np.nan]), np.asarray([True]))
    assert np.isnan(lost.mean)
    assert lost.independent == 0
