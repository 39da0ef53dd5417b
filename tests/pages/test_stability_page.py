"""The page on versions names the version that each file has."""

import re
from pathlib import Path

import neorl_agents.artefact._artefact as artefact
import neorl_deploy.audit._chain as audit
import neorl_deploy.bundle._manifest as bundle
import neorl_envs.datasets._file as dataset
import neorl_train.runs._directory as run

PAGE = Path(__file__).resolve().parents[2] / "docs/pages/reference/stability.md"


def test_the_versions_on_the_page_are_those_of_the_files() -> None:
    rows = re.findall(r"(?m)^\| \[?([\w ]+?)(?:\]\(\S+\))? \| (\d+) \|", PAGE.read_text())
    assert {name: int(version) for name, version in rows} == {
        "dataset file": dataset.VERSION,
        "run directory": run.VERSION,
        "policy artefact": artefact.VERSION,
        "bundle": bundle.VERSION,
        "audit log": audit.VERSION,
    }
