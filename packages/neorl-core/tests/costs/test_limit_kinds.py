"""What a cost limit bounds, by its two kinds."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import CostChannel, CostPer
from neorl_core.costs import LimitKind, limit_kind, step_cost_limit

STEP = CostChannel("pressure", "bar", 0.5, "step")
EPISODE = CostChannel("emission", "kg", 2.0, "episode")
COST = np.asarray([0.5, 0.0, 1.25, 0.25])


def test_every_kind_of_limit_is_defined_once():
    assert {limit_kind(per).per for per in get_args(CostPer)} == {"step", "episode"}
    for channel in (STEP, EPISODE):
        assert limit_kind(channel) is limit_kind(channel.per)
        assert isinstance(limit_kind(channel), LimitKind)
    with pytest.raises(ValueError, match="per 'step' or 'episode', got 'hour'; choose one of them"):
        limit_kind("hour")


def test_a_limit_per_step_bounds_the_worst_step_and_one_per_episode_the_sum():
    step, episode = limit_kind(STEP), limit_kind(EPISODE)
    assert (float(step.of_rows(COST)), float(episode.of_rows(COST))) == (1.25, 2.0)
    assert (step.of_episode("sum", "worst"), episode.of_episode("sum", "worst")) == ("worst", "sum")
    assert (step.row_threshold(0.5), episode.row_threshold(2.0)) == (0.5, 0.0)
    assert bool(step.exceeded(step.of_rows(COST), STEP.limit))
    # To the limit is within it.
    assert not bool(episode.exceeded(episode.of_rows(COST), EPISODE.limit))


@pytest.mark.parametrize("channel", [STEP, EPISODE])
def test_numpy_and_jax_keep_their_precision(channel):
    kind = limit_kind(channel)
    assert kind.of_rows(COST).dtype == np.float64
    assert kind.of_rows(jnp.asarray(COST, jnp.float32)).dtype == jnp.float32
    # float32 would not see the difference.
    barely = channel.limit * (1 + 1e-12)
    assert [bool(kind.exceeded(one, channel.limit)) for one in (barely, np.float64(barely))] == [
        True,
        True,
    ]
    assert not kind.exceeded(channel.limit, channel.limit)


@pytest.mark.parametrize("channel", [STEP, EPISODE])
def test_what_is_not_known_breaks_the_limit(channel):
    kind = limit_kind(channel)
    lost = np.asarray([0.0, np.nan, 0.0])
    for cost in (lost, jnp.asarray(lost, jnp.float32)):
        assert bool(kind.exceeded(kind.of_rows(cost), channel.limit))
    broken = kind.exceeded(np.asarray([np.nan, np.inf, 0.0]), channel.limit)
    assert broken.tolist() == [True, True, False]


@pytest.mark.parametrize("channel", [STEP, EPISODE])
def test_rows_of_the_threshold_agree_with_the_limit(channel):
    """No row above the threshold: the limit is kept; the reverse holds per step alone."""
    kind = limit_kind(channel)
    costs = np.random.default_rng(0).uniform(-1, 1, (200, 5)).round(2)
    counted = (costs > kind.row_threshold(channel.limit)).any(axis=1)
    broken = np.asarray([bool(kind.exceeded(kind.of_rows(row), channel.limit)) for row in costs])
    assert broken.any()
    assert not broken.all()
    assert not np.any(broken & ~counted)
    if channel is STEP:
        np.testing.assert_array_equal(broken, counted)


def test_a_limit_of_the_sum_shared_evenly_is_kept_by_even_costs():
    """The other definition of core: ``step_cost_limit`` spreads a limit per episode over it."""
    horizon = 8
    even = jnp.full(horizon, step_cost_limit(EPISODE.limit, horizon=horizon))
    kind = limit_kind(EPISODE)
    assert not bool(kind.exceeded(kind.of_rows(even), EPISODE.limit))
    assert bool(kind.exceeded(kind.of_rows(even * 1.01), EPISODE.limit))


@pytest.mark.parametrize("shape", [(), (0,), (4, 2)])
def test_costs_that_are_not_those_of_one_episode_are_refused(shape):
    for cost in (np.zeros(shape), jnp.zeros(shape)):
        with pytest.raises(ValueError, match=r"cost must have the axis \(time\) of at least one"):
            limit_kind(STEP).of_rows(cost)


def test_one_program_judges_many_episodes_of_both_kinds():
    @jax.jit
    def judge(cost, limits):
        kinds = [limit_kind(channel) for channel in (STEP, EPISODE)]
        limited = [jax.vmap(kind.of_rows)(cost) for kind in kinds]
        return [kind.exceeded(*pair) for kind, *pair in zip(kinds, limited, limits, strict=True)]

    cost = jnp.asarray([[0.5, 0.5, 0.5], [0.6, 0.0, 0.0], [0.5, 1.5, 0.5]], jnp.float32)
    step, episode = judge(cost, (jnp.float32(0.5), jnp.float32(2.0)))
    assert step.tolist() == [False, True, True]
    assert episode.tolist() == [False, False, True]


@pytest.mark.parametrize("channel", [STEP, EPISODE])
def test_a_trend_is_above_the_limit_where_the_episode_breaks_it(channel):
    kind = limit_kind(channel)
    costs = np.random.default_rng(1).uniform(0, 1, (200, 4)).round(2)
    above = [bool((kind.along(row) > channel.limit).any()) for row in costs]
    assert above == [bool(kind.exceeded(kind.of_rows(row), channel.limit)) for row in costs]
    assert any(above)
    assert not all(above)


def test_every_episode_must_keep_a_limit_per_step_and_their_mean_one_per_episode():
    assert limit_kind(STEP).bounds_largest
    assert not limit_kind(EPISODE).bounds_largest


def test_limits_in_words():
    assert limit_kind(STEP).limit_words(0.5, "bar") == "0.5 bar per step"
    assert limit_kind(EPISODE).limit_words(2.0, "1") == "2 per episode"
    assert limit_kind(EPISODE).limit_words(5.0, "100 units") == "5 × 100 units per episode"
    assert (limit_kind(STEP).quantity, limit_kind(EPISODE).quantity) == (
        "worst step of an episode",
        "sum over an episode",
    )
    assert (limit_kind(STEP).counted, limit_kind(EPISODE).counted) == ("steps", "episodes")
    assert limit_kind(STEP).counted_rows == "above the limit"
    assert limit_kind(EPISODE).counted_rows == "with a cost"
    assert (limit_kind(STEP).trend, limit_kind(EPISODE).trend) == ("per step", "so far")
