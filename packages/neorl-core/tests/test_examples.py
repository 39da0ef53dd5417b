"""Every example of a docstring runs and says what it shows."""

import doctest
import importlib
import pkgutil

import jax
import pytest

import neorl_core

MODULES = [
    module.name
    for module in pkgutil.walk_packages(neorl_core.__path__, "neorl_core.")
    if not module.name.startswith("neorl_core.testing")
]


@pytest.mark.nightly  # an eager example compiles every operation by itself
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    # Examples are for users, who have JAX's standard promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert doctest.testmod(module).failed == 0
