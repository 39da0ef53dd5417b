"""Whatever an agent asks, the environment receives what the guard lets pass."""

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from neorl_core import InputError
from neorl_safety.constraints import action_constraints
from neorl_safety.guards import supervision
from neorl_safety.gymnasium_guard import GuardedEnv


class Tank(gymnasium.Env):
    """Notes what it receives; its observations may be made to lie."""

    def __init__(self, spec, *, normalised):
        low, high = ([getattr(c, end) for c in spec.action] for end in ("low", "high"))
        ends = ([-1.0] * 2, [1.0] * 2) if normalised else (low, high)
        self.action_space = gymnasium.spaces.Box(*map(np.float32, ends))
        obs = ([c.low for c in spec.obs], [c.high for c in spec.obs])
        self.observation_space = gymnasium.spaces.Box(*map(np.float32, obs))
        self.received = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.float32([1.0, 330.0]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.received.append(np.array(action))
        return np.float32([1.0, 330.0]), 0.0, False, False, {}


@pytest.mark.parametrize("normalised", [True, False])
def test_no_request_gets_past_the_limits(spec, pid, normalised):
    plant = Tank(spec, normalised=normalised)
    env = GuardedEnv(plant, action_constraints(spec, [0.25, 0.05]), pid, spec)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    applied = []
    for _ in range(40):
        wild = rng.choice(np.float32([np.nan, np.inf, -9e9, 1.0, -1.0, 0.3, 310.0]), 2)
        _, _, _, _, info = env.step(wild)
        applied.append(info["guard"]["applied"])
        lost = not np.isfinite(wild).all()
        assert ("request_nonfinite" in info["guard"]["flags"]) == lost
    assert (np.abs(np.diff(applied, axis=0)) <= [15.0, 3.0]).all()
    span, low = np.float32([100.0, 40.0]), np.float32([0.0, 280.0])
    received = np.array(plant.received)
    physical = low + (received + 1) / 2 * span if normalised else received
    np.testing.assert_allclose(physical, applied, atol=1e-3)


def test_the_supervision_is_that_of_the_guard(spec, pid):
    """A request that is lost once: after it the fallback stays for the stated clean steps."""
    limits, lost = action_constraints(spec), np.full(2, np.nan, np.float32)
    for steps in (1, 3):
        settings = supervision(reset_after=steps, dwell=0, settle=0.0)
        env = GuardedEnv(Tank(spec, normalised=True), limits, pid, spec, supervision=settings)
        env.reset(seed=0)
        requests = [np.zeros(2, np.float32), lost, *[np.zeros(2, np.float32)] * 5]
        flags = [env.step(one)[-1]["guard"]["flags"] for one in requests]
        assert sum("fallback_used" in one for one in flags) == steps


def test_the_wrapped_environment_passes_the_checker(spec, pid):
    plant = Tank(spec, normalised=True)
    env = GuardedEnv(plant, action_constraints(spec), pid, spec)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version")
        check_env(env, skip_render_check=True)


def test_spaces_of_another_plant_are_refused(spec, pid):
    plant = Tank(spec, normalised=False)
    limits = action_constraints(spec)
    other = dataclasses.replace(
        spec, action=(dataclasses.replace(spec.action[0], high=90.0), spec.action[1])
    )
    with pytest.raises(InputError, match=r"expected \[-1, 1\] or the ranges"):
        GuardedEnv(plant, action_constraints(other), pid, other)
    with pytest.raises(InputError, match="the observation space is"):
        GuardedEnv(plant, limits, pid, dataclasses.replace(spec, obs=spec.obs[:1]))
    with pytest.raises(InputError, match="call reset before step"):
        GuardedEnv(plant, limits, pid, spec).step(np.zeros(2))
