"""Identification, observer, regulator and predictive control against SciPy and closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.classical import LQG, MPC, Loop, Task, checked_log, identify_plant
from neorl_agents.classical._design import Weights, delayed, predictions, regulator
from neorl_agents.classical._identification import observer_gain, scaled_rows
from neorl_agents.classical._model_controllers import fit_parts
from neorl_agents.classical._task import resolve
from neorl_core import Channel, InputError, Spec

from ..controllers import oracle
from .conftest import Plant, by_recursion, log_of

SMALL = {"longest_delay": 4, "orders": 2}


def identified(plant, log, **settings):
    rows = scaled_rows(checked_log(log, plant.spec), plant.spec, resolve(plant.task, plant.spec))
    options = {"method": "arx", "orders": 2, "longest_delay": 4} | settings
    return identify_plant(*rows, **options)


@pytest.fixture(scope="module")
def coupled_log(coupled):
    return coupled.log(9, 80)


def test_order_and_each_delay_are_found_and_the_model_is_exact(coupled, coupled_log):
    model = identified(coupled, coupled_log)
    assert (model.order, model.delay) == (1, (2, 0))
    units = model.outputs.scale
    np.testing.assert_allclose(model.a * units[:, None] / units, coupled.a, atol=1e-6)
    np.testing.assert_allclose(model.b * units[:, None] / model.inputs.scale, coupled.b, atol=1e-6)
    assert np.all(model.residual < 1e-6)


def test_the_gains_that_a_person_checks_are_those_of_the_plant(coupled, coupled_log):
    """In closed form, in physical units; an integrating plant has none."""
    settings = LQG(orders=2, longest_delay=4)
    report = settings.fit(coupled_log, coupled.spec, coupled.task).report
    expected = np.linalg.solve(np.eye(len(coupled.a)) - coupled.a, coupled.b)
    np.testing.assert_allclose(report["gain"], expected, rtol=1e-4, atol=1e-6)
    integrating = coupled._replace(a=np.array([[1.0, 0.0], [0.0, 0.8]]))
    log = integrating.log(9, 80)
    assert settings.fit(log, coupled.spec, coupled.task).report["gain"] is None


def second_order() -> Plant:
    """Only the first of two states is measured, so that one lag does not do."""
    spec = Spec((Channel("y", "m", -5.0, 5.0),), (Channel("u", "%", -1.0, 1.0),), (), 1.0, 100)
    a = np.array([[0.9, 0.5], [-0.1, 0.6]])
    plant = Plant(
        a, np.array([[0.0], [0.3]]), (1,), spec, Task((Loop("y", "u", 1.0),)), np.zeros(2)
    )
    return plant


@pytest.mark.parametrize("method", ["arx", "subspace"])
def test_a_hidden_state_asks_for_a_second_order(method):
    plant = second_order()
    log = plant.log(9, 80)
    log = log._replace(obs=log.obs[:, :1], next_obs=log.next_obs[:, :1])
    # A noisy log, as all are.
    noise = 1e-3 * np.random.default_rng(1).normal(size=(9, 81, 1))
    log = log._replace(
        obs=log.obs + noise[:, :-1].reshape(-1, 1),
        next_obs=log.next_obs + noise[:, 1:].reshape(-1, 1),
    )
    model = identified(plant, log, method=method, orders=2)
    assert model.order == 2
    # The step response is that of the plant.
    state, true, shown, steps = np.zeros(len(model.a)), np.zeros(2), [], []
    past = 0.0
    for t in range(15):
        late = [1.0 / model.inputs.scale[0] if t >= d else 0.0 for d in model.delay]
        state = model.a @ state + model.b @ np.array(late)
        true = plant.a @ true + plant.b[:, 0] * past
        past = 1.0
        shown.append((model.c @ state)[0] * model.outputs.scale[0])
        steps.append(true[0])
    np.testing.assert_allclose(shown, steps, atol=0.02 * np.max(steps))


def test_regulator_and_observer_are_those_of_riccati(coupled, coupled_log):
    model = identified(coupled, coupled_log)
    plant = delayed(model, 2)
    weights = Weights(0.02, 0.1)
    design = regulator(plant, weights)
    cost, gain = by_recursion(plant.a, plant.b, design.q, design.r, design.cross)
    np.testing.assert_allclose(design.cost_to_go, cost, atol=1e-7)
    np.testing.assert_allclose(design.gain, gain, atol=1e-7)
    own = model._replace(residual=np.array([2e-3, 1e-3]))
    a = np.block([[own.a, np.eye(2)], [np.zeros((2, 2)), np.eye(2)]])
    c = np.concatenate([np.eye(2), np.zeros((2, 2))], axis=1)
    size = np.diag(own.residual**2)
    spread = np.block([[size, np.zeros((2, 2))], [np.zeros((2, 2)), 0.01 * size]])
    p, _ = by_recursion(a.T, c.T, spread, 4 * size, np.zeros_like(c.T))
    expected = p @ c.T @ np.linalg.inv(c @ p @ c.T + 4 * size)
    np.testing.assert_allclose(observer_gain(own, disturbance=0.1, noise=2.0), expected, atol=1e-7)


@pytest.mark.parametrize("kind", [LQG, MPC])
def test_no_offset_remains_after_a_load_and_with_a_wrong_model(coupled, coupled_log, kind):
    policy = kind(**SMALL).fit(coupled_log, coupled.spec, coupled.task).policy
    other = coupled._replace(b=1.3 * coupled.b, a=coupled.a - 0.03 * np.eye(2))
    states, actions, _ = other.run(policy, 120, load=np.array([0.1, -0.05]))
    np.testing.assert_allclose(states[-1], [1.0, -0.5], atol=2e-3)
    assert np.all(np.abs(actions) <= 1.0)


@pytest.mark.nightly
def test_an_integrating_loop_with_dead_time_and_load_has_no_offset(integrator):
    policy = LQG(**SMALL).fit(integrator.log(6, 80), integrator.spec, integrator.task).policy
    states, _, _ = integrator.run(policy, 120, load=np.array([-0.1]))
    np.testing.assert_allclose(states[-1, 0], 1.0, atol=2e-3)


def test_a_setpoint_out_of_reach_gives_way_to_the_nearest_that_can_be_held(lag):
    """A valve of 2 % holds 6 m; the state to regulate to is that one, not the wanted 10 m."""
    task = Task((Loop("level", "valve", 10.0),))
    target = LQG(**SMALL).fit(lag.log(4, 120), lag.spec, task).policy.target
    disturbance = jnp.zeros(target.state_disturbance.shape[1])
    state, action, known = target(jnp.zeros(1), disturbance)
    assert bool(known)
    np.testing.assert_allclose(action, target.high, atol=1e-5)
    scale, offset = target.controlled.scale, target.controlled.offset
    np.testing.assert_allclose(state[0] * scale[0] + offset[0], 6.0, atol=0.01)


def test_effort_is_what_a_gain_that_the_log_does_not_show_is_borne_by(lag):
    """Three times the plant's gain: no margin is promised (Doyle 1978), and effort buys one."""
    heavier = lag._replace(b=3 * lag.b)
    swing = {}
    for effort in (0.01, 0.1):
        settings = LQG(effort=effort, orders=1, longest_delay=4)
        policy = settings.fit(lag.log(6, 80), lag.spec, lag.task).policy
        swing[effort] = float(np.std(np.asarray(heavier.run(policy, 400)[0])[-50:, 0]))
    assert swing[0.1] < 0.01 < 0.5 < swing[0.01]


def test_a_subspace_model_controls_without_offset(lag):
    settings = LQG(method="subspace", orders=2, longest_delay=4)
    fitted = settings.fit(lag.log(6, 80), lag.spec, lag.task)
    assert fitted.report["delay"] == [4]
    states, _, _ = lag.run(fitted.policy, 120, load=np.array([0.05]))
    np.testing.assert_allclose(states[-1, 0], 1.0, atol=2e-3)


def test_far_from_limits_the_predictive_controller_is_the_regulator(coupled, coupled_log):
    near = dataclasses.replace(
        coupled.task, loops=(Loop("top", "reflux", 0.05), Loop("bottom", "steam", -0.02))
    )
    options = {"effort": 0.05, "move": 0.02, **SMALL}
    first = LQG(**options).fit(coupled_log, coupled.spec, near).policy
    second = MPC(**options, horizon=5).fit(coupled_log, coupled.spec, near).policy
    _, expected, _ = coupled.run(first, 25)
    _, actions, carry = coupled.run(second, 25)
    assert np.max(np.abs(expected)) < 0.9
    np.testing.assert_allclose(actions, expected, atol=2e-4)
    assert bool(carry.converged)


def test_a_plan_with_all_limits_is_the_one_of_scipy(coupled, coupled_log):
    """The first move, restated: costs and limits of a plan from predictions of the model."""
    loops = (
        Loop("top", "reflux", 2.0, high=1.5, rate=0.3),
        Loop("bottom", "steam", -1.0, low=-0.6),
    )
    settings = MPC(effort=0.02, move=0.05, price=50.0, horizon=6, **SMALL)
    task = Task(loops)
    policy = settings.fit(coupled_log, coupled.spec, task).policy
    parts = fit_parts(settings, coupled_log, coupled.spec, task)
    model, plant = parts.model, parts.plant
    design = regulator(plant, Weights(settings.effort, settings.move))
    obs, sent = np.array([1.3, -0.2], np.float32), np.array([0.4, -0.9], np.float32)
    carry = policy.sent(policy.initial_carry(), sent)
    carry, action = policy(carry, jnp.asarray(obs))
    # The state of the restatement: measured, at rest, with the known inputs on their way.
    units, scale = model.outputs, model.inputs
    past = (sent - scale.offset) / scale.scale
    state = np.concatenate([(obs - units.offset) / units.scale, np.repeat(past, plant.chain)])
    wanted = (np.array([2.0, -1.0]) - units.offset) / units.scale
    steady = np.linalg.solve(
        np.block([[np.eye(2) - model.a, -model.b], [np.eye(2), np.zeros((2, 2))]]),
        np.concatenate([model.drift, wanted]),
    )
    low, high = (np.array([s, s]) - scale.offset for s in (-1.0, 1.0))
    low, high = low / scale.scale, high / scale.scale
    rest_input = np.clip(steady[2:], low, high)
    rest = np.linalg.solve(np.eye(2) - model.a, model.b @ rest_input + model.drift)
    rest = np.concatenate([rest, np.repeat(rest_input, plant.chain)])
    horizon = 8
    free, forced = predictions(plant, horizon)
    n = 2 * horizon
    pick = [np.eye(n)[2 * k : 2 * k + 2] for k in range(horizon)]
    # Costs term by term, inputs and states as affine functions of all inputs.
    h, g = np.zeros((n, n)), np.zeros(n)

    def pay(matrix, offset, weight):
        nonlocal h, g
        h, g = h + matrix.T @ weight @ matrix, g + matrix.T @ weight @ offset

    for k in range(horizon):
        before = -past if k == 0 else np.zeros(2)
        shown = plant.controlled @ forced[k]
        error = plant.controlled @ (free[k] @ (state - rest))
        drift = _drift(plant, model, k)
        at_rest = plant.controlled @ (free[k] @ rest + drift - rest)
        pay(shown, error + at_rest, np.eye(2))
        pay(pick[k], -rest_input, settings.effort * np.eye(2))
        change = pick[k] - (pick[k - 1] if k else 0)
        pay(change, before, settings.move * np.eye(2))
    last = free[horizon] @ state + _drift(plant, model, horizon) - rest
    pay(forced[horizon], last, design.cost_to_go)
    rows, limits, yielding = [], [], []

    def limit(matrix, most, soft):
        rows.append(matrix)
        limits.append(most)
        yielding.append(np.full(len(most), soft))

    for k in range(horizon):
        limit(pick[k], high, 0.0)
        limit(-pick[k], -low, 0.0)
        change = (pick[k] - (pick[k - 1] if k else 0))[:1]
        before = past[:1] if k == 0 else 0.0
        most = np.full(1, 0.3 / scale.scale[0])
        limit(change, most + before, 0.0)
        limit(-change, most - before, 0.0)
        y = plant.controlled @ forced[k + 1]
        y0 = plant.controlled @ (free[k + 1] @ state + _drift(plant, model, k + 1))
        limit(y[:1], (1.5 - units.offset[:1]) / units.scale[:1] - y0[:1], 1 / 50.0)
        limit(-y[1:], y0[1:] - (-0.6 - units.offset[1:]) / units.scale[1:], 1 / 50.0)
    best = oracle.solved(
        h, g, np.concatenate(rows), np.concatenate(limits), np.concatenate(yielding)
    )
    expected = best[:2] * scale.scale + scale.offset
    np.testing.assert_allclose(action, expected, atol=2e-4)
    assert bool(carry.converged)


def _drift(plant, model, periods):
    """What drift alone has added to the state after so many periods."""
    state = np.zeros(len(plant.a))
    push = np.concatenate([model.drift, np.zeros(len(plant.a) - len(model.drift))])
    for _ in range(periods):
        state = plant.a @ state + push
    return state


def test_range_and_rate_hold_whatever_is_measured(coupled, coupled_log):
    task = Task((Loop("top", "reflux", 2.0, rate=0.1), Loop("bottom", "steam", -1.0, rate=0.2)))
    policy = MPC(horizon=4, steps=2, **SMALL).fit(coupled_log, coupled.spec, task).policy
    rng = np.random.default_rng(0)
    wild = 10 ** rng.uniform(-2, 30, size=(200, 2)) * rng.choice([-1, 1], size=(200, 2))
    wild[::7, 0] = np.nan

    @jax.jit
    def run(policy, observations):
        def step(carry, obs):
            before = carry.estimator.previous
            carry, action = policy(carry, obs, None)
            return policy.sent(carry, action), (before, action, carry.converged)

        return jax.lax.scan(step, policy.initial_carry(), observations)[1]

    before, action, converged = map(np.asarray, run(policy, jnp.asarray(wild, jnp.float32)))
    given = np.isfinite(action).all(axis=1)
    assert not np.any(given[::7])
    assert np.all(np.abs(action[given]) <= 1.0)
    assert np.all(np.abs(action - before)[given] <= np.float32([0.1, 0.2]) * (1 + 1e-6))
    assert not np.all(converged)


@pytest.mark.parametrize("kind", [LQG, MPC])
def test_the_same_plant_in_other_units_gets_the_same_policy(
    coupled, coupled_log, in_other_units, kind
):
    extra = {"horizon": 4} if kind is MPC else {}
    settings = kind(**SMALL, **extra)
    policy = settings.fit(coupled_log, coupled.spec, coupled.task).policy
    other = settings.fit(*in_other_units(coupled, coupled_log)).policy
    obs = np.random.default_rng(0).uniform(-2, 2, size=(6, 2))

    @jax.jit
    def run(policy, observations):
        def step(carry, y):
            carry, action = policy(carry, y, None)
            return policy.sent(carry, action), action

        return jax.lax.scan(step, policy.initial_carry(), observations)[1]

    expected = run(policy, jnp.asarray(obs, jnp.float32))
    twin = run(other, jnp.asarray(1e4 * obs + 273.0, jnp.float32))
    np.testing.assert_allclose((np.asarray(twin, np.float64) + 5.0) / 1e-3, expected, atol=5e-3)


def test_observer_goes_on_without_a_measurement_and_proposes_nothing(coupled, coupled_log):
    policy = LQG(**SMALL).fit(coupled_log, coupled.spec, coupled.task).policy
    carry, action = policy(policy.initial_carry(), jnp.array([jnp.nan, 0.0]))
    assert np.isnan(action).all()
    assert not bool(carry.started)
    carry, _ = policy(policy.sent(carry, jnp.full(2, jnp.nan)), jnp.array([0.5, 0.2]))
    carry = policy.sent(carry, jnp.array([0.3, 0.1]))
    carry, action = policy(carry, jnp.array([jnp.nan, 0.2]))
    assert np.isnan(action).all()
    # The state moved as the model says, on what was sent.
    moved = coupled.a @ [0.5, 0.2] + coupled.b[:, 1] * 0.1
    late = np.asarray(policy.estimator.nominal)
    moved = moved + coupled.b[:, 0] * late[0]
    first = carry.state[:1] * policy.estimator.obs.scale[:1] + policy.estimator.obs.offset[:1]
    np.testing.assert_allclose(first, moved[:1], atol=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (LQG(effort=0.0), "effort and move are both zero"),
        (MPC(horizon=0), r"MPC\.horizon must be an integer of at least 1"),
    ],
)
def test_settings_without_sense_are_refused_by_name(coupled, coupled_log, settings, message):
    with pytest.raises(InputError, match=message):
        settings.fit(coupled_log, coupled.spec, coupled.task)


def test_a_log_that_tells_nothing_is_refused(coupled, coupled_log):
    still = coupled_log.action.copy()
    still[:, 1] = 0.3
    with pytest.raises(InputError, match="no movement in steam"):
        LQG(**SMALL).fit(coupled_log._replace(action=still), coupled.spec, coupled.task)
    short = log_of(coupled_log.obs, coupled_log.action, coupled_log.next_obs, 4)
    with pytest.raises(InputError, match="too short"):
        LQG(**SMALL).fit(short, coupled.spec, coupled.task)
