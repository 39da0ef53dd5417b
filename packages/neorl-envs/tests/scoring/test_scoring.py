"""Sums of episodes against rows, and what is made of them."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import CostChannel, InputError, Spec, highs
from neorl_core.control import ConstantPolicy
from neorl_envs import environment_names, make
from neorl_envs.plants import RobotAssembly, register_plant
from neorl_envs.scoring import (
    TEST_MODES,
    Anchors,
    EpisodeScores,
    anchors,
    normalised_score,
    robustness,
    run_episode,
    score_episodes,
    scores,
    test_mode,
    within_limits,
)
from neorl_envs.wrappers import constrained, shifted


def test_the_sums_are_those_of_the_rows_up_to_the_end(env: Any) -> None:
    policy = env.tunings()["PID 108/3000"]
    keys = jax.random.split(jax.random.key(3), 2)
    actual = jax.tree.map(np.asarray, score_episodes(env, policy, keys))
    for i in range(2):
        rows = run_episode(env, policy, keys[i])
        assert len(rows.reward) == actual.length[i] < env.spec.horizon
        assert rows.terminated[-1]
        assert not (rows.terminated | rows.truncated)[:-1].any()
        np.testing.assert_allclose(actual.total[i], rows.reward.sum(), rtol=1e-5)
        np.testing.assert_allclose(actual.cost[i], rows.cost.sum(axis=0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(actual.worst[i], rows.cost.max(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows.obs[1:], rows.next_obs[:-1])
        assert actual.success[i]
        assert not actual.trip[i]


def test_the_violation_of_the_last_step_counts(tank: Any) -> None:
    """Injected where the episode ends: the sums have it, and so has the share that was kept.

    Row N06: a violation in the last step is counted.
    """

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
    actual = score_episodes(env, ConstantPolicy(jnp.asarray([50.0])), keys)
    np.testing.assert_allclose(actual.cost, 0.75)
    np.testing.assert_allclose(actual.worst, 0.75)
    np.testing.assert_array_equal(actual.length, 25)
    assert not within_limits(env, actual).any()
    np.testing.assert_allclose(scores(env, actual), np.asarray(actual.total) - 3.0, rtol=1e-6)


def test_limits_per_episode_and_per_step() -> None:
    costs = (CostChannel("a", "1", 1.0, "episode"), CostChannel("b", "1", 1.0, "step"))
    env = type("Env", (), {"spec": type("Spec", (), {"cost": costs})})
    one, no = np.ones(2), np.zeros(2, np.bool_)
    sums = np.asarray([[1.0, 5.0], [1.5, 5.0]])
    worst = np.asarray([[1.5, 1.0], [0.5, 1.01]])
    result: Any = EpisodeScores(one, sums, worst, one, no, no)
    np.testing.assert_array_equal(within_limits(env, result), [[True, True], [False, False]])


def test_an_episode_that_trips_keeps_no_limit() -> None:
    """Joint 1 at full speed to its end: no force and no collision, and still nothing kept."""
    env = RobotAssembly(horizon=120)
    drive = ConstantPolicy(jnp.asarray([float(highs(env.spec.action)[0])] + 6 * [0.0]))
    result = score_episodes(env, drive, jax.random.split(jax.random.key(0), 2))
    assert result.trip.all()
    assert not np.asarray(result.cost).any()
    assert not within_limits(env, result).any()


def test_normalised_scores() -> None:
    """Row R04: a score is 100 where the expert is and 0 where chance is."""
    ends = anchors("ChemicalReactor-v0")
    assert isinstance(ends, Anchors)
    assert ends.episodes >= 100
    assert ends.random + 5 * ends.random_error < ends.reference - 5 * ends.reference_error
    half = (ends.random + ends.reference) / 2
    assert normalised_score("ChemicalReactor-v0", half) == pytest.approx(50)
    with pytest.raises(InputError, match="did you mean 'ChemicalReactor-v0'"):
        normalised_score("ChemicalRactor-v0", 1.0)


def test_both_modes_are_scored_on_the_same_keys(vessel: Any) -> None:
    """Returns by hand: the level rises by 0.1 / area a step, and the reward is minus the level.

    Row R08: the ordinary mode and the mode of test are scored side by side.
    """
    policy, keys = vessel.tunings()["filling"], jax.random.split(jax.random.key(0), 4)
    actual = robustness(vessel, policy, keys, factors={"area": 2.0})
    np.testing.assert_allclose(actual.train_scores, -(10 + 0.05 * 55), rtol=1e-6)
    np.testing.assert_allclose(actual.test_scores, -(10 + 0.025 * 55), rtol=1e-6)
    np.testing.assert_allclose(actual.loss, (-0.025 * 55, 0.0), atol=1e-5)
    assert actual.factors == {"area": 2.0}
    costly = robustness(
        vessel,
        policy,
        keys,
        factors={"area": 2.0},
        around=lambda env: constrained(env, {"level": (0.0, 1.3)}, penalty=10.0),
    )
    beyond = (0.05 * np.arange(1, 11) - 0.3).clip(0).sum()
    np.testing.assert_allclose(costly.train.cost[:, 0], beyond, rtol=1e-5)
    np.testing.assert_allclose(costly.test.cost, 0)
    np.testing.assert_allclose(costly.train_scores, actual.train_scores - 10 * beyond, rtol=1e-5)
    with pytest.raises(InputError, match="no mode of test is declared for Vessel-v0; say which"):
        robustness(vessel, policy, keys)
    with pytest.raises(ValueError, match="an error needs at least 2 episodes, got 1"):
        robustness(vessel, policy, keys[:1], factors={"area": 2.0})


def test_every_plant_has_a_mode_of_test() -> None:
    assert set(TEST_MODES) == set(environment_names()), (
        "a plant declares what its test mode changes"
    )
    for name, factors in TEST_MODES.items():
        shifted(make(name), factors)
        assert test_mode(name) == dict(factors)
        assert all(factor != 1 for factor in factors.values())


def test_the_command_scores_both_modes(command: Any, vessel: Any, tank: Any, tmp_path: Any) -> None:
    register_plant("Vessel-v0", type(vessel))  # forgotten after the test, as the tank is
    words = ["score", "Vessel-v0", "--episodes", "4", "--shift", "area", "2"]
    output = json.loads(command(*words, "--json"))
    assert output["format"] == "neorl-scores"
    assert output["train"]["score"] == pytest.approx(-12.75)
    assert output["test"]["score"] == pytest.approx(-11.375)
    assert output["loss"] == pytest.approx(-1.375)
    text = "from neorl_core.control import ConstantPolicy\nimport jax.numpy as jnp\n"
    (tmp_path / "scored_policy.py").write_text(
        text + "def made():\n    return ConstantPolicy(jnp.full(1, 50.0))\n"
    )
    limit = ["--challenge.limit", "level", "0", "0.5", "--challenge.delay", "1"]
    output = command(*words, "--policy", "scored_policy:made", *limit)
    assert "return -10 ± 0, score -15 ± 0, level_limit within its limit in 0 %" in output
    assert "0 ± 0 lost in test (area x 2)" in output
    bad = {
        "no mode of test is declared for Vessel-v0": words[:2],
        "did you mean 'area'": [*words[:4], "--shift", "aera", "2"],
        "must be finite and positive": [*words[:4], "--shift", "area", "-2"],
        "--episodes must be an integer of at least 2": ["score", "Vessel-v0", "--episodes", "1"],
        "unknown policy 'fillin'": [*words, "--policy", "fillin"],
        "cannot be loaded: AttributeError": [*words, "--policy", "scored_policy:no"],
        "unknown measured channel 'lvl'": [*words, "--challenge.limit", "lvl", "0", "1"],
        "delay must be": [*words, "--challenge.delay", "-1"],
    }
    for message, line in bad.items():
        output = command.refused(*line)
        assert message in output
        assert len(output.splitlines()) == 1
