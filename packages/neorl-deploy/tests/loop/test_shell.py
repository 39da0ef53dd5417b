"""The shell around the loop: one at a time, orders from other processes, a process that hangs."""

import dataclasses
import os
import re
import subprocess
import sys
import types

import pytest

from neorl_deploy import DeployError
from neorl_deploy.loop import (
    HUNG_EXIT_CODE,
    ActuatorLocks,
    ControlLoop,
    Mode,
    OrderBox,
    Watchdog,
    connect,
    cycle_line,
    drop_old_orders,
    loop_lock,
    order,
)
from neorl_deploy.runtime import Runtime

CONNECTION = '''
"""A plant of two actuators that obey."""
import time
from neorl_deploy.loop import Reading

class Tank:
    def __init__(self, tags, valve, stamped=True, slip=""):
        self.stamped, self.slip = stamped, slip
        self.values = {"LI": 1.0, "TI": 330.0, "PI": 3.0, "LC.OP": valve, "TC.SP": 300.0}
    def read(self, tags):
        if self.slip:
            return [self.values[tag + self.slip[7:]] for tag in tags]
        stamp = time.time() if self.stamped else None
        return [Reading(self.values[tag], stamp=stamp) for tag in tags]
    def write(self, values):
        raise AssertionError("nothing is written in shadow")
    def close(self):
        print("closed")
'''


def test_two_loops_in_one_folder_are_refused(tmp_path):
    code = f"""
from pathlib import Path
from neorl_deploy.loop import loop_lock
with loop_lock(Path({str(tmp_path)!r})):
    print("in", flush=True)
    input()
"""
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(DeployError, match="another loop runs in"), loop_lock(tmp_path):
            pass
        other.communicate("\n")
    with loop_lock(tmp_path):
        pass


def test_a_second_loop_with_direct_writing_is_not_closed_and_names_the_first(make, tmp_path):
    bench = make()
    tags, plant = bench.loop.tags, bench.plant

    def another(folder, connection=tags.connection):
        there = dataclasses.replace(tags, connection=connection)
        locks = ActuatorLocks(there, f"the loop in {folder}", tmp_path)
        runtime = Runtime(bench.runtime.bundle, "numpy")
        return ControlLoop(runtime, there, plant, bench.clock, locks=locks)

    def steps(loop, count=8):
        for _ in range(count):
            cycle = loop.step()
            bench.clock.pass_by(30.0)
        return cycle

    first, second = another("/srv/line2"), another("/home/me/loop")
    for loop in (first, second):
        loop.ask(Mode.CLOSED_LOOP, "shift leader")
        cycle = steps(loop)
    assert first.mode is Mode.CLOSED_LOOP
    assert cycle.mode is Mode.SHADOW
    assert f"the loop in /srv/line2 (process {os.getpid()}) on this machine writes" in cycle.reason
    first.ask(Mode.SHADOW, "shift leader")
    steps(first, 1)
    second.ask(Mode.CLOSED_LOOP, "shift leader")
    assert steps(second).mode is Mode.CLOSED_LOOP
    second.leave()
    first.ask(Mode.CLOSED_LOOP, "shift leader")
    assert steps(first).mode is Mode.CLOSED_LOOP
    first.leave()


def test_the_lock_of_an_actuator_is_that_of_its_device_and_outlives_no_process(make, tmp_path):
    tags = make().loop.tags

    def locks(**connection):
        connection = {"kind": "modbus", "address": "tcp://127.0.0.1:502", **connection}
        return ActuatorLocks(dataclasses.replace(tags, connection=connection), "it", tmp_path)

    held = locks()
    assert held.take() == held.take() == ""
    for same in ({}, {"address": "TCP://localhost:502/"}, {"timeout": 0.1}):
        assert "it (process" in locks(**same).take()
    others = [locks(unit=2), locks(address="tcp://127.0.0.1:503"), locks(kind="opcua")]
    assert [other.take() for other in others] == [""] * 3
    code = f"""
import fcntl, os
for name in sorted(os.listdir({str(tmp_path)!r})):
    file = open(os.path.join({str(tmp_path)!r}, name), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free")
    except OSError:
        print("held")
"""
    command = [sys.executable, "-c", code]
    for locked in (held, *others):
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert "held" in shown
        locked.give()
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(shown) == {"free"}


def test_orders_come_in_their_order_and_bad_ones_are_named(make, tmp_path, caplog):
    bench = make()
    with loop_lock(tmp_path):
        order(tmp_path, "closed-loop", "shift leader")
        order(tmp_path, "stop", "operator 7")
        order(tmp_path, "advisory", "engineer")
        (tmp_path / "orders" / "9.json").write_text('{"what": "off"}')
        box = OrderBox(tmp_path, bench.loop)
        box.take()
    cycle = bench.step()
    assert cycle.notes == (
        "closed loop is not carried out, because of the emergency stop: shift leader",
        "emergency stop: operator 7",
        "advisory is not carried out, because of the emergency stop: engineer",
    )
    assert cycle.mode is Mode.SHADOW
    assert "9.json is not carried out" in caplog.text
    assert len(list((tmp_path / "orders").glob("*.json"))) == 4
    box.settle()
    assert not list((tmp_path / "orders").glob("*.json"))
    for what, by, words in [("off", "me", "is not a mode"), ("manual", " ", "say who asks")]:
        with pytest.raises(DeployError, match=words):
            order(tmp_path, what, by)
    with pytest.raises(DeployError, match="no loop has run in"):
        order(tmp_path / "none", "manual", "me")


def test_an_order_for_a_loop_that_does_not_run_is_refused_and_a_stop_is_kept(make, tmp_path):
    with loop_lock(tmp_path):
        order(tmp_path, "closed-loop", "shift leader")  # the process ends before it takes it
    with pytest.raises(DeployError, match="nothing was ordered"):
        order(tmp_path, "closed-loop", "shift leader")
    with pytest.raises(DeployError, match="the stop applies from its next start on"):
        order(tmp_path, "stop", "operator 7")
    bench = make()
    with loop_lock(tmp_path):
        (line,) = drop_old_orders(tmp_path)
        OrderBox(tmp_path, bench.loop).take()
    assert line == (
        "closed-loop is not carried out, because it was ordered before this process began: "
        "shift leader"
    )
    assert bench.step().notes == ("emergency stop: operator 7",)


def test_a_watchdog_knows_when_the_last_step_was_too_long_ago():
    dog = Watchdog(5.0)
    assert not dog.expired(1e9)  # before the first step there is nothing to guard
    dog.step_ended(100.0)
    assert not dog.expired(105.0)
    assert dog.expired(105.1)


def test_a_process_that_hangs_is_ended():
    code = """
import threading, time
from neorl_deploy.loop import SystemClock
from neorl_deploy.loop._serve import Watchdog
dog, clock = Watchdog(0.2), SystemClock()
threading.Thread(target=dog.watch, args=(clock, threading.Event()), daemon=True).start()
dog.step_ended(clock.now().monotonic)
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == HUNG_EXIT_CODE
    assert "the loop has hung for 0.2 s" in done.stderr


def test_from_a_bundle_to_a_running_loop(command, exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tank_of_the_test.py").write_text(CONNECTION)
    out = command("init", exported)
    assert "7 entries are left to complete (marked TODO)" in out
    assert f"neorl-deploy serve {exported} tags.toml" in out
    assert "tags.toml exists already" in command.refused("init", exported)
    text = (tmp_path / "tags.toml").read_text()
    for tag in ("LI", "TI", "PI", "LC.OP", "LC.OP", "TC.SP", "TC.SP"):
        text = text.replace('"TODO"', f'"{tag}"', 1)
    text = text.replace('kind = "opcua"', 'kind = "tank_of_the_test:Tank"')
    text = text.replace('address = "opc.tcp://localhost:4840"', "valve = 40.0")
    (tmp_path / "tags.toml").write_text(text)
    monkeypatch.setattr("neorl_deploy.runtime._load.require_trial", lambda *_: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("neorl_deploy._command.loop_commands.settle_memory", lambda: None)
    output = command("serve", exported, "tags.toml", "--steps", "1")
    assert "Running in shadow, recorded in the folder loop" in output
    assert (
        "closed\nEnded in shadow; the loop no longer writes to the plant\nHead of the audit log: "
        in output
    )
    assert "2 records in 1 file\n" in command("verify", "loop", "--head", output.split()[-1])
    for slip, words in (("numbers", "for each of 3 tags, got 3 (float)"), ("numbers?", "'LI?'")):
        wrong = text.replace("valve = 40.0", f'valve = 40.0\nslip = "{slip}"')
        (tmp_path / "slip.toml").write_text(wrong)
        error = command.refused("serve", exported, "slip.toml", "--directory", "slip")
        assert words in error
    text = text.replace("valve = 40.0", "valve = 40.0\nstamped = false")
    for file, code in (("unstamped.toml", 2), ("accepted.toml", 0)):
        (tmp_path / file).write_text(text)
        words = ["--steps", "1", "--directory", "unstamped", "--form", "numpy"]
        ended, _, error = command.run("serve", exported, file, *words)
        assert ended == code
        assert ("unstamped.toml, level: it has no time stamp, so max_age" in error) == (code == 2)
        text = re.sub(r"max_age = [0-9.]+", "max_age = inf", text)
    command("init", exported, "--out", "other.toml", "--rollout", "rollout.toml")
    plan = (tmp_path / "rollout.toml").read_text()
    (tmp_path / "rollout.toml").write_text(plan.replace("[280.0, 400.0]", "[300.0, 350.0]"))
    words = ["serve", exported, "tags.toml", "--steps", "1", "--rollout", "rollout.toml"]
    words += ["--form", "numpy", "--directory", "second"]
    assert "before a release" not in command(*words)
    command.refused("mode", "rollout", "--by", "shift leader", "--directory", "second")
    (tmp_path / "second" / "process").write_text("running")  # as a process that was killed
    out = command(*words)
    assert "not closed before a release (the last process did not end" in out
    with loop_lock(tmp_path / "loop"):
        command("mode", "closed-loop", "--by", "shift leader")
    assert len(list((tmp_path / "loop" / "orders").glob("*.json"))) == 1


def halfway(tags):
    return types.SimpleNamespace(read=print, close=print)


def lost(tags):
    raise FileNotFoundError(2, "No such file", "august.csv")


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ({"kind": "carrier pigeon"}, "'carrier pigeon' must be one of"),
        ({"kind": "no.such:Thing"}, "cannot be imported"),
        ({"kind": "json:dumps", "odd": 1}, "'json:dumps'"),
        ({"kind": f"{__name__}:halfway"}, "a SimpleNamespace lacks the method write"),
        ({"kind": f"{__name__}:lost"}, "cannot be opened: .*'august.csv'"),
    ],
)
def test_a_connection_that_is_none_is_one_line(make, connection, words):
    tags = make().loop.tags
    object.__setattr__(tags, "connection", connection)
    with pytest.raises(DeployError, match=words):
        connect(tags)


def test_what_is_lost_in_shadow_is_printed_once_and_so_is_its_return(make):
    """The mode does not change there, so nothing else would show that the fallback acts."""
    bench = make()
    bench.step(2)
    bench.plant.age["TI"] = 90.0
    cycles = bench.step(3)
    fault = f"temperature: {cycles[0].measured.faults['temperature']}"
    assert [cycle.notes for cycle in cycles] == [(fault,), (), ()]
    assert cycle_line(cycles[0]).count("temperature: ") == 1
    del bench.plant.age["TI"]
    assert bench.step().notes == ("temperature: good again",)
    bench.plant.down = True
    line = cycle_line(bench.step())
    assert line.count("opc.tcp://plant does not answer") == 1
    assert "temperature" not in line
    bench.plant.down = False
    assert bench.step().notes == ("the connection is back",)
