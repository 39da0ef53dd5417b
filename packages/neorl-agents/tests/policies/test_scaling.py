"""Between physical units and those of a learner."""

import numpy as np
import pytest

from neorl_agents.policies import init_scaling, scaled
from neorl_core import FieldStatistics


class TestScaling:
    def test_standardises_observations_and_maps_actions_to_the_unit_box(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log)
        np.testing.assert_allclose(rows.obs.mean(0), 0, atol=2e-3)
        spread = rows.obs.std(0)
        assert np.all((spread[:3] > 0.85) & (spread[:3] <= 1.0))
        np.testing.assert_allclose(spread[3], 0, atol=1e-6)
        assert np.abs(rows.action).max() == np.float32(1 - 1e-5)
        np.testing.assert_array_equal(rows.reward, problem.log.reward)
        np.testing.assert_array_equal(rows.terminated, problem.log.terminated)

    def test_reward_factors(self, problem):
        statistics, reward = problem.statistics, problem.statistics.reward
        returns = statistics.episode_return
        for name, factor in (
            ("none", 1.0),
            ("std", 1 / reward.std),
            ("return_range", 1000 / (returns.max - returns.min)),
        ):
            scaling = init_scaling(problem.spec, statistics, name)
            np.testing.assert_allclose(scaling.reward, factor, rtol=1e-6)

    @pytest.mark.parametrize("name", ["std", "return_range"])
    def test_constant_reward_is_left_alone(self, problem, name):
        flat = FieldStatistics(*(np.float32(x) for x in (10, 3, 0, 3, 3)))
        statistics = problem.statistics._replace(reward=flat, episode_return=flat)
        assert init_scaling(problem.spec, statistics, name).reward == 1.0

    def test_next_action_may_be_there(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log._replace(next_action=problem.log.action))
        np.testing.assert_allclose(rows.next_action, rows.action, atol=2e-5)
