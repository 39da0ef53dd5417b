"""The boundary is for other packages: no formula of core reaches a disk through it."""

import ast
from pathlib import Path

import neorl_core

ROOT = Path(neorl_core.__file__).parent
FORMULAS = sorted(
    {*ROOT.rglob("*.py")}
    - {*(ROOT / "testing").rglob("*.py"), *(ROOT / "boundary").rglob("*.py"), ROOT / "__init__.py"}
)
SHELL = {"neorl_core.boundary", "io", "json", "os", "pathlib", "shutil", "subprocess", "tempfile"}


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def reaches_out(file):
    names = [*imported(file)]
    return [name for name in names if name in SHELL or name.startswith("neorl_core.boundary.")]


def test_no_formula_reaches_a_disk():
    assert len(FORMULAS) > 70
    assert [file for file in FORMULAS if reaches_out(file)] == []


def test_the_boundary_does():
    assert reaches_out(ROOT / "boundary" / "_files.py") == ["json", "os", "pathlib"]
