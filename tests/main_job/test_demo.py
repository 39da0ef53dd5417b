"""The demo on the reactor, small; no process reaches another machine."""

import json
import re
import shlex
from pathlib import Path

import chex
import pytest

import demo
from neorl_agents import load_policy
from neorl_train.judging import parts, read_evaluation, read_verdict


def test_it_says_what_it_does_then_the_answer_and_what_to_open(
    finished: Path, demo_lines: tuple[list[str], list[str]]
) -> None:
    (first, *stages), (answer, *reasons, report, bundle) = demo_lines
    assert first.startswith("In about two minutes on two cores")
    assert stages
    assert all(re.match(r" *\d+\.\d s  \S", line) for line in stages), stages
    verdict = read_verdict(finished)
    opening, deciding, _ = parts(verdict)
    assert verdict.answer != "deploy"  # after so little
    assert answer == f"{verdict.answer.upper()}  {opening}"
    assert [line.split(". ", 1)[1] for line in reasons if line] == deciding
    assert (report, bundle) == (
        "report: runs/0001/report.html",
        "bundle: runs/0001/policy.bundle",
    )
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_reasons_to_deploy_are_the_gain_the_limits_and_the_networks(finished: Path) -> None:
    tables = read_evaluation(finished).tables
    earned, kept, others = demo.reasons(read_verdict(finished), tables)
    ours = tables.row(tables.candidate, guarded=True)
    assert re.match(r"it earns (no|[\d.]+ points) (more|less) per episode than PID 100/15", earned)
    assert kept.endswith(f"in {round(16 * (1 - ours.satisfied.value))} of 16 episodes")
    for name in ("bc-0", "bc-1"):
        row = tables.row(name, guarded=True)
        assert f"{name} in {round(16 * (1 - row.satisfied.value))} of 16" in others


def test_the_answer_of_the_readme_has_the_words_of_the_demo(finished: Path, checkout: Path) -> None:
    """Its numbers are those of a run of the demo, and its words those that are printed today."""
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(DEPLOY .+?)```", readme, flags=re.DOTALL)
    answer, *shown = block.splitlines()
    assert answer == "DEPLOY  retuned-0 behind its guard may be deployed"
    tables = read_evaluation(finished).tables
    printed = demo.reasons(read_verdict(finished), tables)
    # The gain of so small a demo may be none, so its sentence is that of another test.
    number = r"\d\.\d{1,2}"
    gain = rf"it earns {number} points more per episode than PID 100/1500"
    assert re.match(rf"  1\. {gain} \(95 % interval {number} to {number}\)$", shown[0])
    for line, reason in zip(shown[1:], printed[1:], strict=True):
        # Numbers aside; a space within an interval does not break.
        words, now = (
            " ".join(re.sub(r"-?[\d.]+", "0", text).split())
            for text in (line.split(". ", 1)[1], reason)
        )
        assert now.startswith(words.removesuffix(" 0")), reason


def test_the_commands_cannot_reach_another_machine(command, tmp_path: Path) -> None:
    """The guard of these tests would notice."""
    line = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)"
    refused = command("python", "-c", line, cwd=tmp_path, code=1)
    assert "OutboundConnectionError" in refused.stderr


def test_verdict_and_tables_are_complete(finished: Path) -> None:
    verdict = json.loads((finished / "verdict.json").read_text())
    assert verdict["answer"] in {"deploy", "do not deploy", "cannot tell"}
    clauses = [clause["name"] for clause in verdict["clauses"]]
    # A search this small may change nothing, which has a clause of its own.
    assert clauses[clauses.index("return") :] == [
        "return",
        "worst episode",
        "temperature",
        "pressure",
        "temperature, single episodes",
    ]
    assert clauses[: clauses.index("return")] in ([], ["change"])
    tables = json.loads((finished / "evaluation.json").read_text())["tables"]
    seen = {(row["name"], row["guarded"]) for row in tables["rows"]}
    learned = {(name, guarded) for name in ("bc-0", "bc-1") for guarded in (False, True)}
    assert learned | {("PID 106/1500", False), ("log", False)} <= seen


def test_policies_differ_by_seed_and_kind(finished: Path) -> None:
    files = sorted((finished / "policies").glob("*.safetensors"))
    names = {"bc-0", "bc-1", "fallback", "retuned-0"}
    assert names <= {file.stem for file in files}
    assert len({file.read_bytes() for file in files}) == len(files)


def test_the_bundle_is_proven_and_was_run_in_shadow(finished: Path) -> None:
    manifest = json.loads((finished / "policy.bundle" / "manifest.json").read_text())
    assert manifest["parity"]["worst"] <= 1e-6
    assert manifest["verdict"] == json.loads((finished / "verdict.json").read_text())
    replayed = json.loads((finished / "replay.json").read_text())
    assert replayed["finite"]
    assert {*replayed["difference"]} == {"feed", "T_in_M", "T_in_EK"}


@pytest.mark.nightly
def test_the_three_commands_that_it_stands_for_do_the_same(
    command, small_demo: tuple[str, ...], checkout: Path, finished: Path, tmp_path: Path
) -> None:
    """Those that ``--help`` names, with the same options: the same policies, to the bit."""
    words = command("python", checkout / "tools/demo.py", "--help", cwd=tmp_path).stdout
    lines = [shlex.split(line) for line in words.splitlines() if line.startswith("    neorl-")]
    assert [line[:2] for line in lines] == [
        ["neorl-train", "run"],
        ["neorl-deploy", "export"],
        ["neorl-deploy", "replay"],
    ]
    assert lines[0][2:] == [word for option in demo.SETTINGS for word in option]
    given = {word.partition("=")[0] for word in small_demo}
    own = [word for option in demo.SETTINGS if option[0] not in given for word in option]
    lines[0][2:] = [*own, *small_demo]
    outputs = [command(*line, cwd=tmp_path).stdout for line in lines]

    run = tmp_path / "runs" / "0001"
    for file in (finished / "policies").glob("*.safetensors"):
        once, again = (load_policy(one / "policies" / file.name) for one in (finished, run))
        chex.assert_trees_all_equal(once.policy, again.policy)
    record, verdict = (json.loads((run / f"{n}.json").read_text()) for n in ("run", "verdict"))
    assert outputs[0].strip().splitlines()[-1].endswith("report.html")
    assert f"Verdict of run 0001: {verdict['answer']}" in outputs[1]
    # The retuned controller, every learner, and the mean of its seeds compete without the plant.
    for name in ("retuned-0", "bc-0", "bc-mean"):
        assert any(line.startswith((f"{name}:", f"{name} (")) for line in record["choice"]), name
    command("neorl-deploy", "verify", "runs/0001/policy.bundle", cwd=tmp_path)
    for channel in ("feed", "T_in_M", "T_in_EK"):
        assert channel in outputs[2]
    assert outputs[2].strip().splitlines()[-1].startswith("Report of the run: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's use of its database layer
def test_records_reach_the_tracking_database(command, workplace: Path, finished: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra neorl-train[mlflow] is not installed")
    command("neorl-train", "inspect", "runs/0001", "--track", cwd=workplace)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.parent / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    bc = [run for run in runs if run.data.tags.get("neorl.algorithm") == "bc"]
    assert len(bc) == 2
    recorded = json.loads((finished / "run.json").read_text())
    for run in bc:
        assert run.data.params
        history = client.get_metric_history(run.info.run_id, "actor_loss")
        assert [point.step for point in history] == [100, 200, 300, 400]
        text = json.dumps(run.data.params) + json.dumps(run.data.tags)
        assert recorded["dataset"]["content_hash"] in text
