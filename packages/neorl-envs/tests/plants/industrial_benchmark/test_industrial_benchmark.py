"""The benchmark against trajectories that its authors published, draw for draw."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.control import UniformPolicy
from neorl_envs.plants import IndustrialBenchmark
from neorl_envs.plants.industrial_benchmark import Draws, effective_actions

ENV = IndustrialBenchmark()
STEPS = 1000
COSTS, HIDDEN, PHASE = slice(0, 10), [11, 12], [14, 15, 16]
CONSUMPTION, STEERINGS, FATIGUE, REWARD = 20, slice(21, 25), 25, 28


class Recorder:
    """The draws of the published code, in its order, from NumPy's seeded stream."""

    def __init__(self, seed: int, setpoint: float) -> None:
        self.stream = np.random.RandomState(seed)
        self.stream.randint(1, 100)
        self.stream.rand()
        self.stream.rand()
        self.steerings = np.array([50.0, 50.0])
        self.setpoint = setpoint
        self.hidden = np.zeros(2)

    def draws(self, action: np.ndarray) -> Draws:
        """Draws of one step; the flips come out as the code's, the burst only where it is drawn."""
        moved = self.steerings + np.clip(action[:2], -1, 1) * [1, 10]
        self.steerings = np.clip(moved, 0, 100)
        given = (jnp.asarray(x) for x in (self.setpoint, *self.steerings))
        effective = np.asarray(effective_actions(*given))
        exponential = self.stream.exponential(0.1, 2) / 0.1
        uniform = self.stream.rand(2)
        flip = np.array([self.stream.binomial(1, p) for p in np.clip(effective, 0.001, 0.999)])
        noise = np.tanh(0.1 * exponential / 2)
        noise += (1 - noise) * uniform * flip * effective
        grown = np.where(
            self.hidden >= 1.2, np.minimum(5, 1.1 * self.hidden), 0.9 * self.hidden + noise / 3
        )
        self.hidden = np.where(effective <= 0.05, effective, grown)
        burst = (self.stream.normal(2.4, 0.4) - 2.4) / 0.4 if self.hidden.max() == 5.0 else 0.0
        arrays = (exponential, uniform, np.where(flip == 1, 0.0, 1.0), burst, self.stream.randn())
        return Draws(*map(np.asarray, arrays))


def test_it_repeats_the_published_trajectories_draw_for_draw(
    shared_data: Callable[..., Path],
) -> None:
    folder = shared_data("industrial_benchmark")
    setpoints = np.random.RandomState(501).randint(1, 100, 3)
    with jax.enable_x64(True):
        for i, setpoint in enumerate(setpoints):
            expected = np.loadtxt(folder / f"markovStates{i}.csv.gz", delimiter=",")
            actual = replayed(float(setpoint), 1005 + i)
            assert expected[0, 21] == setpoint
            np.testing.assert_allclose(actual["costs"], expected[:, COSTS], rtol=1e-12)
            np.testing.assert_allclose(actual["hidden"], expected[:, HIDDEN], rtol=1e-9, atol=1e-12)
            np.testing.assert_array_equal(actual["phase"], expected[:, PHASE])
            np.testing.assert_allclose(actual["steerings"], expected[:, STEERINGS], rtol=1e-12)
            np.testing.assert_allclose(actual["fatigue"], expected[:, FATIGUE], rtol=1e-9)
            np.testing.assert_allclose(actual["consumption"], expected[:, CONSUMPTION], atol=1e-9)
            np.testing.assert_allclose(actual["reward"], expected[:, REWARD], atol=1e-9)


def replayed(setpoint: float, seed: int) -> dict[str, np.ndarray]:
    """The trajectory under the recorded draws, the step of the constructor included."""
    recorder, actions = Recorder(seed, setpoint), []
    rows = [recorder.draws(np.zeros(3))]
    for _ in range(STEPS):
        actions.append(2 * recorder.stream.rand(3) - 1)
        rows.append(recorder.draws(actions[-1]))
    draws = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *rows)
    params = ENV.default_params("clean", dtype=jnp.float64)
    params = params._replace(initial=jnp.asarray(setpoint))
    state, _ = ENV.reset(params, jax.random.key(0))
    quiet = ENV.sample_noise(params, jax.random.key(0))

    def step(state: Any, row: Any) -> Any:
        action, process = row
        state, answer = ENV.step_with_noise(params, state, action, quiet._replace(process=process))
        return state, (state.plant, answer.reward)

    # The state before the constructor's own step: nothing has been drawn yet.
    fresh = state.plant._replace(
        hidden=jnp.zeros(2), phase=jnp.zeros(()), domain=jnp.ones(()), response=jnp.ones(())
    )
    given = (jnp.asarray(np.vstack([np.zeros(3), *actions])), draws)
    run = jax.jit(lambda s, r: jax.lax.scan(step, s, r)[1])
    plant, reward = run(state._replace(plant=fresh), given)
    result = {name: np.asarray(getattr(plant, name))[1:] for name in plant._fields}
    result["phase"] = np.stack([result[n] for n in ("domain", "response", "phase")], axis=1)
    names = ("setpoint", "velocity", "gain", "shift")
    return {
        **result,
        "steerings": np.stack([result[name] for name in names], axis=1),
        "reward": np.asarray(reward)[1:],
    }


@pytest.mark.nightly
def test_scheduled_steering_beats_fixed_steering_which_beats_chance(episodes: Any) -> None:
    keys = jax.random.split(jax.random.key(2), 40)
    policies = {**ENV.tunings(), "uniform": UniformPolicy(-jnp.ones(3), jnp.ones(3))}
    returns = {
        name: np.asarray(episodes(ENV, policy, keys).reward).sum(axis=1)
        for name, policy in policies.items()
    }
    # Paired: the same setpoints for all.
    for better, worse in (("scheduled steering", "fixed steering"), ("fixed steering", "uniform")):
        gain = returns[better] - returns[worse]
        assert gain.mean() > 3 * gain.std() / 40**0.5
