"""Better or younger episodes are drawn as often as their weight says."""

import numpy as np
import pytest
from scipy import stats

from neorl_agents.sampling import WeightedRows
from neorl_core import Transition

ENDS = np.isin(np.arange(24), [5, 11, 23])
MASK = ~np.isin(np.arange(24), [2, 12, 13])
EPISODE = np.repeat([0, 1, 2], [6, 6, 12])


@pytest.fixture
def log():
    reward = np.where(EPISODE == 1, 2.0, -1.0).astype(np.float32)
    reward[2] = np.nan
    number = np.arange(24.0)[:, None]
    return Transition(
        number, number, reward, terminated=ENDS, truncated=ENDS & False, mask=MASK
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by", "places"),
    # Returns -5, 12 and -10; places in the log 0, 1/2 and 1.
    [("return", np.array([5 / 22, 1.0, 0.0])), ("recency", np.array([0.0, 0.5, 1.0]))],
)
@pytest.mark.parametrize("temperature", [0.5, float("inf")])
def test_rows_are_drawn_by_the_weight_of_their_episode(log, drawn, by, places, temperature):
    sampler = WeightedRows(by, temperature)
    rows = np.concatenate([drawn(sampler, log, n, (2, 512)).obs.ravel() for n in range(8)])
    counts = np.bincount(rows.astype(int), minlength=24)
    assert not counts[~MASK].any()
    weight = np.exp(places / temperature)[EPISODE][MASK]
    expected = weight / weight.sum() * counts.sum()
    assert stats.chisquare(counts[MASK], expected).pvalue > 1e-3


def test_a_sharp_temperature_takes_the_best_episode_alone(log, drawn):
    rows = drawn(WeightedRows("return", 1e-3), log).obs.ravel()
    assert set(EPISODE[rows.astype(int)]) == {1}


def test_equal_returns_are_drawn_alike(drawn, log):
    flat = log._replace(reward=np.zeros(24, np.float32), mask=None)
    rows = np.concatenate(
        [drawn(WeightedRows("return"), flat, n, (2, 512)).obs.ravel() for n in range(4)]
    )
    assert stats.chisquare(np.bincount(rows.astype(int), minlength=24)).pvalue > 1e-3


def test_bad_settings_are_refused_by_name(log):
    with pytest.raises(ValueError, match=r"WeightedRows\.by must be 'return' or 'recency'"):
        WeightedRows("age")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"WeightedRows\.temperature must be above 0, got 0"):
        WeightedRows("return", 0)
    with pytest.raises(ValueError, match="every row is masked"):
        WeightedRows("return").tables(log._replace(mask=np.zeros(24, bool)))
