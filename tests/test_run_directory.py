"""The page of the run directory, the package that writes it and the one that reads it agree."""

import os
import re
from pathlib import Path

import pytest

from neorl_agents.artefact import _artefact as artefact
from neorl_deploy import training_run as read
from neorl_envs.datasets import _file as dataset
from neorl_safety.constraints import _documents as constraints
from neorl_safety.guards import _settings as guard_settings
from neorl_train.judging import _results as results
from neorl_train.judging import _training_results as fine_tuning
from neorl_train.judging import _verdict as verdict
from neorl_train.runs import _checkpoints as checkpoint
from neorl_train.runs import _directory as directory
from neorl_train.runs import _directory as written
from neorl_train.runs import create_run, locked, numbered_runs

ADDED = {read.BUNDLE, read.REPLAY}
"""What the reader itself leaves in a run."""

OWN = {
    *("BUNDLE", "BUNDLE_PATTERN", "REPLAY", "ARTEFACT_SUFFIX", "FALLBACK", "VERSIONS"),
    *("ANSWERS", "LONGEST_LIST", "SUMMARISED", "UNKNOWN"),
}
"""Constants of the reader that the writer has in another form, or not at all."""


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs/pages/reference/run-directory.md").read_text(encoding="utf-8")


def table(page: str, heading: str) -> dict[str, str]:
    """First column to second column of the table below a heading, code marks aside."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.+?) \|(.*?)\|", section, flags=re.MULTILINE)
    return {name.replace("`", ""): cell.replace("`", "").strip() for name, cell in rows}


def test_the_names_of_files_agree(page: str) -> None:
    names = {
        written.CONFIG,
        written.RECORD,
        written.LOCK,
        written.DATASET,
        written.METRICS,
        written.CHECKPOINTS,
        written.POLICIES,
        written.CONSTRAINTS,
        written.GUARD,
        written.EVALUATION,
        written.TRACES,
        written.VERDICT,
        written.REPORT,
        written.FINE_TUNING,
        f"{written.EVALUATIONS}/NNNN/",
        f"{written.PROFILE}/LEARNER/",
    }
    assert {*table(page, "Files")} == names
    for name in ADDED:
        assert f"`{name}`" in page


@pytest.mark.parametrize(
    "name",
    sorted({name for name in vars(read) if name.isupper()} - OWN),
)
def test_a_name_that_is_read_is_the_one_that_is_written(name: str) -> None:
    assert getattr(read, name) == getattr(written, name)


def test_policies_lie_where_the_page_says(page: str) -> None:
    assert written.policy_file("iql-0") == read.artefact_of("iql-0") == "policies/iql-0.safetensors"
    assert written.policy_file(written.FALLBACK) == read.FALLBACK
    assert f"`{written.policy_file('NAME')}`" in page
    assert f"`{Path(read.FALLBACK).name}`" in page


def test_the_words_of_the_status_agree(page: str) -> None:
    words = {written.RUNNING, written.INTERRUPTED, written.FAILED, written.FINISHED}
    assert {*table(page, "Status")} == words
    assert f"called `{written.STOPPED}`" in page


def test_the_heads_agree(page: str) -> None:
    versions = {
        written.RECORD: ("run", directory.VERSION),
        written.DATASET: ("dataset", dataset.VERSION),
        written.CHECKPOINTS: ("checkpoint", checkpoint.VERSION),
        written.POLICIES: ("policy", artefact.VERSION),
        written.CONSTRAINTS: ("constraints", constraints.VERSION),
        written.GUARD: ("guard", guard_settings.VERSION),
        written.EVALUATION: ("evaluation", results.VERSION),
        written.TRACES: ("traces", results.VERSION),
        written.VERDICT: ("verdict", verdict.VERSION),
        written.FINE_TUNING: ("finetune", fine_tuning.VERSION),
    }
    heads = {name: f"neorl-{kind} {version}" for name, (kind, version) in versions.items()}
    assert {name: head for name, head in table(page, "Files").items() if head} == heads
    of_kind = dict(versions.values())
    assert {kind: of_kind[kind] for kind in read.VERSIONS} == read.VERSIONS


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
