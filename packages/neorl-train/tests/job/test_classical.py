"""Classical controllers fitted on a run's log stand in its tables and may be its fallback."""

import json
import re
from typing import Any

import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_agents.classical import LQG, MPC, Loop, TunedPID
from neorl_core import Channel, InputError, Spec
from neorl_core.control import PID
from neorl_envs import write_dataset
from neorl_train._command.main import main
from neorl_train._job.plant_model import log_context
from neorl_train.configuration import ClassicalConfig, check_classical, task_of

QUICK = (
    *("--data.source", "log.h5", "--training.algorithms", "bc", "--evaluation.candidate", "bc"),
    *("--training.seeds", "0", "--training.updates", "2", "--training.chunk", "1"),
    *("--checkpoints.interval", "2", "--output.no-tracking", "--quiet"),
    *("--algorithms.bc.steps.batch-size", "16", "--algorithms.bc.networks.hidden", "8"),
    *("--penalty", "cost_0", "0.1"),
)


@pytest.fixture
def here(tmp_path, monkeypatch, make_log):
    """A folder with a log whose observation x0 is to be held by the valve."""
    write_dataset(tmp_path / "log.h5", make_log(n_cost=1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)
    return tmp_path


def names_of(make_log):
    spec = make_log(n_cost=1).spec
    measured = spec.obs[0]
    return measured.name, spec.action[0].name, (measured.low + measured.high) / 2


def with_candidate(name):
    place = QUICK.index("--evaluation.candidate") + 1
    return (*QUICK[:place], name, *QUICK[place + 1 :])


def test_a_run_compares_and_falls_back_to_what_was_fitted(here, make_log, capsys):
    controlled, manipulated, setpoint = names_of(make_log)
    words = ("--classical.controllers", "pid_imitation", "--classical.manipulated", controlled)
    words += (manipulated, "--classical.setpoint", controlled, str(setpoint))
    (here / "settings.toml").write_text("[classical.pid_imitation]\nderivative = true\n")
    words += ("--fallback.kind", "classical", "--fallback.controller", "pid_imitation")
    (cost,) = make_log(n_cost=1).spec.cost
    words += ("--limits.cost", cost.name, str(cost.limit + 0.5))
    assert main(["run", "settings.toml", *QUICK, *words]) in (0, 3)
    (run,) = (path for path in (here / "runs").iterdir() if (path / "run.json").exists())
    fallback = load_policy(run / "policies/fallback.safetensors")
    assert fallback.kind == "pid"
    assert isinstance(fallback.policy, PID)
    assert "pid_imitation" in (run / "evaluation.json").read_text()
    record = json.loads((run / "run.json").read_text())
    assert record["fallback"] == "the classical controller pid_imitation, fitted on the log"
    controller, warning = record["controllers"][:2]
    assert re.search(
        r"opposite signs .*\bkd \S+\).* without ki and kd", warning
    )  # the file asks for kd
    assert re.fullmatch(
        rf"pid_imitation: {controlled} by {manipulated}: kp \S+ .*, "
        r"explains \S+ of the variance of the action, from \d+ rows",
        controller,
    )
    # What select and a search take for a candidate is the same controller, fitted again.
    log = log_context(run)
    assert (list(log.controllers), log.incumbent) == (["pid_imitation"], "")
    assert log.dataset.spec.cost[0].limit == cost.limit + 0.5  # the run's, not the log's
    again: Any = log.controllers["pid_imitation"]
    for gain in ("kp", "ki", "kd"):
        np.testing.assert_array_equal(getattr(again, gain), getattr(fallback.policy, gain))
    assert controller in capsys.readouterr().err
    assert main(["inspect", str(run)]) == 0
    assert f"controllers {controller}\n" in capsys.readouterr().out


def test_a_fitted_controller_is_delivered_like_a_learner(here, make_log, capsys):
    """It is judged under its own name, and what is sealed is what was fitted."""
    controlled, manipulated, setpoint = names_of(make_log)
    words = ("--classical.controllers", "pid_imitation", "--classical.manipulated", controlled)
    words += (manipulated, "--classical.setpoint", controlled, str(setpoint))
    assert main(["run", *with_candidate("pid_imitation"), *words]) in (0, 3)
    (run,) = (path for path in (here / "runs").iterdir() if (path / "run.json").exists())
    delivered = load_policy(run / "policies/pid_imitation-0.safetensors")
    assert isinstance(delivered.policy, PID)
    verdict = json.loads((run / "verdict.json").read_text())
    assert (verdict["candidate"], verdict["answer"]) == ("pid_imitation-0", "cannot tell")
    record = json.loads((run / "run.json").read_text())
    assert record["policies"]["pid_imitation-0.safetensors"] == delivered.digest
    again: Any = log_context(run).controllers["pid_imitation"]
    np.testing.assert_array_equal(again.kp, delivered.policy.kp)
    output = capsys.readouterr()
    assert "pid_imitation-0 is worse than a straight line" not in output.out + output.err


def test_a_controller_that_is_not_fitted_is_no_candidate(here, capsys):
    assert main(["run", *with_candidate("lqg")]) == 2
    assert (
        "evaluation.candidate is 'lqg', which this run does not produce" in capsys.readouterr().err
    )


@pytest.mark.parametrize("section", ["setpoint-channel", "measured"])
def test_a_channel_that_is_not_there_is_refused_before_training(here, make_log, capsys, section):
    """A training of hours must not end with a misspelt name."""
    controlled, manipulated, setpoint = names_of(make_log)
    words = ["--classical.controllers", "pid", "--classical.manipulated", controlled, manipulated]
    if section == "measured":
        words += ["--classical.setpoint", controlled, str(setpoint), "--classical.measured", "x"]
    else:
        words += ["--classical.setpoint-channel", controlled, "x"]
    assert main(["run", *QUICK, *words]) == 2
    output = capsys.readouterr().err
    assert "classical controller pid: unknown observation channel 'x'" in output
    assert "training" not in output
    assert not [path for path in (here / "runs").iterdir() if path.name.isdigit()]


SPEC = Spec(
    (Channel("level", "m", 0.0, 2.0), Channel("goal", "m", 0.0, 2.0)),
    (Channel("valve", "%", 0.0, 100.0),),
    (),
    60.0,
    100,
)


def test_loops_come_from_the_configuration_or_from_the_reference():
    declared = ClassicalConfig(
        ("pid",), {"level": "valve"}, setpoint_channel={"level": "goal"}, measured=("goal",)
    )
    check_classical(declared)
    assert task_of(declared, SPEC, None).loops == (Loop("level", "valve", "goal"),)
    one = np.ones(1, np.float32)
    pid = PID(one, one, one, one, 1.5 * one, one, one, one, one[0], one[:0], one[:0], measured=(0,))
    assert task_of(ClassicalConfig(("pid",)), SPEC, pid).loops == (Loop("level", "valve", 1.5),)
    with pytest.raises(InputError, match="no PID states which variables they control"):
        task_of(ClassicalConfig(("pid",)), SPEC, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controllers": ("lqr",)}, "lqr.*lqg"),
        ({"controllers": ("base_stock",)}, "orders items and does not control a loop"),
        ({"manipulated": {"level": "valve"}}, "level, which needs one setpoint"),
        ({"setpoint": {"level": 1.0}}, "pairs with no action"),
        (
            {"manipulated": {"level": "valve"}, "setpoint": {"level": 1.0}},
            "no effect without classical.controllers",
        ),
        ({"controllers": ("mpc",), "mpc": MPC(horizon=0)}, r"^classical\.mpc: MPC.horizon must be"),
        ({"controllers": ("lqg",), "lqg": LQG(effort=-1.0)}, r"^classical\.lqg: LQG.effort must"),
        (
            {"controllers": ("pid",), "pid": TunedPID(closed_loop=float("nan"))},
            r"^classical\.pid: TunedPID.closed_loop must be",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        check_classical(ClassicalConfig(**changes))
