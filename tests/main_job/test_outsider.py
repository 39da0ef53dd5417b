"""A learner, a plant, a reader and a kind of constraint that others bring, through all commands."""

import hashlib
import json
import re
import runpy
from pathlib import Path

import pytest

OUTSIDER = Path(__file__).parents[1] / "outsider"
RUNS = Path(__file__).parent / "outsider_runs"
PAGE = Path(__file__).parents[2] / "docs" / "pages" / "how-to" / "extend.md"
CODE = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted((OUTSIDER / "src" / "outsider").glob("*.py")))
).hexdigest()[:16]
ORIGIN = f"outsider 0.1.0, code sha256:{CODE}"
WORDS = "inflow at most 10 l/s while observation 0 is above 1.5"
SCRIPT = """
from neorl_deploy.export import export_run
from neorl_envs import environment_names, make, read_dataset
from neorl_train import configure, start

from neorl_agents import ALGORITHMS
from neorl_envs.ingest import register_reader
from neorl_envs.plants import register_plant
from neorl_safety.constraints import register_kind
from outsider.ceiling import CEILING
from outsider.crr import CRR
from outsider.table import READER
from outsider.tank import Tank

ALGORITHMS.register("crr", CRR)
register_plant("Tank-v0", Tank)
register_reader("table", READER)
register_kind("ceiling", CEILING)

assert "Tank-v0" in environment_names() and make("Tank-v0") == Tank()
assert read_dataset("log.table").spec == Tank().spec
run = start(configure("table.toml", output={"directory": "registered"}), quiet=True)
code = "registered, code sha256:CODE"
assert run.record["origins"] == {
    "algorithm": {"crr": code},
    "reader": {"table": "registered"},
    "constraint": {"ceiling": "registered"},
}, run.record["origins"]
assert repr(run.verdict).startswith("CANNOT TELL")
bundle = export_run(run.path)
assert "WORDS" in bundle.manifest.document["constraint_words"]
"""


def test_its_plant_is_listed_recorded_and_inspected(
    command, work: Path, printed: dict[str, str]
) -> None:
    assert "from outsider 0.1.0" in printed["neorl-envs list"]
    assert "Tank-v0: 60 rows, 2 episodes" in printed["neorl-envs inspect tank.h5"]
    assert "log: 96 rows, 8 episodes" in printed["neorl-envs inspect log.table"]
    unknown = command("neorl-envs", "inspect", "log.table", cwd=work, code=2)
    assert "expected an HDF5 dataset file" in unknown.stderr


def test_its_plant_is_described_and_recorded_from_its_folder(
    in_one_process, tmp_path: Path
) -> None:
    describe, collect = in_one_process(
        "neorl-envs describe outsider.tank:Tank",
        f"neorl-envs collect outsider.tank:Tank --steps=60 --out={tmp_path / 'tank.h5'}",
        cwd=OUTSIDER / "src",
    ).values()
    assert "at most 0.5 per second" in describe
    assert "60 rows, 2 episodes" in collect


def test_its_plant_learner_and_constraint_are_named_by_run_report_and_artefact(
    work: Path, learners: tuple[str, ...]
) -> None:
    run = work / "runs" / "0001"
    record = json.loads((run / "run.json").read_text())
    assert record["origins"] == {
        "algorithm": dict.fromkeys(learners, ORIGIN),
        "environment": {"Tank-v0": ORIGIN},
        "constraint": {"ceiling": ORIGIN},
    }
    assert WORDS in record["limits"]
    page = (run / "report.html").read_text()
    assert "crr: outsider 0.1.0" in page
    assert "Tank-v0: outsider 0.1.0" in page
    assert WORDS in page
    kinds = [c["kind"] for c in json.loads((run / "constraints.json").read_text())["constraints"]]
    assert kinds == ["box", "rate", "ceiling"]
    manifest = json.loads((run / "policy.bundle" / "manifest.json").read_text())
    assert manifest["provenance"]["policy"]["metadata"]["origin"] == ORIGIN
    assert manifest["provenance"]["record"]["origins"] == record["origins"]
    assert WORDS in manifest["constraint_words"]


@pytest.mark.nightly
def test_a_learner_with_costs_and_one_with_a_model_end_in_bundles(
    command, work: Path, installed: Path
) -> None:
    for name in ("lagrangian", "imagined"):
        words = ("--policy", f"{name}-0", "--out", f"{name}.bundle")
        command("neorl-deploy", "export", *words, cwd=work, installed=installed)
        manifest = json.loads((work / f"{name}.bundle" / "manifest.json").read_text())
        assert manifest["provenance"]["policy"]["file"].endswith(f"{name}-0.safetensors")


@pytest.mark.nightly
def test_its_family_of_candidates_joins_the_pool_and_is_exported_and_replayed(
    in_one_process, installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "shift.toml").write_text((RUNS / "shift.toml").read_text())
    in_one_process(
        "neorl-train run shift.toml --quiet",
        "neorl-deploy export runs/0001",
        "neorl-deploy replay runs/0001/policy.bundle",
        cwd=tmp_path,
        installed=installed,
    )
    run = tmp_path / "runs" / "0001"
    record = json.loads((run / "run.json").read_text())
    assert record["origins"]["candidate"] == {"shift": ORIGIN}
    assert [one["family"] for one in record["candidates"]] == ["retuned", "learner", "shift"]
    assert any(line.startswith("shift-0 (today's controller with") for line in record["choice"])
    assert json.loads((run / "verdict.json").read_text())["candidate"] == "shift-0"
    assert json.loads((run / "replay.json").read_text())


def test_its_bundle_is_verified_and_replayed_where_it_is_not_installed(
    in_one_process, work: Path
) -> None:
    """A bundle holds compiled programs: whoever runs it needs nothing of those who made it."""
    lines = (f"neorl-deploy {verb} runs/0001/policy.bundle" for verb in ("verify", "replay"))
    assert [WORDS in part for part in in_one_process(*lines, cwd=work).values()] == [True, True]


@pytest.mark.nightly
def test_its_file_is_trained_on_by_its_reader_and_a_run_names_it(
    command, work: Path, installed: Path
) -> None:
    done = command("neorl-train", "run", "table.toml", "--quiet", cwd=work, installed=installed)
    assert "CANNOT TELL" in done.stdout
    assert WORDS in done.stdout
    run = sorted((work / "runs").glob("0*"))[-1]
    record = json.loads((run / "run.json").read_text())
    assert record["origins"]["reader"] == {"table": ORIGIN}
    assert record["dataset"]["rows"] == 96
    inspected = command("neorl-train", "inspect", str(run), cwd=work, installed=installed).stdout
    assert re.search(r"reader +table, from outsider 0.1.0", inspected)


@pytest.mark.nightly
def test_the_same_by_calls_in_python(command, work: Path) -> None:
    script = SCRIPT.replace("WORDS", WORDS).replace("CODE", CODE)
    command("python", "-c", script, cwd=work, installed=OUTSIDER / "src")


def test_its_learner_keeps_the_laws(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(OUTSIDER / "src"))
    laws = runpy.run_path(str(OUTSIDER / "laws.py"))["LAWS"]
    assert "masked_rows_are_inert" in laws
    for law in laws.values():
        law()


def test_the_page_shows_what_is_tested() -> None:
    suffixes = ("*.py", "*.toml")
    sources = [path.read_text() for suffix in suffixes for path in OUTSIDER.rglob(suffix)]
    sources += [SCRIPT, (RUNS / "plant.toml").read_text()]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        # Two blocks are run by test_outsider_learners.py.
        if not re.search(r"train_online\(|module_kind\(", block):
            assert any(block in source for source in sources), block
