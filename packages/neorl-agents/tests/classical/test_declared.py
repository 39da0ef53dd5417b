"""PID loops declared with the numbers of their faceplates."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.classical import DeclaredLoop, declared_bank
from neorl_agents.controllers import TrackingPID
from neorl_core import Channel, InputError, Spec, Transition
from neorl_core.control import PID, tunable_values, tunables

SPEC = Spec(
    (
        Channel("T", "°C", 0.0, 200.0),
        Channel("T_SP", "°C", 0.0, 200.0),
        Channel("level", "m", 0.0, 4.0),
    ),
    (Channel("steam", "%", 0.0, 100.0), Channel("outlet", "%", 0.0, 100.0)),
    (),
    dt=2.0,
    horizon=9,
)
HEAT = {
    "controlled": "T", "manipulated": "steam", "gain": 2.1, "direction": "reverse",
    "setpoint_channel": "T_SP", "integral_time": 90.0,
}  # fmt: skip
TANK = {
    "controlled": "level", "manipulated": "outlet", "gain": 30.0, "direction": "direct",
    "setpoint": 2.0, "bias": 50.0, "low": 10.0, "derivative_time": 5.0,
}  # fmt: skip


def bank_of(*loops, log=None):
    return declared_bank([DeclaredLoop(**loop) for loop in loops], SPEC, log)


def test_a_declared_bank_acts_by_the_standard_law():
    """Against the equation in float64, over three steps without saturation."""
    bank = bank_of(TANK, {**HEAT, "bias": 40.0})  # in any order
    assert isinstance(bank, TrackingPID)
    carry, rows = bank.initial_carry(), [(118.0, 120.0, 2.1), (119.0, 120.0, 2.3), (119.0, 125, 2)]
    integral, before, slope, expected, actions = 0.0, None, 0.0, [], []
    for temperature, setpoint, level in rows:
        error = setpoint - temperature
        integral += 2.1 / 90.0 * error * 2.0
        rate = 0.0 if before is None else (level - before) / 2.0
        slope += 2.0 / (5.0 / 10.0 + 2.0) * (rate - slope)
        before = level
        expected.append([40 + 2.1 * error + integral, 50 - 30 * (2 - level) + 30 * 5 * slope])
        carry, action = bank(carry, jnp.asarray([temperature, setpoint, level]))
        actions.append(action)
    np.testing.assert_allclose(actions, np.clip(expected, [0, 10], 100), rtol=1e-5)


def test_its_numbers_are_those_that_were_declared():
    bank = bank_of(HEAT, TANK)
    declared = tunables(bank, SPEC)
    values = dict(zip([d.name for d in declared], tunable_values(bank, declared), strict=True))
    assert values == {
        "gain of steam": pytest.approx(2.1),
        "integral time of steam": pytest.approx(90.0),
        "gain of outlet": pytest.approx(-30.0),
        "derivative time of outlet": pytest.approx(5.0),
        "setpoint of level for outlet": pytest.approx(2.0),
        "bias of outlet": pytest.approx(50.0),
    }
    assert [d.unit for d in declared][:2] == ["% per °C", "s"]


def test_fixed_set_points_need_no_channel():
    fixed = {**HEAT, "setpoint_channel": "", "setpoint": 120.0, "high": 30.0}
    bank = bank_of(fixed, TANK)
    assert isinstance(bank, PID)
    np.testing.assert_allclose(bank.bias, [15.0, 50.0])
    np.testing.assert_allclose([bank.low, bank.high], [[0, 10], [30, 100]])


@pytest.mark.parametrize("fixed", [True, False])
def test_a_bias_that_is_not_declared_is_that_of_the_logged_first_rows(fixed):
    """A log of the bank itself: its bias is found, also if some episodes begin at a limit."""
    point = {"setpoint_channel": "", "setpoint": 120.0} if fixed else {}
    heat = {**HEAT, **point}
    recorder = bank_of({**heat, "bias": 35.0}, TANK)
    temperatures = [118.0, 119.0, 121.5, 40.0, 118.5, 30.0, 122.0]  # two of them saturate
    rows = []
    for temperature in temperatures:
        carry = recorder.initial_carry()
        for t in range(3):
            obs = np.asarray([temperature + t, 120.0, 2.0])
            carry, action = recorder(carry, jnp.asarray(obs))
            rows.append((obs, np.asarray(action), t == 2))
    obs, action, last = (np.asarray(column) for column in zip(*rows, strict=True))
    log = Transition(
        obs, action, np.zeros(len(obs)), next_obs=obs, terminated=np.zeros(len(obs), bool),
        truncated=last,
    )  # fmt: skip
    bank = bank_of(heat, TANK, log=log)
    loops = bank if fixed else bank.loops
    np.testing.assert_allclose(loops.bias, [35.0, 50.0], rtol=1e-5)


REFUSED = {
    r"gain of the loop of T by steam must be a positive number, got -2.1; its sign is stated by": {
        "gain": -2.1
    },
    "gain of the loop of T by steam must be a positive number, got nan": {"gain": math.nan},
    "direction of the loop of T by steam must be 'reverse'": {"direction": "up"},
    "integral_time of the loop of T by steam must be a positive": {"integral_time": 0.0},
    "derivative_time of the loop of T by steam": {"derivative_time": -1.0},
    "derivative_filter of the loop of T by steam": {"derivative_filter": 0.0},
    "needs one setpoint: give it as setpoint": {"setpoint_channel": ""},
    "needs one setpoint: give it": {"setpoint": 3.0},
    "bias of the loop of T by steam must be finite": {"bias": math.inf},
    "has no integral_time, and without an integral": {"integral_time": math.inf},
    r"unknown observation channel 'T_PS'; did you mean 'T_SP'\?": {"setpoint_channel": "T_PS"},
    r"unknown observation channel 'levle'; did you mean 'level'": {"controlled": "levle"},
    r"unknown action channel 'steem'; did you mean 'steam'\?": {"manipulated": "steem"},
    "the limits 0 to 120 %; low must be below high": {"high": 120.0},
    "bias of the loop of T by steam is 700 %, outside": {"bias": 700.0},
    "the setpoint of 'T' must be in its range": {"setpoint_channel": "", "setpoint": 400.0},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_faceplate_shows_is_refused_in_one_line(message):
    with pytest.raises(InputError, match=message) as error:
        bank_of({**HEAT, **REFUSED[message]}, TANK)
    assert "\n" not in str(error.value)


def test_an_action_without_a_loop_is_refused():
    with pytest.raises(InputError, match="no loop manipulates outlet, but a bank of declared PID"):
        bank_of(HEAT)
