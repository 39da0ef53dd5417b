"""The three commands of the demo on the reactor, small; no process reaches another machine."""

import json
import shlex
import tomllib
from pathlib import Path

import chex
import pytest

from neorl_agents import load_policy

pytestmark = pytest.mark.slow


def test_the_last_line_says_where_the_report_lies(finished: Path, outputs: dict[str, str]) -> None:
    last = outputs["run"].strip().splitlines()[-1]
    assert str(finished / "report.html") in last or "runs/0001/report.html" in last
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_commands_cannot_reach_another_machine(command, tmp_path: Path) -> None:
    """The guard of these tests would notice."""
    line = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=2)"
    refused = command("python", "-c", line, cwd=tmp_path, code=1)
    assert "OutboundConnectionError" in refused.stderr


def test_verdict_and_tables_are_complete(finished: Path) -> None:
    verdict = json.loads((finished / "verdict.json").read_text())
    assert verdict["answer"] in {"deploy", "do not deploy"}
    assert [clause["name"] for clause in verdict["clauses"]] == [
        "return",
        "worst episode",
        "temperature",
        "pressure",
        "temperature, single episodes",
    ]
    tables = json.loads((finished / "evaluation.json").read_text())["tables"]
    seen = {(row["name"], row["guarded"]) for row in tables["rows"]}
    learners = [f"{name}-{seed}" for name in ("bc", "td3_bc", "iql") for seed in (0, 1)]
    learned = {(name, guarded) for name in learners for guarded in (False, True)}
    assert learned | {("PID 106/1500", False), ("log", False)} <= seen


def test_policies_differ_by_seed_and_algorithm(finished: Path) -> None:
    files = sorted((finished / "policies").glob("*.safetensors"))
    assert len(files) == 7  # three learners with two seeds, and the fallback
    assert len({file.read_bytes() for file in files}) == 7


def test_export_and_replay_say_what_they_did(workplace: Path, outputs: dict[str, str]) -> None:
    bundles = [path for path in workplace.rglob("*.bundle") if path.is_dir()]
    assert len(bundles) == 1
    assert bundles[0].name in outputs["export"]
    assert json.loads((bundles[0] / "manifest.json").read_text())["parity"]["worst"] <= 1e-6
    for channel in ("feed", "T_in_M", "T_in_EK"):
        assert channel in outputs["replay"]
    last = outputs["replay"].strip().splitlines()[-1]
    assert last.startswith("Report of the run: ")
    assert last.endswith("report.html")


@pytest.mark.nightly
def test_it_succeeds_twice(
    command, workplace: Path, small: tuple[str, ...], finished: Path
) -> None:
    only = ("--training.algorithms=bc", "--evaluation.candidate=bc")
    command("neorl-train", "run", *small, *only, cwd=workplace)
    second = workplace / "runs" / "0002"
    assert (second / "report.html").is_file()
    # The same configuration gives the same policies, to the bit.
    for seed in (0, 1):
        name = f"bc-{seed}.safetensors"
        once, again = (load_policy(run / "policies" / name) for run in (finished, second))
        chex.assert_trees_all_equal(once.policy, again.policy)
    command("neorl-deploy", "export", cwd=workplace)
    command("neorl-deploy", "replay", cwd=workplace)


@pytest.mark.nightly
def test_the_commands_of_the_script_retune_judge_seal_and_replay(
    command, small: tuple[str, ...], checkout: Path, tmp_path: Path
) -> None:
    """As pyproject.toml states them; the run takes further arguments that only make it small."""
    settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    script = settings["tool"]["hatch"]["envs"]["default"]["scripts"]["demo"]
    lines = [shlex.split(line.replace("{args}", shlex.join(small))) for line in script]
    assert [line[:2] for line in lines] == [
        ["neorl-train", "run"],
        ["neorl-deploy", "export"],
        ["neorl-deploy", "replay"],
    ]
    assert lines[0][-len(small) :] == list(small)
    printed = [command(*line, cwd=tmp_path).stdout for line in lines]

    run = tmp_path / "runs" / "0001"
    record, verdict = (json.loads((run / f"{n}.json").read_text()) for n in ("run", "verdict"))
    assert verdict["answer"] in {"deploy", "do not deploy", "cannot tell"}
    assert f"Verdict of run 0001: {verdict['answer']}" in printed[1]
    # The retuned controller, every learner, and the mean of its seeds compete without the plant.
    names = [f"{name}{which}" for name in ("bc", "td3_bc", "iql") for which in ("-0", "-mean")]
    for name in ("retuned-0", *names):
        assert any(line.startswith((f"{name}:", f"{name} (")) for line in record["choice"]), name
    manifest = json.loads((run / "policy.bundle" / "manifest.json").read_text())
    assert manifest["verdict"] == verdict
    assert manifest["parity"]["worst"] <= 1e-6
    command("neorl-deploy", "verify", "runs/0001/policy.bundle", cwd=tmp_path)
    assert json.loads((run / "replay.json").read_text())["finite"]
    assert printed[2].strip().splitlines()[-1].startswith("Report of the run: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's use of its database layer
def test_records_reach_the_tracking_database(finished: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra neorl-train[mlflow] is not installed")
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.parent / 'mlflow.db'}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    iql = [run for run in runs if run.data.tags.get("neorl.algorithm") == "iql"]
    assert len(iql) >= 2
    recorded = json.loads((finished / "run.json").read_text())
    for run in iql:
        assert run.data.params
        history = client.get_metric_history(run.info.run_id, "critic_loss")
        assert [point.step for point in history] == [100, 200, 300, 400]
        text = json.dumps(run.data.params) + json.dumps(run.data.tags)
        assert recorded["dataset"]["content_hash"] in text
