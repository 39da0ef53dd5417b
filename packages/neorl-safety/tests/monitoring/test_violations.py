"""Counts and shares against plain loops; the interval against SciPy's and its textbook value."""

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from neorl_core.testing import flags
from neorl_safety.monitoring import violation_statistics

BATCH = (4, 6)


def counted(violated, mask):
    result = violation_statistics(violated, mask)
    return result.steps, result.step_fraction, result.longest, result.episodes


def longest_by_walking(row):
    best = run = 0
    for violated in row:
        run = run + 1 if violated else 0
        best = max(best, run)
    return best


@given(flags(*BATCH), flags(*BATCH))
def test_counts_agree_with_plain_loops(violated, mask):
    for both, valid in zip(violated & mask, mask, strict=True):
        steps, share, longest, episodes = counted(both, valid)
        assert (steps, episodes) == (both.sum(), both.any(axis=1).sum())
        assert share == pytest.approx(both.sum() / max(valid.sum(), 1))
        assert longest == max(longest_by_walking(row) for row in both)


@pytest.mark.parametrize(("count", "total"), [(0, 1), (1, 1), (0, 40), (3, 40), (39, 40), (40, 40)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_is_that_of_scipy(count, total, level):
    violated = np.arange(total)[:, None] < count
    share, *ends = violation_statistics(violated, level=level).episode_fraction
    assert share == count / total
    expected = stats.binomtest(count, total).proportion_ci(level, method="exact")
    np.testing.assert_allclose(ends, expected, atol=1e-10)


def test_no_episode_tells_nothing():
    share, low, high = violation_statistics(np.zeros((0, 3), bool)).episode_fraction
    assert np.isnan(share)
    assert (low, high) == (0, 1)


def test_no_violation_in_299_episodes_bounds_the_probability_by_one_percent():
    result = violation_statistics(np.zeros((299, 5), bool), level=0.90)
    assert int(result.episodes) == int(result.longest) == 0
    assert float(result.episode_fraction.low) == 0
    assert 0.0099 < float(result.episode_fraction.high) <= 0.01


def test_an_episode_without_a_step_is_not_counted():
    violated = np.array([[True, False], [False, False], [True, True]])
    mask = np.array([[True, True], [True, False], [False, False]])
    result = violation_statistics(violated, mask)
    assert int(result.steps) == 1
    assert float(result.step_fraction) == pytest.approx(1 / 3)
    assert float(result.episode_fraction.estimate) == pytest.approx(0.5)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"shape \(episode, time\), got \(3,\)"):
        violation_statistics(np.zeros(3, bool))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 2\); expected \(2, 3\)"):
        violation_statistics(np.zeros((2, 3), bool), np.zeros((2, 2), bool))
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 95"):
        violation_statistics(np.zeros((2, 3), bool), level=95)
