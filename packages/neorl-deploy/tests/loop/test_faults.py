"""Every fault has one documented answer, in the same period; none needs to wait for it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.audit import AuditError, replay_decisions
from neorl_deploy.loop import (
    TRANSITIONS,
    WRITING,
    Input,
    Instant,
    Mode,
    Quality,
    Reading,
    audit_log,
    judge_readings,
    recorder,
    serve,
)
from neorl_deploy.shadow import shadow_comparison


def bad(plant):
    plant.quality["TI"] = Quality.BAD


def uncertain(plant):
    plant.quality["TI"] = Quality.UNCERTAIN


def nothing(plant):
    plant.tags["TI"] = math.nan


def infinite(plant):
    plant.tags["TI"] = math.inf


def old(plant):
    plant.age["TI"] = 61.0


def future(plant):
    plant.age["TI"] = -5.0


def outside(plant):
    plant.tags["TI"] = 500.0


FAULTS = {
    bad: "quality is bad",
    uncertain: "quality is uncertain",
    nothing: "not a finite number",
    infinite: "not a finite number",
    old: "61.0 s old, and 60 s are allowed",
    future: "5 s in the future",
    outside: "K is not within 274 to 406 K",
}


def test_an_end_of_the_range_that_float32_rounded_is_no_fault(make):
    """A float32 sensor at 406 K may send the next number above it."""
    bench = make()
    for value in (406.0, float(np.nextafter(np.float32(406), np.float32(np.inf)))):
        bench.plant.tags["TI"] = value
        assert bench.step().measured.faults == {}
    bench.plant.tags["TI"] = 406.01
    assert "is not within 274 to 406 K" in bench.step().measured.faults["temperature"]


def healed(plant):
    plant.quality.clear()
    plant.age.clear()
    plant.tags["TI"] = 330.0


def test_the_loop_begins_in_shadow_and_writes_only_once_it_is_asked_and_all_is_well(make):
    bench = make()
    assert {cycle.mode for cycle in bench.step(10)} == {Mode.SHADOW}
    assert not bench.plant.writes
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    cycles = bench.step(6)
    assert [cycle.mode for cycle in cycles] == [Mode.SHADOW] * 4 + [Mode.CLOSED_LOOP] * 2
    assert "free of faults for 1 of 5 steps" in cycles[0].reason
    assert "closed loop was requested: shift leader" in cycles[0].notes
    assert len(bench.plant.writes) == 2
    assert not bench.falls_back(cycles[-1])


def test_the_first_action_is_within_the_rate_of_what_the_plant_held(make):
    bench = make()
    bench.plant.tags["LC.OP"] = 3.0
    bench.close()
    valves = [3.0, *(written["LC.OP"] for written in bench.plant.writes)]
    assert np.abs(np.diff(valves)).max() <= 15.0 * (1 + 1e-6)  # 0.5 % a second, 30 s


@pytest.mark.parametrize("periods", [1, 10, 200])
@pytest.mark.parametrize("holds", [281.0, 319.0])
def test_closing_from_any_length_of_shadow_starts_where_the_plant_is(make, periods, holds):
    """The jacket has no rate limit, so nothing but the hand-over keeps the first move small."""
    bench = make()
    bench.plant.tags["TC.SP"] = holds
    wanted = float(bench.step(200)[-1].decision.action[1])  # shadow shows what the policy wants
    gap = abs(wanted - holds)
    assert gap > 8
    bench.runtime.reset()
    bench = make()
    bench.plant.tags["TC.SP"] = holds
    for _ in range(periods):
        bench.step()
    bench.close()
    moves = np.abs(np.diff([holds, *(written["TC.SP"] for written in bench.plant.writes)]))
    assert moves[0] <= 0.11 * gap
    bench.step(80)
    assert bench.plant.tags["TC.SP"] == pytest.approx(wanted, abs=0.05 * gap)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_held_value_stands_in_for_a_lost_one_for_its_time_alone(fault):
    rule = Input("temperature", "TI", "K", low=274.0, high=406.0, max_age=60.0, hold=30.0)
    plant = SimpleNamespace(tags={"TI": 330.0}, quality={}, age={})

    def at(moment, memory):
        stamp = moment - plant.age.get("TI", 0.0)
        quality = plant.quality.get("TI", Quality.GOOD)
        now = Instant(wall=moment, monotonic=moment)
        return judge_readings([rule], [Reading(plant.tags["TI"], quality, stamp)], memory, now)

    memory, first = at(1000.0, [None])
    assert first.obs[0] == 330.0
    assert not first.faults
    fault(plant)
    for moment in (1010.0, 1030.0):
        memory, held = at(moment, memory)
        assert held.obs[0] == 330.0
        assert held.ages[0] == moment - 1000.0
        assert FAULTS[fault] in held.faults["temperature"]
        assert f"the value of {moment - 1000:.0f} s ago is held" in held.faults["temperature"]
    memory, lost = at(1030.5, memory)
    assert np.isnan(lost.obs[0])
    assert "is held" not in lost.faults["temperature"]
    healed(plant)
    assert at(1040.0, memory)[1].obs[0] == 330.0
    plant.tags["TI"] = math.nan
    assert np.isnan(at(1000.0, [None])[1].obs[0])  # nothing to hold before the first good value


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_what_may_not_be_trusted_is_lost_and_the_fallback_acts_in_the_same_period(make, fault):
    bench = make().close()
    fault(bench.plant)
    cycle = bench.step()
    assert FAULTS[fault] in cycle.measured.faults["temperature"]
    assert math.isnan(cycle.measured.obs[1])
    assert cycle.mode is Mode.FALLBACK
    assert bench.falls_back(cycle)
    assert f"temperature: {cycle.measured.faults['temperature']}" in cycle.reason
    assert cycle.written["LC.OP"] == pytest.approx(float(cycle.decision.action[0]))
    healed(bench.plant)
    modes = [cycle.mode for cycle in bench.step(12)]
    assert modes[0] is Mode.FALLBACK
    assert modes[-1] is Mode.CLOSED_LOOP  # the guard's own five clean steps


def test_a_sensor_that_stands_still_is_lost(make):
    bench = make().close()
    bench.plant.jitter = False
    modes = [cycle.mode for cycle in bench.step(12)]
    assert modes[9] is Mode.CLOSED_LOOP  # 300 s are allowed
    assert modes[11] is Mode.FALLBACK


def test_a_lost_connection_falls_back_at_once_and_gives_up_after_three_periods(make):
    bench = make().close()
    bench.plant.down = True
    cycles = bench.step(4)
    assert [c.mode for c in cycles] == [Mode.FALLBACK] * 2 + [Mode.MANUAL] * 2
    assert "given up after 3 periods: opc.tcp://plant does not answer" in cycles[2].reason
    assert np.isnan(cycles[0].measured.obs).all()
    bench.plant.down = False
    cycles = bench.step(10)
    assert "the connection is back" in cycles[0].notes
    assert {c.mode for c in cycles} == {Mode.MANUAL}  # only a person closes it again
    bench.plant.writes.clear()
    bench.close()


def test_a_server_that_vanishes_in_a_write_leaves_nothing_assumed(make):
    bench = make().close()
    bench.plant.down_at_write = True
    cycles = bench.step(4)
    assert all("vanished" in note for note in cycles[0].notes)
    assert not cycles[0].written
    assert set(cycles[0].refused) == {"LC.OP", "TC.SP", "BEAT"}
    assert cycles[1].notes[0] == "after the last record: opc.tcp://plant vanished"
    assert cycles[-1].mode is Mode.MANUAL
    assert "vanished" in cycles[-1].reason


def test_a_refused_write_is_told_retried_and_given_up(make):
    bench = make().close()
    bench.plant.refuses["TC.SP"] = "BadUserAccessDenied"
    cycles = bench.step(4)
    assert "the plant refuses to write TC.SP: BadUserAccessDenied" in cycles[0].notes[0]
    assert set(cycles[0].written) == {"BEAT"}
    assert [c.mode for c in cycles] == [Mode.CLOSED_LOOP] * 3 + [Mode.MANUAL]


def test_an_operator_who_moves_the_valve_has_it(make):
    bench = make().close()
    bench.plant.tags["LC.OP"] += 2.0
    bench.plant.writes.clear()
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "valve was moved by somebody else" in cycle.reason
    bench.step(20)
    assert not bench.plant.writes


@pytest.mark.parametrize("target", [Mode.MANUAL, Mode.SHADOW, Mode.ADVISORY])
@pytest.mark.parametrize("while_falling_back", [False, True])
def test_a_person_takes_over_in_the_next_period_whatever_the_loop_does(
    make, target, while_falling_back
):
    """Row N21: a person takes over in the next period."""
    bench = make().close()
    if while_falling_back:
        bad(bench.plant)
        assert bench.step().mode is Mode.FALLBACK
    bench.plant.writes.clear()
    bench.loop.ask(target, "operator 7")
    cycle = bench.step()
    assert cycle.mode is target
    tags = {tag for written in bench.plant.writes for tag in written}
    assert tags == ({"LC.OP.A", "TC.SP.A"} if target is Mode.ADVISORY else set())


def test_the_tag_of_the_mode_asks_by_its_changes_alone(make):
    bench = make()
    bench.plant.tags["MODE"] = 3.0  # so it stands from before a restart
    assert {c.mode for c in bench.step(10)} == {Mode.SHADOW}
    bench.plant.tags["MODE"] = 2.0
    assert bench.step().mode is Mode.ADVISORY
    bench.plant.tags["MODE"] = 3.0
    assert bench.step(6)[-1].mode is Mode.CLOSED_LOOP
    bench.plant.tags["MODE"] = 17.0
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert any("17; modes are 0 to 3" in note for note in cycle.notes)


def test_a_stop_lets_the_fallback_act_until_a_person_releases_it(make):
    bench = make().close()
    bench.loop.stop("operator 7: smoke")
    cycles = bench.step(30)
    assert {c.mode for c in cycles} == {Mode.FALLBACK}
    assert "emergency_stop" in bench.names(cycles[0])
    assert cycles[-1].reason.startswith("stopped by operator 7: smoke")
    bench.loop.release("operator 7: all clear")
    cycle = bench.step()
    assert (cycle.mode, cycle.notes) == (
        Mode.SHADOW,
        ("released, in shadow: operator 7: all clear",),
    )
    bench.loop.ask(Mode.CLOSED_LOOP, "operator 7")
    assert bench.step(10)[-1].mode is Mode.CLOSED_LOOP


def test_missed_periods_are_skipped_counted_and_after_three_the_fallback_stays(make):
    bench = make().close()
    bench.plant.slow = 70.0  # a step of more than two periods
    started, cycles = bench.clock.monotonic, []
    serve(bench.loop, bench.clock, steps=5, after=cycles.append)
    assert [c.number for c in cycles] == [6, 9, 12, 15, 18]
    assert [round(c.at.monotonic - started) for c in cycles] == [0, 90, 180, 270, 360]
    assert all("was late and was not written" in c.notes[-1] for c in cycles)
    assert cycles[1].mode is Mode.FALLBACK
    assert "emergency_stop" in bench.names(cycles[-1])
    bench.plant.slow = 0.0
    cycle = bench.step()
    assert cycle.mode is Mode.FALLBACK
    assert "LC.OP" in cycle.written


def test_periods_lie_at_multiples_and_a_step_that_is_quick_misses_none(make):
    bench = make()
    bench.plant.slow, cycles = 7.0, []
    serve(bench.loop, bench.clock, steps=5, after=cycles.append)
    assert [c.number for c in cycles] == [0, 1, 2, 3, 4]
    assert np.allclose(np.diff([c.at.monotonic for c in cycles]), 30.0)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_moves_no_period_and_is_not_trusted(make, jump):
    bench = make().close()
    for tag in ("LI", "TI", "PI"):  # the clock of the plant stays as it was
        bench.plant.age[tag] = 0.5 + jump
    bench.clock.wall += jump
    cycle = bench.step()
    assert f"the clock of this machine was set by {jump:+.1f} s" in cycle.notes
    assert cycle.mode is Mode.FALLBACK
    assert ("old" if jump > 0 else "future") in cycle.reason
    bench.clock.wall -= jump
    bench.plant.age.clear()
    assert bench.step(12)[-1].mode is Mode.CLOSED_LOOP


def test_an_old_value_does_not_look_fresh_when_the_clock_is_set_back(make):
    bench = make().close()
    stamp = bench.clock.wall
    for _ in range(4):
        bench.plant.age["TI"] = bench.clock.wall - stamp  # one sample, again and again
        cycle = bench.step()
        bench.clock.wall = stamp + 1.0
    assert "old" in cycle.measured.faults["temperature"]


def test_a_loop_that_is_started_again_begins_in_shadow_and_takes_over_without_a_bump(
    make, fresh, tmp_path
):
    bench = make().close()
    fresh.save(tmp_path / "state")
    held = bench.plant.tags["LC.OP"]
    fresh._carry = fresh._initial
    fresh.restore(tmp_path / "state")
    again = make(runtime=fresh)
    again.plant.tags.update(bench.plant.tags)
    assert {c.mode for c in again.step(8)} == {Mode.SHADOW}
    assert not again.plant.writes
    again.close()
    assert abs(again.plant.writes[0]["LC.OP"] - held) <= 15.0 * (1 + 1e-6)


def test_a_restart_releases_no_stop_that_a_person_pressed(make, fresh, tmp_path):
    """Row N20: a stop survives a restart."""
    bench = make().close()
    bench.loop.stop("operator 7: smoke")
    bench.step()
    fresh.save(tmp_path / "state")
    fresh._carry = fresh._initial
    fresh.restore(tmp_path / "state")
    again = make(runtime=fresh)
    assert "emergency_stop" in again.names(again.step())
    again.loop.release("shift leader")
    assert "emergency_stop" not in again.names(again.step())
    fresh.stop("begins without the state of an earlier process: no state file is named")
    assert "emergency_stop" not in (first := make(runtime=fresh)).names(first.step())


def test_a_second_runtime_on_the_plant_is_noticed_from_either_side(make):
    bench = make().close()
    bench.plant.tags["BEAT"] = 999.0
    cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "somebody else writes the heartbeat BEAT" in cycle.reason
    bench.loop.ask(Mode.CLOSED_LOOP, "the test")
    for _ in range(10):
        bench.plant.tags["BEAT"] += 1.0
        cycle = bench.step()
    assert cycle.mode is Mode.MANUAL
    assert "another runtime writes the heartbeat BEAT" in cycle.reason


def test_a_plant_that_only_seems_alive_is_not_trusted(make, monkeypatch):
    bench = make().close()
    reading = type(bench.plant)._reading

    def stuck(plant, tag):
        return reading(plant, tag)._replace(value=7.5) if tag == "ALIVE" else reading(plant, tag)

    monkeypatch.setattr(type(bench.plant), "_reading", stuck)
    cycles = bench.step(6)
    assert cycles[3].mode is Mode.CLOSED_LOOP  # 90 s of silence are allowed
    assert cycles[-1].mode is Mode.FALLBACK
    assert "heartbeat of the plant has not changed" in cycles[-1].reason


@pytest.mark.parametrize("tag", ["LC.OP", "BEAT"])
def test_what_cannot_be_read_back_is_not_written_and_given_up_after_three_periods(make, tag):
    bench = make().close()
    bench.plant.quality[tag] = Quality.BAD
    count = len(bench.plant.writes)
    cycles = bench.step(6)
    assert [c.mode for c in cycles] == [Mode.CLOSED_LOOP] * 2 + [Mode.MANUAL] * 4
    assert cycles[2].reason == f"not read for 3 periods: {tag}"
    assert tag == "BEAT" or len(bench.plant.writes) == count
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader")
    assert "cannot be read" in bench.step(12)[-1].reason


def test_what_cannot_be_recorded_is_not_written(make):
    def full(_):
        raise OSError(28, "No space left on device")

    bench = make(record=full)
    bench.loop.ask(Mode.CLOSED_LOOP, "the test")
    cycles = bench.step(8)
    assert not bench.plant.writes
    assert cycles[-1].mode is Mode.MANUAL
    assert "No space left" in cycles[5].reason + cycles[4].reason


def with_an_endless_loop(runtime, monkeypatch, when):
    """For some observations a loop of the bundle does not end, as the form for NumPy reports it."""
    step = runtime._step

    def run(carry, obs, sent):
        if when(obs):
            raise BundleError("a loop of this bundle did not end after 10000 turns")
        return step(carry, obs, sent)

    monkeypatch.setattr(runtime, "_step", run)


def test_a_bundle_that_does_not_decide_leads_to_its_fallback_and_is_recorded(
    make, fresh, tmp_path, monkeypatch
):
    log = audit_log(tmp_path / "audit", fresh.bundle)
    bench = make(record=recorder(log)).close()
    with_an_endless_loop(fresh, monkeypatch, lambda obs: obs[1] > 340.0)
    bench.plant.tags["TI"] = 345.0
    for cycle in bench.step(4):
        assert cycle.mode is Mode.FALLBACK
        assert bench.falls_back(cycle)
        assert "LC.OP" in cycle.written
        assert "the bundle did not decide: a loop of this bundle did not end" in cycle.reason
    bench.plant.tags["TI"] = 335.0
    assert bench.step(12)[-1].mode is Mode.CLOSED_LOOP
    log.close()
    assert replay_decisions(tmp_path / "audit", fresh.bundle, runtime=fresh).differ == ()


def test_a_bundle_whose_fallback_does_not_decide_either_releases_the_plant(
    make, fresh, tmp_path, monkeypatch
):
    bench = make().close()
    with monkeypatch.context() as patch:
        with_an_endless_loop(fresh, patch, lambda obs: True)
        count = len(bench.plant.writes)
        cycles = bench.step(4)
        assert [cycle.mode for cycle in cycles] == [Mode.FALLBACK] * 3 + [Mode.MANUAL]
        assert cycles[-1].reason == "the bundle has not decided for 3 periods"
        log = audit_log(tmp_path / "audit", fresh.bundle)
        unable = make(record=recorder(log))
        unable.loop.ask(Mode.CLOSED_LOOP, "shift leader")
        assert unable.step(20)[-1].mode is Mode.SHADOW
        assert len(bench.plant.writes) == count
        assert not unable.plant.writes
        log.close()
        assert replay_decisions(tmp_path / "audit", fresh.bundle, runtime=fresh).differ == ()
        with pytest.raises(AuditError, match="no two periods"):
            shadow_comparison(tmp_path / "audit", fresh.bundle)
    assert np.isfinite(bench.step().decision.action).all()


def drawn(bench, rng):
    """Faults, orders and hands on the valve, some in most steps."""
    plant = bench.plant
    for fault, odds in {**dict.fromkeys(FAULTS, 0.01), healed: 0.4}.items():
        if rng.random() < odds:
            fault(plant)
    plant.down, plant.down_at_write = rng.random() < 0.02, rng.random() < 0.02
    plant.refuses = {"TC.SP": "no"} if rng.random() < 0.02 else {}
    if rng.random() < 0.02:
        plant.tags["LC.OP"] = float(rng.uniform(0, 100))
    if rng.random() < 0.08:
        targets = [Mode.CLOSED_LOOP, Mode.CLOSED_LOOP, Mode.SHADOW, Mode.MANUAL]
        bench.loop.ask(targets[rng.integers(4)], "somebody")
    return int(rng.integers(1, 4)) if rng.random() < 0.03 else 0


def test_two_thousand_steps_of_drawn_faults_keep_every_promise(make):
    """Nothing is written unasked, out of range or too fast; the policy never acts on bad data."""
    bench, rng, modes = make(), np.random.default_rng(7), []
    for _ in range(2000):
        missed = drawn(bench, rng)
        held, count = bench.plant.tags["LC.OP"], len(bench.plant.writes)
        cycle = bench.step(missed=missed)
        modes.append(cycle.mode)
        assert cycle.before is cycle.mode or (cycle.before, cycle.mode) in TRANSITIONS
        writes = bench.plant.writes[count:]
        assert cycle.mode in WRITING or not writes
        if cycle.mode in WRITING and cycle.measured.faults:
            assert cycle.mode is Mode.FALLBACK
            assert bench.falls_back(cycle)
        for written in writes:
            assert 0.0 <= written["LC.OP"] <= 100.0
            assert 280.0 <= written["TC.SP"] <= 320.0
            if np.isfinite(cycle.received[0]):
                assert abs(written["LC.OP"] - held) <= 15.0 * (1 + 1e-5)
    assert min(modes.count(mode) for mode in Mode if mode is not Mode.ADVISORY) > 50
