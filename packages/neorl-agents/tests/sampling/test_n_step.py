"""Targets over several steps beside a loop, at ends, cuts and masked rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_agents.sampling import Histories, NSteps, Rows
from neorl_core import Transition

DISCOUNT = 0.75


def ahead(log, row, steps):
    """Discounted sum, last row, discount of the value behind it."""
    total, factor = 0.0, 1.0
    for i in range(row, row + steps):
        total += factor * float(log.reward[i])
        factor *= DISCOUNT
        ends = log.terminated[i] or log.truncated[i] or i == len(log.reward) - 1
        if ends or not log.mask[i + 1]:
            break
    return total, i, factor


@settings(max_examples=30)
@given(data=st.data(), steps=st.integers(1, 6))
def test_targets_are_those_of_a_loop(logs, data, steps):
    log = data.draw(logs)
    log = log._replace(next_action=-log.next_obs)
    tables = NSteps(steps, DISCOUNT).tables(log)
    rows = tables.rows
    for row in np.flatnonzero(log.mask):
        total, last, factor = ahead(log, row, steps)
        assert rows.reward[row] == pytest.approx(total, abs=1e-5)
        assert rows.next_obs[row] == log.next_obs[last]
        assert rows.next_action[row] == log.next_action[last]
        assert rows.terminated[row] == log.terminated[last]
        assert rows.truncated[row] == log.truncated[last]
        assert tables.discount[row] == pytest.approx(factor, rel=1e-6)
    for name in ("obs", "action", "mask"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(log, name))


def test_one_step_is_the_log_itself(logs, drawn):
    log = Transition(
        np.arange(24.0)[:, None], np.ones((24, 1)), np.arange(24, dtype=np.float32),
        next_obs=np.arange(24.0)[:, None] + 1,
        terminated=np.zeros(24, bool), truncated=np.arange(24) % 5 == 4,
    )  # fmt: skip
    actual, plain = drawn(NSteps(1, DISCOUNT), log), drawn(Rows(), log)
    jax.tree.map(np.testing.assert_array_equal, actual.rows, plain)
    np.testing.assert_array_equal(actual.discount, np.full((2, 32), DISCOUNT, np.float32))


def test_a_window_goes_with_the_row_whose_value_follows(drawn):
    """Memory and several steps together: the next window ends behind the last of the steps."""
    number = np.arange(24, dtype=np.float32)
    ends = np.isin(number, [9, 23])
    log = Transition(
        number[:, None], -number[:, None], number,
        next_obs=number[:, None] + 1, terminated=ends & False, truncated=ends,
    )  # fmt: skip
    actual = drawn(Histories(NSteps(3, DISCOUNT), 2), log).rows
    row = actual.obs.obs[..., -1, 0]
    last = np.minimum(row + 2, np.where(row <= 9, 9, 23))
    np.testing.assert_array_equal(actual.next_obs.obs[..., -1, 0], last + 1)
    np.testing.assert_array_equal(actual.next_obs.action[..., -1, 0], -last)
    np.testing.assert_array_equal(actual.next_obs.obs[..., 0, 0], last)
    assert actual.next_obs.obs_known.all()


def test_a_discount_and_a_mask_of_zero_are_no_trouble():
    log = Transition(
        np.zeros((3, 1)), np.zeros((3, 1)), np.array([1.0, np.nan, 3.0], np.float32),
        next_obs=np.zeros((3, 1)), terminated=np.zeros(3, bool), truncated=np.zeros(3, bool),
        mask=np.array([True, False, True]),
    )  # fmt: skip
    tables = jax.tree.map(jnp.asarray, NSteps(3, 0.0).tables(log))
    np.testing.assert_array_equal(tables.rows.reward, [1.0, 0.0, 3.0])
    np.testing.assert_array_equal(tables.discount, np.zeros(3))
