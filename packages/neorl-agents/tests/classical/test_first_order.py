"""First-order models and the rules of tuning, against plants whose truth is known."""

import dataclasses

import numpy as np
import pytest

from neorl_agents.classical import (
    FirstOrderModel,
    ImitatedPID,
    Loop,
    SmithPID,
    Task,
    TunedPID,
    checked_log,
    identify_first_order,
    lambda_tuning,
    simc,
)
from neorl_agents.controllers import pid_policy
from neorl_core import InputError, Transition
from neorl_core.control import PID

from .conftest import single


def model_of(plant, log):
    rows = checked_log(log, plant.spec)
    return identify_first_order(rows, 0, 0, dt=plant.spec.dt, longest=8)


def test_a_lag_is_found_exactly(lag):
    model = model_of(lag, lag.log(4, 120))
    assert model.delay == 4
    np.testing.assert_allclose([model.pole, model.gain], [0.9, 0.3], rtol=1e-5)
    np.testing.assert_allclose(model.time_constant, 2.0 / -np.log(0.9), rtol=1e-4)
    np.testing.assert_allclose(model.static_gain, 3.0, rtol=1e-4)
    np.testing.assert_allclose(model.dead_time, 9.0)
    assert model.share > 1 - 1e-8


def test_an_integrating_loop_and_its_load_are_found_exactly(integrator):
    model = model_of(integrator, integrator.log(4, 120))
    assert (model.pole, model.delay, model.time_constant) == (1.0, 3, np.inf)
    np.testing.assert_allclose([model.gain, model.slope], [0.2, 0.1], rtol=1e-6)
    np.testing.assert_allclose(model.holding(7.0), -0.25, rtol=1e-6)


def test_noise_of_the_measurement_does_not_hide_the_lag(lag):
    # One period ahead, least squares takes this noise for a pole near 0.6.
    log = lag.log(20, 200, noise=0.5)
    y, u = log.obs[:, 0], log.action[:, 0]
    naive = np.linalg.lstsq(np.stack([y, np.roll(u, 4)], 1)[10:190], log.next_obs[10:190, 0])[0]
    assert naive[0] < 0.85
    model = model_of(lag, log)
    assert model.delay == 4
    np.testing.assert_allclose(model.pole, 0.9, atol=0.02)
    np.testing.assert_allclose(model.static_gain, 3.0, rtol=0.1)


def test_noise_makes_no_integrator_of_a_slow_lag():
    slow = single(0.99, 0.03, 4)
    model = model_of(slow, slow.log(20, 200, noise=0.1))
    np.testing.assert_allclose(model.pole, 0.99, atol=0.005)
    assert model_of(slow, slow.log(20, 200, noise=1.0)).pole < 1


def test_simc_gives_the_numbers_of_its_table():
    # Skogestad 2003, table 1, for tc = theta: Kc = 0.5 T / (k theta) and ti = min(T, 8 theta).
    slow = FirstOrderModel(np.exp(-1 / 30), 2 * (1 - np.exp(-1 / 30)), 0.0, 2, 1.0, 9, 1.0)
    gains = simc(slow)
    np.testing.assert_allclose(gains.kp, 0.5 * 30 / (2 * 2.5))
    np.testing.assert_allclose(gains.kp / gains.ki, 8 * 2.5)
    quick = slow._replace(pole=np.exp(-1 / 5), gain=2 * (1 - np.exp(-1 / 5)))
    np.testing.assert_allclose(simc(quick).kp / simc(quick).ki, 5.0)
    # Grimholt and Skogestad 2018: the series form with td = theta / 3, here as the parallel one.
    full, td = simc(slow, derivative=True), 2.5 / 3
    expected = 3 * (1 + td / 20), 3 / 20, 3 * td, 0.1 * td
    np.testing.assert_allclose(full, expected)
    assert (gains.kd, gains.tau) == (0.0, 0.0)


def test_lambda_tuning_gives_the_numbers_of_its_rules():
    lag = FirstOrderModel(np.exp(-1 / 5), 2 * (1 - np.exp(-1 / 5)), 0.0, 2, 1.0, 9, 1.0)
    gains = lambda_tuning(lag)
    np.testing.assert_allclose((gains.kp, gains.kp / gains.ki), (5 / (2 * (5 + 2.5)), 5))
    # Where the dead time is longer than the lag, it is what the loop follows by.
    late = lambda_tuning(lag._replace(delay=12))
    np.testing.assert_allclose((late.kp, late.kp / late.ki), (5 / (2 * (12.5 + 12.5)), 5))
    # Integrating, Olsen and Bialkowski 2002, with lam = 3 theta = 10.5.
    tank = lambda_tuning(FirstOrderModel(1.0, 0.5, 0.0, 3, 1.0, 9, 1.0))
    np.testing.assert_allclose((tank.kp, tank.kp / tank.ki), (24.5 / (0.5 * 14**2), 24.5))


@pytest.mark.parametrize(
    "controller",
    [
        TunedPID(longest_delay=8),
        TunedPID(rule="lambda", longest_delay=8),
        TunedPID(derivative=True, longest_delay=8),
        SmithPID(longest_delay=8),
    ],
    ids=["simc", "lambda", "pid", "smith"],
)
def test_the_loop_settles_on_the_setpoint_despite_a_load(lag, controller):
    policy, report = controller.fit(lag.log(4, 120), lag.spec, lag.task)
    states, actions, _ = lag.run(policy, 150, load=np.array([0.02]))
    np.testing.assert_allclose(states[-1, 0], 1.0, atol=0.01)
    assert np.max(states) < 1.7
    assert np.all(np.abs(actions) <= 2.0)
    assert report["loops"][0]["delay"] == 4


def test_delay_compensation_is_quicker_than_simc(lag):
    log = lag.log(4, 120)
    areas = {}
    for kind in (TunedPID, SmithPID):
        policy = kind(longest_delay=8).fit(log, lag.spec, lag.task).policy
        areas[kind] = float(np.sum(np.abs(lag.run(policy, 150)[0] - 1)))
    assert areas[SmithPID] < 0.9 * areas[TunedPID]


def loop_of(kp, ki, kd):
    """A PID on level and valve that holds 1 m, with a bias of 0.1 %."""
    one = np.ones(1, np.float32)
    return PID(kp * one, ki * one, kd * one, 0 * one, one, 0.1 * one, -2 * one, 2 * one,
               np.float32(2.0), one[:0], one[:0], measured=(0,))  # fmt: skip


def test_logged_gains_are_found_by_imitation(lag):
    acted = loop_of(0.4, 0.03, 0.2)
    states, actions, _ = lag.run(acted, 101, load=np.array([0.05]))
    states, actions = np.asarray(states, np.float64), np.asarray(actions, np.float64)
    ends = np.arange(100) == 99
    log = lag.log(1, 100)._replace(
        obs=states[:-1], action=actions[:-1], next_obs=states[1:], truncated=ends
    )
    result = ImitatedPID(derivative=True).fit(log, lag.spec, lag.task)
    loop = result.report["loops"][0]
    np.testing.assert_allclose([loop["kp"], loop["ki"], loop["kd"]], [0.4, 0.03, 0.2], rtol=1e-3)
    np.testing.assert_allclose(loop["bias"], 0.1, atol=1e-3)
    assert loop["share"] > 0.9999
    with pytest.raises(InputError, match=r"level by valve: the best PID explains \d\.\d% of "):
        ImitatedPID().fit(lag.log(4, 120), lag.spec, lag.task)


def test_imitation_needs_no_integral_of_the_log_and_leaves_saturated_rows_out(lag):
    """Recordings begin in the midst of an episode, each with an integral of its own."""
    parts = []
    for load in (0.05, -0.1):
        states, actions, _ = lag.run(loop_of(0.4, 0.03, 0.0), 101, load=np.array([load]))
        parts.append((states[20:], actions[20:]))
    # A proportional loop goes to its limits: there the valve acted, not the loop.
    states, actions, _ = lag.run(loop_of(4.0, 0.0, 0.0), 101)
    assert 0.2 < np.mean(np.abs(actions) > 1.99) < 0.8
    for kp, ki, logged in ((0.4, 0.03, parts), (4.0, 0.0, [(states, actions)])):
        columns = [[np.asarray(x, np.float64) for x in both] for both in logged]
        x, u, y = (
            np.concatenate(one)
            for one in zip(*((s[:-1], a[:-1], s[1:]) for s, a in columns), strict=True)
        )
        ends = np.zeros(len(x), bool)
        ends[np.cumsum([len(s) - 1 for s, _ in columns]) - 1] = True
        log = Transition(x, u, u[:, 0], next_obs=y, terminated=ends & False, truncated=ends)
        loop = ImitatedPID().fit(log, lag.spec, lag.task).report["loops"][0]
        np.testing.assert_allclose([loop["kp"], loop["ki"]], [kp, ki], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("weights", "derivative", "fitted", "zeros"),
    [
        ((0.4, 0.0, 0.0), True, (0.4, 0.0, 0.0), None),
        ((-0.4, -0.02, 0.0), True, (-0.4, -0.02, 0.0), None),
        ((0.4, -0.002, 0.0), False, (0.4, 0.0, 0.0), "without ki;"),
        ((-0.002, 0.3, 0.0), False, (0.0, 0.3, 0.0), "without kp;"),
        ((0.4, -0.002, -0.01), True, (0.4, 0.0, 0.0), "without ki and kd;"),
    ],
)
def test_imitated_gains_have_one_sign_and_rounding_is_zero(lag, weights, derivative, fitted, zeros):
    """With opposite signs the integral or derivative time would be negative."""
    rng, dt = np.random.default_rng(3), lag.spec.dt
    setpoint = float(lag.task.loops[0].setpoint)
    y = (setpoint + rng.normal(size=600)).astype(np.float32)
    error = setpoint - y.astype(np.float64)
    slope = np.append(0.0, np.diff(y.astype(np.float64))) / dt
    kp, ki, kd = weights
    action = 0.1 * (kp * error + ki * dt * np.cumsum(error) - kd * slope)
    log = lag.log(1, 600)._replace(obs=y[:, None], action=action[:, None].astype(np.float32))
    result = ImitatedPID(derivative=derivative).fit(log, lag.spec, lag.task)
    loop = result.report["loops"][0]
    for name, expected in zip(("kp", "ki", "kd"), fitted, strict=True):
        if expected == 0:
            assert loop[name] == 0
        else:
            np.testing.assert_allclose(loop[name], 0.1 * expected, rtol=0.05)
    words = " ".join(loop["warnings"])
    assert ("opposite signs" in words) == (zeros is not None)
    assert zeros is None or zeros in words


def test_the_predictor_reckons_with_what_was_sent(lag):
    """Not with what it proposed: an actuator or a filter may have sent another action."""
    policy = SmithPID(longest_delay=8).fit(lag.log(4, 120), lag.spec, lag.task).policy
    seen = np.array([0.2], np.float32)
    carry, proposed = policy(policy.initial_carry(), seen)
    for updated in (policy.sent(carry, proposed - 0.5), policy.follow(carry, proposed - 0.5)):
        later, _ = policy(updated, seen)
        moved = policy.gain * (proposed - 0.5 - policy.rest)
        np.testing.assert_allclose(later.model_outputs[-1], moved, rtol=1e-5)


def test_the_predictor_of_an_integrating_loop_is_proportional(lag, integrator):
    """The prediction has an offset under load there, on which an integral would only wind up."""
    loops = [
        SmithPID(longest_delay=8).fit(plant.log(4, 120), plant.spec, plant.task).report["loops"][0]
        for plant in (integrator, lag)
    ]
    assert loops[0]["ki"] == 0
    assert loops[1]["ki"] > 0


def test_a_setpoint_that_is_an_observation_is_followed_and_its_loss_is_said():
    loop = loop_of(0.4, 0.03, 0.0)
    tracking = pid_policy(loop, (1,))
    seen, lost = np.array([0.2, 1.0], np.float32), np.array([0.2, np.nan], np.float32)
    carry, action = tracking(tracking.initial_carry(), seen)
    expected, one = loop(loop.initial_carry(), seen)
    np.testing.assert_array_equal(action, one)
    after, nothing = tracking(carry, lost)
    assert np.isnan(nothing).all()
    np.testing.assert_array_equal(after.integral, expected.integral)


@pytest.mark.parametrize("controller", [TunedPID(longest_delay=8), SmithPID(longest_delay=8)])
def test_the_same_loop_in_other_units_gets_the_same_policy(lag, in_other_units, controller):
    log = lag.log(4, 120)
    policy = controller.fit(log, lag.spec, lag.task).policy
    other = controller.fit(*in_other_units(lag, log)).policy
    carry, twin = policy.initial_carry(), other.initial_carry()
    for y in (0.0, 0.4, 0.9, 1.2, 1.1):
        carry, action = policy(carry, np.array([y], np.float32))
        twin, same = other(twin, np.array([1e4 * y + 273.0], np.float32))
        np.testing.assert_allclose((same + 5.0) / 1e-3, action, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loops": (Loop("levle", "valve", 1.0),)}, "levle.*level"),
        ({"loops": (Loop("level", "pump", 1.0),)}, "pump"),
        ({"loops": (Loop("valve", "level", 1.0),)}, "controlled variable first: level valve"),
        ({"loops": (Loop("level", "valve", 99.0),)}, "in its range, -20 to 20 m"),
        (
            {"loops": (Loop("level", "valve", "level"),)},
            "is given both as a setpoint and as a measured channel",
        ),
    ],
)
def test_a_task_that_does_not_fit_is_refused(lag, change, message):
    task = dataclasses.replace(lag.task, **change)
    with pytest.raises(InputError, match=message):
        TunedPID(longest_delay=8).fit(lag.log(2, 60), lag.spec, task)


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        ((), "at least one loop"),
        (
            (Loop("a", "u", 0.0), Loop("a", "v", 0.0)),
            "the controlled channel a is in more than one loop",
        ),
        ((Loop("a", "u", np.nan),), "must be finite"),
        ((Loop("a", "u", 0.0, low=2.0, high=1.0),), "low must be below high"),
        ((Loop("a", "u", 0.0, rate=0.0),), "rate of 'u' must be positive"),
    ],
)
def test_a_task_without_sense_is_refused(loops, message):
    with pytest.raises(InputError, match=message):
        Task(loops)


def spoilt(log, field):
    if field == "still":
        return log._replace(action=0 * log.action)
    if field == "nan":
        obs = log.obs.copy()
        obs[7] = np.nan
        return log._replace(obs=obs)
    if field == "short":
        return log._replace(truncated=np.arange(len(log.truncated)) % 5 == 4)
    if field == "empty":
        return type(log)(*(None if c is None else c[:0] for c in log))
    if field == "shape":
        return log._replace(action=np.tile(log.action, 2))
    return log._replace(next_obs=None)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("still", "is constant in the log"),
        ("nan", "column obs of the log must be finite, got nan in row 7, channel 0"),
        ("short", "episodes of the log must have more than"),
        ("empty", "all 0 rows of the log are masked"),
        ("shape", "column action of the log must have the shape"),
        ("missing", "column next_obs of the log is missing"),
    ],
)
def test_a_log_that_tells_nothing_is_refused(lag, field, message):
    with pytest.raises(InputError, match=message):
        TunedPID(longest_delay=8).fit(spoilt(lag.log(2, 60), field), lag.spec, lag.task)


def test_masked_rows_are_not_read(lag):
    log = lag.log(4, 120)
    obs, keep = log.obs.copy(), np.ones(len(log.obs), bool)
    obs[50], keep[50] = np.nan, False
    spoilt = log._replace(obs=obs, mask=keep)
    assert model_of(lag, spoilt).delay == 4
    np.testing.assert_allclose(model_of(lag, spoilt).pole, 0.9, rtol=1e-5)


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (TunedPID(rule="cohen"), r"TunedPID\.rule must be one of simc, lambda"),
        (SmithPID(closed_loop=np.nan), r"SmithPID\.closed_loop"),
        (ImitatedPID(rows=0), r"ImitatedPID\.rows"),
    ],
)
def test_settings_without_sense_are_refused_by_name(lag, controller, message):
    with pytest.raises(InputError, match=message):
        controller.fit(lag.log(2, 60), lag.spec, lag.task)
