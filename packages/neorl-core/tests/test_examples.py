"""Every example of a docstring runs and says what it shows."""

import doctest
import importlib
import pkgutil

import jax
import pytest

import neorl_core

MODULES = [module.name for module in pkgutil.iter_modules(neorl_core.__path__) if not module.ispkg]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"neorl_core.{name}")
    # Examples are for users, who have JAX's standard promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert doctest.testmod(module).failed == 0
