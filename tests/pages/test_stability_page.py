"""The page on versions names the version that each file has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/pages/reference/stability.md"
WRITERS = {
    "dataset file": "neorl-envs/src/neorl_envs/datasets/_file.py",
    "run directory": "neorl-train/src/neorl_train/runs/_directory.py",
    "policy artefact": "neorl-agents/src/neorl_agents/artefact/_artefact.py",
    "bundle": "neorl-deploy/src/neorl_deploy/bundle/_manifest.py",
    "audit log": "neorl-deploy/src/neorl_deploy/audit/_chain.py",
}
"""The module of each file, which states its version."""
ROWS = re.findall(r"(?m)^\| \[?([\w ]+?)(?:\]\(\S+\))? \| (\d+) \|", PAGE.read_text())


def test_the_page_has_every_file() -> None:
    assert [name for name, _ in ROWS] == [*WRITERS]


@pytest.mark.parametrize(("name", "version"), ROWS)
def test_the_version_on_the_page_is_that_of_the_file(name: str, version: str) -> None:
    source = (ROOT / "packages" / WRITERS[name]).read_text()
    assert re.findall(r"(?m)^(?:KIND, )?VERSION = (?:.+, )?(\d+)$", source) == [version]
