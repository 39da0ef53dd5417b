"""Differences of actions in units of their channel, and what of them is rounding."""

import numpy as np
import pytest

from neorl_deploy.bundle import ChannelEntry, relative_difference

VALVE = ChannelEntry("valve", "%", 0.0, 100.0)
TEMPERATURE = ChannelEntry("temperature", "K", 280.0, 320.0)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (0.0, 1e-3),
        (0.004, 1e-3 - 4e-5),
        (5.0, 1e-3 - 1e-4),
        (np.nan, 1e-3),
        (np.inf, 1e-3 - 1e-4),
        (-0.004, 1e-3),
    ],
)
def test_a_difference_counts_beyond_rounding_in_units_of_the_channel(rounding, expected):
    actual, stored = np.array([[50.1, 300]]), np.array([[50.0, 300]])
    difference = relative_difference(
        (VALVE, TEMPERATURE), actual, stored, np.full_like(stored, rounding)
    )
    assert difference == pytest.approx(expected, rel=1e-6)


def test_a_lost_action_is_infinitely_far_whatever_the_rounding():
    stored = np.array([[50.0]])
    assert relative_difference((VALVE,), np.array([[np.nan]]), stored, 1e9) == float("inf")
