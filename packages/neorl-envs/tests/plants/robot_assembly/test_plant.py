"""RobotAssembly-v0: insertion, constraints, scores and hostile actions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import highs
from neorl_core.control import ConstantPolicy, UniformPolicy
from neorl_envs.plants import RobotAssembly
from neorl_envs.plants.robot_assembly import bad_policy, bad_posture


@pytest.fixture(scope="module")
def env() -> RobotAssembly:
    return RobotAssembly()


def test_channels_are_the_declared_ones(env: RobotAssembly) -> None:
    assert (env.spec.n_obs, env.spec.n_action) == (24, 7)
    assert [channel.name for channel in env.spec.cost] == ["force", "collision"]
    with pytest.raises(ValueError, match="fidelity must be 'full' or 'fast', got 'toy'"):
        RobotAssembly(fidelity="toy")


@pytest.mark.nightly
def test_the_search_inserts_where_the_push_fails_and_a_fast_push_breaks_the_force_limit(
    env: RobotAssembly, totals: Any
) -> None:
    """One program: the three differ in numbers alone. Without a trip, an early end is a success."""
    search = totals(env, env.tunings()["spiral search"], 32)
    push = totals(env, env.tunings()["straight push"], 32)
    bad = totals(env, bad_policy(), 32)
    assert search.kept.all()
    assert np.mean(search.steps < 300) >= 0.96
    assert 0.2 < np.mean(push.steps < 300) < 0.8
    assert bad.kept_each[:, 0].mean() <= 0.3
    assert bad.score.mean() < push.score.mean() - 20
    assert push.score.mean() < search.score.mean() - 30


@pytest.mark.nightly
def test_giving_up_costs_more_than_standing_still(env: RobotAssembly, totals: Any) -> None:
    """Every joint driven to an end trips, and scores less than 300 steps without a move."""
    full = np.diag(highs(env.spec.action)).astype(np.float32)
    still = totals(env, ConstantPolicy(jnp.zeros(7)), 4)
    assert not still.trip.any()
    for row in (full[3], full[5], full[6]):
        ended = totals(env, ConstantPolicy(jnp.asarray(row)), 4)
        assert ended.trip.all()
        assert ended.score.max() < still.score.min()


@pytest.mark.nightly
def test_scores_over_a_thousand_episodes(env: RobotAssembly, totals: Any) -> None:
    tunings = env.tunings()
    search = totals(env, tunings["spiral search"], 1000, key=1)
    assert search.kept.mean() >= 0.99
    assert totals(env, bad_policy(), 1000, key=1).kept_each[:, 0].mean() <= 0.5
    assert totals(env, bad_posture(), 1000, key=1).kept_each[:, 1].mean() <= 0.5
    push = totals(env, tunings["straight push"], 100)
    limit = jnp.asarray(highs(env.spec.action))
    uniform = totals(env, UniformPolicy(-limit, limit), 100)
    assert uniform.score.mean() < push.score.mean() - 20
    assert push.score.mean() < search.score.mean() - 30
    fast = RobotAssembly(fidelity="fast")
    assert np.mean(totals(fast, tunings["spiral search"], 200).steps < 300) >= 0.85


@pytest.mark.nightly
def test_hostile_demands_stay_finite_and_a_bad_posture_collides(
    env: RobotAssembly, kept_at: Any
) -> None:
    """Also beyond a trip: the state is integrated on."""
    posture = np.asarray(bad_posture().action)
    demands = [[np.inf] * 7, [-np.inf] * 7, [np.nan] * 7, *[posture] * 5]
    cost, over = kept_at(env, demands, 300, lambda _, answer: (answer.cost, answer.terminated))
    before = np.cumsum(over, axis=1) - over == 0
    cost = np.where(before[:, :, None], cost, 0)
    assert (cost[3:, :, 1].max(axis=1) > 0).all()
    assert not cost[2].any()
