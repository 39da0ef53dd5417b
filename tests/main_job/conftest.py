"""The main job as a user runs it: the installed commands, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
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
"""A run with little of everything."""

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
def small_demo() -> tuple[str, ...]:
    """Options that make the demo small: one kind of network, which one program trains."""
    fewer = ("--training.algorithms", "bc", "--retuning.updates=60", "--retuning.generations=2")
    kept = (word for word in SMALL if "curve-starts" not in word)
    return (*kept, "--evaluation.curve-starts=0", *fewer)


@pytest.fixture(scope="session")
def demo_lines(
    command: Command, small_demo: tuple[str, ...], checkout: Path, workplace: Path
) -> tuple[list[str], list[str]]:
    """The lines of the demo: its progress, and its answer."""
    done = command("python", checkout / "tools/demo.py", *small_demo, cwd=workplace)
    return done.stderr.strip().splitlines(), done.stdout.strip().splitlines()


@pytest.fixture(scope="session")
def finished(workplace: Path, demo_lines: tuple[list[str], list[str]]) -> Path:
    """The directory of that run."""
    return workplace / "runs" / "0001"


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    """Options that make a run small."""
    return SMALL


OUTSIDER = Path(__file__).parents[1] / "outsider"
RUNS = Path(__file__).parent / "outsider_runs"


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


IN_ONE_PROCESS = """
import importlib
import sys

for line in sys.argv[1:]:
    program, *words = line.split()
    main = importlib.import_module(program.replace("-", "_") + "._command.main").main
    print("\\0", end="")
    assert main(words) == 0, line
"""
QUICKER = """
from neorl_train import prepare_process

prepare_process()

from neorl_train.judging import _summary
from neorl_train.pages import _style

_summary.RESAMPLES = 1_000
_style.svg_figure = lambda *_, **__: "<svg></svg>"
"""
"""By day, where a process trains: pictures and intervals would take as long as a run."""

InOneProcess: TypeAlias = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def in_one_process(command: Command, pytestconfig: pytest.Config) -> InOneProcess:
    """Runs lines of several commands, and gives what each printed.

    A process for each would import and compile the same again. It runs with ``-P``: an installed
    command does not find modules of the current folder by itself.
    """

    def run(*lines: str, **place: Any) -> dict[str, str]:
        trains = any(line.startswith("neorl-train") for line in lines)
        quicker = trains and not pytestconfig.getoption("--nightly")
        script = QUICKER + IN_ONE_PROCESS if quicker else IN_ONE_PROCESS
        printed = command("python", "-P", "-c", script, *lines, **place).stdout
        return dict(zip(lines, printed.split("\0")[1:], strict=True))

    return run


@pytest.fixture(scope="session")
def learners(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """Of the distribution: by day one, by night those with costs and with a model too."""
    return ("lagrangian", "imagined", "crr") if pytestconfig.getoption("--nightly") else ("crr",)


@pytest.fixture(scope="session")
def used(
    tmp_path_factory: pytest.TempPathFactory,
    installed: Path,
    in_one_process: InOneProcess,
    learners: tuple[str, ...],
) -> tuple[Path, dict[str, str]]:
    """The folder in which the distribution was used, and what each command printed.

    There are a log as a text table, a run on the plant that was exported, and a run without a log
    in ``online``.
    """
    work = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(0)
    rows = [(e, 1 + 0.3 * rng.normal(), 20 + 5 * rng.normal()) for e in range(8) for _ in range(13)]
    lines = [f"{episode} {level:.4f} {inflow:.4f}" for episode, level, inflow in rows]
    (work / "log.table").write_text("\n".join(["episode level inflow", *lines, ""]))
    plant, others, online = (
        (RUNS / f"{n}.toml").read_text() for n in ("plant", "others", "online")
    )
    (work / "table.toml").write_text(plant.replace("Tank-v0", "log.table"))
    trained = plant.replace('["crr"]', json.dumps(learners))
    (work / "plant.toml").write_text(trained + others if len(learners) > 1 else trained)
    (work / "online.toml").write_text(online)
    printed = in_one_process(
        "neorl-train run plant.toml --quiet",
        "neorl-train run online.toml --quiet --output.directory online",
        "neorl-deploy export runs/0001",
        "neorl-envs list",
        "neorl-envs collect --environment=Tank-v0 --steps=60 --out=tank.h5",
        "neorl-envs inspect tank.h5",
        "neorl-envs inspect log.table",
        cwd=work,
        installed=installed,
    )
    return work, printed


@pytest.fixture(scope="session")
def work(used: tuple[Path, dict[str, str]]) -> Path:
    """The folder in which the distribution was used."""
    return used[0]


@pytest.fixture(scope="session")
def printed(used: tuple[Path, dict[str, str]]) -> dict[str, str]:
    """What each command printed."""
    return used[1]
