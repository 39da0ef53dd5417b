"""A learner small enough to check by hand, a log for it, and a watcher that remembers."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from neorl_core import Channel, CostChannel, Spec
from neorl_core.control import ConstantPolicy
from neorl_core.testing import climate
from neorl_envs import Dataset
from neorl_envs.datasets import data_statistics, dataset_from_columns
from neorl_train.training import TrainingData


def pytest_configure() -> None:
    climate()


@pytest.fixture(autouse=True)
def _process_left_alone(monkeypatch):
    """Commands that run inside the test process do not change its switches."""
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)


class LineState(eqx.Module):
    weight: Float[Array, "obs act"]
    multiplier: Float[Array, " cost"]
    noise_seen: Float[Array, ""]
    count: Int[Array, ""]


class Line(eqx.Module):
    """Linear regression with noisy gradients: enough of a learner for every law of training."""

    learning_rate: float = 0.1
    batch_size: int = eqx.field(static=True, default=8)
    cycle: int = eqx.field(static=True, default=2)

    fields: ClassVar[tuple[str, ...]] = ("obs", "action")

    @property
    def batches_per_update(self) -> int:
        return self.cycle

    def validate(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"Line.learning_rate must be above 0, got {self.learning_rate}")

    def init(self, spec, statistics, key):
        weight = jax.random.normal(key, (spec.n_obs, spec.n_action))
        return LineState(weight, jnp.zeros(spec.n_cost), jnp.zeros(()), jnp.zeros((), jnp.int32))

    def update(self, state, batch, key):
        noise = jax.random.normal(key, ())
        weight, losses = state.weight, []
        for i in range(self.cycle):
            error = batch.obs[i] @ weight - batch.action[i]
            weight = weight - self.learning_rate * (batch.obs[i].T @ error) / self.batch_size
            weight = weight + 1e-3 * noise
            losses.append(jnp.mean(jnp.square(error)))
        new = LineState(weight, state.multiplier, state.noise_seen + noise, state.count + 1)
        return new, {"loss": jnp.mean(jnp.stack(losses)), "count": new.count.astype(jnp.float32)}

    def policy(self, state):
        return ConstantPolicy(state.weight[0])


class Notes:
    """A watcher that remembers."""

    def __init__(self):
        self.blocks, self.probes, self.saved, self.began, self.compiled = [], [], [], [], 0

    def begin(self, step):
        self.began.append(step)
        return False

    def compiling(self):
        self.compiled += 1

    def running(self):
        assert self.compiled

    def block(self, step, metrics):
        self.blocks.append((step, metrics))

    def probed(self, step, metrics):
        self.probes.append((step, metrics))

    def saving(self, step):
        self.saved.append(step)


def line_log(n_cost: int = 0, episodes: int = 20, length: int = 6) -> Dataset:
    rng = np.random.default_rng(3)
    rows = episodes * length
    obs = rng.normal(size=(rows + 1, 2)).astype(np.float32)
    ended = np.arange(1, rows + 1) % length == 0
    costs = tuple(CostChannel(f"cost_{i}", "1", 1.0, "episode") for i in range(n_cost))
    spec = Spec(
        obs=(Channel("level", "m", -9.0, 9.0), Channel("flow", "m3/h", -9.0, 9.0)),
        action=(Channel("valve", "%", -9.0, 9.0),),
        cost=costs,
        dt=60.0,
        horizon=length,
    )
    return dataset_from_columns(
        spec,
        obs=obs[:-1],
        action=obs[:-1] @ np.array([[0.5], [-0.25]], np.float32),
        reward=rng.normal(size=rows),
        cost=rng.uniform(size=(rows, n_cost)),
        next_obs=obs[1:],
        terminated=np.zeros(rows, bool),
        truncated=ended,
    )


@pytest.fixture
def make_line():
    return Line


@pytest.fixture
def make_notes():
    return Notes


@pytest.fixture
def make_log():
    return line_log


@pytest.fixture(scope="session")
def line_data():
    log = line_log(n_cost=0)
    rows = log.transitions._replace(mask=None)
    return TrainingData(rows, data_statistics(log), log.spec)
