"""Examples of docstrings run; a public name stands in one namespace and says what it is."""

import doctest
import importlib
import inspect
import pkgutil

import jax
import pytest

import neorl_agents

MODULES = [m.name for m in pkgutil.walk_packages(neorl_agents.__path__, "neorl_agents.")]


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    "name",
    [
        "algorithms",
        "artefact",
        "calibration",
        "classical",
        "controllers",
        "critics",
        "learning",
        "models",
        "networks",
        "online",
        "optimisers",
        "policies",
        "sampling",
    ],
)
def test_a_name_is_public_in_one_namespace(name):
    namespace = importlib.import_module(f"neorl_agents.{name}")
    assert not set(namespace.__all__) & set(neorl_agents.__all__)
    for public in namespace.__all__:
        entry = getattr(namespace, public)
        assert not (inspect.isroutine(entry) or inspect.isclass(entry)) or entry.__doc__, public
