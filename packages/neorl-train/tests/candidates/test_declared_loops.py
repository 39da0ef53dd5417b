"""Declared numbers are compared with the rows of the log, and a valve that sticks is named."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from neorl_agents.loops import Cause, LoopRecord, logged_controller, loop_model
from neorl_core import InputError
from neorl_envs.datasets import FaceplateLoop
from neorl_train._job import candidates as job
from neorl_train.candidates import (
    Material,
    loop_objections,
    proposed_change,
    require_declared,
)
from neorl_train.configuration import LimitsConfig, RetuningConfig

KP, RESET, PERIOD = 0.7, 21.0, 2.0
HEALTHY = Cause(
    "leave it", "The loop is tuned well enough, and nothing ails it.", (), "", "healthy"
)
STUCK = Cause(
    "mend the valve or sensor", "The valve sticks: by 2.4 %.", (), "Stroke the valve.", "stiction"
)


def record(rows=400, scale=1.0, kp=KP, reset=RESET, step=1.0) -> LoopRecord:
    """A lag under a PI by its textbook equation, with noise, whose output is logged scaled."""
    rng = np.random.default_rng(0)
    y, integral, level = np.zeros(rows), 50.0, 70.0
    u, setpoint = np.zeros(rows), 70.0 + step * (np.arange(rows) % 200 >= 100)
    for t in range(rows):
        y[t] = level + 0.1 * rng.normal()
        error = setpoint[t] - y[t]
        integral += kp / reset * PERIOD * error
        u[t] = integral + kp * error
        level += (70.0 + u[t] - 50.0 - level) * PERIOD / 20
    return LoopRecord(
        "TIC-111", y, scale * u, setpoint, np.ones(rows, bool), np.zeros(rows, int), PERIOD,
        "degC", "%", (40.0, 100.0), (0.0, 100.0), tags={"output": "TIC_111_OP"},
    )  # fmt: skip


def report(of: LoopRecord, cause: Cause = HEALTHY) -> SimpleNamespace:
    figures = SimpleNamespace(controller=logged_controller(of))
    return SimpleNamespace(record=of, figures=figures, cause=cause, model=loop_model(of))


def declared(gain: float, direction: str = "reverse", reset: float = RESET) -> dict:
    loop = FaceplateLoop(
        "TIC_111_PV", "TIC_111_OP", direction, gain=gain, integral=reset,
        setpoint_channel="TIC_111_SP", name="TIC-111",
    )  # fmt: skip
    return {"TIC_111_OP": loop.faceplate((60.0, 100.0), ("degC", "%"))}


def test_numbers_that_wrote_the_rows_are_accepted():
    assert require_declared([report(record())], declared(KP)) == []


def test_numbers_that_differ_a_little_are_told():
    (note,) = require_declared([report(record())], declared(1.05))
    assert note.startswith("TIC-111: the faceplate says gain 1.05 % per degC")
    assert "the rows of the log show gain 0.7 % per degC" in note


@pytest.mark.parametrize(("gain", "direction"), [(2.1, "reverse"), (KP, "direct")])
def test_numbers_that_did_not_write_the_rows_are_refused(gain, direction):
    with pytest.raises(
        InputError, match=r"^TIC-111: the faceplate says .* check units, form"
    ) as it:
        require_declared([report(record())], declared(gain, direction))
    assert "hundredfold" not in str(it.value)


def test_a_controller_that_acts_between_the_rows_is_not_refused():
    """Every fourth row of a fast reset: moves over one row alone show less than half the gain."""
    whole = record(2300, kp=0.4, reset=6.0)
    sparse = dataclasses.replace(
        whole, period=4 * PERIOD,
        **{name: getattr(whole, name)[::4]
           for name in ("measurement", "output", "setpoint", "automatic", "segment")},
    )  # fmt: skip
    read = logged_controller(sparse)
    assert read.known
    assert read.kp < 0.4 / 2
    assert require_declared([report(sparse)], declared(0.4, reset=6.0)) == []
    (told,) = require_declared([report(sparse)], declared(1.6, reset=6.0))
    assert "the faceplate says gain 1.6 % per degC" in told


def test_a_fraction_in_place_of_percent_is_recognised_by_its_factor():
    with pytest.raises(InputError, match="a hundredfold apart, as percent and a fraction of 1 are"):
        require_declared([report(record(scale=0.01))], declared(KP))


def test_a_loop_that_needs_no_gains_is_compared_too():
    said = proposed_change(report(record()), declared(2.1)["TIC_111_OP"], None)
    assert said.startswith("no gains are proposed, because the answer is 'leave it'; the faceplate")


def test_a_valve_that_sticks_is_told_and_counts_against_the_log():
    stuck = report(record(), STUCK)
    assert require_declared([stuck], declared(KP)) == [
        "TIC-111: The valve sticks: by 2.4 %. Stroke the valve."
    ]
    assert loop_objections([report(record()), stuck]) == ["TIC-111: the valve sticks: by 2.4 %"]


def test_a_log_in_which_nobody_moved_anything_answers_nothing():
    """Held values in place of missing ones are no moves, though the output then seems to move."""
    moving, still = record(), record(step=0.0)
    held = np.random.default_rng(1).uniform(size=len(still.measurement)) < 0.01
    measured = np.where(held, np.roll(still.measurement, 1), still.measurement)
    still = dataclasses.replace(still, measurement=measured)
    assert logged_controller(still).known
    (objection,) = loop_objections([report(moving), report(still)])
    assert objection.startswith("TIC-111: almost every move of the output follows from the meas")


def test_a_run_refuses_wrong_numbers_before_it_learns_a_plant(monkeypatch):
    """With everything that a run asks of its log answered; learning a plant would fail the test."""
    dataset = SimpleNamespace(transitions=None, episode_lengths=np.full(8, 50))
    monkeypatch.setattr(job, "training_sample", lambda data, log: log)
    monkeypatch.setattr(job, "incumbent_episodes", lambda part, name: None)
    monkeypatch.setattr(job, "run_facts", lambda *of: (None, ()))
    monkeypatch.setattr(job, "declared_reports", lambda *of: (report(record()),))
    monkeypatch.setattr(job, "declared_faceplates", lambda log: declared(2.1))
    monkeypatch.setattr(job, "learned_plants", lambda *of, **given: pytest.fail("it was learned"))
    config = SimpleNamespace(
        retuning=RetuningConfig(controller="TIC-111"), data=SimpleNamespace(source="log.h5")
    )
    material = Material(config, None, None, dataset)
    with pytest.raises(
        InputError, match=r"^retuning TIC-111: TIC-111: the faceplate says gain 2.1"
    ):
        job.with_plants(material, {"TIC-111": None}, LimitsConfig())
