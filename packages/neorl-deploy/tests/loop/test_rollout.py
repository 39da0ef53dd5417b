"""Shadow, turns, full, and back: simulated on a tank whose policy turns bad."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from neorl_deploy import DeployError
from neorl_deploy.loop import (
    Authority,
    Count,
    Mode,
    OrderBox,
    Plan,
    Stage,
    StagedRollout,
    draft_plan,
    loop_lock,
    order,
    probability_of_more,
    read_plan,
)

PLAN = Plan(
    limits={"level": (0.7, 1.3)}, shadow_steps=30, turn_steps=20, turns=2, authority=0.1, window=60
)


class Tank:
    """A tank whose own controller holds the level while the heartbeat of the loop stands still.

    The network of the tests keeps its valve near 53 %, whatever the level: it does well while the
    inflow is as the network wants it, and turns bad with the inflow.
    """

    def __init__(self, bench):
        self.bench, self.inflow, self.levels, self.cycles = bench, 53.0, [], []
        self._beat, self._rng = 0.0, np.random.default_rng(1)

    def run(self, steps, after):
        tags = self.bench.plant.tags
        for _ in range(steps):
            tags["LI"] += 0.002 * (self.inflow - tags["LC.OP"]) + 0.002 * self._rng.normal()
            cycle = self.bench.step()
            after(cycle)
            if tags["BEAT"] == self._beat:
                tags["LC.OP"] = float(np.clip(50 - 20 * (1 - tags["LI"]) + 3, 0, 100))
            self._beat = tags["BEAT"]
            self.levels.append(tags["LI"])
            self.cycles.append(cycle)


@pytest.fixture
def tank(make):
    return Tank(make())


@pytest.fixture
def rollout(tank):
    return StagedRollout(PLAN, tank.bench.loop)


def until(tank, rollout, stage, most=400):
    for _ in range(most):
        tank.run(1, rollout.after)
        if rollout.stage is stage:
            return
    raise AssertionError(f"it stands at {rollout.stage}: {rollout.why}")


def test_a_good_policy_is_led_in_turn_by_turn_and_a_person_gives_the_rest(tank, rollout):
    """Row N31: a good policy is led in turn by turn."""
    tank.run(5, rollout.after)
    assert rollout.stage is Stage.WAITING
    rollout.begin("shift leader")
    until(tank, rollout, Stage.TRIAL_TURN)
    assert not tank.bench.plant.writes  # nothing in shadow
    anchor = tank.bench.plant.tags["LC.OP"]
    until(tank, rollout, Stage.INCUMBENT_TURN)
    valves = np.array([written["LC.OP"] for written in tank.bench.plant.writes])
    assert 15 <= len(valves) <= 20
    assert np.abs(valves - anchor).max() <= 10 + 1e-4
    until(tank, rollout, Stage.PASSED)
    assert (rollout.policy.steps, rollout.policy.violations) == (40, 0)
    count = len(tank.bench.plant.writes)
    tank.run(20, rollout.after)
    assert len(tank.bench.plant.writes) == count
    rollout.grant_full("shift leader")
    tank.run(80, rollout.after)
    assert rollout.stage is Stage.FULL
    assert tank.bench.loop.mode is Mode.CLOSED_LOOP


@pytest.mark.parametrize("rollback", ["fallback", "shadow"])
def test_a_policy_that_turns_bad_in_its_turn_is_rolled_back_by_itself(tank, rollback):
    """Row N31: a policy that turns bad is rolled back by itself."""
    plan = dataclasses.replace(PLAN, rollback=rollback, turn_steps=60)
    rollout = StagedRollout(plan, tank.bench.loop)
    rollout.begin("shift leader")
    until(tank, rollout, Stage.TRIAL_TURN)
    tank.inflow = 66.0
    until(tank, rollout, Stage.ROLLED_BACK)
    assert "of today's controller" in rollout.why
    assert tank.levels[-1] < 1.6
    tank.run(150, rollout.after)
    assert rollout.stage is Stage.ROLLED_BACK  # only a person begins anew
    acting = Mode.FALLBACK if rollback == "fallback" else Mode.SHADOW
    assert {cycle.mode for cycle in tank.cycles[-140:]} == {acting}
    assert all(0.4 < level < 1.75 for level in tank.levels[-50:])
    notes = [note for cycle in tank.cycles for note in cycle.notes if "rolled back" in note]
    assert len(notes) == 1


def test_a_policy_that_turns_bad_with_full_authority_is_rolled_back_too(tank, rollout):
    rollout.begin("shift leader")
    until(tank, rollout, Stage.PASSED)
    rollout.grant_full("shift leader")
    tank.run(30, rollout.after)
    tank.inflow = 66.0
    until(tank, rollout, Stage.ROLLED_BACK)
    tank.run(150, rollout.after)
    assert {cycle.mode for cycle in tank.cycles[-140:]} == {Mode.FALLBACK}


def test_a_limit_that_both_break_alike_is_no_reason(tank):
    plan = dataclasses.replace(PLAN, limits={"level": (0.0, 0.99)}, turns=1)
    rollout = StagedRollout(plan, tank.bench.loop)
    rollout.begin("shift leader")
    until(tank, rollout, Stage.PASSED)
    assert rollout.incumbent.violations > 10
    assert rollout.policy.violations > 5


def test_a_fallback_that_acts_too_often_ends_it(tank, rollout):
    rollout.begin("shift leader")
    until(tank, rollout, Stage.TRIAL_TURN)
    tank.run(8, rollout.after)
    tank.bench.plant.tags["PI"] = float("nan")
    until(tank, rollout, Stage.ROLLED_BACK, most=10)
    assert "the fallback acted in 3 of" in rollout.why


def test_a_person_ends_it_and_a_stop_is_not_released_by_it(tank, rollout):
    rollout.begin("shift leader")
    until(tank, rollout, Stage.INCUMBENT_TURN)
    tank.bench.loop.stop("operator 7: smoke")
    tank.run(60, rollout.after)
    assert rollout.stage is Stage.ROLLED_BACK
    assert rollout.why == "stopped by operator 7: smoke"
    assert "emergency_stop" in tank.bench.names(tank.cycles[-1])
    with pytest.raises(ValueError, match=r"operator 7: smoke.*release it first"):
        rollout.begin("shift leader")
    tank.bench.loop.release("operator 7: all clear")
    tank.run(1, rollout.after)
    assert tank.cycles[-1].mode is Mode.SHADOW
    rollout.begin("shift leader, after the stop")
    until(tank, rollout, Stage.TRIAL_TURN)
    tank.run(8, rollout.after)
    tank.bench.plant.tags["LC.OP"] += 5.0  # by hand
    tank.run(1, rollout.after)
    assert rollout.stage is Stage.ROLLED_BACK
    assert "moved by somebody else" in rollout.why
    assert tank.bench.loop.authority is None


@pytest.mark.parametrize("stage", [Stage.SHADOW, Stage.INCUMBENT_TURN])
@pytest.mark.parametrize("by", ["command", "tag"])
def test_a_person_who_asks_for_the_mode_in_force_keeps_it(tank, rollout, stage, by):
    """Whoever asks for shadow in a turn of today's controller does not want the next turn."""
    rollout.begin("shift leader")
    until(tank, rollout, stage)
    if by == "command":
        tank.bench.loop.ask(Mode.SHADOW, "operator 7: keep off")
    else:
        tank.bench.plant.tags["MODE"] = 1.0
    count = len(tank.bench.plant.writes)
    tank.run(60, rollout.after)
    assert rollout.stage is Stage.ROLLED_BACK
    assert (
        "shadow was requested: " + ("operator 7" if by == "command" else "the tag") in rollout.why
    )
    assert {cycle.mode for cycle in tank.cycles[-60:]} == {Mode.SHADOW}
    assert len(tank.bench.plant.writes) == count


def test_a_request_in_the_period_in_which_a_turn_ends_is_not_overruled(tank, rollout):
    rollout.begin("shift leader")
    until(tank, rollout, Stage.INCUMBENT_TURN)

    def asked_before_the_turn(cycle):
        if rollout.stage is Stage.INCUMBENT_TURN and rollout._steps_left == 1:
            tank.bench.loop.ask(Mode.SHADOW, "operator 7: keep off")
        rollout.after(cycle)

    count = len(tank.bench.plant.writes)
    tank.run(60, asked_before_the_turn)
    assert rollout.stage is Stage.ROLLED_BACK
    assert len(tank.bench.plant.writes) == count


def test_orders_reach_it_and_full_authority_needs_its_turns(tank, rollout, tmp_path, caplog):
    with loop_lock(tmp_path):
        for what in ("rollout", "full"):
            order(tmp_path, what, "shift leader")
        OrderBox(tmp_path, tank.bench.loop, rollout).take()
        assert rollout.stage is Stage.SHADOW
        assert "full authority can be given only once" in caplog.text
        order(tmp_path, "rollout", "shift leader")
        OrderBox(tmp_path, tank.bench.loop).take()
        assert "has no roll-out" in caplog.text


def test_the_policy_stays_in_its_band_and_the_fallback_does_not(make):
    bench = make()
    bench.loop.authority = Authority(np.array([40.0, 300.0]), np.array([2.0, 1.0]))
    bench.close()
    cycles = bench.step(20)
    assert {cycle.mode for cycle in cycles} == {Mode.CLOSED_LOOP}
    actions = np.array([cycle.decision.action for cycle in cycles])
    assert (np.abs(actions - [40.0, 300.0]) <= np.array([2.0, 1.0]) + 1e-4).all()
    assert "authority_active" in bench.names(cycles[-1])
    bench.loop.stop("operator: smoke")
    assert "authority_active" not in bench.names(bench.step(10)[-1])
    bench.loop.release("operator")
    bench.loop.authority = None
    bench.step()
    assert abs(bench.close().step(20)[-1].decision.action[0] - 40.0) > 5


@given(
    mine=st.integers(0, 30), other=st.integers(0, 30), a=st.integers(30, 90), b=st.integers(30, 90)
)
def test_the_chance_is_that_of_scipy(mine, other, a, b):
    actual = probability_of_more(Count(a, mine, 0), Count(b, other, 0))
    if mine + other == 0:
        assert actual == 1.0
    else:
        expected = binomtest(mine, mine + other, a / (a + b), alternative="greater").pvalue
        assert actual == pytest.approx(expected, rel=1e-9)


def test_a_draft_has_the_channels_and_the_length_that_the_verdict_asks(runtime, tmp_path):
    manifest = runtime.manifest
    path = tmp_path / "rollout.toml"
    path.write_text(draft_plan(manifest))
    with pytest.raises(DeployError, match="as wide as the measuring range"):
        read_plan(path, manifest)

    def completed(manifest):
        return draft_plan(manifest).replace("[280.0, 400.0]", "[300.0, 350.0]")

    path.write_text(completed(manifest))
    plan = read_plan(path, manifest)
    assert plan.limits["temperature"] == (300.0, 350.0)
    assert (plan.turn_steps, plan.turns) == (40, 10)
    verdict = {**manifest.document["verdict"], "sentence": "Run it. About 37 episodes of each show"}
    with_verdict = dataclasses.replace(manifest, document={**manifest.document, "verdict": verdict})
    path.write_text(completed(with_verdict))
    assert read_plan(path, manifest).turns == 37


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("turns = 2", r"\[limits\] is missing; it says which values are good"),
        ("[limits]\nlvl = [0, 1]", "observes no 'lvl'"),
        ("[limits]\nlevel = [1, 0]", r"level must be \[lowest, highest\]"),
        ("[limits]\nlevel = 3", r"level must be \[lowest, highest\]"),
        ("turns = 0\n[limits]\nlevel = [0, 1]", "turns must be an integer above zero"),
        ("authority = 1.5\n[limits]\nlevel = [0, 1]", "authority must be above 0"),
        ("authorty = 0.5\n[limits]\nlevel = [0, 1]", "did you mean authority"),
        ("full = 'now'\n[limits]\nlevel = [0, 1]", "full must be 'ask' or 'automatic'"),
        ("full = ", "is not valid TOML"),
    ],
)
def test_a_plan_that_is_none_is_one_line(runtime, tmp_path, text, words):
    path = tmp_path / "rollout.toml"
    path.write_text(text)
    with pytest.raises(DeployError, match=words):
        read_plan(path, runtime.manifest)
    with pytest.raises(DeployError, match="cannot read the plan"):
        read_plan(tmp_path / "none.toml", runtime.manifest)
