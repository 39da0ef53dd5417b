"""Scores in a Gymnasium environment of the user's own; the oracle is Gymnasium's plain loop."""

import dataclasses
import gc
import sys
from typing import Any, ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs.ingest import spec_of_spaces
from neorl_envs.scoring import GymnasiumJudge, episode_return

PENDULUM = spec_of_spaces(gymnasium.make("Pendulum-v1"), dt=0.05, horizon=200)


class Network(eqx.Module):
    """Two layers with memory: the carry sums the actions that were sent."""

    first: Array
    second: Array

    def initial_carry(self):
        return jnp.zeros(1)

    def __call__(self, carry, obs, key):
        hidden = jnp.tanh(self.first @ jnp.concatenate([obs, 0.01 * carry]))
        noise = 0 if key is None else 0.01 * jax.random.normal(key, (1,))
        return carry, 2 * jnp.tanh(self.second @ hidden + noise)

    def sent(self, carry, action):
        return carry + action


def network(key):
    first, second = jax.random.split(jax.random.key(key))
    return Network(jax.random.normal(first, (64, 4)), jax.random.normal(second, (1, 64)) / 4)


@jax.jit
def act(policy, carry, obs, key):
    return policy(carry, obs, key)


@jax.jit
def sent(policy, carry, action):
    return policy.sent(carry, action)


def plain_loop(name: str, policy: Any, seed: int, horizon: int = 10**9) -> float:
    """Gymnasium's own loop with one policy, one environment and one episode."""
    env = gymnasium.make(name)
    obs, _ = env.reset(seed=seed)
    carry, total, over, step = policy.initial_carry(), 0.0, False, 0
    while not over:
        key = jax.random.fold_in(jax.random.key(seed), step)
        carry, action = act(policy, carry, jnp.asarray(obs, jnp.float32), key)
        obs, reward, terminated, truncated, _ = env.step(np.asarray(action))
        carry = sent(policy, carry, action)
        total, step = total + float(reward), step + 1
        over = terminated or truncated or step == horizon
    return total


def test_scores_are_those_of_the_plain_loop():
    judge, policy = GymnasiumJudge("gym:Pendulum-v1", PENDULUM), network(0)
    seeds = [3, 4, 5, 2**31 - 1]
    found = judge.returns(policy, seeds)
    assert judge.notes == ()
    assert judge.horizon == 200
    loops = [plain_loop("Pendulum-v1", policy, seed) for seed in seeds]
    # Two programs of one policy may round differently, as with JAX 0.12.
    np.testing.assert_allclose(found, loops, rtol=1e-5)
    assert judge.returns(policy, seeds[::-1]).tolist() == found[::-1].tolist()
    assert judge.origin == f"gymnasium {gymnasium.__version__}"


@pytest.mark.nightly
def test_more_episodes_than_copies_are_played_in_turn():
    judge, policy = GymnasiumJudge("gym:Pendulum-v1", PENDULUM), network(1)
    found = judge.returns(policy, range(20))
    loops = [plain_loop("Pendulum-v1", policy, seed) for seed in range(20)]
    np.testing.assert_allclose(found, loops, rtol=1e-5)


class Tank(gymnasium.Env):
    """A tank of one's own: the level drifts, the inflow is the action, and it may overflow."""

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": [],
        "observation_names": ["level", "demand"],
        "action_names": ["inflow"],
    }

    def __init__(self, *, fault: str = ""):
        self.observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float64)
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float64)
        self._fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._level, self._steps = float(self.np_random.uniform(0, 1)), 0
        return self._obs(), {}

    def _obs(self):
        level = np.nan if self._fault == "nan" and self._steps == 3 else self._level
        return np.array([level, 0.5])

    def step(self, action):
        self._steps += 1
        if self._fault == "raises" and self._steps == 2:
            raise RuntimeError("the valve\nis stuck")
        self._level += 0.1 * (float(action[0]) - 0.5) + 0.01 * float(self.np_random.normal())
        reward = float("inf") if self._fault == "reward" else -abs(self._level - 0.5)
        info = {} if self._fault == "no cost" else {"overflow": max(self._level - 0.8, 0)}
        return self._obs(), reward, self._level > 1.5, False, info


SPEC = Spec(
    (Channel("level", "m", -1, 2), Channel("demand", "1", 0, 1)),
    (Channel("inflow", "1", 0, 1),),
    (CostChannel("overflow", "m", 1.0, "episode"),),
    dt=1.0,
    horizon=30,
)
MODULE = """
import gymnasium
from {tests} import Tank
for fault in ("", "nan", "raises", "reward", "no cost"):
    gymnasium.register(
        id=f"Tank{{fault.title().replace(' ', '')}}-v0", entry_point=Tank, kwargs={{"fault": fault}}
    )
gymnasium.register(id="LimitedTank-v0", entry_point=Tank, max_episode_steps=12)
"""


@pytest.fixture
def tanks(tmp_path, monkeypatch):
    """A module in the current folder that registers the tank, sound and with faults."""
    monkeypatch.setitem(sys.modules, "tests_of_tank", sys.modules[__name__])
    (tmp_path / "my_tanks.py").write_text(MODULE.format(tests="tests_of_tank"))
    (tmp_path / "broken_tanks.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    known = dict(gymnasium.registry)
    yield
    sys.modules.pop("my_tanks", None)
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


class Proportional(eqx.Module):
    def initial_carry(self):
        return ()

    def __call__(self, carry, obs, key):
        return carry, 0.5 - 3 * (obs[:1] - 0.7)  # also outside the range, where it is clipped

    def sent(self, carry, action):
        return carry


def test_an_environment_of_a_module_in_the_folder_is_scored(tanks):
    """Rows, costs and the number of steps are those that the environment gave."""
    judge, policy = GymnasiumJudge("gym:my_tanks:Tank-v0", SPEC), Proportional()
    (note,) = judge.notes
    assert "declares no max_episode_steps, so its episodes end after 30 steps" in note
    assert judge.origin.endswith("my_tanks.py")
    rollouts = judge.rollouts(policy, [0, 1, 2])
    for seed, rollout in enumerate(rollouts):
        env = Tank()
        obs, _ = env.reset(seed=seed)
        assert rollout.observations[0].tolist() == obs.astype(np.float32).tolist()
        for t in range(30):
            action = np.clip(0.5 - 3 * (np.float32(obs[:1]) - np.float32(0.7)), 0, 1)
            np.testing.assert_allclose(rollout.actions[t], action, atol=1e-6)
            obs, reward, terminated, _, info = env.step(rollout.actions[t])
            assert rollout.rewards[t] == reward
            assert rollout.costs[t].tolist() == [info["overflow"]]
            assert not terminated
        assert rollout.truncations.tolist() == [False] * 29 + [True]
    limited = GymnasiumJudge("gym:my_tanks:LimitedTank-v0", SPEC)
    assert (limited.notes, limited.horizon) == ((), 12)
    expected = [plain_loop("LimitedTank-v0", ConstantPolicy(jnp.ones(1)), seed) for seed in (8, 9)]
    assert limited.returns(ConstantPolicy(jnp.ones(1)), [8, 9]).tolist() == expected


def test_environments_are_closed_with_their_judge(tanks, monkeypatch):
    """One may hold a process of its own, such as a simulator."""
    closed: list[Any] = []
    monkeypatch.setattr(Tank, "close", lambda env: closed.append(env))
    judge = GymnasiumJudge("gym:my_tanks:Tank-v0", SPEC)
    judge.rollouts(Proportional(), [0, 1, 2])
    assert not closed
    del judge
    gc.collect()
    assert len(closed) == 3


def test_an_episode_that_ends_early_keeps_its_own_length(tanks):
    """Beside one that goes on, its rows are not continued."""
    judge = GymnasiumJudge("gym:my_tanks:Tank-v0", SPEC)
    rollouts = judge.rollouts(ConstantPolicy(jnp.ones(1)), [0, 1, 2, 3])
    lengths = [len(rollout.rewards) for rollout in rollouts]
    assert len(set(lengths)) > 1
    for seed, rollout in enumerate(rollouts):
        expected = plain_loop("Tank-v0", ConstantPolicy(jnp.ones(1)), seed, 30)
        assert episode_return(rollout) == expected
        assert rollout.terminations[-1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gym:no_tanks:Tank-v0", "there is no module no_tanks, neither in this folder nor"),
        ("gym:broken_tanks:Tank-v0", "importing broken_tanks failed: ModuleNotFoundError: No mod"),
        ("gym:my_tanks:Tnak-v0", "no environment Tnak-v0 after my_tanks was imported; did you me"),
        ("gym:my_tanks:", "is not the name of a Gymnasium environment; write gym:ID"),
        ("gym:Pendulum-v1", "Pendulum-v1 has 3 observations, and the log has 2; name the env"),
        ("gym:CartPole-v1", "has 4 observations"),
        ("gym:FrozenLake-v1", r"has the observation space Discrete\(16\), and the policies of a"),
    ],
)
def test_what_cannot_be_a_judge_is_refused_in_one_line(tanks, name, words):
    with pytest.raises(InputError, match=words) as caught:
        GymnasiumJudge(name, SPEC)
    assert str(caught.value).startswith(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"action": (Channel("inflow", "1", -1, 1),)},
            "inflow is -1 to 1 in the log, and .* 0 to 1",
        ),
        (
            {"action": (Channel("feed", "1", 0, 1),)},
            "calls action 0 'inflow', and the log calls it",
        ),
        ({"obs": SPEC.obs[::-1]}, "calls observation 0 'level', and the log calls it 'demand'"),
    ],
)
def test_other_ranges_and_names_are_refused(tanks, fields, words):
    with pytest.raises(InputError, match=words):
        GymnasiumJudge("gym:my_tanks:Tank-v0", dataclasses.replace(SPEC, **fields))


def test_what_differs_without_harm_is_said(tanks):
    narrow, wide = (Channel("inflow", "1", 0.2, 0.8),), (Channel("level", "m", -5, 5), SPEC.obs[1])
    judge = GymnasiumJudge(
        "gym:my_tanks:LimitedTank-v0", dataclasses.replace(SPEC, action=narrow, obs=wide)
    )
    first, second = judge.notes
    assert "level is -5 to 5 in the log, and gym:my_tanks:LimitedTank-v0 declares -2 to 2" in first
    assert "takes inflow from 0 to 1, and policies stay within the log's 0.2 to 0.8" in second


@pytest.mark.filterwarnings("ignore:.*The reward is an inf value")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            "Raises",
            "seed 7: step.. raised in step 1 for the action .0.5.: RuntimeError: the valve is",
        ),
        ("Nan", r"seed 7: level \(observation 0\) is nan in step 2, on which no policy can act"),
        ("Reward", "seed 7: the reward in step 0 is inf, not one finite number"),
        ("NoCost", "seed 7: the log has the costs overflow, and the info in step 0 contains"),
    ],
)
def test_a_fault_of_the_environment_is_named_with_seed_and_step(tanks, fault, words):
    judge = GymnasiumJudge(f"gym:my_tanks:Tank{fault}-v0", SPEC)
    with pytest.raises(InputError, match=words) as caught:
        judge.returns(ConstantPolicy(jnp.full(1, 0.5)), [7])
    assert "\n" not in str(caught.value)
