"""A real export from ``plant.toml`` to an answer: retuned from its log alone, it cannot be told."""

import numpy as np
import pytest

pytest.importorskip("polars", reason="converting a historian's export needs neorl-envs[etl]")

from neorl_agents.retuning import learned_plants
from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_envs.plant_logs import convert_log, plant_log_from_dict
from neorl_train import configure, start
from neorl_train._command.main import main
from neorl_train.candidates import best_behaviour
from neorl_train.configuration import limited_spec

CASES, PERIOD_S = range(1, 5), 600
MEASURED = {6: "kscmh", 7: "kPa", 8: "%", 9: "degC", 21: "degC"}


def configuration():
    """What an engineer declares: the loop that may be retuned, and what others move."""
    tags = [
        {"name": f"y{i}", "role": "observation", "unit": unit, "low": 0.0, "high": 3e3}
        for i, unit in MEASURED.items()
    ]
    valve = {"unit": "%", "low": 0.0, "high": 100.0}
    return {
        "name": "tep",
        "log": {"files": ["*.csv"], "timestamp": "time", "timestamp_format": "epoch_s"},
        "sampling": {"period_s": PERIOD_S},
        "episodes": {"gap_s": 6000, "length": 50},
        "reward": {"expression": "-abs(y9 - 120.4) - 0.01 * abs(u10 - before_u10)"},
        "cost": [
            {"name": "pressure", "expression": "greatest(y7 - 2895, 0)", "unit": "kPa", "limit": 0}
        ],
        "tag": [
            *tags,
            {"name": "u10", "role": "manipulated", **valve},
            {"name": "u11", "role": "disturbance", **valve},
        ],
    }


def converted(shared_data, folder, cases, crews=()):
    """The dataset of some cases, one export each; crews change every eight hours."""
    for case in cases:
        y, u = (np.loadtxt(shared_data("tep", f"idv{case}", f"{one}.dat")) for one in "yu")
        lines = [",".join(["time", *(f"y{i}" for i in MEASURED), "u10", "u11", "crew"])]
        for row in range(len(y)):
            values = [*(y[row, i - 1] for i in MEASURED), u[row, 9], u[row, 10]]
            at = case * 10**7 + PERIOD_S * row
            crew = crews[row // 48 % len(crews)] if crews else ""
            lines.append(",".join([*map(repr, [at, *map(float, values)]), crew]))
        (folder / f"{case}.csv").write_text("\n".join(lines))
    declared = configuration()
    declared["tag"] += [{"name": "crew", "role": "behaviour"}] if crews else []
    return convert_log(plant_log_from_dict(declared, "plant.toml"), folder=folder)


def test_crews_that_did_not_run_the_plant_are_not_told_apart(shared_data, tmp_path):
    """One set of controllers recorded all of the export, so no crew is the best one."""
    log = converted(shared_data, tmp_path, CASES, crews="ABC")
    counts = np.bincount(np.asarray(log.behaviour))
    assert log.attributes["behaviours"] == ["A", "B", "C"]
    assert counts.min() >= 8
    lenient = limited_spec(log.spec, {"pressure": 100.0})
    name, words = best_behaviour(log, lenient, 0.95)
    assert not name
    assert words[-1].startswith("no behaviour is imitated, because the log does not show which one")


@pytest.mark.nightly
def test_the_real_export_goes_to_an_honest_answer(shared_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    write_dataset(tmp_path / "tep.h5", converted(shared_data, tmp_path, CASES))
    run = start(
        configure(
            output={"directory": str(tmp_path / "runs"), "tracking": False},
            data={"source": str(tmp_path / "tep.h5")},
            training={"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
            checkpoints={"interval": 2},
            algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
            penalty={"pressure": 0.5},
            classical={
                "controllers": ["pid_imitation"],
                "manipulated": {"y9": "u10"},
                "setpoint": {"y9": 120.4},
            },
            retuning={"controller": "pid_imitation", "updates": 200, "generations": 4},
        ),
        quiet=True,
    )
    words = run.record["controllers"]
    assert "computed by the expressions of plant.toml: reward, cost pressure" in words
    assert "taken from the log, as setpoints and disturbances are: u11" in words
    assert any("do not take it for the logged controller" in line for line in words)
    # The identified controller explains half of the valve's moves: it is not what filled the log,
    # and the model does not repeat the log's return under it.
    decided = run.verdict
    assert decided.answer == "cannot tell"
    assert "model" in [clause.name for clause in decided.clauses if not clause.holds]
    assert "name a controller that is closer to the one that recorded" in repr(decided)
    # The command on the model says of this run what its answer says, by the same numbers.
    (clause,) = [one for one in decided.clauses if one.name == "model"]
    monkeypatch.chdir(tmp_path)
    assert main(["choose", str(run.path), "--show", "model"]) == 0
    printed = capsys.readouterr().out
    assert f"\N{MULTIPLICATION X} model: {clause.sentence}" in printed.splitlines()
    assert "No choice should be based on this model: model." in printed


def test_one_case_alone_is_too_little_and_says_so(shared_data, tmp_path):
    """Three hundred samples in six episodes."""
    log = converted(shared_data, tmp_path, CASES[:1])
    with pytest.raises(InputError, match=r"the log has 6 episodes; a plant model needs at least 8"):
        learned_plants(log.transitions, log.spec, 0)
