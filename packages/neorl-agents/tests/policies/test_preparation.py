"""The maps between physical units and those of networks."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, IQL
from neorl_agents.policies import prepare
from neorl_agents.testing import endless, sized
from neorl_core import Channel, CostChannel, FieldStatistics


class TestPrepare:
    def test_a_change_of_units_changes_nothing(self, problem):
        """Kelvin as degrees Celsius, metres as millimetres: a learner sees the same numbers."""
        factor, offset = np.array([1.8, 1e3, 1e-6, 1.0]), np.array([-459.67, 0.0, 0.0, 273.15])

        def convert(x):
            return np.asarray(x, np.float64) * factor + offset

        channels = tuple(
            dataclasses.replace(channel, low=c * channel.low + o, high=c * channel.high + o)
            for channel, c, o in zip(problem.spec.obs, factor, offset, strict=True)
        )
        spec = dataclasses.replace(problem.spec, obs=channels)
        obs = problem.statistics.obs
        moved = obs._replace(mean=convert(obs.mean), std=obs.std * factor)
        statistics = problem.statistics._replace(
            obs=jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), moved)
        )
        plain = prepare(problem.spec, problem.statistics, "none").obs
        other = prepare(spec, statistics, "none").obs
        np.testing.assert_allclose(other.scale, plain.scale * factor, rtol=1e-5)
        np.testing.assert_allclose(other.offset, convert(plain.offset), rtol=1e-6)

    def test_a_tightly_held_channel_stays_visible_and_a_constant_one_bounded(self, problem):
        """300 +- 0.1 K in a range of 200 K, and a level that never moved."""
        channels = (Channel("T", "K", 200.0, 400.0), Channel("level", "m", 0.0, 2.0))
        spec = dataclasses.replace(problem.spec, obs=channels)
        mean, std = np.array([300.0, 1.0], np.float32), np.array([0.1, 0.0], np.float32)
        obs = problem.statistics.obs._replace(mean=mean, std=std)
        maps = prepare(spec, problem.statistics._replace(obs=obs), "none")
        np.testing.assert_allclose(maps.obs.scale, [0.2, 0.002], rtol=1e-6)

    def test_units_of_the_reward(self, problem):
        statistics, reward = problem.statistics, problem.statistics.reward
        returns = statistics.episode_return
        for name, unit in (
            ("none", 1.0),
            ("std", reward.std),
            ("return_range", (returns.max - returns.min) / 1000),
        ):
            maps = prepare(problem.spec, statistics, name)
            np.testing.assert_allclose(maps.reward_unit, unit, rtol=1e-6)

    @pytest.mark.parametrize("name", ["std", "return_range"])
    @pytest.mark.parametrize("value", [0.0, 3.0, -3e6])
    @pytest.mark.parametrize("rounding", [0.0, 1e-7])
    def test_a_constant_reward_is_one_in_every_unit(self, problem, name, value, rounding):
        """Also where its last digit differs, by which nothing may be divided."""
        most = value + rounding * abs(value)
        numbers = (10, value, rounding * abs(value) / 2, value, most)
        flat = FieldStatistics(*(np.float32(x) for x in numbers))
        statistics = problem.statistics._replace(reward=flat, episode_return=flat)
        expected = abs(value) or 1.0
        assert prepare(problem.spec, statistics, name).reward_unit == np.float32(expected)

    def test_the_range_of_the_reward_travels_in_its_scale(self, problem):
        maps = prepare(problem.spec, problem.statistics)
        reward = np.asarray(problem.log.reward, np.float64)
        expected = np.array([reward.min(), reward.max()]) / reward.std()
        np.testing.assert_allclose(maps.reward_range, expected, rtol=1e-5)

    def test_costs_are_in_units_of_their_deviation_and_limits_with_them(self, problem):
        """One that never varies is in units of its limit, or as it is where that is zero."""
        channels = tuple(
            CostChannel(name, "1", limit, per)
            for name, limit, per in (
                ("often", 3.0, "episode"),
                ("never", 4.0, "step"),
                ("none", 0.0, "step"),
            )
        )
        spec = dataclasses.replace(problem.spec, cost=channels)
        column = [np.float32([2.0, 0.0, 0.0])] * 3
        cost = FieldStatistics(np.float32(256), column[0], np.float32([0.5, 0.0, 0.0]), *column[:2])
        maps = prepare(spec, problem.statistics._replace(cost=cost))
        np.testing.assert_array_equal(maps.cost_unit, [0.5, 4.0, 1.0])
        np.testing.assert_array_equal(maps.cost_limit, [6.0, 1.0, 0.0])
        assert maps.cost_per == ("episode", "step", "step")
        assert int(maps.horizon) == problem.spec.horizon

    def test_it_is_a_function_of_its_arguments_alone(self, problem):
        one, other = (prepare(problem.spec, problem.statistics) for _ in range(2))
        chex.assert_trees_all_equal(one, other)


def test_the_mean_is_taken_off_where_nothing_is_terminated(problem):
    """Not where a row is, where it is not known, and not under a published scale."""
    plain = endless(problem, 5.0)
    mean, std = (np.asarray(plain.log.reward, np.float64).mean(), plain.statistics.reward.std)
    maps = prepare(problem.spec, plain.statistics, centred=True)
    np.testing.assert_allclose(maps.reward_offset, mean, rtol=1e-6)
    ends = np.array([np.min(plain.log.reward), np.max(plain.log.reward)])
    np.testing.assert_allclose(maps.reward_range, (ends - mean) / std, rtol=1e-5)
    assert prepare(problem.spec, plain.statistics).reward_offset == 0
    assert prepare(problem.spec, problem.statistics, centred=True).reward_offset == 0
    unknown = plain.statistics._replace(terminated=None)
    assert prepare(problem.spec, unknown, centred=True).reward_offset == 0
    assert prepare(problem.spec, plain.statistics, "return_range", centred=True).reward_offset == 0


def test_learners_of_values_centre_where_they_discount(problem):
    plain = endless(problem, 5.0)
    for name, kind in ALGORITHMS.items():
        learner = sized(kind(), hidden=(8, 8))
        offset = learner.prepare(plain.spec, plain.statistics).reward_offset
        of_returns = "next_obs" in learner.fields or name in ("dt", "cdt")
        of_values = of_returns and learner.steps.reward_scale == "std"
        assert (float(offset) == pytest.approx(5.0, abs=0.3)) == of_values, name
    undiscounted = dataclasses.replace(IQL(), discount=1.0)
    assert undiscounted.prepare(plain.spec, plain.statistics).reward_offset == 0
