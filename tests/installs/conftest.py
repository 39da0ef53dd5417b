"""A checkout to install from, with its wheels built as the page on installing says."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of pytest-xdist see."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def variables(shared: Path) -> dict[str, str]:
    """Of a shell without an environment; what hatch installs goes where the tests write."""
    ours = ("UV_", "PYTHON", "JAX_", "HATCH_ENV_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HATCH_DATA_DIR": str(shared / "hatch")}


@contextlib.contextmanager
def one_at_a_time(target: Path) -> Iterator[None]:
    """Lets one of pytest-xdist's workers make what all of them use."""
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def hatch(shared: Path) -> str:
    """The program of the README's `python -m hatch`, which the tests' environment does not hold.

    It need not be on the PATH of who runs the tests; then it is installed once more.
    """
    result = shutil.which("hatch")
    if result:
        return result
    tool = shared / "tool"
    with one_at_a_time(tool):
        if not (tool / "bin" / "hatch").exists():
            subprocess.run([sys.executable, "-m", "venv", tool], check=True)
            subprocess.run([tool / "bin" / "pip", "install", "--quiet", "hatch"], check=True)
    return str(tool / "bin" / "hatch")


@pytest.fixture(scope="session")
def clone(shared: Path, hatch: str, variables: dict[str, str]) -> Path:
    """A copy of the checkout with its wheels, made once for all workers.

    Installing from it leaves nothing in the checkout.
    """
    target = shared / "clone"
    with one_at_a_time(target):
        if not target.exists():
            made = shared / f"clone-{os.getpid()}"
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
            shutil.copytree(ROOT / "packages", made / "packages", ignore=ignore)
            shutil.copytree(ROOT / "tools", made / "tools", ignore=ignore)
            shutil.copy(ROOT / "pyproject.toml", made)
            command = [hatch, *build_command().split()[3:]]
            subprocess.run(command, cwd=made, env=variables, check=True)
            made.rename(target)
    return target


def build_command() -> str:
    """How the page on installing builds wheels."""
    (command,) = re.findall(
        r"after `(python -m hatch [^`]+)`", (ROOT / "docs/pages/how-to/install.md").read_text()
    )
    return command
