"""A log in a file goes through the whole job: judged on its simulator, or with declared loops."""

import json
from pathlib import Path

import pytest

from neorl_agents import load_policy
from neorl_envs import make

pytestmark = pytest.mark.nightly

LITTLE = (
    "--training.updates=20",
    "--training.chunk=20",
    "--training.seeds=0",
    "--training.algorithms=bc",
    "--checkpoints.interval=20",
    "--data.held-out=0.25",
    "--evaluation.starts=8",
    "--evaluation.curve-starts=0",
    "--retuning.updates=20",
    "--retuning.generations=1",
    "--output.no-tracking",
)
DECLARED = """
[data]
source = "log.h5"
[penalty]
temperature = 1.0
[[classical.declared.dcs]]
controlled = "C_A"
manipulated = "T_c"
setpoint_channel = "C_A_SP"
gain = 12.0
direction = "direct"
integral_time = 150.0
bias = 298.0
[evaluation]
incumbent = "dcs"
candidate = "retuned"
[retuning]
controller = "incumbent"
exogenous = ["C_A_SP"]
[fallback]
kind = "classical"
controller = "dcs"
"""
ROWS, EPISODES = 2400, 24


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that was recorded on CSTR-v0."""
    folder = tmp_path_factory.mktemp("log")
    words = ("collect", "CSTR-v0", "--steps", ROWS, "--out", "log.h5")
    command("neorl-envs", *words, cwd=folder)
    return folder


def test_a_log_is_judged_on_its_simulator_sealed_and_replayed(command, folder: Path) -> None:
    """The simulator that ``evaluation.environment`` names judges what the bundle seals."""
    words = ("run", "log.h5", "--evaluation.environment", "CSTR-v0")
    printed = command("neorl-train", *words, *LITTLE, "--output.directory=judged", cwd=folder)
    run = folder / "judged" / "0001"
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["answer"] in ("deploy", "do not deploy", "cannot tell")
    assert verdict["answer"] in printed.stdout.lower()
    tables = json.loads((run / "evaluation.json").read_text())["tables"]
    assert (tables["environment"], tables["reference"]) == ("CSTR-v0", "PI")
    assert {*make("CSTR-v0").tunings()} <= {row["name"] for row in tables["rows"]}
    command("neorl-deploy", "export", run, cwd=folder)
    bundle = run / "policy.bundle"
    sealed = json.loads((bundle / "verdict.json").read_text())
    assert sealed == verdict
    replayed = command("neorl-deploy", "replay", bundle, "log.h5", cwd=folder).stdout
    assert f"{ROWS} rows of {EPISODES} episodes" in replayed


def test_declared_loops_are_retuned_sealed_and_replayed(command, folder: Path) -> None:
    """The retuned loops are the policy of the bundle, and the declared ones its fallback."""
    (folder / "run.toml").write_text(DECLARED)
    words = ("run", "run.toml", *LITTLE, "--output.directory=declared")
    printed = command("neorl-train", *words, cwd=folder)
    run = folder / "declared" / "0001"
    record = json.loads((run / "run.json").read_text())
    assert record["fallback"] == "the declared controller dcs"
    assert "dcs (declared): gain of T_c -12 K per mol/L" in printed.stdout + printed.stderr
    command("neorl-deploy", "export", run, cwd=folder)
    fallback = load_policy(run / "policies" / "fallback.safetensors").policy
    assert [float(fallback.loops.kp[0]), float(fallback.loops.bias[0])] == [-12.0, 298.0]
    replayed = command("neorl-deploy", "replay", run / "policy.bundle", "log.h5", cwd=folder)
    assert f"{ROWS} rows of {EPISODES} episodes" in replayed.stdout
