"""A small control problem that every test of the learners shares."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import (
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
)
from neorl_core.testing import configure_tests

OBS, ACT, ROWS = 4, 2, 256
FEW = {"hidden": (16, 16), "batch_size": 32}


def pytest_configure() -> None:
    configure_tests()


class Problem(NamedTuple):
    """A specification, a log of random rows in physical units, and its statistics."""

    spec: Spec
    log: Transition
    statistics: DataStatistics

    def batch(self, algorithm: Any, seed: int = 0) -> Transition:
        """Rows of the log with the leading axes and the fields that ``update`` takes."""
        shape = (algorithm.batches_per_update, algorithm.batch_size)
        index = np.random.default_rng(seed).integers(0, ROWS, shape)
        unread = {field: None for field in self.log._fields if field not in algorithm.fields}
        return jax.tree.map(lambda column: column[index], self.log._replace(**unread))


def statistics_of(log: Transition) -> DataStatistics:
    def summary(column: Any) -> FieldStatistics:
        x = np.asarray(column, np.float64)
        least, most = (x.min(0), x.max(0)) if x.size else (x.sum(0), x.sum(0))
        fields = (np.float64(len(x)), x.mean(0), x.std(0), least, most)
        return FieldStatistics(*(np.asarray(field, np.float32) for field in fields))

    returns = np.asarray(log.reward).reshape(-1, 32).sum(1)
    lengths = np.full(len(returns), 32.0)
    columns = (log.obs, log.action, log.reward, log.cost, returns, lengths)
    return DataStatistics(*map(summary, columns))


def make_problem(n_cost: int = 1, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    offset, size = np.array([300.0, 0.0, 2e4, 5.0]), np.array([2.0, 1.0, 5e3, 0.0])
    low, high = np.array([0.0, 330.0]), np.array([3e4, 370.0])

    def f32(x: np.ndarray) -> jax.Array:
        return jnp.asarray(x, jnp.float32)

    log = Transition(
        obs=f32(offset + size * rng.normal(size=(ROWS, OBS))),
        action=f32(np.clip(low + (high - low) * rng.normal(0.5, 0.4, size=(ROWS, ACT)), low, high)),
        reward=f32(rng.normal(size=ROWS)),
        cost=f32(rng.uniform(size=(ROWS, n_cost))),
        next_obs=f32(offset + size * rng.normal(size=(ROWS, OBS))),
        terminated=jnp.asarray(rng.uniform(size=ROWS) < 0.1),
        truncated=jnp.asarray(rng.uniform(size=ROWS) < 0.1),
    )
    spec = Spec(
        obs=tuple(
            Channel(f"x{i}", "K", float(o - 5 * s - 1), float(o + 5 * s + 1))
            for i, (o, s) in enumerate(zip(offset, size, strict=True))
        ),
        action=tuple(
            Channel(f"u{i}", "K", float(a), float(b))
            for i, (a, b) in enumerate(zip(low, high, strict=True))
        ),
        cost=tuple(CostChannel(f"c{i}", "1", 1.0, "step") for i in range(n_cost)),
        dt=10.0,
        horizon=32,
    )
    return Problem(spec, log, statistics_of(log))


@pytest.fixture(scope="session")
def problem() -> Problem:
    """Four observations (the last one constant), two actions, one cost."""
    return make_problem()


@pytest.fixture(scope="session")
def problem_without_costs() -> Problem:
    """The same with no cost channel."""
    return make_problem(n_cost=0)


@pytest.fixture(scope="session")
def few() -> dict[str, Any]:
    """Static fields that keep tests quick."""
    return dict(FEW)


def _outputs_in_float64(network: Any, x: Any) -> np.ndarray:
    x = np.asarray(x, np.float64)
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0)
    weight, bias = layers[-1]
    return x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)


@pytest.fixture(scope="session")
def in_numpy() -> Callable[[Any, Any], np.ndarray]:
    """The oracle of a perceptron with ReLU and without output activation, in float64."""
    return _outputs_in_float64
