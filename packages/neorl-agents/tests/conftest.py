"""A small control problem that every test of the learners shares."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_agents.testing import Problem, make_problem
from neorl_core.testing import configure_tests

ROOT = Path(__file__).resolve().parents[3]
FEW = {"hidden": (16, 16), "batch_size": 32}


def pytest_configure() -> None:
    configure_tests()


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


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of third-party data."""
    folder = Path(os.environ.get("NEORL_SHARED_DATA", ROOT.parent / "shared/data"))
    if not (folder / "neorl2").is_dir():
        pytest.skip(f"no third-party data in {folder}")
    return folder
