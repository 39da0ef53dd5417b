"""The recorded public API, so that a change of it shows in review."""

from pathlib import Path

import pytest

import neorl_core
import neorl_core.testing
from neorl_core.testing import public_api

RECORDS = Path(__file__).parent / "public_api"


@pytest.mark.parametrize("module", [neorl_core, neorl_core.testing], ids=lambda m: m.__name__)
def test_the_public_api_is_the_recorded_one(module):
    record = RECORDS / f"{module.__name__}.txt"
    assert public_api(module) == record.read_text(), (
        "the public API changed; if that is meant, run "
        f"`python -m neorl_core.testing.record {module.__name__} {record}` and commit the record"
    )


@pytest.mark.parametrize("module", [neorl_core, neorl_core.testing], ids=lambda m: m.__name__)
def test_every_export_exists_once_and_has_a_docstring(module):
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and hasattr(value, "__module__"):
            assert value.__doc__, f"{name} has no docstring"
