"""Examples on the reference pages run when they are copied: they import what they use."""

import doctest
import importlib.util
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from neorl_core.federated import averaging_rounds

EXTENSION = Path(__file__).resolve().parents[2] / "docs/docstrings.py"
SCOPE = {
    "averaging_rounds": "neorl_core.federated.averaging_rounds",
    "star_mixing": "neorl_core.federated.star_mixing",
    "jnp": "jax.numpy",
    "np": "numpy",
    "math": "math",
}


@pytest.fixture
def with_imports(monkeypatch):
    """From the extension of the page builder, which only its own environment installs."""
    monkeypatch.setitem(sys.modules, "griffe", MagicMock(Extension=object))
    spec = importlib.util.spec_from_file_location("docstrings", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.with_imports


def test_an_example_begins_with_what_it_uses_and_runs_alone(with_imports):
    text = with_imports(averaging_rounds.__doc__, SCOPE)
    assert ">>> from neorl_core.federated import averaging_rounds, star_mixing\n" in text
    example = doctest.DocTestParser().get_doctest(text, {}, "page", None, None)
    assert doctest.DocTestRunner(verbose=False).run(example) == (0, 2)


def test_what_it_makes_or_imports_itself_is_left_alone(with_imports):
    text = """Sums.

    Example:
        >>> import numpy as np
        >>> def twice(math):
        ...     return 2 * math
        >>> star_mixing = [twice(x) for x in np.ones(2)]
        >>> sum(star_mixing), jnp.pi
    """
    expected = text.replace(
        "        >>> import numpy", "        >>> import jax.numpy as jnp\n        >>> import numpy"
    )
    assert with_imports(text, SCOPE) == expected
    assert with_imports("No example of np.", SCOPE) == "No example of np."
    assert with_imports("    >>> this is no code", SCOPE) == "    >>> this is no code"
