"""What a person decided outlives the process, and nothing else's state is taken for one's own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from neorl_deploy.bundle import read_bundle
from neorl_deploy.runtime import LastSent, Runtime, StateError, load_bundle

MIDDLE = np.array([1.0, 330.0, 3.0], np.float32)


@pytest.fixture(scope="module")
def read(exported):
    return read_bundle(exported)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "line 2.state"


def drive(runtime, steps, sent=LastSent.UNKNOWN):
    decisions = []
    for _ in range(steps):
        decisions.append(runtime.step(MIDDLE, sent))
        sent = decisions[-1].action
    return decisions


def names(runtime, decision):
    return set(runtime.flag_names(decision.flags))


def again(read, state):
    """A process that was started anew."""
    runtime = Runtime(read)
    runtime.restore(state)
    return runtime


PROCESS = """
import sys, time
import numpy as np
from neorl_deploy.runtime import load_bundle
runtime = load_bundle(sys.argv[1], self_test=False, state=sys.argv[2])
sent, middle = np.array([50.0, 300.0]), np.array([1.0, 330.0, 3.0])
for order in sys.argv[3:]:
    if order == "step":
        decision = runtime.step(middle, sent)
        sent = decision.action
        print(*runtime.flag_names(decision.flags), flush=True)
    else:
        getattr(runtime, order)("operator 7: " + order)
print("ready", flush=True)
time.sleep(600)
"""


def killed(exported, state, *orders):
    """Runs orders in a process of its own, kills it without warning, and gives its lines."""
    command = [sys.executable, "-c", PROCESS, str(exported), str(state), *orders]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout:
            if line == "ready\n":
                break
            lines.append(set(line.split()))
        process.send_signal(signal.SIGKILL)
    return lines


def test_an_emergency_stop_outlives_a_killed_process(exported, state, read):
    first = killed(exported, state, "release", *["step"] * 12, "stop", "step")
    assert "emergency_stop" not in first[11]
    assert "fallback_used" not in first[11]
    assert {"emergency_stop", "latched", "fallback_used"} <= first[12]
    (second,) = killed(exported, state, "step")
    assert {"emergency_stop", "latched", "fallback_used"} <= second
    runtime = again(read, state)
    events = [(event.kind, event.reason) for event in runtime.events]
    assert ("emergency stop", "operator 7: stop") in events
    assert [kind for kind, _ in events].count("restart") == 2
    assert runtime.events[0].kind == "emergency stop"
    assert "no state" in runtime.events[0].reason


def test_without_a_state_a_runtime_is_stopped_or_refused(exported, state, tmp_path):
    stopped = load_bundle(exported, self_test=False)
    assert "emergency_stop" in names(stopped, drive(stopped, 20)[-1])
    stopped.release("shift leader: first start")
    assert "fallback_used" not in names(stopped, drive(stopped, 20)[-1])
    for named in (None, state):
        with pytest.raises(StateError, match=r"no state file is named|there is no state"):
            load_bundle(exported, self_test=False, state=named, without_state="refused")
    with pytest.raises(ValueError, match='without_state must be "stopped" or "refused"'):
        load_bundle(exported, without_state="running")
    kept = load_bundle(exported, self_test=False, state=state)
    assert "emergency_stop" in names(kept, drive(kept, 1)[0])
    kept.release("shift leader: first start")
    last = drive(kept, 20)[-1].action
    goes_on = load_bundle(exported, self_test=False, state=state, without_state="refused")
    assert "fallback_used" not in names(goes_on, goes_on.step(MIDDLE, last))
    state.write_bytes(state.read_bytes()[:-40])
    damaged = load_bundle(exported, self_test=False, state=state)
    assert "emergency_stop" in names(damaged, drive(damaged, 1)[0])
    assert "not valid JSON" in damaged.events[0].reason


def test_a_restored_runtime_decides_as_the_one_that_went_on(read, state):
    """Told the same, to the last bit: also the memory of PID, monitors and supervisor."""
    rng = np.random.default_rng(4)
    runtime, sent = Runtime(read), np.array([50.0, 300.0])
    for _ in range(30):
        sent = runtime.step(MIDDLE + rng.normal(0, 0.1, 3), sent).action
    runtime.save(state)
    other = again(read, state)
    for _ in range(30):
        obs = MIDDLE + rng.normal(0, 0.1, 3)
        went_on, restored = runtime.step(obs, sent), other.step(obs, sent)
        np.testing.assert_array_equal(went_on.action, restored.action)
        assert went_on.flags == restored.flags
        sent = went_on.action


def test_the_last_action_ages_while_no_process_runs(read, state, monkeypatch):
    runtime = Runtime(read)
    runtime.keep(state)
    last = drive(runtime, 20)[-1].action
    began = time.time()
    for passed, unknown in ((1.0, False), (10 * 30.0, True), (-1e6, True)):
        monkeypatch.setattr(time, "time", lambda passed=passed: began + passed)
        untold = again(read, state)
        decision = untold.step(MIDDLE, LastSent.UNKNOWN)
        assert ("previous_unknown" in names(untold, decision)) == unknown
        assert abs(decision.action[0] - last[0]) <= 0.5 * 30 + 1e-4  # the rate counts from it
        restarted = again(read, state)
        assert "previous_unknown" not in names(restarted, restarted.step(MIDDLE, last))


@pytest.mark.parametrize("reset_between", [False, True])
def test_take_overs_are_counted_across_resets_and_restarts(read, state, reset_between):
    runtime = Runtime(read)
    runtime.keep(state)
    counted = []
    for _ in range(3):
        drive(runtime, 12)
        runtime.step(MIDDLE * np.nan, LastSent.AS_PROPOSED)
        counted.append(int(runtime.carry[".supervisor.trips"]))
        runtime.reset() if reset_between else None
        runtime = again(read, state)
        runtime.keep(state)
    assert counted == [1, 2, 3]
    runtime.release("shift leader: sensor was changed")
    assert again(read, state).carry[".supervisor.trips"] == 0


def test_a_state_of_another_bundle_or_a_changed_one_is_refused(read, state):
    runtime = Runtime(read)
    runtime.stop("operator: smell")
    runtime.save(state)
    good = json.loads(state.read_text())

    def refused(message, **changes):
        state.write_text(json.dumps({**good, **changes}))
        fresh = Runtime(read)
        with pytest.raises(StateError, match=message) as error:
            fresh.restore(state)
        assert "\n" not in str(error.value)
        assert "emergency_stop" not in names(fresh, drive(fresh, 1)[0])

    content = good["content"]
    refused("does not match its digest", content={**content, "step": 3})
    refused("does not match its digest", sha256="0" * 64)
    refused("has format 'other'", format="other")
    refused("version 2 of neorl-runtime-state", version=2)
    other = Runtime(read)
    other.bundle = type(read)(read.path, read.manifest, read.files, "0" * 64, None)
    other.save(state)
    with pytest.raises(StateError, match="belongs to the bundle sha256:0000"):
        Runtime(read).restore(state)
    with pytest.raises(StateError, match="there is no state"):
        Runtime(read).restore(state.with_name("none"))


def test_a_restored_state_releases_no_stop_of_this_process(read, state):
    calm = Runtime(read)
    calm.save(state)
    runtime = Runtime(read)
    runtime.stop("operator: noise")
    runtime.restore(state)
    assert "emergency_stop" in names(runtime, drive(runtime, 1)[0])


def test_a_disk_that_fails_takes_no_action_from_the_plant(read, state, caplog, tmp_path):
    runtime = Runtime(read)
    runtime.keep(state)
    runtime._file.path, runtime._file._digest = tmp_path / "gone" / "state", b""
    decisions = drive(runtime, 3)
    assert all(np.isfinite(one.action).all() for one in decisions)
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == 1
    assert "cannot write the state" in messages[0]
    with pytest.raises(StateError, match="cannot write the state"):
        runtime.stop("operator: the disk is full too")
    assert "emergency_stop" in names(runtime, drive(runtime, 1)[0])
    assert {path.name for path in tmp_path.iterdir()} == {state.name, f"{state.name}.steps"}


def test_a_stop_without_a_reason_acts_and_says_so(read):
    runtime = Runtime(read)
    with pytest.raises(ValueError, match="say who decides this and why"):
        runtime.stop("  ")
    assert "emergency_stop" in names(runtime, drive(runtime, 1)[0])
    assert runtime.events[0].reason == "no reason given"


def test_the_file_is_replaced_in_one_piece(read, state, monkeypatch):
    """Power fails between the writing of the new file and its renaming: the old one stays."""
    runtime = Runtime(read)
    runtime.stop("operator: smell")
    runtime.save(state)

    def fails(self, target):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.replace", fails)
    runtime.release("shift leader: false smell")
    with pytest.raises(StateError, match="Input/output error"):
        runtime.save(state)
    monkeypatch.undo()
    assert again(read, state).carry[".supervisor.stopped"]
    assert os.listdir(state.parent) == [state.name]


def test_a_step_is_found_again_though_the_state_itself_was_not_replaced(read, state):
    runtime = Runtime(read)
    runtime.keep(state)
    drive(runtime, 6)
    before = state.read_bytes()
    rows = drive(runtime, 7, np.array([50.0, 300.0]))
    assert state.read_bytes() == before
    other = again(read, state)
    assert other.events[-1].step == 13
    np.testing.assert_array_equal(other.carry[".previous"], rows[-1].action)


@pytest.mark.parametrize("damage", ["newest", "both", "swapped", "gone", "of another state"])
def test_places_that_are_torn_or_older_do_not_count(read, state, damage):
    """The state before them stands, or the step before the torn one."""
    runtime = Runtime(read)
    runtime.keep(state)
    rows = drive(runtime, 9, np.array([50.0, 300.0]))
    places = state.with_name(f"{state.name}.steps")
    data = places.read_bytes()
    half = len(data) // 2
    if damage == "newest":  # the ninth decision lies in the second place
        places.write_bytes(data[:half] + data[half : half + 60] + bytes(half - 60))
    elif damage == "both":
        places.write_bytes(bytes(len(data)))
    elif damage == "swapped":
        places.write_bytes(data[half:] + data[:half])
    elif damage == "gone":
        places.unlink()
    else:
        runtime.stop("operator: smell")
        places.write_bytes(data)
    actual = again(read, state)
    expected = {"newest": 8, "both": 0, "swapped": 9, "gone": 0, "of another state": 9}[damage]
    assert actual.events[-1].step == expected
    assert bool(actual.carry[".supervisor.stopped"]) == (damage == "of another state")
    if expected:
        np.testing.assert_array_equal(actual.carry[".previous"], rows[expected - 1].action)


def test_the_loop_of_the_readme_starts_and_never_releases_what_a_person_stopped(
    exported, read, tmp_path, monkeypatch, capsys
):
    readme = Path(__file__).parents[2] / "README.md"
    (sample,) = re.findall(r"```python\n(.*?)```", readme.read_text(), re.S)
    (tmp_path / "runs" / "0001").mkdir(parents=True)
    shutil.copytree(exported, tmp_path / "runs/0001/policy.bundle")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_deploy.runtime._load.require_trial", lambda *_: None)
    monkeypatch.setattr(Runtime, "self_test", lambda _: 0.0)
    exec(sample, {})
    assert "emergency_stop" not in capsys.readouterr().out
    runtime = again(read, tmp_path / "runs/0001/policy.state")
    runtime.keep(tmp_path / "runs/0001/policy.state")
    runtime.stop("operator 7: smoke")
    exec(sample, {})
    assert capsys.readouterr().out.count("emergency_stop") == 3


KEPT = Path(__file__).parents[1] / "bundle" / "kept" / "jax-0.10.2"


def on_a_full_disk(*_, **__):
    raise StateError("cannot write the state: No space left on device")


def test_a_stop_on_a_full_disk_survives_the_process(tmp_path, monkeypatch):
    """Its words go into the file of the steps, which is there already and needs no more room."""
    path, bundle = tmp_path / "state", read_bundle(KEPT)
    first = Runtime(bundle, "numpy")
    first.keep(path)
    first.step([1.0, 20.0], [40.0, 40.0])
    with monkeypatch.context() as full:
        full.setattr("neorl_deploy.runtime._state.write_state", on_a_full_disk)
        with pytest.raises(StateError, match="No space left"):
            first.stop("operator: the signal SIGUSR1")
        assert not first.stored, "the loop is told, and leaves the plant to its fallback"
        first.step([1.0, 20.0], [40.0, 40.0])
        assert not first.stored
        with pytest.raises(StateError, match="No space left"):
            load_bundle(KEPT, state=path, form="numpy")  # no start without a place for the state
    second = load_bundle(KEPT, state=path, form="numpy")
    assert second.stopped == "an earlier process"
    decision = second.step([1.0, 20.0], [40.0, 40.0])
    assert {"emergency_stop", "fallback_used"} <= set(second.flag_names(decision.flags))
