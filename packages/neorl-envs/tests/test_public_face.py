"""Names and examples of the package and of every namespace in it."""

import collections
import doctest
import importlib
import importlib.util
import pkgutil
from types import ModuleType

import pytest

import neorl_envs

# A checkout whose environment is older than an extra still runs the other tests.
NEEDS = {"neorl_envs.plant_logs": "polars", "neorl_envs.plants.fmi": "fmpy"}
ABSENT = tuple(name for name, library in NEEDS.items() if not importlib.util.find_spec(library))
MODULES = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(neorl_envs.__path__, "neorl_envs.")
    if not module.name.endswith("__main__") and module.name not in ABSENT
]
NAMESPACES = [module for module in [neorl_envs, *MODULES] if hasattr(module, "__all__")]


def test_every_public_name_is_documented_and_in_one_namespace() -> None:
    assert {module.__name__ for module in NAMESPACES} > {"neorl_envs", "neorl_envs.plants"}
    places = collections.defaultdict(list)
    for module in NAMESPACES:
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert getattr(module, name).__doc__
            places[id(getattr(module, name))].append(f"{module.__name__}.{name}")
    assert [names for names in places.values() if len(names) > 1] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for module in MODULES for test in finder.find(module) if test.examples]
    assert len(examples) >= 6
