"""Between physical units and those of a learner."""

import dataclasses

import jax
import numpy as np
import pytest

from neorl_agents.policies import init_scaling, scaled
from neorl_core import Channel, FieldStatistics


class TestScaling:
    def test_standardises_observations_and_maps_actions_to_the_unit_box(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log)
        np.testing.assert_allclose(rows.obs.mean(0), 0, atol=2e-3)
        spread = rows.obs.std(0)
        np.testing.assert_allclose(spread[:3], 1, rtol=1e-4)
        np.testing.assert_allclose(spread[3], 0, atol=1e-6)
        assert np.abs(rows.action).max() == np.float32(1 - 1e-5)
        np.testing.assert_array_equal(rows.reward, problem.log.reward)
        np.testing.assert_array_equal(rows.terminated, problem.log.terminated)

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
        plain = init_scaling(problem.spec, problem.statistics, "none").obs
        other = init_scaling(spec, statistics, "none").obs
        np.testing.assert_allclose(other.scale, plain.scale * factor, rtol=1e-5)
        np.testing.assert_allclose(other.offset, convert(plain.offset), rtol=1e-6)

    def test_a_tightly_held_channel_stays_visible_and_a_constant_one_bounded(self, problem):
        """300 +- 0.1 K in a range of 200 K, and a level that never moved."""
        channels = (Channel("T", "K", 200.0, 400.0), Channel("level", "m", 0.0, 2.0))
        spec = dataclasses.replace(problem.spec, obs=channels)
        mean, std = np.array([300.0, 1.0], np.float32), np.array([0.1, 0.0], np.float32)
        obs = problem.statistics.obs._replace(mean=mean, std=std)
        scaling = init_scaling(spec, problem.statistics._replace(obs=obs), "none")
        np.testing.assert_allclose(scaling.obs.scale, [0.2, 0.002], rtol=1e-6)

    def test_units_of_the_reward(self, problem):
        statistics, reward = problem.statistics, problem.statistics.reward
        returns = statistics.episode_return
        for name, unit in (
            ("none", 1.0),
            ("std", reward.std),
            ("return_range", (returns.max - returns.min) / 1000),
        ):
            scaling = init_scaling(problem.spec, statistics, name)
            np.testing.assert_allclose(scaling.reward, unit, rtol=1e-6)

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
        assert init_scaling(problem.spec, statistics, name).reward == np.float32(expected)

    def test_next_action_is_clipped_as_the_action_is_and_zero_at_ends(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log._replace(next_action=problem.log.action))
        ends = np.asarray(problem.log.terminated | problem.log.truncated)
        assert ends.any()
        assert np.abs(rows.action[~ends]).max() == np.float32(1 - 1e-5)
        np.testing.assert_array_equal(rows.next_action, np.where(ends[:, None], 0, rows.action))

    def test_the_range_of_the_reward_travels_in_its_scale(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics)
        reward = np.asarray(problem.log.reward, np.float64)
        expected = np.array([reward.min(), reward.max()]) / reward.std()
        np.testing.assert_allclose(scaling.reward_range, expected, rtol=1e-5)

    @pytest.mark.parametrize(
        ("field", "cut", "got"),
        [
            ("obs", np.s_[:, :3], r"\(256, 3\), expected \(256, 4\)"),
            ("next_obs", np.s_[:-1], r"\(255, 4\), expected \(256, 4\)"),
            ("next_action", np.s_[:, :1], r"\(256, 1\), expected \(256, 2\)"),
            ("reward", np.s_[:, None], r"\(256, 1\), expected \(256,\)"),
            ("terminated", np.s_[:9], r"\(9,\), expected \(256,\)"),
        ],
    )
    def test_a_batch_that_is_not_of_the_plant_is_refused_by_name(self, problem, field, cut, got):
        scaling = init_scaling(problem.spec, problem.statistics)
        batch = problem.log._replace(**{field: getattr(problem.log, field)[cut]})
        with pytest.raises(ValueError, match=rf"disagree: {field} has the shape {got} .* 4 obs"):
            scaled(scaling, batch)

    def test_a_batch_of_a_plant_with_other_actions_is_refused(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics)
        batch = problem.log._replace(action=problem.log.action[:, :1])
        with pytest.raises(ValueError, match=r"disagree: action has the shape \(256, 1\)"):
            scaled(scaling, batch)
