"""A stop is a state of its own: it wins, it stays, and only a person's release ends it."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neorl_deploy import DeployError
from neorl_deploy.loop import (
    TARGETS,
    WRITING,
    Mode,
    OrderBox,
    Plan,
    Quality,
    StagedRollout,
    drop_old_orders,
    loop_lock,
    order,
)
from neorl_deploy.loop._orders import ModeTag, read_mode_tag
from neorl_deploy.loop._serve import ProcessMark
from neorl_deploy.runtime import StateError

STATES = sys.modules[StateError.__module__]
"""The module that writes the state to a disk, which tests break."""


def notes(cycles):
    return [note for cycle in cycles for note in cycle.notes]


def test_a_server_that_restarts_with_its_default_releases_no_stop_and_closes_nothing(make):
    bench = make().close()
    bench.loop.stop("operator: smoke")
    bench.step()
    bench.plant.down = True
    bench.step(3)
    bench.plant.down, bench.plant.tags["MODE"] = False, 0.0  # the server's default
    bench.step(2)
    bench.plant.tags["MODE"] = 3.0  # the panel restores what it showed
    cycles = bench.step(30)
    assert {cycle.mode for cycle in cycles} == {Mode.MANUAL}
    assert bench.loop.stopped == "operator: smoke"
    assert "the tag MODE jumps from 0 to 3: no order" in notes(cycles)


def test_of_a_stop_and_any_other_order_in_one_period_the_stop_wins(make):
    bench = make(start=Mode.SHADOW)
    bench.plant.tags["MODE"] = 1.0
    bench.step(6)
    bench.plant.tags["MODE"] = 2.0
    bench.step()
    bench.loop.stop("operator: smoke")
    bench.plant.tags["MODE"] = 3.0
    bench.loop.release("engineer")
    cycles = bench.step(20)
    assert {cycle.mode for cycle in cycles} == {Mode.ADVISORY}
    assert bench.loop.stopped == "operator: smoke"
    assert cycles[0].notes == (
        "closed loop is not carried out, because of the emergency stop: the tag MODE",
        "emergency stop: operator: smoke",
        "release is not carried out, because of the emergency stop: engineer",
    )


@pytest.mark.parametrize("target", TARGETS)
def test_asking_for_any_mode_releases_no_stop(make, target):
    bench = make().close()
    bench.loop.stop("operator: smoke")
    bench.step()
    bench.loop.ask(target, "engineer: just looking")
    cycles = bench.step(20)
    assert all("emergency_stop" in bench.names(cycle) for cycle in cycles)
    expected = Mode.FALLBACK if target is Mode.CLOSED_LOOP else target
    assert {cycle.mode for cycle in cycles} == {expected}
    bench.loop.ask(Mode.CLOSED_LOOP, "engineer")
    assert bench.step(20)[-1].mode is expected


def test_a_roll_out_begins_on_no_stopped_loop_and_a_release_closes_nothing(make):
    bench = make().close()
    rollout = StagedRollout(Plan({"level": (0.7, 1.3)}, shadow_steps=5), bench.loop)
    bench.loop.stop("operator: smoke")
    bench.step()
    with pytest.raises(ValueError, match="release it first"):
        rollout.begin("engineer")
    bench.loop.release("shift leader")
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")  # in the period of the release
    cycles = bench.step(20)
    assert {cycle.mode for cycle in cycles} == {Mode.SHADOW}
    assert not bench.loop.stopped
    with pytest.raises(ValueError, match="say who"):
        bench.loop.release(" ")


def test_a_tag_stops_the_loop_as_long_as_it_is_not_zero(make):
    bench = make().close()
    bench.plant.tags["STOP"] = 1.0
    assert bench.step().mode is Mode.FALLBACK
    assert bench.loop.stopped == "the tag STOP shows 1"
    bench.loop.release("shift leader")
    bench.step(2)
    assert bench.loop.stopped == "the tag STOP shows 1"  # it still stands
    bench.plant.tags["STOP"] = 0.0
    bench.step(5)
    assert bench.loop.stopped
    bench.loop.release("shift leader")
    bench.step(2)
    assert not bench.loop.stopped


@pytest.mark.parametrize("tag", ["MODE", "STOP"])
def test_a_tag_by_which_a_person_opens_the_loop_must_be_readable(make, tag):
    bench = make().close()
    bench.plant.quality[tag] = Quality.BAD
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert f"the tag {tag} cannot be read" in cycle.reason


def test_the_mode_tag_is_a_level_while_the_loop_is_closed_and_3_is_needed_to_close(make):
    bench = make()
    bench.plant.tags["MODE"] = 0.0
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycle = bench.step(8)[-1]
    assert cycle.reason == "not closed yet: the tag MODE shows 0, and 3 is needed"
    bench = make().close()
    bench.plant.tags["MODE"] = 0.0
    assert bench.step().mode is Mode.MANUAL


def test_a_request_in_the_period_of_another_mode_closes_nothing(make):
    """The tag of the operator and the command of an engineer, in either sequence."""
    bench = make().close()
    bench.plant.tags["MODE"], count = 0.0, len(bench.plant.writes)
    bench.loop.ask(Mode.CLOSED_LOOP, "engineer")
    assert bench.step().mode is Mode.MANUAL
    assert len(bench.plant.writes) == count
    bench = make()
    for opened in (Mode.MANUAL, Mode.SHADOW, Mode.ADVISORY):
        for targets in ((Mode.CLOSED_LOOP, opened), (opened, Mode.CLOSED_LOOP)):
            for target in targets:
                bench.loop.ask(target, "two persons")
            cycles = bench.step(12)
            assert {cycle.mode for cycle in cycles} == {opened}
            why = "closed loop is not carried out, because another mode was requested, too"
            assert any(why in note for note in cycles[0].notes)


def test_the_mode_tag_climbs_by_one_step_and_closes_within_a_minute():
    def ordered(values, seconds=10.0):
        tag, orders = ModeTag(), []
        for i, value in enumerate(values):
            tag, order, _ = read_mode_tag(tag, value, Mode.SHADOW, i * seconds, tag="M")
            orders.append(order and order.what)
        return orders

    nan = float("nan")
    assert ordered([0, 1, 2, 3]) == [None, Mode.SHADOW, Mode.ADVISORY, Mode.CLOSED_LOOP]
    assert ordered([3, 0, 3]) == [None, Mode.MANUAL, None]
    assert ordered([2, nan, 3]) == [None, None, None]  # the connection was lost
    assert ordered([1, 2, 2, 3], 31.0) == [None, Mode.ADVISORY, None, None]


def test_the_mode_tag_of_a_connection_that_was_made_anew_in_a_call_is_no_order(make):
    bench = make()
    bench.plant.tags["MODE"] = 2.0
    bench.step()
    bench.plant.session = 2  # the server has restarted between two reads
    bench.plant.tags["MODE"] = 3.0
    assert {cycle.mode for cycle in bench.step(20)} == {Mode.SHADOW}


def test_a_request_that_cannot_be_met_lapses_and_says_so(make):
    bench = make()
    bench.plant.quality["TI"] = Quality.BAD
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycles = bench.step(16)
    lapsed = [i for i, cycle in enumerate(cycles) if cycle.lapsed]
    assert lapsed == [14]  # five clean steps, and ten periods of patience
    assert "has lapsed: not closed yet: temperature: its quality is bad" in cycles[14].notes[-1]
    bench.plant.quality.clear()
    assert {cycle.mode for cycle in bench.step(30)} == {Mode.SHADOW}
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    bench.step(2)
    bench.plant.down = True
    assert bench.step().lapsed
    bench.plant.down = False
    assert {cycle.mode for cycle in bench.step(30)} == {Mode.SHADOW}


def broken(*_, **__):
    raise StateError("cannot write the state: No space left on device")


def test_a_stop_acts_on_a_full_disk_and_its_order_stays_until_it_is_stored(
    make, fresh, tmp_path, monkeypatch
):
    def record(_):
        if full:
            raise OSError(28, "No space left on device")

    full = False
    bench = make(record=record).close()
    fresh.keep(tmp_path / "state")
    with loop_lock(tmp_path):
        box = OrderBox(tmp_path, bench.loop)
        order(tmp_path, "stop", "operator: smoke")
        full, written = True, len(bench.plant.writes)
        with monkeypatch.context() as patch:
            patch.setattr("neorl_deploy.runtime._state.write_state", broken)
            box.take()
            cycle = bench.step()
            box.settle()
            assert cycle.mode is Mode.FALLBACK
            assert "emergency_stop" in bench.names(cycle)
            assert "LC.OP" in cycle.written
            assert len(bench.plant.writes) == written + 1
            assert any("in force, but not stored: cannot write" in note for note in cycle.notes)
            assert "because of the stop" in cycle.notes[-1]
            assert list((tmp_path / "orders").glob("*.json"))  # a restart will know of it
            box.take()
            assert not [n for n in bench.step().notes if "emergency stop" in n]  # but once
        bench.step()
        box.settle()
        assert not list((tmp_path / "orders").glob("*.json"))


def test_a_state_that_cannot_be_stored_leads_to_the_fallback_and_back(
    make, fresh, tmp_path, monkeypatch
):
    bench = make().close()
    fresh.keep(tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr("neorl_deploy.runtime._state.StateFile._overwrite", broken)
        bench.step()
        cycle = bench.step()
        assert cycle.mode is Mode.FALLBACK
        assert "the state of the runtime is not stored" in cycle.reason
    assert bench.step(12)[-1].mode is Mode.CLOSED_LOOP


def test_a_stop_that_a_read_only_disk_lost_is_not_forgotten(make, fresh, tmp_path, monkeypatch):
    def begun():
        fresh.keep(tmp_path / "state")
        bench, mark = make(), ProcessMark(tmp_path)
        bench.loop.held = mark.begin(fresh)
        return bench, mark

    bench, _ = begun()
    assert not bench.loop.stopped
    bench.close()
    with monkeypatch.context() as patch:
        for name in ("write_state", "StateFile._overwrite"):
            patch.setattr(f"neorl_deploy.runtime._state.{name}", broken)
        bench.loop.stop("the signal SIGUSR1")
        assert bench.step().mode is Mode.FALLBACK
    as_new(fresh)  # killed; the disk can be written again
    fresh.restore(tmp_path / "state")
    assert not fresh.stopped
    bench, mark = begun()
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycles = bench.step(10)
    assert {cycle.mode for cycle in cycles} == {Mode.SHADOW}
    assert not any("emergency_stop" in bench.names(cycle) for cycle in cycles)
    assert "because it is stopped (the last process did not end in order" in cycles[0].notes[0]
    mark.end(bench.loop)  # no end in order releases it
    bench, mark = begun()
    bench.loop.release("shift leader: I looked")
    bench.step()
    bench.close()
    mark.end(bench.loop)
    assert not begun()[0].loop.stopped


def test_a_stop_by_command_reaches_a_loop_whose_disk_takes_no_order(tmp_path, monkeypatch, caplog):
    sent = []
    with loop_lock(tmp_path):
        (tmp_path / "orders").rmdir()
        monkeypatch.setattr("os.kill", lambda *arguments: sent.append(arguments))
        order(tmp_path, "stop", "operator: smoke")
        assert sent == [(os.getpid(), signal.SIGUSR1)]
        assert "the loop is stopped by a signal" in caplog.text
        with pytest.raises(DeployError, match="the order cannot be stored"):
            order(tmp_path, "release", "operator")
    with pytest.raises(DeployError, match="the order cannot be stored"):
        order(tmp_path, "stop", "operator: smoke")
    assert len(sent) == 1


EVENTS = st.one_of(
    st.sampled_from(["stop", "stop tag", "signal", "release", "rollout", "grant", "full", "log"]),
    st.sampled_from(["killed", "ended", "read-only"]),
    st.sampled_from(["down", "up", "bad", "good", "hand"]),
    st.sampled_from(TARGETS),
    st.integers(0, 4),  # of the mode tag
)


ORDERED = {"stop": "stop", "release": "release", "rollout": "rollout", "grant": "full"}


class World:
    """A loop in a folder, its roll-out, and what persons have ordered of it."""

    def __init__(self, make, runtime, folder):
        self.make, self.runtime, self.folder = make, runtime, folder
        self.disks, self.stopped = dict.fromkeys(("full", "read-only", "log"), False), False
        self.ordered, self.count = set(), 0
        (folder / "orders").mkdir()
        self._begin(self.make(record=self._record))

    def _record(self, _):
        if self.disks["log"]:
            raise OSError(28, "No space left on device")

    def _begin(self, bench):
        self.bench = bench
        self.runtime.keep(self.folder / "state")
        self.mark = ProcessMark(self.folder)
        bench.loop.held = self.mark.begin(self.runtime)
        plan = Plan({"level": (0.7, 1.3)}, shadow_steps=3, turn_steps=4, turns=2)
        self.rollout = StagedRollout(plan, bench.loop)
        self.box = OrderBox(self.folder, bench.loop, self.rollout)

    def restart(self, event):
        """The process is killed or ends, and starts again on a disk that can be written."""
        if event == "ended":
            self.bench.loop.leave()
            self.mark.end(self.bench.loop)
        self.stopped |= bool({"stop", "signal"} & self.ordered)
        self.ordered.discard("signal")  # no file of it outlives the process
        self.disks |= {"full": False, "read-only": False}
        tags = self.bench.plant.tags
        drop_old_orders(self.folder)
        as_new(self.runtime)
        self.runtime.restore(self.folder / "state")
        bench = self.make(record=self._record)
        bench.plant.tags = tags
        self._begin(bench)

    def happen(self, event):
        loop, plant = self.bench.loop, self.bench.plant
        if isinstance(event, int):
            plant.tags["MODE"] = float(event)
        elif isinstance(event, Mode):
            loop.ask(event, "engineer")
        elif event == "stop tag":
            plant.tags["STOP"] = 1.0 - plant.tags["STOP"]
        elif event in ORDERED:
            self.count += 1
            path = self.folder / "orders" / f"{self.count:03d}.json"
            path.write_text(json.dumps({"what": ORDERED[event], "by": "operator"}))
            self.ordered.add(event)
        elif event == "signal":
            loop.stop("the signal SIGUSR1")
            self.ordered.add(event)
        elif event in ("killed", "ended"):
            self.restart(event)
        elif event in self.disks:
            self.disks[event] = not self.disks[event]
        elif event in ("down", "up"):
            plant.down = event == "down"
        elif event == "hand":
            plant.tags["LC.OP"] = 11.0
        else:
            plant.quality = {"TI": Quality.BAD} if event == "bad" else {}

    def step(self):
        count = len(self.bench.plant.writes)
        self.box.take()
        cycle = self.bench.step()
        self.box.settle()
        self.rollout.after(cycle)
        stop = any(note.startswith("emergency stop") for note in cycle.notes)
        release = any(note.startswith("released") for note in cycle.notes)
        assert not (stop and release)
        assert stop or not {"stop", "signal"} & self.ordered
        self.ordered.clear()
        self.stopped = stop or (self.stopped and not release)
        assert cycle.mode is Mode.SHADOW or not release
        if self.stopped:
            assert cycle.mode is not Mode.CLOSED_LOOP
            assert "emergency_stop" in self.bench.names(cycle) or self.bench.loop.held
            written = {tag for write in self.bench.plant.writes[count:] for tag in write}
            assert cycle.mode in WRITING or not written & {"LC.OP", "TC.SP"}


def as_new(runtime):
    """A runtime as a new process has it."""
    runtime._carry, runtime._file = runtime._initial, None
    runtime._events = type(runtime._events)()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.lists(EVENTS, max_size=4), st.integers(1, 12)), max_size=12))
@example([([Mode.CLOSED_LOOP], 8), (["full", "stop"], 3), (["killed", Mode.CLOSED_LOOP], 9)])
@example([([Mode.CLOSED_LOOP], 8), (["read-only", "signal"], 3), (["killed", Mode.CLOSED_LOOP], 9)])
@example([([Mode.CLOSED_LOOP], 8), (["signal", "ended", Mode.CLOSED_LOOP], 9)])
@example([(["killed"], 1), (["ended"], 1), (["release"], 1), ([Mode.CLOSED_LOOP], 9)])
@example([([Mode.CLOSED_LOOP], 8), (["stop", "release", Mode.CLOSED_LOOP], 9)])
def test_after_a_stop_the_policy_writes_nothing_until_a_person_releases_it(make, fresh, script):
    """Over interleavings of stop, tags, requests, roll-out, restarts and failing disks."""
    as_new(fresh)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        world = World(make, fresh, Path(name))

        def written(*arguments, **settings):
            fails = world.disks["full"] or world.disks["read-only"]
            return broken() if fails else write(*arguments, **settings)

        write, overwrite = STATES.write_state, STATES.StateFile._overwrite

        def overwritten(*arguments):
            return broken() if world.disks["read-only"] else overwrite(*arguments)

        patch.setattr("neorl_deploy.runtime._state.write_state", written)
        patch.setattr(STATES.StateFile, "_overwrite", overwritten)
        for events, periods in script:
            for event in events:
                world.happen(event)
            for _ in range(periods):
                world.step()


@pytest.mark.parametrize("disk", ["writable", "without a folder for orders"])
def test_a_stop_by_a_thread_of_the_process_needs_no_disk(make, tmp_path, disk):
    bench = make().close()
    with loop_lock(tmp_path):
        box = OrderBox(tmp_path, bench.loop)
        if disk != "writable":
            (tmp_path / "orders").rmdir()
        box.stop("operator 7: steam leak")
        assert len(list(tmp_path.glob("orders/*.json"))) == (disk == "writable")
        box.take()
        bench.step()
    assert bench.loop.mode is Mode.FALLBACK
    assert bench.loop.stopped == "operator 7: steam leak"
