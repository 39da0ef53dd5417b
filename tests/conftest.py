"""The settings of all tests; tests that need a package index run on request alone."""

import os
from pathlib import Path

import pytest

from neorl_core.testing import configure_tests

# `hatch run installs:check` sets the variable. All other tests reach no other machine.
collect_ignore = [] if os.environ.get("NEORL_INSTALLS") else ["installs"]


def pytest_configure() -> None:
    configure_tests()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def packages(checkout: Path) -> list[Path]:
    """The folders of the packages."""
    return sorted((checkout / "packages").glob("neorl-*"))
