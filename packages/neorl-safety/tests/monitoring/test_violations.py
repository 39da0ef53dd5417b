"""Counts and shares against NumPy; the bound against its textbook value."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from neorl_core.testing import flags, oracle
from neorl_safety.monitoring import violation_statistics

BATCH = (4, 6)


def counted(violated, mask):
    result = violation_statistics(violated, mask)
    return result.steps, result.step_fraction, result.longest, result.episodes


def longest_in_numpy(row):
    best = run = 0
    for violated in row:
        run = run + 1 if violated else 0
        best = max(best, run)
    return best


def counted_in_numpy(violated, mask):
    both = violated & mask
    fraction = both.sum() / max(mask.sum(), 1)
    longest = max(longest_in_numpy(row) for row in both)
    return both.sum(), fraction, np.int64(longest), both.any(axis=1).sum()


@given(flags(*BATCH), flags(*BATCH))
def test_counts_agree_with_numpy(violated, mask):
    oracle(counted, counted_in_numpy, violated, mask)


def test_no_violation_in_299_episodes_bounds_the_probability_by_one_percent():
    result = violation_statistics(jnp.zeros((299, 5), bool), level=0.90)
    assert int(result.episodes) == int(result.longest) == 0
    assert float(result.episode_fraction.low) == 0
    assert 0.0099 < float(result.episode_fraction.high) <= 0.01


def test_an_episode_without_a_step_is_not_counted():
    violated = jnp.array([[True, False], [False, False], [True, True]])
    mask = jnp.array([[True, True], [True, False], [False, False]])
    result = violation_statistics(violated, mask)
    assert int(result.steps) == 1
    assert float(result.step_fraction) == pytest.approx(1 / 3)
    assert float(result.episode_fraction.estimate) == pytest.approx(0.5)


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"shape \(episode, time\), got \(3,\)"):
        violation_statistics(jnp.zeros(3, bool))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 2\); expected \(2, 3\)"):
        violation_statistics(jnp.zeros((2, 3), bool), jnp.zeros((2, 2), bool))
