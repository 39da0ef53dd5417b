"""A roll-out whose process is killed goes on from its audit log, and never at a higher stage."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neorl_deploy.audit import records, verify_chain
from neorl_deploy.loop import Mode, Plan, Stage, StagedRollout, audit_log, recorder

PLAN = Plan(limits={"level": (0.7, 1.3)}, shadow_steps=10, turn_steps=12, turns=2)
KILLED = """
import json, os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
from conftest import FakeClock, FakePlant, completed
from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import ControlLoop, Plan, StagedRollout, Stage
from neorl_deploy.loop._cycle import audit_log, recorder
from neorl_deploy.loop._tags import tags_of
from neorl_deploy.runtime import Runtime
bundle, document, plan, folder = sys.argv[2], *map(json.loads, sys.argv[3:5]), sys.argv[5]
runtime, clock = Runtime(read_bundle(pathlib.Path(bundle)), "numpy"), FakeClock()
log = audit_log(pathlib.Path(folder), runtime.bundle, form="numpy")
tags = tags_of(completed(document), runtime.bundle, "tags.toml")
loop = ControlLoop(runtime, tags, FakePlant(clock), clock, record=recorder(log))
rollout = StagedRollout(Plan(**plan), loop, log)
rollout.begin("shift leader")
for _ in range(100):
    rollout.after(loop.step())
    clock.pass_by(30.0)
    if rollout.policy.steps == 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def process(make, fresh, tmp_path):
    """Starts a process anew: loop, log and roll-out; the one before it is left as it is."""

    def started(plan=PLAN, **settings):
        log = audit_log(tmp_path / "audit", fresh.bundle, **settings)
        bench = make(record=recorder(log))
        return bench, StagedRollout(plan, bench.loop, log)

    return started


def run(bench, rollout, steps):
    for _ in range(steps):
        rollout.after(bench.step())


def until(bench, rollout, stage, most=120):
    for _ in range(most):
        if rollout.stage is stage:
            return
        run(bench, rollout, 1)
    raise AssertionError(f"it stands at {rollout.stage}: {rollout.why}")


def test_a_process_killed_in_a_turn_goes_on_with_its_counts_once_a_person_says_so(
    process, document, exported, tmp_path
):
    plan = {**vars(PLAN), "limits": {"level": [0.7, 1.3]}}
    arguments = [str(Path(__file__).parent), str(exported), json.dumps(document), json.dumps(plan)]
    command = [sys.executable, "-c", KILLED, *arguments, str(tmp_path / "audit")]
    died = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert died.returncode == -signal.SIGKILL, died.stderr
    with sorted((tmp_path / "audit").glob("*.jsonl"))[-1].open("ab") as file:
        file.write(b"0123 cut off in the middle")
    plan = Plan(**{**plan, "limits": {"level": [0.7, 1.3]}})
    bench, rollout = process(plan)
    assert rollout.stage is Stage.INTERRUPTED
    assert rollout.why == "the process ended in turn of the policy, 7 steps left"
    assert (rollout.policy.steps, rollout.incumbent.steps) == (5, 10)
    run(bench, rollout, 40)
    assert rollout.stage is Stage.INTERRUPTED  # nothing is written until a person asks
    assert not bench.plant.writes
    bench, rollout = process(plan)  # and a second restart changes nothing
    rollout.begin("shift leader, after the restart")
    run(bench, rollout, 1)
    assert rollout.why == "turn 1 of 2"
    assert rollout.stage is Stage.TRIAL_TURN
    until(bench, rollout, Stage.PASSED)
    assert rollout.policy.steps == 5 + 2 * 12
    assert verify_chain(tmp_path / "audit").records > 100


def test_shadow_and_own_turns_go_on_and_full_authority_is_given_anew(process):
    bench, rollout = process()
    rollout.begin("shift leader")
    run(bench, rollout, 4)
    bench, rollout = process()
    assert rollout.why == "the process ended in shadow, 6 steps left"
    rollout.begin("shift leader")
    run(bench, rollout, 5)
    assert rollout.stage is Stage.SHADOW
    run(bench, rollout, 1)
    assert (rollout.stage, rollout.incumbent.steps) == (Stage.TRIAL_TURN, 10)
    until(bench, rollout, Stage.INCUMBENT_TURN)
    run(bench, rollout, 2)
    bench, rollout = process()
    rollout.begin("shift leader")
    run(bench, rollout, 10)
    assert rollout.why == "turn 2 of 2"
    until(bench, rollout, Stage.PASSED)
    rollout.grant_full("shift leader")
    run(bench, rollout, 10)
    assert bench.loop.mode is Mode.CLOSED_LOOP
    bench, rollout = process()
    run(bench, rollout, 10)
    assert rollout.stage is Stage.PASSED
    assert bench.loop.mode is Mode.SHADOW
    rollout.grant_full("shift leader, anew")
    run(bench, rollout, 10)
    assert bench.loop.mode is Mode.CLOSED_LOOP


def test_rolled_back_stays_so_whatever_the_plan_says_until_a_person_begins_anew(process, tmp_path):
    bench, rollout = process(largest=8_000, files=2)
    rollout.begin("shift leader")
    until(bench, rollout, Stage.TRIAL_TURN)
    bench.loop.stop("operator 7: smoke")
    run(bench, rollout, 60)  # rotation removes the files in which it was rolled back
    read = [record for record, _ in records(tmp_path / "audit")]
    stages = {record["stage"] for record in read if record["kind"] == "rollout"}
    assert read[0]["file"] > 2
    assert stages == {"rolled back"}
    for plan in (PLAN, Plan(limits={"level": (0.0, 2.0)})):
        bench, rollout = process(plan, files=2)
        run(bench, rollout, 20)
        assert rollout.stage is Stage.ROLLED_BACK
        assert rollout.why == "stopped by operator 7: smoke"
        assert not bench.plant.writes
    bench.loop.release("operator 7: all clear")
    run(bench, rollout, 1)
    rollout.begin("shift leader, after the stop")
    run(bench, rollout, 3)
    assert (rollout.stage, rollout.incumbent.steps) == (Stage.SHADOW, 3)
    _, rollout = process()
    assert rollout.stage is Stage.WAITING
    assert rollout.why.startswith("an earlier one, of another bundle or plan, ended at shadow")


def test_a_person_who_asks_for_a_mode_ends_one_that_was_interrupted(process):
    bench, rollout = process()
    rollout.begin("shift leader")
    run(bench, rollout, 3)
    bench, rollout = process()
    bench.loop.ask(Mode.ADVISORY, "engineer")
    run(bench, rollout, 1)
    assert rollout.stage is Stage.ROLLED_BACK
    bench, rollout = process()
    assert rollout.stage is Stage.ROLLED_BACK


def test_a_roll_out_that_cannot_be_recorded_ends(process, monkeypatch):
    bench, rollout = process()
    rollout.begin("shift leader")
    until(bench, rollout, Stage.TRIAL_TURN)
    run(bench, rollout, 8)
    assert bench.loop.mode is Mode.CLOSED_LOOP

    def full(*_, **__):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rollout._log, "append", full)
        run(bench, rollout, 1)
        assert rollout.stage is Stage.ROLLED_BACK
        assert "no space left" in rollout.why
    count = len(bench.plant.writes)
    run(bench, rollout, 5)
    assert len(bench.plant.writes) == count
    _, rollout = process()
    assert rollout.stage is Stage.ROLLED_BACK
