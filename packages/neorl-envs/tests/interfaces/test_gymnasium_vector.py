from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeObservation

from neorl_core import InputError
from neorl_envs.interfaces._gymnasium import GymnasiumEnv
from neorl_envs.interfaces._gymnasium_vector import GymnasiumVectorEnv

NAME = "neorl/ChemicalReactor-v0"


def test_the_vector_shell_resets_in_the_same_step_and_keeps_the_last_observation() -> None:
    n = 64
    env = gymnasium.make_vec(NAME, num_envs=n)
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    obs, _ = counted.reset(seed=5)
    assert obs.shape == (n, 12)
    assert len(np.unique(obs[:, 0])) > n // 2  # every plant has its own key
    action = np.tile(np.float32([1.0, -1.0, -1.0]), (n, 1))  # as fast as the valve allows
    lengths = np.zeros(n, int)
    for t in range(140):
        before = obs
        obs, reward, terminated, truncated, info = counted.step(action)
        over = terminated | truncated
        assert obs.dtype == np.float32
        assert reward.dtype == np.float64
        assert ("final_obs" in info) == over.any()
        if over.any():
            np.testing.assert_array_equal(info["_final_obs"], over)
            # The batch that ended is complete in its last observation; the new one has begun.
            assert (info["final_obs"][over][:, 7] > 20_400).all()
            assert (obs[over][:, 7] < 100).all()
            np.testing.assert_array_equal(obs[over][:, 11], 0.0)
            np.testing.assert_array_equal(info["final_obs"][~over], obs[~over])
            np.testing.assert_array_equal(info["final_info"]["cost"], info["cost"])
            np.testing.assert_array_equal(info["_final_info"], over)
            assert (info["episode"]["l"][over] == t + 1 - lengths[over]).all()
            lengths[over] = t + 1
        assert (obs[~over][:, 11] > before[~over][:, 11]).all()
        assert info["cost"].shape == (n, 2)
    assert (lengths > 0).all()


def test_vector_seeds() -> None:
    def some(seed: int) -> np.ndarray:
        env = gymnasium.make_vec(NAME, num_envs=64)
        obs, _ = env.reset(seed=seed)
        return np.concatenate([obs, env.step(np.zeros((64, 3), np.float32))[0]])

    np.testing.assert_array_equal(some(3), some(3))
    assert (some(3) != some(4)).any()
    env = gymnasium.make_vec(NAME, num_envs=2)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        env.step(np.zeros((2, 3), np.float32))


def middle(n: int) -> np.ndarray:
    return np.full((n, 1), 0.2, np.float32)


def test_the_next_step_can_start_the_episode_instead(tank: Any) -> None:
    env = GymnasiumVectorEnv(tank(), 3, autoreset_mode="NextStep", max_episode_steps=4)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert GymnasiumVectorEnv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    scaled = NormalizeObservation(env)  # which refuses every other mode
    scaled.reset(seed=3)
    env.reset(seed=3)
    levels, rewards, ends = [], [], []
    for _ in range(11):
        obs, reward, terminated, truncated, info = env.step(middle(3))
        assert not terminated.any()
        assert "final_obs" not in info
        levels.append(obs[:, 0])
        rewards.append(reward)
        ends.append(truncated)
    # Four steps, then one that only resets: its action is ignored and its reward zero.
    np.testing.assert_array_equal(np.stack(ends)[:, 0], np.arange(11) % 5 == 3)
    np.testing.assert_array_equal((np.stack(rewards)[:, 0] == 0), np.arange(11) % 5 == 4)
    assert len(np.unique(np.stack(levels)[[4, 9]])) == 6  # each start is drawn anew


def test_the_caller_can_reset(tank: Any) -> None:
    env = GymnasiumVectorEnv(tank(), 3, autoreset_mode="Disabled", max_episode_steps=2)
    first, _ = env.reset(seed=0)
    env.step(middle(3))
    before, _, _, truncated, _ = env.step(middle(3))
    assert truncated.all()
    with pytest.raises(RuntimeError, match="the episode of plant 0 is over; call reset"):
        env.step(middle(3))
    mask = np.asarray([True, False, True])
    obs, _ = env.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(obs[1], before[1])
    assert (obs[mask] != first[mask]).all()
    with pytest.raises(RuntimeError, match="the episode of plant 1 is over"):
        env.step(middle(3))
    env.reset(options={"reset_mask": ~mask})
    assert not env.step(middle(3))[3].any()


def test_every_plant_is_that_of_the_scalar_shell_with_its_seed(tank: Any) -> None:
    plants, one = GymnasiumVectorEnv(tank(), 3), GymnasiumEnv(tank())
    for seeds, given in (([7, 8, 9], 7), ([4, 2, 9], [4, 2, 9])):
        obs, _ = plants.reset(seed=given)
        step = plants.step(middle(3))
        for i, seed in enumerate(seeds):
            np.testing.assert_array_equal(obs[i], one.reset(seed=seed)[0])
            np.testing.assert_allclose(step[0][i], one.step(middle(1)[0])[0], rtol=1e-6)

    # A list with a gap, and resets without a seed afterwards, are repeatable too.
    def after(seed: Any) -> np.ndarray:
        return np.stack([plants.reset(seed=seed)[0], plants.reset()[0]])

    np.testing.assert_array_equal(after([1, None, 3]), after([1, None, 3]))
    assert len(np.unique(after([1, None, 3]))) == 6


def test_parameters_of_every_plant(tank: Any) -> None:
    env = GymnasiumVectorEnv(tank(), 2, spread=0.0)
    rates = np.asarray([0.01, 0.0], np.float32)
    first, _ = env.reset(seed=0, options={"params": rates})
    obs = env.step(middle(2))[0]
    np.testing.assert_allclose(obs - first, [[0.1], [0.0]], atol=1e-6)


def test_pictures_of_every_plant(tank: Any) -> None:
    env = GymnasiumVectorEnv(tank(), 2, render_mode="rgb_array", max_episode_steps=2)
    env.reset(seed=0)
    for _ in range(3):
        env.step(middle(2))
    pictures = env.render()
    assert pictures is not None
    assert [picture.dtype for picture in pictures] == [np.uint8] * 2
    assert (pictures[0] != pictures[1]).any()
    assert GymnasiumVectorEnv(tank(), 2).render() is None


def test_bad_input_is_refused(tank: Any) -> None:
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("max_episode_steps must be at least 1, got 0", {"max_episode_steps": 0}),
        ("render_mode must be None or 'rgb_array', got 'human'", {"render_mode": "human"}),
        ("autoreset_mode must be one of NextStep, SameStep, Dis", {"autoreset_mode": "Never"}),
        (r"spread must be in \[0, 1\)", {"plant": "ChemicalReactor-v0", "spread": 2.0}),
    )
    for message, options in cases:
        with pytest.raises(ValueError, match=message):
            GymnasiumVectorEnv(**{"plant": tank(), "num_envs": 2, **options})
    env = GymnasiumVectorEnv(tank(), 2)
    resets: tuple[tuple[str, dict[str, Any]], ...] = (
        ("unknown option of reset 'parms'; did you mean 'params'", {"options": {"parms": 1}}),
        ("a list of seeds has one for each of 2 plants, got 3", {"seed": [1, 2, 3]}),
        ("reset_mask must be 2 truth values", {"options": {"reset_mask": np.zeros(2, bool)}}),
        (
            "the first reset must include all plants",
            {"options": {"reset_mask": np.asarray([True, False])}},
        ),
        ("a leading axis of 2", {"options": {"params": np.float32(0.01)}}),
        ("params must be made by default_params", {"options": {"params": (1, 2)}}),
    )
    for message, options in resets:
        with pytest.raises(InputError, match=message):
            env.reset(**options)
    env.reset(seed=0)
    for wrong in (np.zeros((3, 1)), np.zeros(2), np.zeros((2, 2))):
        with pytest.raises(InputError, match=r"must have shape \(2, 1\), got"):
            env.step(wrong)
    _, _, _, _, info = env.step(np.asarray([[1.5], [np.nan]]))
    assert info["outside"].all()


def test_gymnasium_passes_its_options_on() -> None:
    env = gymnasium.make_vec(NAME, num_envs=2, max_episode_steps=3, render_mode=None)
    env.reset(seed=0)
    ends = [env.step(np.zeros((2, 3), np.float32))[3].all() for _ in range(3)]
    assert ends == [False, False, True]
