"""A checkout to install from, with its wheels built, and the lines of the README."""

import shutil
from pathlib import Path

import pytest

from check_isolated import build_wheels


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages; installing from it leaves nothing in the checkout."""
    root = Path(__file__).resolve().parent.parent.parent
    target = tmp_path_factory.mktemp("clone") / "neorl"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
    shutil.copytree(root / "packages", target / "packages", ignore=ignore)
    build_wheels(sorted((target / "packages").glob("neorl-*")), target / "dist")
    return target
