"""Damaged runs and full disks: one line, exit code 2, nothing left behind."""

import fcntl
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_core.control import ConstantPolicy
from neorl_deploy import DeployError
from neorl_deploy._command.text import limit_lines
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.export._export import prove_parity
from neorl_deploy.training_run import newest_run


def refused(run, message, **options):
    before = sorted(path.relative_to(run) for path in run.rglob("*"))
    with pytest.raises(DeployError, match=message) as error:
        export_run(run, ExportOptions(**options))
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == before


@pytest.mark.parametrize("name", ["run", "verdict", "evaluation", "constraints"])
def test_a_missing_or_damaged_document_is_named(run_directory, name):
    path = run_directory / f"{name}.json"
    path.write_text("{")
    refused(run_directory, rf"{name}\.json is not valid JSON")
    path.write_text("[]")
    refused(
        run_directory, rf"{name}\.json holds no JSON object, expected one of format neorl-{name}"
    )
    path.write_text(json.dumps({"format": f"neorl-{name}", "version": 2}))
    refused(run_directory, rf"{name}\.json has version 2 of neorl-{name}, .* reads 1")
    path.write_text(json.dumps({"format": "neorl-policy", "version": 1}))
    refused(run_directory, "has format 'neorl-policy', expected")
    path.unlink()
    refused(run_directory, rf"{name}\.json is missing")


def test_an_unfinished_run_is_refused(run_directory):
    edit(run_directory, "run", status="interrupted")
    refused(run_directory, "is interrupted, not finished; continue it with `neorl-train resume")
    with pytest.raises(DeployError, match="no finished run"):
        newest_run(run_directory.parent)
    edit(run_directory, "run", status="failed", error="RESOURCE_EXHAUSTED:\nOut of memory")
    only = "; correct the cause, then `neorl-train resume .*` continues it$"
    refused(run_directory, f"failed: RESOURCE_EXHAUSTED: Out of memory{only}")
    edit(run_directory, "run", status="failed", error="")
    refused(run_directory, "failed: it gave no reason")


def test_a_run_that_is_still_training_is_told_from_a_killed_one(run_directory):
    edit(run_directory, "run", status="running")
    lock = run_directory / "run.lock"
    lock.write_text("4711\n")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused(run_directory, r"is still training \(process 4711\); wait until it is finished$")
    killed = "stopped without an error message before it was finished; continue it with `neorl-"
    refused(run_directory, killed)
    lock.unlink()
    refused(run_directory, killed)


def edit(run, name, **values):
    path = run / f"{name}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_strange_verdict_or_candidate_is_refused(run_directory):
    refused(
        run_directory,
        "missing; the run has fallback, iql-0, iql-1",
        policy="policies/x.safetensors",
    )
    refused(run_directory, r"x\.safetensors is missing; the run has fallback, iql", policy="x")
    refused(run_directory, "is not a policy of .*: the run has fallback, iql", policy="../iql-0")
    for candidate in ("../../etc/passwd", "/etc/passwd", "run.json", "policies/../run.json"):
        edit(run_directory, "verdict", artefact=candidate)
        refused(run_directory, "is not a policy of")
    edit(run_directory, "verdict", artefact="policies/iql-1.safetensors")
    refused(run_directory, "judges 'iql-0' and names the artefact policies/iql-1.safetensors")
    edit(run_directory, "verdict", artefact=None)
    refused(run_directory, "names no candidate; choose one with --policy")
    edit(run_directory, "verdict", answer="perhaps")
    refused(run_directory, "'perhaps'; expected one of deploy")


def test_a_verdict_that_contradicts_itself_is_refused(run_directory):
    edit(run_directory, "verdict", answer="do not deploy")
    refused(run_directory, "and every clause holds; remove it, and `neorl-train resume")


def test_a_damaged_policy_is_refused(run_directory):
    path = run_directory / "policies/iql-0.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    refused(run_directory, r"iql-0\.safetensors was changed or damaged")


def test_a_policy_that_was_exchanged_after_the_verdict_is_refused(run_directory):
    judged = load_policy(run_directory / "policies/iql-0.safetensors").digest
    edit(run_directory, "run", policies={"iql-0.safetensors": judged})
    shutil.copy(
        run_directory / "policies/iql-1.safetensors", run_directory / "policies/iql-0.safetensors"
    )
    refused(run_directory, "is not the policy that the run trained and judged")


def test_constraints_of_another_plant_are_refused(run_directory):
    document = json.loads((run_directory / "constraints.json").read_text())
    document["channels"][0]["unit"] = "m3/h"
    (run_directory / "constraints.json").write_text(json.dumps(document))
    refused(run_directory, r"1 \(box of 'valve'\): unit is '%', but valve is in 'm3/h'; convert")
    for record in document["constraints"]:
        record["unit"] = "m3/h" if record["channel"] == "valve" else record["unit"]
    (run_directory / "constraints.json").write_text(json.dumps(document))
    refused(run_directory, r"'valve', 'm3/h'.*; the policy sets .*'valve', '%'")
    document["constraints"] = []
    (run_directory / "constraints.json").write_text(json.dumps(document))
    refused(run_directory, r"constraints\.json: there is no box")


def test_a_fallback_of_another_plant_is_refused(run_directory, spec):
    import dataclasses

    artefact = load_policy(run_directory / "policies/fallback.safetensors")
    other = dataclasses.replace(spec, dt=1.0)
    path = run_directory / "policies/fallback.safetensors"
    save_policy(path, artefact.policy, other, artefact.parity_obs, {})
    refused(run_directory, "are for different plants")


def test_a_constant_may_be_the_fallback(run_directory, spec, tmp_path):
    artefact = load_policy(run_directory / "policies/fallback.safetensors")
    path = run_directory / "policies/fallback.safetensors"
    constant = ConstantPolicy(np.array([50.0, 300.0], np.float32))
    save_policy(path, constant, spec, artefact.parity_obs, {})
    bundle = export_run(run_directory)
    fallback = bundle.manifest.document["provenance"]["fallback"]
    assert (fallback["kind"], fallback["words"]) == ("constant", "always valve 50 %, jacket 300 K")
    expected = "Fallback, where the policy cannot act (constant): always valve 50 %, jacket 300 K"
    assert expected in list(limit_lines(bundle))


def test_an_existing_place_is_respected(run_directory, exported, tmp_path):
    taken = tmp_path / "taken.bundle"
    shutil.copytree(exported, taken)
    refused(run_directory, "exists; choose another place with --out", out=taken)
    (tmp_path / "precious.bundle").mkdir()
    (tmp_path / "precious.bundle" / "thesis.txt").write_text("")
    refused(
        run_directory,
        "is not a bundle, so it is not overwritten",
        out=tmp_path / "precious.bundle",
        overwrite=True,
    )
    refused(run_directory, "should end in .bundle", out=tmp_path / "policy")
    refused(run_directory, "does not exist; make it first", out=tmp_path / "none" / "a.bundle")
    edit(run_directory, "verdict", answer="cannot tell", clauses=[])
    written = export_run(run_directory, ExportOptions(out=taken, overwrite=True))
    assert written.manifest.verdict == read_bundle(taken).manifest.verdict == "cannot tell"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "precious.bundle",
        "runs",
        "taken.bundle",
    ]


def test_an_unknown_platform_is_refused(run_directory):
    refused(run_directory, "cannot export for abacus: choose from cpu", platforms=("abacus",))
    refused(run_directory, "cannot export for tpu: .* cpu must be among them", platforms=("tpu",))


def test_a_program_that_does_not_run_elsewhere_is_not_written(bundle):
    """The proof itself can fail: here the draft is damaged."""
    (bundle / "policy.stablehlo").write_bytes(b"")
    with pytest.raises(DeployError, match="does not run in a fresh process"):
        prove_parity(bundle)


@pytest.mark.nightly
def test_a_full_disk_leaves_nothing_behind(run_directory):
    code = f"""
import resource, sys
from neorl_deploy._command.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
sys.exit(main(["export", {str(run_directory)!r}]))
"""

    before = sorted(run_directory.rglob("*"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "nothing was left behind" in done.stderr
    assert f"cannot write {run_directory / 'policy.bundle'}: " in done.stderr
    assert sorted(run_directory.rglob("*")) == before


def test_ctrl_c_leaves_nothing_behind(command, run_directory, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("neorl_deploy.export._export.prove_parity", stopped)
    before = sorted(run_directory.rglob("*"))
    error = command.refused("export", run_directory, code=130)
    assert error.endswith("\nneorl-deploy: stopped; nothing was left behind\n")
    assert sorted(run_directory.rglob("*")) == before
