"""The import contracts hold, and the checker that says so would notice if they did not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def lint_imports(root: Path, sources: Path) -> subprocess.CompletedProcess[str]:
    """Runs the contract checker over the packages found under another folder."""
    paths = os.pathsep.join(str(folder / "src") for folder in sorted(sources.glob("neorl-*")))
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
    ]
    command += ["--no-cache", "--no-logo", "--config", str(root / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copied(checkout: Path, tmp_path: Path) -> Path:
    """A copy of all sources that may be spoiled."""
    for folder in (checkout / "packages").glob("neorl-*"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder / "src", tmp_path / folder.name / "src", ignore=ignore)
    return tmp_path


def test_the_contracts_hold(checkout: Path) -> None:
    done = lint_imports(checkout, checkout / "packages")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core", "neorl_envs"),
        ("core", "neorl_agents"),
        ("envs", "neorl_safety"),
        ("safety", "neorl_agents"),
        ("agents", "neorl_envs"),
        ("agents", "neorl_train"),
        ("train", "neorl_deploy"),
        ("deploy", "neorl_train"),
        ("deploy", "neorl_envs"),
        ("core", "equinox"),
        ("core", "h5py"),
        ("envs", "mlflow"),
        ("safety", "orbax.checkpoint"),
        ("agents", "mlflow.tracking"),
        ("deploy", "orbax"),
    ],
)
def test_a_planted_import_breaks_a_contract(
    checkout: Path, copied: Path, importer: str, imported: str
) -> None:
    module = f"neorl_{importer}"
    planted = copied / f"neorl-{importer}" / "src" / module / "_planted.py"
    planted.write_text(f"def late() -> None:\n    import {imported}\n")
    done = lint_imports(checkout, copied)
    assert done.returncode == 1, done.stdout
    broken = done.stdout.partition("Broken contracts")[2]
    assert f"{module}._planted -> {imported.split('.')[0]}" in broken, done.stdout
    assert "(l.2)" in broken
