"""One committed file says which versions an environment gets, for every Python of the matrix."""

import os
import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bounds
import constraints

# What an environment may hold besides its requirements.
UNMANAGED = {"pip", "setuptools", "wheel", "uv", "hatch"}


@pytest.fixture(scope="module")
def pins(checkout: Path) -> list[Requirement]:
    lines = (checkout / "tools/constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_distribution_has_one_version_on_each_python(
    pins: list[Requirement], version: str
) -> None:
    python = {"python_version": version, "python_full_version": f"{version}.4"}
    names = [pin.name for pin in pins if pin.marker is None or pin.marker.evaluate(python)]
    assert len(names) == len({*names})
    assert {"jax", "jaxlib", "numpy", "equinox", "hatchling", "pytest", "ruff"} <= {*names}


def test_every_requirement_is_pinned_within_its_bounds(
    pins: list[Requirement], checkout: Path
) -> None:
    wanted = [Requirement(line) for line in constraints.environment_requirements()]
    for package in bounds.packages(checkout).values():
        wanted += [line for _, line in package.requirements if not line.name.startswith("neorl-")]
    for requirement in wanted:
        mine = [pin for pin in pins if canonicalize_name(pin.name) == requirement.name]
        assert mine, f"{requirement} is not in tools/constraints.txt: hatch run constraints:update"
        for pin in mine:
            version = str(pin.specifier).removeprefix("==")
            assert requirement.specifier.contains(version, prereleases=True), (requirement, pin)


def test_pins_are_exact_and_name_no_index(pins: list[Requirement], checkout: Path) -> None:
    for pin in pins:
        assert re.fullmatch(r"==[0-9][0-9a-z.+!]*", str(pin.specifier)), str(pin)
        assert pin.url is None
    assert "://" not in (checkout / "tools/constraints.txt").read_text()


@pytest.mark.skipif(
    "HATCH_ENV_ACTIVE" not in os.environ or "NEORL_CONSTRAINTS" in os.environ,
    reason="this environment was not made under tools/constraints.txt",
)
def test_this_environment_holds_what_the_constraints_say(pins: list[Requirement]) -> None:
    wanted = {
        canonicalize_name(pin.name): pin
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    for distribution in distributions():
        name = canonicalize_name(distribution.name)
        if name in UNMANAGED or name.startswith("neorl-"):
            continue
        assert name in wanted, f"{name} is not in tools/constraints.txt"
        assert wanted[name].specifier.contains(distribution.version, prereleases=True), name
