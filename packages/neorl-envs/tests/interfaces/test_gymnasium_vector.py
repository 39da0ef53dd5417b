import gymnasium
import numpy as np
import pytest

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
