"""What holds at the moment of a write: nobody is overwritten, nothing is late, nothing is half."""

import math

import pytest
from scipy.stats import binom

from neorl_deploy.loop import (
    ControlLoop,
    Count,
    Input,
    Instant,
    Mode,
    Plan,
    PlantError,
    Quality,
    Reading,
    Stage,
    StagedRollout,
    judge_readings,
    probability_of_more,
)
from neorl_deploy.runtime import Runtime

UNATTENDED = "the plant has no permit and watches no heartbeat"


def test_a_trip_between_reading_and_writing_is_not_overwritten(make):
    def trip(_):
        if tripped:
            bench.plant.tags["LC.OP"] = 0.0

    tripped = False
    bench = make(record=trip).close()
    tripped, count = True, len(bench.plant.writes)
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "valve was moved by somebody else: 0 % in place of" in cycle.reason
    bench.step(5)
    assert (len(bench.plant.writes), bench.plant.tags["LC.OP"]) == (count, 0.0)


def test_a_hand_in_the_period_that_closes_the_loop_is_not_overwritten(make):
    def hand(_):
        bench.plant.tags["LC.OP"] += 2.0

    bench = make(record=hand)
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert not any(cycle.mode is Mode.CLOSED_LOOP for cycle in bench.step(12))
    assert not bench.plant.writes


@pytest.mark.parametrize(("tag", "value"), [("MODE", 0.0), ("STOP", 1.0), ("BEAT", 77.0)])
def test_an_order_by_tag_between_reading_and_writing_holds_the_write(make, tag, value):
    def ordered(_):
        if now:
            bench.plant.tags[tag] = value

    now = False
    bench = make(record=ordered).close()
    now, count = True, len(bench.plant.writes)
    cycle = bench.step()
    assert f"because {tag} has changed since it was read" in cycle.notes[-1]
    assert len(bench.plant.writes) == count
    assert bench.step().mode is (Mode.FALLBACK if tag == "STOP" else Mode.MANUAL)


@pytest.mark.parametrize(("tag", "value"), [("MODE", 0.0), ("STOP", 1.0), ("LC.OP.PERMIT", 0.0)])
def test_an_order_that_is_over_by_the_next_period_is_carried_out(make, document, tag, value):
    """A button that a person presses for a second, seen in the last look alone."""

    def pressed(_):
        if now:
            bench.plant.tags[tag] = value

    now = False
    outputs = [{**row, "permit": f"{row['tag']}.PERMIT"} for row in document["output"]]
    bench = make(record=pressed, tables={"output": outputs})
    bench.plant.tags.update({"LC.OP.PERMIT": 1.0, "TC.SP.PERMIT": 1.0})
    bench.close()
    now, count, before = True, len(bench.plant.writes), bench.plant.tags[tag]
    assert f"because {tag} has changed since it was read" in bench.step().notes[-1]
    assert len(bench.plant.writes) == count
    now, bench.plant.tags[tag] = False, before
    cycle = bench.step()
    assert cycle.mode is (Mode.FALLBACK if tag == "STOP" else Mode.MANUAL)
    assert bench.loop.stopped == ("the tag STOP shows 1" if tag == "STOP" else "")


@pytest.mark.parametrize("fault", ["vanishes", "refuses"])
def test_a_hand_after_a_write_that_failed_is_not_overwritten(make, fault):
    bench = make().close()
    if fault == "vanishes":
        bench.plant.down_at_write = True
    else:
        bench.plant.refuses = dict.fromkeys(("LC.OP", "TC.SP"), "BadUserAccessDenied")
    bench.step()
    bench.plant.down_at_write, bench.plant.refuses = False, {}
    bench.plant.tags["LC.OP"], count = 0.0, len(bench.plant.writes)  # a person takes the valve
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "valve was moved by somebody else: 0 % in place of" in cycle.reason
    assert (len(bench.plant.writes), bench.plant.tags["LC.OP"]) == (count, 0.0)


def test_a_write_that_failed_but_arrived_is_no_hand(make):
    bench = make().close()
    write = bench.plant.write

    def lost(values):  # the answer, and not the write
        write(values)
        raise PlantError("opc.tcp://plant: no answer in 0.5 s")

    bench.plant.write = lost
    bench.step()
    bench.plant.write = write
    assert {cycle.mode for cycle in bench.step(3)} == {Mode.CLOSED_LOOP}


def test_a_hand_between_a_write_and_its_reading_back_is_not_taken_back(make):
    bench = make().close()
    write = type(bench.plant).write

    def moved(values):  # the client reads another number back, and calls the write refused
        refused = dict(write(bench.plant, values))
        if "TC.SP" in values and len(values) > 2:
            bench.plant.tags["TC.SP"] = 285.0
            refused["TC.SP"] = "it reads 285 after 301 was written"
        return refused

    before = bench.plant.tags["LC.OP"]
    bench.plant.write = moved
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "jacket was moved by somebody else: 285 K in place of" in cycle.reason
    assert bench.plant.tags["TC.SP"] == 285.0
    assert bench.plant.tags["LC.OP"] == pytest.approx(before)


def test_a_connection_that_fails_at_every_last_look_is_given_up(make):
    bench = make().close()
    read, count = bench.plant.read, len(bench.plant.writes)

    def watched_alone_fails(tags):
        if "LI" not in tags:
            raise PlantError("opc.tcp://plant: no answer in 0.5 s")
        return read(tags)

    bench.plant.read = watched_alone_fails
    cycles = bench.step(4)
    assert [cycle.mode for cycle in cycles] == [Mode.CLOSED_LOOP] * 3 + [Mode.MANUAL]
    assert "given up after 3 periods: opc.tcp://plant: no answer" in cycles[3].reason
    assert len(bench.plant.writes) == count


def test_a_decision_from_before_the_machine_was_suspended_is_not_written(make):
    """The monotonic clock of a machine that is suspended stands still."""

    def suspended(_):
        bench.clock.wall += 3600.0 if now else 0.0

    now = False
    bench = make(record=suspended)
    bench.close()
    now, count = True, len(bench.plant.writes)
    assert "the decision was late and was not written" in bench.step().notes
    assert len(bench.plant.writes) == count


def test_a_loop_does_not_close_while_the_stop_tag_cannot_be_read(make):
    bench = make()
    bench.plant.quality["STOP"] = Quality.BAD
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycles = bench.step(8)
    assert {cycle.mode for cycle in cycles} == {Mode.SHADOW}
    assert cycles[-1].reason == "not closed yet: the stop STOP cannot be read"


@pytest.mark.parametrize("quality", [Quality.UNCERTAIN, Quality.BAD])
@pytest.mark.parametrize("value", [0.0, 0.999999, 1.000001, 2.0, -1.0, math.nan, math.inf])
def test_nothing_but_a_good_1_is_a_permit(make, document, quality, value):
    outputs = [{**row, "permit": f"{row['tag']}.PERMIT"} for row in document["output"]]
    bench = make(tables={"output": outputs})
    bench.plant.tags.update({"LC.OP.PERMIT": 1.0, "TC.SP.PERMIT": 1.0})
    bench.close()
    bench.plant.tags["LC.OP.PERMIT"], count = value, len(bench.plant.writes)
    assert bench.step().mode is Mode.MANUAL
    bench.plant.tags["LC.OP.PERMIT"] = 1.0
    bench.plant.quality["LC.OP.PERMIT"] = quality
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "valve has no permit" in bench.step(8)[-1].reason
    assert len(bench.plant.writes) == count


def test_a_decision_that_its_record_made_late_is_not_written(make):
    def slow(_):
        bench.clock.pass_by(delay)

    delay = 0.0
    bench = make(record=slow)
    bench.close()
    delay, count = 16.0, len(bench.plant.writes)
    cycles = bench.step(3)
    assert all("late" in cycle.notes[-1] for cycle in cycles)
    assert len(bench.plant.writes) == count
    assert "after the last record: the decision was late" in cycles[1].notes[0]
    assert "emergency_stop" in bench.names(bench.step())  # as after missed periods
    assert bench.step().window == 0.0


def test_a_heartbeat_that_wraps_is_no_other_runtime(make):
    bench = make().close()
    bench.plant.tags["BEAT"] = bench.loop._now.beat = bench.loop._now.beat_written = 29_997.0
    beats = []
    for cycle in bench.step(5):
        assert cycle.mode is Mode.CLOSED_LOOP
        beats.append(cycle.written["BEAT"])
    assert beats == [29_998, 29_999, 0, 1, 2]


def test_the_window_in_which_a_hand_is_overwritten_is_measured(make):
    bench = make().close()
    bench.plant.slow = 2.0  # each of two readings
    assert bench.step().window == pytest.approx(2.0)


def test_a_value_without_a_time_stamp_ages_from_its_last_change():
    rule, memory = Input("level", "LI", "m", max_age=3.0), [None]
    for second in range(5):
        now = Instant(wall=1e9 + second, monotonic=float(second))
        memory, measured = judge_readings([rule], [Reading(1.0)], memory, now)
        assert math.isnan(measured.obs[0]) == (second > 3)
    assert measured.faults == {
        "level": "it has no time stamp and has not changed for 4.0 s; 3 s are allowed"
    }
    now = Instant(wall=1e9 + 5, monotonic=5.0)
    assert judge_readings([rule], [Reading(1.1)], memory, now)[1].obs[0] == 1.1


def test_a_source_that_stops_to_stamp_closes_no_loop(make):
    bench = make()
    bench.plant.unstamped.add("TI")
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    reason = bench.step(8)[-1].reason
    assert "temperature: it has no time stamp, so max_age = 60 cannot tell" in reason


def test_a_plant_clock_that_is_ahead_for_good_can_be_declared(make):
    for ahead, mode in ((1.0, Mode.SHADOW), (2.0, Mode.CLOSED_LOOP)):
        bench = make(ahead=ahead)
        bench.plant.age = dict.fromkeys(("LI", "TI", "PI"), -1.5)
        bench.step(6)
        bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
        assert bench.step(12)[-1].mode is mode


def test_an_action_that_is_refused_in_part_is_taken_back(make):
    bench = make().close()
    before = dict(bench.plant.tags)
    bench.plant.refuses["TC.SP"] = "BadUserAccessDenied"
    cycle = bench.step()
    assert bench.plant.tags["LC.OP"] == pytest.approx(before["LC.OP"])
    assert cycle.notes[-1] == "the other actuators have their values of before again"
    assert set(cycle.written) == {"BEAT"}
    write = type(bench.plant).write

    def stuck(values):  # the valve takes a value once, and then no more
        refused = dict(write(bench.plant, values))
        bench.plant.refuses["LC.OP"] = "BadDeviceFailure"
        return refused

    bench.plant.write = stuck
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "could not be taken back (LC.OP: BadDeviceFailure): manual" in cycle.reason


def test_an_actuator_outside_its_declared_range_is_not_taken_over(make):
    bench = make()
    bench.plant.tags["LC.OP"] = 104.0
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "valve holds 104 %, and its range is 0 to 100" in bench.step(8)[-1].reason


class InPhase:
    """A plant of which two loops read everything before either writes."""

    def __init__(self, plant):
        self.plant = plant

    def begin(self):
        self.shown = dict(zip(self.plant.tags, self.plant.read(list(self.plant.tags)), strict=True))

    def read(self, tags):
        return [self.shown[tag] for tag in tags]

    def write(self, values):
        return self.plant.write(values)


def test_direct_writing_needs_a_permit_and_a_heartbeat_or_words(make, document):
    bench = make(unattended="")
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    reason = bench.step(8)[-1].reason
    assert "direct writing needs a permit for valve, jacket in the tag map, or" in reason
    assert f'unattended = "{UNATTENDED}"' in reason
    rows = [{**row, "permit": f"{row['tag']}.PERMIT"} for row in document["output"]]
    bench = make(tables={"output": rows}, unattended="", heartbeat="")
    bench.plant.tags.update({"LC.OP.PERMIT": 1.0, "TC.SP.PERMIT": 0.0})
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "direct writing needs a heartbeat" in bench.step(8)[-1].reason
    bench = make(tables={"output": rows}, unattended="")
    bench.plant.tags.update({"LC.OP.PERMIT": 1.0, "TC.SP.PERMIT": 0.0})
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "jacket has no permit: TC.SP.PERMIT is not 1" in bench.step(8)[-1].reason
    bench.plant.tags["TC.SP.PERMIT"] = 1.0
    bench.close()
    bench.plant.tags["TC.SP.PERMIT"] = 0.0
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "jacket has no permit" in cycle.reason


def test_two_loops_in_phase_do_not_both_stay_closed(make):
    bench = make()
    bundle, tags, plant = bench.runtime.bundle, bench.loop.tags, InPhase(bench.plant)
    loops = [ControlLoop(Runtime(bundle, "numpy"), tags, plant, bench.clock) for _ in range(2)]
    for loop in loops:
        loop.ask(Mode.CLOSED_LOOP, "shift leader")
    seen = []
    for _ in range(20):
        plant.begin()
        seen.append([loop.step().mode for loop in loops])
        bench.clock.pass_by(30.0)
    assert [Mode.CLOSED_LOOP] * 2 in seen  # for one period
    assert seen[-1].count(Mode.CLOSED_LOOP) <= 1


@pytest.mark.parametrize("total", [40, 1029, 1030, 100_000])
@pytest.mark.parametrize("share", [0.02, 0.45, 0.5, 0.55, 0.97])
def test_the_chance_is_exact_at_any_count(total, share):
    k = round(total * share)
    chance = probability_of_more(Count(300, k, 0), Count(300, total - k, 0))
    assert chance == pytest.approx(float(binom.sf(k - 1, total, 0.5)), rel=1e-7, abs=1e-300)


def test_a_lost_sensor_counts_for_neither_side(make):
    bench = make()
    limits = {"level": (0.7, 1.3), "temperature": (300.0, 350.0)}
    rollout = StagedRollout(Plan(limits, shadow_steps=100), bench.loop)
    rollout.begin("shift leader")
    for i in range(40):
        bench.plant.quality = {"TI": Quality.BAD} if i >= 5 else {}
        rollout.after(bench.step())
    assert (rollout.stage, rollout.incumbent.steps) == (Stage.SHADOW, 5)
    assert rollout.incumbent.violations == 0
