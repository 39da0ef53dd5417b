"""What is found in a log under feedback, and what a tuned loop bears, against polynomials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.classical import (
    LQG,
    MPC,
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
from neorl_agents.classical._pid_controllers import tuning_warnings
from neorl_agents.classical._tuning import gain_margin
from neorl_core import Channel, InputError, Spec, Transition
from neorl_core.loops import PIDGains

DT = 2.0
SPEC = Spec(
    (Channel("outlet", "degF", 32.0, 212.0), Channel("setpoint", "degF", 32.0, 212.0)),
    (Channel("steam", "%", 0.0, 100.0),),
    (),
    dt=DT,
    horizon=500,
)
TASK = Task((Loop("outlet", "steam", "setpoint"),))
KP, KI = 0.35, 0.005


def under_feedback(
    rows: int = 6000, *, stop: float = 100.0, manual: bool = False, moves: bool = True
) -> Transition:
    """A heat exchanger under PI: 1.2 degF per %, 60 s, dead time 14 s, and a drifting load."""
    rng = np.random.default_rng(0)
    pole, delay = np.exp(-DT / 60), 7
    x, load, integral, target, u = 60.0, 0.0, 50.0, 140.0, 50.0
    sent, seen = [50.0] * delay, []
    for t in range(rows):
        if moves and rng.random() < DT / 1200:
            target = rng.choice([125.0, 130.0, 140.0, 150.0, 160.0])
        load += 0.25 * rng.normal() - load * DT / 900
        y = 80 + x + load + 0.3 * rng.normal()
        error = target - y
        if not (manual and t % 1500 >= 1400):
            wanted = integral + KP * error + KI * DT * error
            u = min(max(wanted, 0.0), stop)
            if u == wanted:
                integral += KI * DT * error
        sent.append(u)
        seen.append((y, target, u))
        x = pole * x + 1.2 * (1 - pole) * sent[-1 - delay]
    columns = np.array(seen)
    ends = np.arange(rows - 1) % 500 == 499
    return Transition(
        columns[:-1, :2],
        columns[:-1, 2:],
        np.zeros(rows - 1),
        next_obs=columns[1:, :2],
        terminated=np.zeros(rows - 1, bool),
        truncated=ends,
    )


def regulated(policy, rows: int = 200) -> float:
    """Largest error of the exchanger in its last rows, without noise, after a setpoint step."""
    pole = np.float32(np.exp(-DT / 60))

    def step(now, _):
        carry, x, sent = now
        carry, action = policy(carry, jnp.stack([80 + x, jnp.float32(150.0)]), None)
        x = pole * x + 1.2 * (1 - pole) * sent[-1]
        return (carry, x, jnp.concatenate([action, sent[:-1]])), 80 + x

    start = (policy.initial_carry(), jnp.float32(60.0), jnp.full(7, 50.0, jnp.float32))
    outlet = jax.jit(lambda: jax.lax.scan(step, start, None, length=rows)[1])()
    return float(np.max(np.abs(np.asarray(outlet)[-50:] - 150)))


def true_radius(kp: float, ki: float) -> float:
    """Of the exchanger under a PI loop, by the roots of its characteristic polynomial."""
    pole = np.exp(-DT / 60)
    plant = np.polymul([1, -pole] + [0] * 7, [1, -1])
    loop = 1.2 * (1 - pole) * np.polyadd(kp * np.array([1, -1]), [DT * ki, 0])
    return float(np.max(np.abs(np.roots(np.polyadd(plant, loop)))))


@pytest.mark.parametrize("ki", [0.0, 0.01])
def test_the_margin_is_that_of_the_characteristic_polynomial(lag, ki):
    """``z^4 (z - 0.9) + 0.3 f (kp + ki dt z / (z - 1))`` by its roots."""
    log = checked_log(lag.log(4, 120), lag.spec)
    model = identify_first_order(log, 0, 0, dt=2.0, longest=8)
    margin = gain_margin(log, 0, 0, PIDGains(0.4, ki, 0.0, 0.0), model, longest=8)

    def radius(factor: float) -> float:
        # Without an integral the factor z - 1 would be a root that the loop does not have.
        rise = np.array([1, -1]) if ki else np.ones(1)
        plant = np.polymul([1, -0.9, 0, 0, 0, 0], rise)
        loop = 0.3 * factor * np.polyadd(0.4 * rise, [2.0 * ki, 0] if ki else [0])
        return float(np.max(np.abs(np.roots(np.polyadd(plant, loop)))))

    assert margin is not None
    np.testing.assert_allclose(radius(margin), 1, atol=1e-3)
    assert radius(0.9 * margin) < 0.99


@pytest.mark.parametrize("name", ["lag", "integrator"])
def test_the_margin_of_a_smith_predictor_is_where_its_loop_swings(request, name):
    plant = request.getfixturevalue(name)
    policy, report = SmithPID(longest_delay=8).fit(plant.log(4, 120), plant.spec, plant.task)
    loop = report["loops"][0]
    margin = loop["gain_margin"]
    assert loop["warnings"] == []
    assert 1.5 < margin < 16
    swing = {}
    for factor in (0.95, 1.05):
        heavier = plant._replace(b=factor * margin * plant.b)
        swing[factor] = float(np.std(np.asarray(heavier.run(policy, 400)[0])[-50:, 0]))
    assert swing[0.95] < 0.01 < 0.1 < swing[1.05]


def test_a_short_log_has_no_margin(lag):
    log = checked_log(lag.log(4, 30), lag.spec)
    model = FirstOrderModel(0.9, 0.3, 0.0, 4, 1.0, 10, 2.0)
    assert gain_margin(log, 0, 0, PIDGains(0.4, 0.0, 0.0, 0.0), model, longest=8) is None


@pytest.fixture(scope="module")
def feedback() -> Transition:
    return under_feedback()


def true_margin(gains: PIDGains) -> float:
    factors = np.geomspace(0.01, 16, 400)
    steady = [true_radius(f * gains.kp, f * gains.ki) < 1 for f in factors]
    return float(factors[np.argmin(steady)])


def test_a_plant_under_feedback_and_a_drifting_load_is_found(feedback):
    """The old controller's answer to the load hides the dead time from errors far ahead."""
    loop = TunedPID().fit(feedback, SPEC, TASK).report["loops"][0]
    assert loop["delay"] == 7
    np.testing.assert_allclose(loop["static_gain"], 1.2, rtol=0.15)
    np.testing.assert_allclose(loop["time_constant"], 60, rtol=0.3)
    assert 0.02 < loop["gain_error"] < 0.1
    assert true_margin(PIDGains(loop["kp"], loop["ki"], 0.0, 0.0)) > 3
    assert loop["warnings"] == []


@pytest.mark.parametrize(
    "controller",
    [LQG(orders=2, longest_delay=10), MPC(orders=2, longest_delay=10, steps=8, horizon=15)],
    ids=["lqg", "mpc"],
)
@pytest.mark.nightly
def test_a_regulator_of_such_a_log_has_the_dead_time_and_holds_the_plant(feedback, controller):
    """An ARX model of this log has a dead time of one period, and its regulator swings."""
    policy, report = controller.fit(feedback, SPEC, TASK)
    assert report["delay"] == [7]
    np.testing.assert_allclose(report["gain"], 1.2, rtol=0.15)
    assert report["residual"][0] < 0.5
    assert regulated(policy) < 0.3


@pytest.mark.parametrize("manual", [False, True])
def test_a_log_whose_set_point_stood_still_is_doubted(manual):
    """The input is then what the old controller made of the output, and tells next to nothing."""
    log = under_feedback(moves=False, manual=manual)
    assert TunedPID().fit(log, SPEC, TASK).report["loops"][0]["warnings"]


@pytest.mark.parametrize("delay", [0, 3, 7])
@pytest.mark.parametrize("rule", [simc, lambda_tuning])
def test_the_margin_under_feedback_is_near_that_of_the_plant(feedback, delay, rule):
    """Of loops that are tuned from a model with a dead time that is too short."""
    log = checked_log(feedback, SPEC)
    model = FirstOrderModel(np.exp(-DT / 60), 0.04, 0.0, delay, 1.0, 70, DT)
    gains = rule(model)
    margin = gain_margin(log, 0, 0, gains, model, longest=30)
    assert margin is not None
    np.testing.assert_allclose(margin, true_margin(gains), rtol=0.25, atol=0.03)
    warnings = tuning_warnings(model, margin, 30)
    assert bool(warnings) == (margin < 1.5)
    assert all("raise closed_loop" in warning for warning in warnings)


def test_a_gain_that_the_log_does_not_tell_is_doubted(lag):
    log = lag.log(2, 120, noise=3.0)
    other = log._replace(action=np.roll(log.action, 50, axis=0))
    loop = TunedPID(longest_delay=8).fit(other, lag.spec, lag.task).report["loops"][0]
    assert loop["gain_error"] > 0.2
    assert any("moves too little" in warning for warning in loop["warnings"])


def test_a_sound_fit_has_no_doubts(lag):
    for controller in (TunedPID(longest_delay=8), SmithPID(longest_delay=8)):
        assert (
            controller.fit(lag.log(4, 120), lag.spec, lag.task).report["loops"][0]["warnings"] == []
        )
    short = TunedPID(longest_delay=4).fit(lag.log(4, 120), lag.spec, lag.task).report["loops"][0]
    assert "longest that was tried, 4 periods" in short["warnings"][0]
    assert short["gain_margin"] is None


def test_logged_gains_are_found_beside_manual_and_a_stop_of_the_valve():
    """The valve stops at 60 % of a range of 100 %, and a fifteenth of the rows is in manual."""
    log = under_feedback(stop=60.0, manual=True)
    still = np.diff(log.action[:, 0], prepend=0.0) == 0
    assert 0.05 < np.mean(still) < 0.5
    loop = ImitatedPID().fit(log, SPEC, TASK).report["loops"][0]
    # With the rows that stand still they come out as 0.43 and 0.0031.
    np.testing.assert_allclose([loop["kp"], loop["ki"]], [KP, KI], rtol=0.15)
    assert loop["share"] > 0.8
    assert loop["warnings"] == []
    held = log._replace(action=np.full_like(log.action, 40.0))
    with pytest.raises(InputError, match="held actions do not show its gains"):
        ImitatedPID().fit(held, SPEC, TASK)


def test_actions_that_a_loop_hardly_explains_are_doubted():
    log = under_feedback()
    moved = log.action.std() * np.random.default_rng(0).normal(size=log.action.shape)
    loop = ImitatedPID().fit(log._replace(action=log.action + moved), SPEC, TASK).report["loops"][0]
    assert 0.1 < loop["share"] < 0.5
    (warning,) = loop["warnings"]
    assert "do not take it for the logged controller" in warning
