"""Every public name stands in one namespace, and importing a namespace needs NumPy only."""

import importlib
import pkgutil

import neorl_deploy
from neorl_core.testing import functions_of_arrays

NAMESPACES = (
    "audit",
    "bundle",
    "dashboard",
    "dossier",
    "export",
    "forms",
    "loop",
    "mlflow_model",
    "modbus",
    "mqtt",
    "opcua",
    "runtime",
    "serving",
    "shadow",
    "training_run",
)


def test_the_namespaces_are_the_public_folders_and_files():
    names = {m.name for m in pkgutil.iter_modules(neorl_deploy.__path__)}
    assert {name for name in names if not name.startswith("_")} == {*NAMESPACES}


def test_a_name_is_public_in_one_place():
    modules = [neorl_deploy, *(importlib.import_module(f"neorl_deploy.{n}") for n in NAMESPACES)]
    names = [name for module in modules for name in module.__all__]
    assert len(names) == len(set(names)) > 15
    for module in modules:
        for name in module.__all__:
            home = getattr(getattr(module, name), "__module__", module.__name__)
            assert home == module.__name__ or home.startswith(f"{module.__name__}._"), name
            assert getattr(module, name).__doc__, name


def test_no_function_hides_a_namespace():
    for name in neorl_deploy.__all__:
        assert name not in NAMESPACES


def test_nothing_takes_arrays_of_jax_so_that_no_function_could_be_traced():
    """One that did would need a table of rows under `jit` and `vmap`, as the agents have."""
    assert functions_of_arrays(neorl_deploy) == set()
