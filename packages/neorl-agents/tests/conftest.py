"""A small control problem that every test of the learners shares."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
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


def of_form(learner: Any, problem: Problem) -> Any:
    """A state like that of ``learner.init``, whose weights NumPy draws: nothing is compiled.

    Weights and biases are uniform, as wide as those of ``init_mlp``, gains of layer normalisation
    one, and everything else is zero but the preparation, which is the learner's own.
    """

    def init(key: Any) -> Any:
        fits = learner.fits().items()
        context = {
            name: fit.learner.init(problem.spec, problem.statistics, key) for name, fit in fits
        }
        return learner.init(problem.spec, problem.statistics, key, context=context)

    form = jax.eval_shape(init, jax.random.key(0))
    rng = np.random.default_rng(0)

    def drawn(path: Any, leaf: Any) -> np.ndarray:
        names = jax.tree_util.keystr(path)
        if ".gains" in names:
            return np.ones(leaf.shape, leaf.dtype)
        if ".weights" not in names and ".biases" not in names:
            return np.zeros(leaf.shape, leaf.dtype)
        width = leaf.shape[-2] if ".weights" in names else leaf.shape[-1]
        return (rng.uniform(-1, 1, leaf.shape) / np.sqrt(width)).astype(leaf.dtype)

    def filled(learner: Any, form: Any) -> Any:
        zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), form)
        parameters = jax.tree_util.tree_map_with_path(drawn, form.parameters)
        fits = learner.fits()
        return replace(
            zero,
            parameters=parameters,
            targets={name: parameters[name] for name in form.targets},
            preparation=jax.device_get(learner.prepare(problem.spec, problem.statistics)),
            context={name: filled(fits[name].learner, one) for name, one in form.context.items()},
        )

    return filled(learner, form)


@pytest.fixture(scope="session")
def state_of_form() -> Callable[[Any, Problem], Any]:
    """``state_of_form(learner, problem)``: a state of the learner, without compiling ``init``."""
    return of_form


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
