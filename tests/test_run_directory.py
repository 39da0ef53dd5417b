"""The page of the run directory, the package that writes it and the one that reads it agree."""

import os
import re
from pathlib import Path

import pytest

from neorl_deploy import training_run as read
from neorl_train.runs import create_run, locked, numbered_runs

ADDED = {read.BUNDLE, read.REPLAY}
"""What the reader itself leaves in a run."""


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs/pages/reference/run-directory.md").read_text(encoding="utf-8")


def table(page: str, heading: str) -> dict[str, str]:
    """First column to second column of the table below a heading, code marks aside."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.+?) \|(.*?)\|", section, flags=re.MULTILINE)
    return {name.replace("`", ""): cell.replace("`", "").strip() for name, cell in rows}


def test_what_is_read_is_on_the_page(page: str) -> None:
    """That every file of a run is on it too, ``main_job/test_packages_agree.py`` shows."""
    names = {read.RECORD, read.CONSTRAINTS, read.GUARD, read.EVALUATION, read.VERDICT}
    names |= {read.DATASET, read.REPORT, read.LOCK, read.POLICIES}
    assert names <= {*table(page, "Files")}
    for name in ADDED:
        assert f"`{name}`" in page
    assert read.artefact_of("iql-0") == "policies/iql-0.safetensors"
    assert f"`{read.artefact_of('NAME')}`" in page
    assert f"`{Path(read.FALLBACK).name}`" in page


def test_every_file_that_the_writer_names_is_on_the_page(checkout: Path, page: str) -> None:
    """Also one that only some runs have."""
    source = checkout / "packages/neorl-train/src/neorl_train/runs/_directory.py"
    pattern = r'"([a-z]+\.(?:toml|jsonl?|lock|h5|html))"'
    names = re.findall(pattern, source.read_text(encoding="utf-8"))
    assert len(names) > 10
    elsewhere = {"starts.json", "mlflow.lock"}  # in a folder of its row, and beside the runs
    assert {*names} <= {*table(page, "Files"), *elsewhere}


def test_the_words_of_the_status_that_are_read_are_on_the_page(page: str) -> None:
    words = {*table(page, "Status")}
    assert words == {read.RUNNING, "interrupted", read.FAILED, read.FINISHED}


def test_the_heads_that_are_read_are_on_the_page(page: str) -> None:
    heads = {head for head in table(page, "Files").values() if head}
    assert {f"neorl-{kind} {version}" for kind, version in read.VERSIONS.items()} <= heads


def test_the_reader_sees_the_lock_of_the_writer(tmp_path: Path) -> None:
    run = create_run(tmp_path, "", {})
    assert read.holder(run.path) is None
    with locked(run):
        assert read.holder(run.path) == str(os.getpid())
    assert read.holder(run.path) is None


def test_runs_are_numbered_alike(tmp_path: Path) -> None:
    for name in ("0002", "0010", "9", "notes", ".logs", "0003.old", "12345"):
        (tmp_path / name).mkdir()
    (tmp_path / "0099").write_text("no folder")
    names = ["0002", "9", "0010", "12345"]
    assert [path.name for path in read.run_directories(tmp_path)] == names
    assert [path.name for path in numbered_runs(tmp_path)] == names
    assert create_run(tmp_path, "", {}).path.name == "12346"
