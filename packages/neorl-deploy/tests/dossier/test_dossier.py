"""The evidence file: every statement has its file, and what no file says is not provided.

The record of the run counts as it is sealed, also where the run itself is elsewhere.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

from neorl_deploy import DeployError
from neorl_deploy.audit import AuditLog
from neorl_deploy.bundle import read_bundle
from neorl_deploy.dossier import HEADINGS, NOT_PROVIDED, dossier, evidence_of

from ..forged import canonical, reseal

KEPT = Path(__file__).parents[1] / "bundle/kept/jax-0.10.2"
STATEMENT = re.compile(r"^- (.+) \(\[(.+?)\]\((.+?)\)(.*), ([0-9a-f]{12})\)$")
RECORD = {
    "format": "neorl-run",
    "version": 1,
    "status": "finished",
    "id": "5eed",
    "started": "2026-11-20T08:00:00+00:00",
    # printf '{"data":{"seed":0}}' | sha256sum
    "config_hash": "sha256:ce1867ba3369f316ea8b0b4e6b2a9570a0de209885753a77acbf521eb61156e8",
    "dataset": {"rows": 1200, "episodes": 12},
    "changes": ["gain of inlet: 1 -> 2 % per m"],
    "controllers": ["inlet holds level at 1 m"],
    "origins": {"algorithm": {"mine": "my-learners 0.3"}},
    "resumed_with": [{"time": "2026-11-21", "versions": {"mine": "my-learners 0.4"}}],
}


def with_record(bundle: Path, record: dict) -> None:
    """Seals a bundle again with the record of another run in its provenance."""
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    manifest["provenance"]["record"] = record
    reseal(bundle, manifest__json=canonical(manifest))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with the kept bundle in it, its record, a replay and a change sheet."""
    folder = tmp_path / "0001"
    shutil.copytree(KEPT, folder / "policy.bundle")
    with_record(folder / "policy.bundle", RECORD)
    (folder / "run.json").write_text(json.dumps(RECORD))
    (folder / "config.toml").write_text("[output]\ndirectory = 'runs'\n[data]\nseed = 0\n")
    (folder / "replay.json").write_text("{}")
    (folder / "change-LC 1.html").write_text("<p>sheet</p>")
    return folder


@pytest.fixture
def loop(run: Path, tmp_path: Path) -> Path:
    digest = read_bundle(run / "policy.bundle").digest
    log = AuditLog(tmp_path / "loop/audit", lambda: {"bundle": f"sha256:{digest}"})
    for before, mode in (("shadow", "shadow"), ("shadow", "advisory")):
        words = {"mode": mode, "before": before, "reason": "by the *shift* leader", "notes": []}
        log.append({"kind": "cycle", "wall": 0.0, **words}, durable=True)
    log.close()
    return tmp_path / "loop"


def sections(text: str) -> dict[str, list[str]]:
    parts = re.split(r"(?m)^## ", text)[1:]
    return {part.partition("\n")[0]: part.splitlines()[4:] for part in parts}


def written(run: Path, loop: Path | None = None) -> dict[str, list[str]]:
    return sections(dossier(evidence_of(read_bundle(run / "policy.bundle"), loop), run))


def test_every_statement_names_a_file_with_its_digest(run: Path, loop: Path) -> None:
    statements = [
        line
        for title, lines in written(run, loop).items()
        for line in lines
        if line and title != "Files" and line != NOT_PROVIDED
    ]
    assert len(statements) > 20
    for line in statements:
        found = STATEMENT.match(line)
        assert found, line
        _, name, link, _, digest = found.groups()
        file = run / unquote(link)
        assert file.name == name
        assert hashlib.sha256(file.read_bytes()).hexdigest().startswith(digest)


def test_the_files_are_listed_with_their_whole_digests(run: Path, loop: Path) -> None:
    rows = [line for line in written(run, loop)["Files"] if line.startswith("| [")]
    names = {re.match(r"\| \[(.+?)\]", row).group(1) for row in rows}  # type: ignore[union-attr]
    assert {"manifest.json", "config.toml", "replay.json", "change-LC 1.html"} <= names
    for row in rows:
        link, size, digest = re.match(  # type: ignore[union-attr]
            r"\| \[.+?\]\((.+?)\) \| (\d+) \| ([0-9a-f]{64}) \|", row
        ).groups()
        data = (run / unquote(link)).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (int(size), digest)


@pytest.mark.parametrize(
    ("removed", "title"),
    [
        ("record change-LC 1.html", "Changes"),
        ("record", "Data and their limits"),
        ("loop", "Human oversight"),
        ("loop", "Logging"),
    ],
)
def test_what_no_file_says_is_not_provided(
    run: Path, tmp_path: Path, request: pytest.FixtureRequest, removed: str, title: str
) -> None:
    loop = None if "record" in removed else request.getfixturevalue("loop")
    assert NOT_PROVIDED not in written(run, loop)[title]
    if "change-LC 1.html" in removed:
        (run / "change-LC 1.html").unlink()
    if "record" in removed:
        with_record(run / "policy.bundle", {"id": "5eed"})
    kept = None if removed == "loop" else loop
    assert [line for line in written(run, kept)[title] if line] == [NOT_PROVIDED]


def test_what_an_organisation_states_itself_stays_open(run: Path, loop: Path) -> None:
    text = written(run, loop)
    assert [*text] == [*(heading.title for heading in HEADINGS), "Files"]
    for title in ("Risk management", "Declaration of conformity", "Instructions for use"):
        assert NOT_PROVIDED in text[title]


def test_statements_say_what_the_files_hold(run: Path, loop: Path) -> None:
    text = "\n".join(line for lines in written(run, loop).values() for line in lines)
    for words in (
        "1200 rows in 12 episodes",
        "From shadow to advisory: by the \\*shift\\* leader",
        "always inlet 40 %, outlet 40 %",
        "Nothing was judged",
        "mine, my-learners 0.3",
        "Resumed at 2026-11-21 with mine my-learners 0.4",
    ):
        assert words in text


def test_another_run_beside_the_bundle_is_not_used(run: Path) -> None:
    assert evidence_of(read_bundle(run / "policy.bundle")).run == run
    (run / "run.json").write_text(json.dumps({**RECORD, "id": "other"}))
    assert evidence_of(read_bundle(run / "policy.bundle")).run is None
    (run / "run.json").write_text(json.dumps(RECORD))
    other = run.with_name("0002")
    run.rename(other)
    assert evidence_of(read_bundle(other / "policy.bundle")).run is None


def test_settings_that_were_changed_after_the_run_are_told(run: Path) -> None:
    assert "Every setting of the run, with that digest" in str(written(run))
    (run / "config.toml").write_text("[data]\nseed = 1\n")
    text = str(written(run))
    assert "Settings that were changed" in text
    assert "Every setting" not in text
    (run / "config.toml").write_text("[data")
    with pytest.raises(DeployError, match=r"config\.toml is not the configuration of a run"):
        written(run)


def test_a_bundle_without_its_run_says_what_is_sealed(run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "received/line2.bundle"
    shutil.copytree(run / "policy.bundle", alone)
    text = dossier(evidence_of(read_bundle(alone)), alone.parent)
    for words in (
        "1200 rows in 12 episodes",
        "gain of inlet: 1",
        f"digest {RECORD['config_hash']}",
        "08:00",
    ):
        assert words in text
    assert "run.json" not in text


def test_the_command_writes_it_beside_the_bundle(command, run: Path, loop: Path) -> None:
    bundle = run / "policy.bundle"
    assert "not provided" in command("dossier", bundle, "--loop", loop)
    assert (run / "policy-dossier.md").read_text().startswith("# Evidence for policy.bundle")
    command.refused("dossier", bundle, "--out", bundle / "x.md")
    command.refused("dossier", bundle, "--loop", run)
    read_bundle(bundle)


def test_a_loop_of_another_bundle_is_refused(run: Path, tmp_path: Path) -> None:
    AuditLog(tmp_path / "other/audit", lambda: {"bundle": "sha256:ab"}).close()
    with pytest.raises(DeployError, match="names this bundle"):
        evidence_of(read_bundle(run / "policy.bundle"), tmp_path / "other")
