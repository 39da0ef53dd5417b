"""What identification refuses, message by message."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.linear_systems import (
    identify_linear,
)

ENDS = np.zeros(4, bool)
OBS, ACTION = np.ones((4, 2)), np.ones((4, 1))
GOOD = {"obs": OBS, "action": ACTION, "next_obs": OBS, "terminated": ENDS, "truncated": ENDS}
SHAPES = "obs and next_obs must have one shape and action as many rows, got "
LOGS = [
    ({"obs": OBS[0]}, "obs must have the axes (time, state), got shape (2,);"),
    ({"action": ACTION[:, 0]}, "action must have the axes (time, act), got shape (4,);"),
    ({"next_obs": OBS[1:]}, f"{SHAPES}(4, 2), (3, 2) and (4, 1); give one row per step"),
    ({"action": ACTION[1:]}, f"{SHAPES}(4, 2), (4, 2) and (3, 1); give one row per step"),
    (
        {"terminated": ENDS[1:], "truncated": ENDS[1:]},
        "terminated and truncated must have the 4 rows of obs (one or more), got 3; "
        "give one flag per row",
    ),
    *(
        ({name: jnp.ones(GOOD[name].shape, jnp.bfloat16)}, f"{name} must be ")
        for name in ("obs", "action", "next_obs")
    ),
]


@pytest.mark.parametrize(("change", "message"), LOGS)
def test_a_log_that_does_not_fit_is_refused_in_words(change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        identify_linear(**{**GOOD, **change})


def test_an_empty_log_is_refused():
    empty = {name: column[:0] for name, column in GOOD.items()}
    with pytest.raises(ValueError, match=r"must have the 0 rows of obs \(one or more\), got 0"):
        identify_linear(**empty)


def test_a_negative_delay_is_refused_in_words():
    with pytest.raises(ValueError, match=r"^delay must be 0 .*-1; give the steps of dead time$"):
        identify_linear(**GOOD, delay=-1)
