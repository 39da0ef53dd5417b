"""The recorded public API, one file a namespace, so that a change of it shows in review."""

from pathlib import Path
from typing import get_origin

import pytest

import neorl_core
from neorl_core.testing import namespaces, public_api

RECORDS = Path(__file__).parent / "public_api"
every_namespace = pytest.mark.parametrize(
    "module", namespaces(neorl_core), ids=lambda module: module.__name__
)


@every_namespace
def test_the_public_api_is_the_recorded_one(module):
    record = RECORDS / f"{module.__name__}.txt"
    assert public_api(module) == record.read_text(), (
        "the public API changed; if that is meant, run "
        f"`python -m neorl_core.testing.record neorl_core {RECORDS}` and commit the records"
    )


def test_every_record_is_of_a_namespace():
    recorded = {file.stem for file in RECORDS.glob("*.txt")}
    assert recorded == {module.__name__ for module in namespaces(neorl_core)}


@every_namespace
def test_every_export_exists_once_and_has_a_docstring(module):
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert module.__doc__
    for name in module.__all__:
        value = getattr(module, name)
        # A type such as Literal is documented where it is assigned.
        if callable(value) and hasattr(value, "__module__") and get_origin(value) is None:
            assert value.__doc__, f"{name} has no docstring"
