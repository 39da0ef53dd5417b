"""Sums of episodes against rows, and what is made of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import CostChannel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs.scoring import (
    Anchors,
    EpisodeScores,
    anchors,
    kept,
    normalised_score,
    run_episode,
    score_episodes,
    scores,
)


def test_the_sums_are_those_of_the_rows_up_to_the_end(env: Any) -> None:
    policy = env.tunings()["PID 108/3000"]
    keys = jax.random.split(jax.random.key(3), 2)
    found = jax.tree.map(np.asarray, score_episodes(env, policy, keys))
    for i in range(2):
        rows = run_episode(env, policy, keys[i])
        assert len(rows.reward) == found.length[i] < env.spec.horizon
        assert rows.terminated[-1]
        assert not (rows.terminated | rows.truncated)[:-1].any()
        np.testing.assert_allclose(found.total[i], rows.reward.sum(), rtol=1e-5)
        np.testing.assert_allclose(found.cost[i], rows.cost.sum(axis=0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.worst[i], rows.cost.max(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows.obs[1:], rows.next_obs[:-1])
        assert found.success[i]
        assert not found.trip[i]


def test_the_violation_of_the_last_step_counts(tank: Any) -> None:
    """Injected where the episode ends: the sums have it, and so has the share that was kept."""

    class Last(tank):
        @property
        def spec(self) -> Spec:
            cost = (CostChannel("late", "m", 0.5, "step"),)
            plain = super().spec
            return Spec(plain.obs, plain.action, cost, plain.dt, plain.horizon)

        def step(self, params: Any, state: Any, action: Any, key: Any) -> Any:
            state, step = super().step(params, state, action, key)
            return state, step._replace(cost=jnp.where(step.truncated, 0.75, 0.0)[None])

        def penalty_weights(self) -> dict[str, float]:
            return {"late": 4.0}

    env = Last()
    keys = jax.random.split(jax.random.key(0), 3)
    found = score_episodes(env, ConstantPolicy(jnp.asarray([50.0])), keys)
    np.testing.assert_allclose(found.cost, 0.75)
    np.testing.assert_allclose(found.worst, 0.75)
    np.testing.assert_array_equal(found.length, 25)
    assert not kept(env, found).any()
    np.testing.assert_allclose(scores(env, found), np.asarray(found.total) - 3.0, rtol=1e-6)


def test_limits_per_episode_and_per_step() -> None:
    costs = (CostChannel("a", "1", 1.0, "episode"), CostChannel("b", "1", 1.0, "step"))
    env = type("Env", (), {"spec": type("Spec", (), {"cost": costs})})
    one = np.ones(2)
    sums = np.asarray([[1.0, 5.0], [1.5, 5.0]])
    worst = np.asarray([[1.5, 1.0], [0.5, 1.01]])
    found: Any = EpisodeScores(one, sums, worst, one, one, one)
    np.testing.assert_array_equal(kept(env, found), [[True, True], [False, False]])


def test_normalised_scores() -> None:
    ends = anchors("ChemicalReactor-v0")
    assert isinstance(ends, Anchors)
    assert ends.episodes >= 100
    assert ends.random + 5 * ends.random_error < ends.reference - 5 * ends.reference_error
    half = (ends.random + ends.reference) / 2
    assert normalised_score("ChemicalReactor-v0", half) == pytest.approx(50)
    with pytest.raises(InputError, match="did you mean 'ChemicalReactor-v0'"):
        normalised_score("ChemicalRactor-v0", 1.0)
