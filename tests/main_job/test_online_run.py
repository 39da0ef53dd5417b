"""A run on a plant without a log: trained from nothing, judged, exported, killed and resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_train.judging import read_evaluation, read_verdict
from neorl_train.runs import read_records, tree_digest

CONFIGURATION, _, _ = (
    (Path(__file__).parent / "outsider_runs" / "online.toml").read_text().partition("# As in")
)


@pytest.fixture(scope="module")
def straight(work: Path) -> Path:
    """A finished run."""
    return work / "online" / "0001"


def test_it_learns_without_a_log_and_is_judged_beside_the_controllers(straight: Path) -> None:
    assert not (straight / "dataset.h5").exists()
    record = json.loads((straight / "run.json").read_text())
    assert record["status"] == "finished"
    assert "dataset" not in record
    (exploration,) = record["exploration"]
    assert exploration.startswith(
        f"actor_critic took {20 * 16 * 16} steps on the simulated plant while it learned: of "
    )
    evaluation = read_evaluation(straight)
    guarded = {row.name: row.role for row in evaluation.tables.rows if row.guarded}
    assert guarded == {"actor_critic-0": "learner", "slow": "classical", "fast": "classical"}
    assert "log" not in {row.role for row in evaluation.tables.rows}
    assert read_verdict(straight).candidate == "actor_critic-0"
    assert (
        "none, because learners were trained on the plant itself"
        in (straight / "report.html").read_text()
    )
    metrics = [line["metrics"] for line in records(straight)]
    assert any("online_return" in one for one in metrics)
    # Scaled by the declared range of the level, 0 to 2 m: its middle is the zero of the networks.
    policy: Any = load_policy(straight / "policies" / "actor_critic-0.safetensors").policy
    assert float(np.ravel(policy.obs.offset)[0]) == 1.0


@pytest.mark.nightly
def test_its_bundle_replays_a_log_that_is_recorded_afterwards(
    command, straight: Path, installed: Path
) -> None:
    runs = straight.parent.parent
    exported = command("neorl-deploy", "export", straight, cwd=runs, installed=installed)
    assert "replay" in exported.stdout
    collect = ("--environment=Tank-v0", "--steps=60", "--out=afterwards.h5")
    command("neorl-envs", "collect", *collect, cwd=runs, installed=installed)
    bundle = straight / "policy.bundle"
    replayed = command("neorl-deploy", "replay", bundle, "afterwards.h5", cwd=runs)
    assert "60 rows" in replayed.stdout


OURS = """
[algorithms.ppo_lag]
networks.hidden = [8]
[algorithms.sac]
networks.hidden = [8]
steps.batch_size = 32
"""


@pytest.mark.nightly
def test_the_learners_of_the_table_train_on_a_plant_are_judged_and_sealed(
    tmp_path: Path, command, installed: Path
) -> None:
    """One of each kind: rollouts and prices, and a buffer; on a plant that has cost limits."""
    words = CONFIGURATION.replace("Tank-v0", "CSTR-v0")
    words = words.replace('["actor_critic"]', '["sac", "ppo_lag"]').replace("= 16", "= 10")
    words = words.partition("[algorithms.actor_critic]")[0] + OURS
    (tmp_path / "online.toml").write_text(words)
    command("neorl-train", "run", "online.toml", "--quiet", cwd=tmp_path, installed=installed)
    run = tmp_path / "runs/0001"
    exploration = json.loads((run / "run.json").read_text())["exploration"]
    assert [line.split()[0] for line in exploration] == ["sac", "ppo_lag"]
    assert {line["metrics"].get("multiplier") is None for line in records(run)} == {True, False}
    assert read_verdict(run).candidate == "ppo_lag-0"
    exported = command("neorl-deploy", "export", cwd=tmp_path, installed=installed)
    assert "policies/ppo_lag-0.safetensors (network)" in exported.stdout


def records(run: Path) -> list[dict[str, Any]]:
    return read_records(run / "metrics.jsonl")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["actor_critic", "ppo", "sac"])
def test_killed_it_continues_to_the_same_bits(tmp_path: Path, installed: Path, name: str) -> None:
    words = CONFIGURATION.replace("updates = 20", "updates = 400").replace("= 16", "= 10")
    words = words.replace("actor_critic", name) + "steps.batch_size = 32\n" * (name == "sac")
    (tmp_path / "online.toml").write_text(words)
    program = "import sys\nfrom neorl_train._command.main import main\nsys.exit(main())"

    def start(*words: str) -> subprocess.Popen:
        environ = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.Popen(
            [sys.executable, "-c", program, *words, "--quiet"], cwd=tmp_path, env=environ
        )

    def result(run: Path) -> tuple:
        policy = load_policy(run / "policies" / f"{name}-0.safetensors")
        lines = [{**line, "time": 0} for line in records(run)]
        answer = json.loads((run / "verdict.json").read_text())
        return tree_digest(policy.policy), policy.parity_actions.tobytes(), lines, answer

    assert start("run", "online.toml", "--output.directory", "straight").wait() == 0
    run = tmp_path / "killed" / "0001"
    words = ["run", "online.toml", "--output.directory", "killed"]
    for _ in range(2):
        metrics = run / "metrics.jsonl"
        begun = metrics.stat().st_size if metrics.exists() else 0
        process = start(*words)
        while process.poll() is None and (not metrics.exists() or metrics.stat().st_size <= begun):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
        words = ["resume", str(run)]
    assert start(*words).wait() == 0
    assert result(run) == result(tmp_path / "straight" / "0001")
    shutil.rmtree(run)
