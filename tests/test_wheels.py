"""What a wheel holds and says, and that building it twice gives the same bytes."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from check_isolated import build_wheels, modules

NAMES = ["agents", "core", "deploy", "envs", "safety", "train"]


@pytest.fixture(scope="module")
def wheels(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheels")
    build_wheels(packages, target)
    return target


def only(folder: Path, pattern: str) -> Path:
    (result,) = folder.glob(pattern)
    return result


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_holds_its_package_and_nothing_else(
    checkout: Path, wheels: Path, name: str
) -> None:
    """Row P13: the wheels of all packages are built and whole."""
    wheel = only(wheels, f"neorl_{name}-*.whl")
    source = checkout / "packages" / f"neorl-{name}" / "src"
    files = [file.relative_to(source) for file in source.rglob("*.py")]
    dotted = [".".join(file.with_suffix("").parts) for file in files]
    assert modules(wheel) == sorted(name.removesuffix(".__init__") for name in dotted)
    with zipfile.ZipFile(wheel) as archive:
        members = archive.namelist()
        info = next(member.split("/")[0] for member in members if ".dist-info/" in member)
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    assert {member.split("/")[0] for member in members} == {f"neorl_{name}", info}
    assert f"neorl_{name}/py.typed" in members
    assert f"{info}/licenses/LICENSE" in members
    assert metadata["Name"] == f"neorl-{name}"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "the neorl contributors"
    assert len(metadata.get_payload()) > 200, "the README says too little"
    requirements = metadata.get_all("Requires-Dist")
    assert not [line for line in requirements if "@" in line or "file:" in line]


@pytest.mark.nightly
def test_a_wheel_is_reproducible(checkout: Path, wheels: Path, tmp_path: Path) -> None:
    for name in ("core", "deploy"):
        build_wheels([checkout / "packages" / f"neorl-{name}"], tmp_path)
        again = only(tmp_path, f"neorl_{name}-*.whl")
        assert again.read_bytes() == (wheels / again.name).read_bytes()


@pytest.mark.nightly
def test_a_wheel_can_be_built_from_the_source_archive(
    checkout: Path, wheels: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    folder = checkout / "packages" / "neorl-safety"
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with tarfile.open(only(tmp_path, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = only(tmp_path, "neorl_safety-*/pyproject.toml").parent
    assert list((unpacked / "tests").glob("test_*.py"))
    build_wheels([unpacked], tmp_path)
    again = only(tmp_path, "*.whl")
    assert again.read_bytes() == (wheels / again.name).read_bytes()
