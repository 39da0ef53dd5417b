"""The main job as a user runs it: the installed commands, each in a process of its own."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

import network

SMALL = (
    "--training.updates=400",
    "--training.chunk=100",
    "--training.seeds",
    "0",
    "1",
    "--data.steps=4000",
    "--evaluation.starts=16",
    "--evaluation.curve-starts=2",
    "--checkpoints.interval=200",
)
"""Everything of the demo, little of it."""

Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@cache
def _without_network() -> tuple[str, ...]:
    """A prefix that gives a command a network without any interface, where the system has one."""
    for prefix in (("unshare", "--net"), ("unshare", "--map-root-user", "--net")):
        if shutil.which(prefix[0]) and not subprocess.run([*prefix, "true"]).returncode:
            return prefix
    return ()


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs an installed command that can reach no other machine."""
    site = tmp_path_factory.mktemp("site")
    guard = Path(network.__file__).read_text(encoding="utf-8")
    (site / "sitecustomize.py").write_text(f"{guard}\n\nrefuse_connections()\n")

    def run(
        name: str, *arguments: object, cwd: Path, code: int = 0, installed: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name(name)
        result = [str(path) for path in (site, installed) if path is not None]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(result), "COLUMNS": "100"}
        completed = subprocess.run(
            [*_without_network(), str(program), *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert completed.returncode == code, (
            f"{name} {arguments}\n{completed.stdout}\n{completed.stderr}"
        )
        return completed

    return run


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished small run of the demo, exported and replayed."""
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(scope="session")
def outputs(command: Command, workplace: Path) -> dict[str, str]:
    """What the three commands of the demo printed."""
    return {
        "run": command("neorl-train", "run", *SMALL, cwd=workplace).stdout,
        "export": command("neorl-deploy", "export", cwd=workplace).stdout,
        "replay": command("neorl-deploy", "replay", cwd=workplace).stdout,
    }


@pytest.fixture(scope="session")
def finished(workplace: Path, outputs: dict[str, str]) -> Path:
    """The directory of that run."""
    return workplace / "runs" / "0001"


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    """Options that make a run small."""
    return SMALL


OUTSIDER = Path(__file__).parents[1] / "outsider"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the distribution, unpacked as an installer does; no index is asked."""
    place = tmp_path_factory.mktemp("outsider")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=OUTSIDER, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"
