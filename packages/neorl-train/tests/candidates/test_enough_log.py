"""A log that is too short for its loops is refused before a plant model is learned from it."""

import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from neorl_agents.loops import Interval, LoopModel
from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import PlantFacts
from neorl_core import Channel, InputError, Spec
from neorl_core.control import PID
from neorl_core.loops import PIDGains, TransferFunction
from neorl_train._job import candidates as job
from neorl_train.candidates import (
    Material,
    forgetful,
    require_enough,
    settling,
    short_episodes,
)
from neorl_train.configuration import LimitsConfig, RetuningConfig

PERIOD, LAG = 1.0, 100.0
SPEC = Spec(
    (Channel("AIC_401_PV", "°Bx", 30.0, 60.0),), (Channel("AIC_401_OP", "%", 0.0, 100.0),), (),
    PERIOD, 500,
)  # fmt: skip
TODAY = PIDGains(2.5, 2.5 / LAG, 0.0, 0.0)
SETTINGS = HistoryModelSettings()


def member(gain: float, dead_time: float) -> TransferFunction:
    return TransferFunction(np.asarray([gain]), np.asarray([LAG, 1.0]), np.asarray(dead_time))


def model(dead_time: float = 0.0, **changes) -> LoopModel:
    late = Interval(dead_time, 0.9 * dead_time, 1.1 * dead_time)
    lag = Interval(LAG, LAG, LAG)
    members = tuple(member(gain, dead_time) for gain in (2.0, 1.6, 2.5))
    found = LoopModel(
        members, Interval(2.0, 1.6, 2.5), late, (lag,), False, 0.9, 100.0, (), True, ""
    )
    return found._replace(**changes)


def report(of: LoopModel) -> SimpleNamespace:
    record = SimpleNamespace(name="AIC-401", period=PERIOD, tags={"output": "AIC_401_OP"})
    return SimpleNamespace(record=record, model=of)


def bank() -> PID:
    numbers = {"kp": TODAY.kp, "ki": TODAY.ki, "kd": 0.0, "tau": 0.0, "setpoint": 45.0, "bias": 0.0}
    return PID(
        **{name: jnp.asarray([number]) for name, number in numbers.items()},
        low=jnp.zeros(1), high=jnp.full(1, 100.0), dt=jnp.asarray(PERIOD),
        override_below=jnp.zeros(0), override_cap=jnp.zeros(0),
        measured=(0,), override_output=(), override_measured=(),
    )  # fmt: skip


def rest(gain: float) -> float:
    """When a lag under a PI with its own time as reset rests after a step of the load.

    The lag cancels, so the closed loop is one of first order, ``tau = T / (K kp)``. The setpoint is
    reached after ``3 tau``; a load decays with the lag itself.
    """
    tau = LAG / (gain * TODAY.kp)

    def error(time: float) -> float:
        return np.exp(-time / LAG) - np.exp(-time / tau)

    peak = np.log(LAG / tau) * LAG * tau / (LAG - tau)
    settled = brentq(lambda time: error(time) - 0.05 * error(peak), peak, 20 * LAG)
    assert settled > 3 * tau
    return settled


def test_a_loop_rests_when_the_closed_form_says_so():
    found = settling(model(), TODAY, period=PERIOD)
    expected = [rest(gain) for gain in (2.0, 2.5, 1.6)]
    # The process is sampled once a second, and the time is one of the samples.
    np.testing.assert_allclose(found, [expected[0], min(expected), max(expected)], atol=2 * PERIOD)


def test_an_unstable_loop_rests_never_and_refuses_nothing():
    wild = TODAY._replace(kp=-2.5, ki=-0.025)
    assert settling(model(), wild, period=PERIOD) is None


def test_episodes_below_three_settling_times_are_named_with_the_length_that_is_needed():
    settled = Interval(900.0, 800.0, 1000.0)
    assert short_episodes("AIC-401", settled, 240, 10.0) == ""
    sentence = short_episodes("AIC-401", settled, 239, 10.0)
    assert sentence.startswith(
        "AIC-401: an episode has 239 rows, 40 min, and the loop takes 15 min "
    )
    assert "270 rows or 45 min, is needed" in sentence
    assert "length = 270 under [episodes] in plant.toml" in sentence


def test_a_plant_model_that_forgets_within_the_dead_time_is_named():
    """A dead time of 72 to 88 s, and four rows of 10 s: a period of 22 s is enough."""
    late = model(80.0)
    sentence = forgetful("AIC-401", late, 4, 10.0)
    assert "its dead time is about 80 s, 9 rows" in sentence
    assert "remembers at most 4 rows, 40 s" in sentence
    assert "period_s = 22" in sentence
    assert forgetful("AIC-401", late, 4, 22.0) == ""
    assert forgetful("AIC-401", late._replace(usable=False), 4, 10.0) == ""


def test_both_are_refused_at_once_and_a_sufficient_log_is_not():
    need = 3 * rest(2.0)
    with pytest.raises(InputError, match=r"an episode has 500 rows.* remembers at most 8 rows"):
        require_enough([report(model(20.0))], bank(), SPEC, [500] * 8, SETTINGS)
    with pytest.raises(InputError) as refused:
        require_enough([report(model())], bank(), SPEC, [500] * 8, SETTINGS)
    rows = int(re.search(r"length = (\d+)", str(refused.value))[1])
    assert rows == pytest.approx(need, abs=6 * PERIOD)
    # A few episodes that gaps cut short are no reason.
    assert require_enough([report(model())], bank(), SPEC, [9, rows, rows], SETTINGS) == SETTINGS


def test_only_histories_that_cover_the_dead_time_are_left():
    covering = require_enough([report(model(4.0))], bank(), SPEC, [5000] * 8, SETTINGS)
    assert covering.history == (4, 8)


def test_nothing_is_refused_where_the_log_shows_no_usable_model():
    unknown = model(20.0, usable=False, why_not="too few moves")
    assert require_enough([report(unknown)], bank(), SPEC, [5] * 8, SETTINGS) == SETTINGS


def test_a_run_refuses_before_it_learns_a_plant(monkeypatch):
    """With everything that a run asks of its log answered; learning a plant would fail the test."""
    dataset = SimpleNamespace(transitions=None, episode_lengths=np.full(8, 50))
    monkeypatch.setattr(job, "training_sample", lambda data, log: log)
    monkeypatch.setattr(job, "incumbent_episodes", lambda part, name: None)
    monkeypatch.setattr(job, "run_facts", lambda *of: (PlantFacts(), ()))
    monkeypatch.setattr(job, "declared_reports", lambda *of: (report(model()),))
    monkeypatch.setattr(job, "declared_faceplates", lambda log: {})
    monkeypatch.setattr(job, "require_declared", lambda reports, declared: [])
    monkeypatch.setattr(job, "learned_plants", lambda *of, **given: pytest.fail("it was learned"))
    config = SimpleNamespace(
        retuning=RetuningConfig(controller="AIC-401"), data=SimpleNamespace(source="log.h5")
    )
    material = Material(config, SPEC, None, dataset)
    with pytest.raises(InputError, match=r"^retuning AIC-401: AIC-401: an episode has 50 rows"):
        job.with_plants(material, {"AIC-401": bank()}, LimitsConfig())
