"""RobotAssembly-v0: insertion, constraints, scores and hostile actions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import highs, lows
from neorl_core.control import UniformPolicy
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


def test_hostile_demands_stay_finite_and_a_bad_posture_collides(env: RobotAssembly) -> None:
    """Also beyond a trip: the state is integrated on."""
    spec = env.spec
    low, high = jnp.asarray(lows(spec.obs)), jnp.asarray(highs(spec.obs))

    @jax.jit
    @jax.vmap
    def run(demand: Any, key: Any) -> Any:
        params = env.sample_params(key, spread=0.3)
        state, _ = env.reset(params, key)

        def step(carry: Any, key: Any) -> Any:
            state, alive = carry
            state, answer = env.step(params, state, demand, key)
            fine = jnp.all((answer.obs >= low) & (answer.obs <= high)) & jnp.isfinite(answer.reward)
            fine = fine & jnp.all(jnp.isfinite(answer.cost))
            cost = jnp.where(alive, answer.cost, 0)
            return (state, alive & ~answer.terminated), (fine, cost)

        return jax.lax.scan(step, (state, jnp.asarray(True)), jax.random.split(key, 300))[1]

    posture = np.asarray(bad_posture().action)
    demands = jnp.asarray([[jnp.inf] * 7, [-jnp.inf] * 7, [jnp.nan] * 7, *[posture] * 5])
    fine, cost = map(np.asarray, run(demands, jax.random.split(jax.random.key(2), 8)))
    assert fine.all()
    assert (cost[3:, :, 1].max(axis=1) > 0).all()
    assert not cost[2].any()
