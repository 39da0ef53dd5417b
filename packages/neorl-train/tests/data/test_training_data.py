"""What follows a row is known by its flags once masked rows are gone."""

import dataclasses

import numpy as np

from neorl_agents.sampling import Histories, Rows
from neorl_train.data import training_data


def masked(dataset, rows):
    mask = np.ones(dataset.n_rows, bool)
    mask[rows] = False
    columns = dataset.transitions._replace(mask=mask)
    return dataclasses.replace(dataset, transitions=columns), mask


def test_a_gap_ends_what_came_before_it(make_log):
    dataset = make_log(episodes=4, length=6)
    # In the middle of an episode, over an episode's end, and its first row.
    dataset, mask = masked(dataset, [2, 3, 11, 12, 23])
    rows = training_data(dataset).rows
    number = np.flatnonzero(mask)
    truncated = np.asarray(dataset.transitions.truncated)
    followed = np.append(mask[1:], True)
    np.testing.assert_array_equal(rows.truncated, (truncated | ~followed)[number])
    assert not np.any(rows.next_action[rows.truncated])
    np.testing.assert_array_equal(rows.obs, dataset.transitions.obs[number])
    # No window joins the two sides of a gap.
    first = np.asarray(Histories(Rows(), 3).tables(rows).first)
    assert all((np.diff(number[a : b + 1]) == 1).all() for b, a in enumerate(first))


def test_a_termination_before_a_gap_stays_one(make_log):
    dataset = make_log(episodes=2, length=6)
    ends = np.asarray(dataset.transitions.truncated)
    columns = dataset.transitions._replace(terminated=ends, truncated=np.zeros_like(ends))
    dataset, _ = masked(dataclasses.replace(dataset, transitions=columns), [6])
    rows = training_data(dataset).rows
    assert rows.terminated[5]
    assert not rows.truncated[5]


def test_a_log_without_gaps_is_left_as_it_is(make_log):
    dataset = make_log(episodes=2, length=6)
    rows = training_data(dataset).rows
    assert rows.truncated is dataset.transitions.truncated
