"""Examples on the reference pages run when they are copied: they import what they use."""

import doctest
import importlib.util
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from neorl_agents import BC
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
def extension(monkeypatch):
    """The extension of the page builder, which only its own environment installs."""
    monkeypatch.setitem(sys.modules, "griffe", MagicMock(Extension=object))
    spec = importlib.util.spec_from_file_location("docstrings", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def with_imports(extension):
    return extension.with_imports


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


def test_a_setting_is_shown_with_its_default(extension):
    text = """Settings.

    Attributes:
        rate: How fast,
            in all.
        name: What it is.

    Raises:
        InputError: If it is bad.
    """
    cleaned = inspect.cleandoc(text)
    shown = extension.with_notes(cleaned, {"rate": "Default: `0.5`.", "other": "Default: `1`."})
    assert shown.count("Default") == 1
    assert "rate: How fast,\n        in all. Default: `0.5`.\n    name" in shown


def test_the_ranges_of_a_class_are_those_of_its_fields(extension):
    ranges = extension.declared_ranges(BC)
    assert ranges["learning_rate"] == "above 0"
    assert ranges["fraction"] == "in (0, 1]"
    assert set(ranges) == {"learning_rate", "fraction", "n_components"}
    assert extension.declared_ranges(int) == {}


def test_defaults_are_read_from_literals_names_and_calls(extension):
    module = SimpleNamespace(members={"FEW": SimpleNamespace(is_alias=False, value="(1, 2)")})
    sources = ("0.5", "FEW", "setting(0.7, low=0)", "Networks()", "field(default_factory=dict)")
    read = [extension._literal(source, module) for source in sources]
    assert read == ["0.5", "(1, 2)", "0.7", None, None]
