"""Every "I only want ..." line of the page on installing, each in a fresh environment, by pip."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs/pages/how-to/install.md").read_text()


class Line(NamedTuple):
    """One row of the table of the page."""

    wanted: str
    install: str
    attempt: str
    megabytes: int


def table() -> list[Line]:
    rows = re.findall(r"(?m)^\| (.+) \| `(python -m pip .+)` \| `(.+)` \| (\d+) \|$", PAGE)
    return [Line(wanted, install, attempt, int(size)) for wanted, install, attempt, size in rows]


def five_lines() -> str:
    (block,) = re.findall(r"```python\n(.+?)```", PAGE, flags=re.DOTALL)
    assert len(block.strip().splitlines()) <= 6
    return block


class Environment:
    """A fresh virtual environment, used from the copy of the checkout."""

    def __init__(self, place: Path, clone: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        self.place, self.clone = place, clone
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("UV_", "PYTHON", "JAX_"))}
        self.variables = {**kept, "PATH": f"{place / 'bin'}{os.pathsep}{kept['PATH']}"}
        self.variables.pop("VIRTUAL_ENV", None)
        self.empty = self.megabytes()

    def run(self, command: str, **options: str) -> str:
        completed = subprocess.run(
            command,
            shell=True,
            cwd=self.clone,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
        return completed.stdout

    def megabytes(self) -> float:
        size = subprocess.run(["du", "-s", "-B1", str(self.place)], capture_output=True, text=True)
        return int(size.stdout.split()[0]) / 1e6

    def distributions(self) -> set[str]:
        listed = self.run("python -m pip list --format freeze")
        return {line.partition("==")[0] for line in listed.splitlines()}


def test_the_table_has_the_lines_that_were_promised() -> None:
    installs = " ".join(line.install for line in table())
    for name in ("core", "envs", "agents", "safety", "deploy"):
        assert f"./packages/neorl-{name}" in installs
    (wheels,) = (line.install for line in table() if "--find-links dist" in line.install)
    names = wheels.partition("--find-links dist ")[2].split()
    assert names == ["neorl-core", "neorl-envs", "neorl-agents", '"neorl-deploy[jax]"']
    assert PAGE.count("unrelated project") == 1


DAILY = {
    "the mathematics",
    "my own log, from CSV or Parquet to a trained and judged policy",
    "to check a sealed bundle, or to run one in its NumPy form, with NumPy alone",
    "wheels of my own (after `python -m hatch build --all`)",
}
"""By day the smallest, the largest, the one without JAX, and wheels; every install takes long."""


def lines() -> list[Any]:
    """The lines of the table; those between the smallest and the largest are for the night."""
    missing = DAILY - {line.wanted for line in table()}
    assert not missing, f"the page has no line {missing}"
    marks = {False: [pytest.mark.nightly], True: []}
    return [pytest.param(x, id=x.wanted, marks=marks[x.wanted in DAILY]) for x in table()]


@pytest.mark.parametrize("line", lines())
def test_a_line_installs_and_works(line: Line, clone: Path, tmp_path: Path) -> None:
    place = clone
    if "--find-links dist" in line.install:  # as on a machine that has the wheels alone
        place = tmp_path / "elsewhere"
        shutil.copytree(clone / "dist", place / "dist", ignore=shutil.ignore_patterns("*.tar.gz"))
    environment = Environment(tmp_path / "venv", place)
    environment.run(line.install)
    environment.run("python -m pip check")
    assert environment.run(line.attempt).strip()
    grown = environment.megabytes() - environment.empty
    assert grown == pytest.approx(line.megabytes, rel=0.15), f"{grown:.0f} MB"
    heavy = {"mlflow", "mlflow-skinny", "SQLAlchemy", "sqlalchemy", "torch"}
    if "neorl-train" not in line.install:
        heavy |= {"orbax-checkpoint"}
    assert not environment.distributions() & heavy
    if "neorl-deploy`" in f"{line.install}`":
        assert environment.distributions() <= {"neorl-deploy", "numpy", "pip", "setuptools"}
    if line.wanted == "the mathematics":
        environment.run("python -", input=five_lines())
