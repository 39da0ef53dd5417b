"""Every plant goes through the whole job by one command, with its own penalties and limits."""

import json
from pathlib import Path

import pytest

import tank_unit
from neorl_envs import environment_names, make

pytestmark = pytest.mark.nightly

LITTLE = (
    "--training.updates=200",
    "--training.chunk=100",
    "--training.seeds=0",
    "--training.algorithms=iql",
    "--evaluation.candidate=iql",
    "--evaluation.starts=8",
    "--evaluation.curve-starts=2",
    "--output.no-tracking",
)


@pytest.mark.parametrize("name", environment_names())
def test_a_plant_is_logged_learned_judged_sealed_and_replayed(
    name: str, command, tmp_path: Path
) -> None:
    env = make(name)
    steps = 24 * env.spec.horizon  # a tenth of the episodes is held out, two at least
    command(
        "neorl-train",
        "run",
        f"--data.source={name}",
        f"--data.steps={steps}",
        *LITTLE,
        cwd=tmp_path,
    )
    run = tmp_path / "runs/0001"
    assert json.loads((run / "verdict.json").read_text())["answer"]
    tables = json.loads((run / "evaluation.json").read_text())["tables"]
    today = next(iter(env.tunings()))
    assert (tables["reference"], tables["reward_unit"]) == (today, env.reward_unit)
    costs = [channel.name for channel in env.spec.cost]
    for row in tables["rows"]:
        assert [cost["name"] for cost in row["costs"]] == costs
    assert {*env.tunings()} <= {row["name"] for row in tables["rows"]}
    assert {row["group"] for row in tables["rows"] if row["role"] == "learner"} == {"iql"}
    command("neorl-deploy", "export", cwd=tmp_path)
    assert "rows" in command("neorl-deploy", "replay", cwd=tmp_path).stdout


@pytest.mark.skipif(tank_unit.compiler() is None, reason="there is no C compiler")
def test_a_simulation_unit_is_logged_and_judges_a_controller(command, tmp_path: Path) -> None:
    pytest.importorskip("fmpy")
    tank_unit.build_tank(tmp_path)
    command("neorl-envs", "collect", "tank.fmu", "--steps", "1500", "--out", "log.h5", cwd=tmp_path)
    command(
        "neorl-train",
        "run",
        "log.h5",
        "--evaluation.environment=tank.fmu",
        "--classical.controllers=pid",
        *(word for word in LITTLE if "iql" not in word),
        "--training.algorithms=bc",
        "--evaluation.candidate=pid",
        cwd=tmp_path,
    )
    run = tmp_path / "runs/0001"
    assert json.loads((run / "verdict.json").read_text())["answer"]
    tables = json.loads((run / "evaluation.json").read_text())["tables"]
    rows = {row["name"]: row for row in tables["rows"]}
    assert {"pid", "PID", "constant", "bc-0"} <= {*rows}
    assert tables["reward_unit"] == "m"
    # The tank's own loop holds the level that is rewarded; constant inputs do not.
    assert rows["constant"]["returns"]["value"] < rows["PID"]["returns"]["value"]
