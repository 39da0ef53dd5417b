"""Every state counts, the terminal one included (row N06 of the acceptance table)."""

import functools
import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neorl_core import Channel, CostChannel, Spec
from neorl_envs.datasets import dataset_from_columns
from neorl_safety.filters import Flag
from neorl_train.judging import EpisodeRows, episodes_of, join_episodes, recorded_episodes

TIME, STARTS = 6, 3
SPEC = Spec(
    obs=(Channel("x", "m", -1.0, 1.0),),
    action=(Channel("u", "%", 0.0, 1.0),),
    cost=(CostChannel("band", "m", 2.0, "episode"), CostChannel("peak", "m", 1.0, "step")),
    dt=1.0,
    horizon=TIME,
)
COSTS = st.sampled_from([0.0, 0.5, 1.0, 1.0000001, 3.0])
FLAGS = st.sampled_from([0, int(Flag.BOX_ACTIVE), int(Flag.FALLBACK_USED | Flag.RATE_ACTIVE)])


def rollout(lengths, costs, terminated, flags):
    mask = np.arange(TIME) < np.asarray(lengths)[:, None]
    last = np.arange(TIME) == np.asarray(lengths)[:, None] - 1
    shape = (STARTS, TIME)
    return EpisodeRows(
        first_obs=np.zeros((STARTS, 1)),
        obs=np.zeros((*shape, 1)),
        action=np.zeros((*shape, 1)),
        applied=np.zeros((*shape, 1)),
        reward=np.ones(shape, np.float32),
        cost=np.asarray(costs, np.float32).reshape(*shape, 2),
        terminated=last & np.asarray(terminated)[:, None],
        success=np.zeros(shape, bool),
        mask=mask,
        flags=np.asarray(flags, np.uint32).reshape(shape),
        intervention=np.zeros((*shape, 1)),
        limits=np.zeros((*shape, 1), np.uint32),
        alarms=np.asarray(flags, np.uint32).reshape(shape),
        terms=np.ones((*shape, 1)),
    )


@given(
    st.lists(st.integers(1, TIME), min_size=STARTS, max_size=STARTS),
    st.lists(COSTS, min_size=STARTS * TIME * 2, max_size=STARTS * TIME * 2),
    st.lists(st.booleans(), min_size=STARTS, max_size=STARTS),
    st.lists(FLAGS, min_size=STARTS * TIME, max_size=STARTS * TIME),
)
def test_nothing_inside_an_episode_is_missed_and_nothing_after_it_counts(
    lengths, costs, terminated, flags
):
    """Row N06: every state is checked, the terminal one too."""
    rows = rollout(lengths, costs, terminated, flags)
    result = episodes_of(rows, SPEC)
    for i, length in enumerate(lengths):
        band, peak = rows.cost[i, :length, 0], rows.cost[i, :length, 1]
        assert result.length[i] == result.returns[i] == length
        assert result.cost_sum[i] == pytest.approx([sum(band), sum(peak)])
        assert result.cost_worst[i] == pytest.approx([max(band), max(peak)])
        assert result.alarms[i] == functools.reduce(operator.or_, rows.alarms[i, :length].tolist())
        over = np.array([band.sum(dtype=float) > 2.0, (peak > 1.0).any()])
        assert result.violated[i].tolist() == (over | terminated[i]).tolist()
        assert result.steps_over[i].tolist() == [(band > 0).sum(), (peak > 1.0).sum()]
        assert result.trip[i] == terminated[i]
        acted = rows.flags[i, :length]
        assert result.fallback[i] == sum(bool(bits & Flag.FALLBACK_USED) for bits in acted)
        assert result.filtered[i] == sum(bits == Flag.BOX_ACTIVE for bits in acted)


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("length", [1, 4, TIME])
def test_a_violation_in_the_last_step_is_counted(length, terminated):
    costs = np.zeros((STARTS, TIME, 2))
    costs[1, length - 1] = 9.0
    if length < TIME:
        costs[2, length] = 9.0
    rows = rollout([length] * STARTS, costs, [terminated] * STARTS, np.zeros((STARTS, TIME)))
    result = episodes_of(rows, SPEC)
    # An episode that trips keeps no limit.
    kept = [terminated, terminated]
    assert result.violated.tolist() == [kept, [True, True], kept]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_cost_that_is_no_number_is_a_violation(bad):
    costs = np.zeros((STARTS, TIME, 2))
    costs[0, 2] = bad
    rows = rollout([TIME] * STARTS, costs, [False] * STARTS, np.zeros((STARTS, TIME)))
    assert episodes_of(rows, SPEC).violated[0].all()


def test_travel_and_reversals_are_those_of_every_episode_alone():
    rng = np.random.default_rng(2)
    lengths = [TIME, 1, 4][:STARTS] + [TIME] * max(STARTS - 3, 0)
    rows = rollout(lengths, np.zeros((STARTS, TIME, 2)), [False] * STARTS, np.zeros((STARTS, TIME)))
    applied = rng.uniform(0, 1, rows.applied.shape)
    applied[0, 1:3] = applied[0, :1] + 5e-4  # less than a thousandth of the range is no move
    found = episodes_of(rows._replace(applied=applied), SPEC)
    for i, length in enumerate(lengths):
        moved = applied[i, :length, 0]
        assert found.travel[i, 0] == pytest.approx(np.abs(np.diff(moved)).sum())
        moves = [move for move in np.diff(moved) if abs(move) > 1e-3]
        turns = sum(a * b < 0 for a, b in itertools.pairwise(moves))
        assert found.reversals[i, 0] == turns
        assert found.terms[i, 0] == length


def test_amounts_of_a_log_are_summed_and_what_is_unknown_adds_nothing():
    n = 5
    log = dataset_from_columns(
        SPEC,
        obs=np.zeros((n, 1)),
        action=np.array([[0.0], [0.5], [0.0], [0.0], [1.0]]),
        reward=np.zeros(n),
        next_obs=np.zeros((n, 1)),
        terminated=np.array([0, 0, 1, 0, 1]),
        truncated=np.zeros(n),
        cost=np.zeros((n, 2)),
        mask=np.array([1, 1, 1, 0, 1]),
        term=np.array([[1.0, 10.0], [np.nan, 10.0], [4.0, 10.0], [100.0, 100.0], [2.0, 10.0]]),
        attributes={"terms": [{"name": "a", "unit": "kg"}, {"name": "b", "unit": "1"}]},
    )
    found = recorded_episodes(log)
    assert found.terms.tolist() == [[5.0, 30.0], [2.0, 10.0]]
    assert found.travel.tolist() == [[1.0], [0.0]]
    assert found.reversals.tolist() == [[1], [0]]


def test_a_recorded_log_is_summed_episode_by_episode():
    rng = np.random.default_rng(0)
    lengths = [3, 1, 5]
    ends = np.cumsum(lengths) - 1
    n = sum(lengths)
    cost = rng.uniform(0, 2, (n, 2)).astype(np.float32)
    terminated = np.isin(np.arange(n), ends)
    log = dataset_from_columns(
        SPEC,
        obs=np.zeros((n, 1)),
        action=np.zeros((n, 1)),
        reward=np.arange(n),
        next_obs=np.zeros((n, 1)),
        terminated=terminated,
        truncated=np.zeros(n, bool),
        cost=cost,
    )
    result = recorded_episodes(log)
    parts = np.split(np.arange(n), ends[:-1] + 1)
    for i, rows in enumerate(parts):
        assert result.returns[i] == rows.sum()
        assert result.length[i] == len(rows)
        assert result.cost_sum[i] == pytest.approx(cost[rows].sum(axis=0))
        assert result.cost_worst[i] == pytest.approx(cost[rows].max(axis=0))
        assert result.violated[i, 1] == (cost[rows, 1] > 1).any()
    assert result.success is None
    assert result.trip is None
    twice = join_episodes([result, result])
    assert twice.count == 6
    assert twice.success is None
    assert twice.reorder(np.arange(6)[::-1]).returns[0] == result.returns[-1]
