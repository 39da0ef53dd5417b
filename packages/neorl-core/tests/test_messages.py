"""Every refusal says what came and, after a semicolon, what to do."""

import ast
from pathlib import Path

import pytest

import neorl_core

ROOT = Path(neorl_core.__file__).parent
# The words of commands are tested where their output is.
COMMANDS = ROOT / "infrastructure" / "command_line"
MODULES = sorted(
    {*ROOT.rglob("*.py")} - {*(ROOT / "testing").rglob("*.py"), *COMMANDS.rglob("*.py")}
)
# What is made by another function says there what to do; a mapping has to raise KeyError; and a
# setting out of its range says the range, which is what to do.
ELSEWHERE = ("unknown_name(", "KeyError(", "InputError(f'{name} must be {expected}")


def refusals(path):
    tree = ast.parse(path.read_text())
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    return [exc for exc in raised if not ast.unparse(exc).startswith(ELSEWHERE)]


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_refusals_say_what_to_do(path):
    for refusal in refusals(path):
        message = ast.unparse(refusal)
        assert "; " in message, f"{path.name}, line {refusal.lineno}: {message}"


def test_there_are_refusals_to_read():
    assert sum(len(refusals(path)) for path in MODULES) > 100
