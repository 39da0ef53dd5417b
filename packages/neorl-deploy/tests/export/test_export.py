"""What an export writes, proves, and refuses."""

import dataclasses
import json
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from neorl_agents import load_policy, save_policy
from neorl_deploy import NotDeployable
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.export._export import _policy_text
from neorl_deploy.runtime import Runtime
from neorl_deploy.training_run import evaluation_summary
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import Flag
from neorl_safety.guards import guard


def test_the_bundle_says_what_it_is(exported, finished_run, spec):
    bundle = read_bundle(exported)
    document = bundle.manifest.document
    assert [c.name for c in bundle.manifest.obs] == ["level", "temperature", "pressure"]
    assert [c.unit for c in bundle.manifest.action] == ["%", "K"]
    assert bundle.manifest.dt == spec.dt
    assert bundle.manifest.verdict == "deploy"
    assert document["provenance"]["data_hash"] == "sha256:ab"
    assert document["provenance"]["run"] == "0001"
    assert document["provenance"]["policy"]["file"] == "policies/iql-0.safetensors"
    digest = load_policy(finished_run / "policies/iql-0.safetensors").digest
    assert document["provenance"]["policy"]["digest"] == digest
    summary = document["evaluation"]
    assert [row["name"] for row in summary["rows"]] == ["iql-0", "pid", "log"]
    assert summary["rows"][0]["returns"] == {"value": 1.0, "low": None}
    complete = json.loads((exported / "evaluation.json").read_text())
    assert complete["results"][0]["returns"] == list(range(200))
    assert (
        f'"returns":{json.dumps(list(range(200)), separators=(",", ":"))}'
        in (exported / "evaluation.json").read_text()
    ), "a row of numbers takes one line"
    names = [entry.name for entry in bundle.manifest.carry]
    assert {".previous", ".report.flags", ".fallback.integral"} <= set(names)
    bits = int(Flag.REQUEST_NONFINITE | Flag.FALLBACK_USED)
    assert bundle.manifest.flag_names(bits) == ("request_nonfinite", "fallback_used")
    assert sorted(path.name for path in exported.iterdir()) == [
        "checksums.json",
        "constraints.json",
        "evaluation.json",
        "guard.json",
        "initial_carry.stablehlo",
        "manifest.json",
        "operations.json",
        "policy.stablehlo",
        "test_vectors.npz",
        "verdict.json",
        "weights.npz",
    ]


def test_results_of_an_unknown_layout_lose_their_long_lists():
    short = evaluation_summary({"tables": 3, "deep": [{"raw": list(range(65)), "few": [1]}]})
    assert short == {"tables": 3, "deep": [{"raw": "65 entries", "few": [1]}]}


def test_parity_was_shown_in_a_process_without_the_training_stack(exported):
    parity = read_bundle(exported).manifest.document["parity"]
    assert 0 <= parity["worst"] <= parity["tolerance"] == 1e-6
    assert parity["flags_equal"]
    assert {"equinox", "neorl_agents", "neorl_safety", "neorl_core"} <= set(parity["kept_out"])


def test_the_test_vectors_visit_the_corners(exported):
    bundle = read_bundle(exported)
    single, sequence = bundle.test_vectors("single"), bundle.test_vectors("sequence")
    assert len(single["obs"]) >= 32
    assert np.isnan(single["obs"]).any()
    assert np.isinf(single["obs"]).any()
    assert (single["obs"][:, 1] > 400).any()
    assert np.isnan(single["last_sent"]).any()
    assert np.isfinite(single["action"]).all()
    assert len(sequence["obs"]) == 64
    assert np.isnan(sequence["last_sent"][0]).all()
    seen = np.bitwise_or.reduce(np.concatenate([single["flags"], sequence["flags"]]))
    names = bundle.manifest.flag_names(int(seen))
    assert {"observation_nonfinite", "previous_unknown", "fallback_used", "rate_active"} <= {*names}


def test_the_exported_program_acts_as_the_guarded_policy(finished_run, exported, spec, log_columns):
    """Independent of the stored test vectors: 100 steps of the loaded bundle beside the objects."""
    candidate = load_policy(finished_run / "policies/iql-0.safetensors").policy
    fallback = load_policy(finished_run / "policies/fallback.safetensors").policy
    policy = guard(candidate, action_constraints(spec, [0.5, None]), fallback, spec)
    step = jax.jit(lambda carry, obs: policy(carry, obs, None))
    carry, sent = policy.initial_carry(), np.full(2, np.nan, np.float32)
    # One of its own: a latch outlives a reset, and tests share the other one.
    runtime = Runtime(read_bundle(exported))
    runtime.reset()
    for obs in log_columns()["obs"][:100]:
        carry, action = step(policy.sent(carry, jnp.asarray(sent)), jnp.asarray(obs))
        decision = runtime.step(obs, sent)
        np.testing.assert_allclose(decision.action, action, rtol=2e-6)
        assert decision.flags == int(carry.report.flags)
        sent = np.asarray(action)


@pytest.mark.nightly
def test_rounding_of_a_controller_that_cancels_large_numbers_is_no_difference(
    run_directory, pid, spec, log_columns, tmp_path
):
    """Terms of 223,000 % make a valve of 50 %: two right compilations differ by 8e-4 %."""
    far = eqx.tree_at(
        lambda pid: (pid.kp, pid.setpoint, pid.bias),
        pid,
        (jnp.array([-2017.3, 1.0]), jnp.array([111.7, 335.0]), jnp.array([223320.0, 300.0])),
    )
    path = run_directory / "policies/iql-1.safetensors"
    save_policy(path, far, spec, log_columns()["obs"][:40], {"algorithm": "pid", "seed": 1})
    options = ExportOptions(out=tmp_path / "far.bundle", policy="policies/iql-1.safetensors")
    bundle = export_run(run_directory, options)
    parity = bundle.manifest.document["parity"]
    assert parity["worst"] <= 1e-6 < parity["rounding"]


def test_the_same_run_gives_the_same_bundle(exported, finished_run, tmp_path):
    again = export_run(finished_run, ExportOptions(out=tmp_path / "again.bundle"))
    assert again.digest == read_bundle(exported).digest
    assert b".py" not in again.files["policy.stablehlo"], "paths of this machine are in the program"


@pytest.mark.nightly
def test_another_policy_of_the_run_can_be_chosen(finished_run, tmp_path, exported):
    options = ExportOptions(out=tmp_path / "b.bundle", policy="policies/iql-1.safetensors")
    chosen = export_run(finished_run, options)
    assert chosen.manifest.document["provenance"]["policy"]["file"] == "policies/iql-1.safetensors"
    assert chosen.digest != read_bundle(exported).digest
    # The run judged iql-0 and found "deploy"; that says nothing of iql-1.
    assert chosen.manifest.verdict == "cannot tell"
    assert chosen.manifest.document["verdict"]["judged"]["answer"] == "deploy"
    gated = dataclasses.replace(options, out=tmp_path / "c.bundle", require_deploy=True)
    with pytest.raises(NotDeployable, match="'cannot tell'"):
        export_run(finished_run, gated)


@pytest.mark.nightly
def test_a_bundle_may_serve_several_platforms(finished_run, tmp_path, exported):
    """Accelerators are made to multiply exactly; a program for processors stays as it is."""
    options = ExportOptions(out=tmp_path / "b.bundle", platforms=("cpu", "cuda"))
    bundle = export_run(finished_run, options)
    assert bundle.manifest.platforms == ("cpu", "cuda")
    for one, exact in ((bundle, True), (read_bundle(exported), False)):
        program = export.deserialize(bytearray(one.files["policy.stablehlo"])).mlir_module()
        assert "dot_general" in program
        assert ("HIGHEST" in program) is exact


@pytest.mark.parametrize("verdict", ["do not deploy", "cannot tell"])
def test_a_gate_writes_nothing_unless_the_verdict_is_deploy(run_directory, verdict):
    path = run_directory / "verdict.json"
    document = json.loads(path.read_text())
    failed = {**document["clauses"][0], "bound": -1.0, "holds": False}
    other = {"answer": verdict, "clauses": [failed]}
    path.write_text(json.dumps({**document, **other}))
    before = sorted(run_directory.iterdir())
    with pytest.raises(NotDeployable, match=f"'{verdict}'; nothing was written") as error:
        export_run(run_directory, ExportOptions(require_deploy=True))
    assert error.value.exit_code == 3
    assert sorted(run_directory.iterdir()) == before


def test_the_words_of_a_fallback_name_its_interlocks(pid, spec):
    interlocked = dataclasses.replace(
        pid,
        override_below=jnp.array([340.0]),
        override_cap=jnp.array([20.0]),
        override_output=(0,),
        override_measured=(1,),
    )
    text = _policy_text(types.SimpleNamespace(kind="pid", spec=spec, policy=interlocked))
    assert text.endswith("; valve at most 20 % while temperature is below 340 K or lost")
