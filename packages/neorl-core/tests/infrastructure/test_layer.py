"""The infrastructure is for other packages: no formula of core reaches a disk through it."""

import ast
from pathlib import Path

import neorl_core

ROOT = Path(neorl_core.__file__).parent
INFRASTRUCTURE = ROOT / "infrastructure"
SHELLS = [ROOT / "testing", INFRASTRUCTURE]
FORMULAS = sorted(
    file
    for file in ROOT.rglob("*.py")
    if file != ROOT / "__init__.py" and not any(shell in file.parents for shell in SHELLS)
)
OUTSIDE = {
    "neorl_core.infrastructure", "io", "json", "os", "pathlib", "shutil", "subprocess", "tempfile"
}  # fmt: skip


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def reaches_out(file):
    within = "neorl_core.infrastructure."
    return [name for name in imported(file) if name in OUTSIDE or name.startswith(within)]


def test_no_formula_reaches_a_disk():
    assert len(FORMULAS) > 30
    assert [file for file in FORMULAS if reaches_out(file)] == []


def test_the_infrastructure_does():
    assert reaches_out(INFRASTRUCTURE / "_files.py") == ["json", "os", "pathlib"]
