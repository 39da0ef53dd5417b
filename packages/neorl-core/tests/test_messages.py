"""Every refusal says what came and, after a semicolon, what to do."""

import ast
from pathlib import Path

import pytest

import neorl_core

MODULES = sorted(Path(neorl_core.__file__).parent.glob("_*.py"))


def refusals(path):
    tree = ast.parse(path.read_text())
    return [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]


@pytest.mark.parametrize("path", MODULES, ids=[path.stem for path in MODULES])
def test_refusals_say_what_to_do(path):
    for refusal in refusals(path):
        message = ast.unparse(refusal)
        assert "; " in message, f"{path.name}, line {refusal.lineno}: {message}"


def test_there_are_refusals_to_read():
    assert sum(len(refusals(path)) for path in MODULES) > 80
