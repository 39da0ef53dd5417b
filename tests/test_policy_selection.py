"""An order of policies that is learned where returns are known: by hand, and on made tasks."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choice.policy_selection import (
    Task,
    estimate_columns,
    fit_order,
    held_out_picks,
    pick,
    regret,
)


def test_columns_are_ranks_of_mean_spread_and_distance_from_the_clones():
    estimate = np.array([[1.0, 1.0], [2.0, 4.0], [9.0, 9.5], [1.5, 0.0]])
    columns = estimate_columns([estimate], np.array([True, False, False, False]))
    # Means 1, 3, 9.25, 0.75; spreads 0, 1, 0.25, 0.75; distances from 1: 0, 2, 8.25, 0.25.
    np.testing.assert_allclose(4 * (columns[:, 0] + 0.5) + 0.5, [2, 3, 4, 1])
    np.testing.assert_allclose(4 * (columns[:, 1] + 0.5) + 0.5, [1, 4, 2, 3])
    np.testing.assert_allclose(4 * (columns[:, 2] + 0.5) + 0.5, [1, 3, 4, 2])


@settings(max_examples=30)
@given(
    said=arrays(np.float64, (6, 3), elements=st.integers(-1000, 1000).map(float)),
    unit=st.sampled_from([0.25, 4.0, 1024.0]),
)
def test_the_unit_of_an_estimate_does_not_matter(said, unit):
    clones = np.arange(6) < 2
    same = estimate_columns([said], clones), estimate_columns([unit * said], clones)
    np.testing.assert_array_equal(*same)


def tasks(count, sign=1.0, policies=40):
    """Tasks whose first column orders the policies, with noise; the second is nothing."""
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        columns = rng.uniform(-0.5, 0.5, (policies, 2))
        returns = 100 * (sign * columns[:, 0] + 0.05 * rng.normal(size=policies)) + seed
        made.append(Task(columns, returns, np.arange(policies) > 2))
    return made


def test_what_orders_the_policies_is_learned_and_picks_in_a_task_that_was_not_seen():
    made = tasks(9)
    order = fit_order(made, 3.0)
    assert order[0] > 10 * abs(order[1])
    picks = held_out_picks(made, [str(i) for i in range(9)])
    assert np.mean([regret(t, p) for t, p in zip(made, picks, strict=True)]) < 0.1
    assert all(t.allowed[p] for t, p in zip(made, picks, strict=True))


def test_nothing_of_a_held_out_group_decides_on_its_pick():
    """One group in which the order is the other way round: its own returns would turn the pick."""
    made = [*tasks(6), *tasks(3, sign=-1.0)]
    picks = held_out_picks(made, [*"abcdef", *"ggg"])
    order = fit_order(made[:6], 3.0)
    assert picks[6:] == [pick(task, order) for task in made[6:]]
    changed = [*made[:8], made[8]._replace(returns=-made[8].returns)]
    assert held_out_picks(changed, [*"abcdef", *"ggg"])[6:] == picks[6:]


def test_regret_is_a_part_of_the_range():
    task = Task(np.zeros((3, 1)), np.array([0.0, 5.0, 20.0]), np.ones(3, bool))
    assert [regret(task, i) for i in range(3)] == [1.0, 0.75, 0.0]
    assert regret(task._replace(returns=np.ones(3)), 1) == 0.0
