"""The distillation column of Wood and Berry: what a model of its log repeats.

The plant is the published transfer matrix: a gain, a lag and a dead time in minutes for each path,
from reflux, steam and feed to the top and the bottom composition. Two sluggish loops run it, with
moves of set points and stretches in manual, and the log is cut without regard to either.

Source: Wood and Berry, Terminal composition control of a binary distillation column, 1973; gains
that are published for it: Luyben, Simple method for tuning SISO controllers in multivariable
systems, Ind. Eng. Chem. Process Des. Dev. 25 (1986) 654.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.controllers import TrackingPID
from neorl_agents.models import (
    HistoryModelSettings,
    error_after_moves,
    every_start,
    replayed_plant,
    visited_rows,
)
from neorl_agents.retuning import PlantFacts, RetuneSettings, learned_plants, replayed, retune
from neorl_agents.retuning._loops_together import sensitivity_together
from neorl_core import Channel, Spec, Transition
from neorl_core.control import standard_pid

LENGTH, ROWS = 100, 9_000
SPEC = Spec(
    (
        Channel("top", "mol%", -10.0, 10.0), Channel("bottom", "mol%", -10.0, 10.0),
        Channel("top target", "mol%", -10.0, 10.0), Channel("bottom target", "mol%", -10.0, 10.0),
    ),
    (Channel("reflux", "lb/min", -2.0, 2.0), Channel("steam", "lb/min", -2.0, 2.0)),
    (), 60.0, LENGTH,
)  # fmt: skip
PATHS = (
    ((12.8, 16.7, 1), (-18.9, 21.0, 3), (3.8, 14.9, 8)),
    ((6.6, 10.9, 7), (-19.4, 14.4, 3), (4.9, 13.2, 3)),
)
GAIN, INTEGRAL = (0.075, -0.015), (796.0, 2266.0)  # gains a fifth of the published ones
DERIVATIVE, FILTER = (0.0, 240.0), 60.0  # seconds; the second loop has a filtered derivative
TARGETS = ("top target", "bottom target")


def recording(seed):
    """Columns of the log, ``(row, ...)``: measurements, targets and actions."""
    rng = np.random.default_rng(seed)
    gain, lag, dead_time = np.asarray(PATHS, float).reshape(6, 3).T
    pole, dead_time = np.exp(-1 / lag), dead_time.astype(int)
    state, past, feed = np.zeros(6), np.zeros((9, 3)), 0.0
    target, action, integral, slope, last = np.zeros((5, 2))
    rows = []
    for t in range(ROWS + 1):
        y = state.reshape(2, 3).sum(axis=1) + np.asarray([0.03, 0.05]) * rng.normal(size=2)
        if t % 300 == 0:
            target[rng.integers(2)] = 0.75 * rng.uniform(-1, 1)
        slope = slope + 60 / (FILTER + 60) * ((y - last) / 60 - slope) * (t > 0)
        error, last = target - y, y
        fast = GAIN * (error - np.asarray(DERIVATIVE) * slope)
        if t % 1_000 < 100:  # in manual
            if t % 50 == 0:
                action = np.clip(action + 0.12 * rng.choice([-1, 1], 2), -1.8, 1.8)
            integral = action - fast
        else:
            integral = integral + np.asarray(GAIN) / INTEGRAL * 60 * error
            action = np.clip(integral + fast, -2, 2)
        rows.append((y, target.copy(), action))
        feed = 0.98 * feed + 0.02 * rng.normal()
        past = np.concatenate([np.append(action, feed)[None], past[:-1]])
        state = pole * state + gain * (1 - pole) * past[dead_time, np.tile(np.arange(3), 2)]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def log_of(seed):
    y, target, action = recording(seed)
    obs = np.concatenate([y, target], axis=1)
    reward = -np.abs(y - target)[1:].sum(axis=1)
    ends = np.arange(ROWS) % LENGTH == LENGTH - 1
    return Transition(
        obs=obs[:-1], action=action[:-1], reward=reward, cost=np.zeros((ROWS, 0)),
        next_obs=obs[1:], terminated=np.zeros(ROWS, bool), truncated=ends, mask=np.ones(ROWS, bool),
    )  # fmt: skip


POLICY = TrackingPID(
    standard_pid(
        gain=GAIN, integral_time=INTEGRAL, derivative_time=DERIVATIVE, setpoint=0.0, low=-2.0,
        high=2.0, dt=SPEC.dt, measured=[0, 1], derivative_filter=DERIVATIVE[1] / FILTER,
    ),
    (2, 3),
)  # fmt: skip


def in_automatic(starts):
    """Whether no row of an episode is in manual."""
    return ~((starts[:, None] + np.arange(LENGTH)) % 1_000 < 100).any(axis=1)


QUICK = RetuneSettings(model=HistoryModelSettings(members=2, updates=200, width=16))


@pytest.fixture(scope="module")
def plants():
    facts = PlantFacts(exogenous=TARGETS, setpoints=TARGETS, running=True)
    return learned_plants(log_of(0), SPEC, 0, facts, QUICK)


def test_the_exact_controller_repeats_the_log(plants):
    """Wherever the log is cut, its integral and derivative are those of the action in force."""
    policy, plant = POLICY, plants.evaluation_plant
    own = np.flatnonzero(in_automatic(plants.evaluation_starts))
    assert len(own) >= 10
    rows = plants.rows.action[plants.evaluation_starts[own][:, None] + np.arange(LENGTH)]
    visited = visited_rows(plant, policy, every_start(plant, np.arange(plant.members), own))
    actions = np.asarray(visited.action).reshape(plant.members, *rows.shape)
    np.testing.assert_allclose(actions, np.broadcast_to(rows, actions.shape), atol=1e-3)
    returns = np.asarray(replayed(plant, policy).returns)[:, own]
    logged = np.broadcast_to(plants.logged[own], returns.shape)
    np.testing.assert_allclose(returns, logged, rtol=2e-3)
    lead = jnp.zeros((plant.n_episodes, 0, 2), jnp.float32)
    from_rest = eqx.tree_at(lambda one: one.episodes.lead, plant, lead)
    assert np.abs(np.asarray(replayed(from_rest, policy).returns)[:, own] - logged).mean() > 5


def test_a_model_of_the_wrong_sign_repeats_the_log_and_errs_after_moves(plants):
    """Its residuals are replayed: a controller that acts as logged gets what was logged."""
    model, starts = plants.model, plants.evaluation_starts
    right = error_after_moves(model, plants.rows, starts)
    steam = SPEC.n_obs + 2 * (model.history - 1) + 1 + 2 * np.arange(model.history + 1)
    linear = np.asarray(model.dynamics.linear).copy()
    linear[steam] *= -1
    turned = eqx.tree_at(lambda one: one.dynamics.linear, model, jnp.asarray(linear))
    wrong = error_after_moves(turned, plants.rows, starts)
    assert right.steps == wrong.steps == 50
    assert 50 <= right.moves <= 100
    assert right.share < 0.6
    assert wrong.share > 1
    replay = replayed_plant(turned, plants.rows, starts, lead=8)
    own = np.flatnonzero(in_automatic(starts))
    returns = np.asarray(replayed(replay, POLICY).returns)[:, own]
    np.testing.assert_allclose(
        returns, np.broadcast_to(plants.logged[own], returns.shape), rtol=2e-3
    )


LUYBEN = (0.375, -0.075), (8.29 * 60, 23.6 * 60)


def published(gain, integral, *, sampled=False):
    """``G K`` of the published transfer functions with PIs, at many frequencies.

    Continuous, or with a hold and controllers every minute, as in the recording.
    """
    s = 1j * np.geomspace(1e-3, np.pi if sampled else 10, 20_000)  # radians per minute
    z = np.exp(s)

    def path(k, lag, dead):
        pole = np.exp(-1 / lag)
        whole = k * (1 - pole) * z**-dead / (z - pole)
        return whole if sampled else k * np.exp(-dead * s) / (lag * s + 1)

    minutes = np.asarray(integral) / 60
    rise = 1 - 1 / z if sampled else s
    controllers = np.asarray(gain)[:, None] * (1 + 1 / (minutes[:, None] * rise))
    plant = np.asarray([[path(*one) for one in row[:2]] for row in PATHS])
    return np.moveaxis(plant * controllers[None], 2, 0)


def test_the_transfer_functions_and_the_gains_are_those_of_the_literature():
    """Luyben's gains are those at which the largest log modulus of two loops is 4 dB."""
    loop = published(*LUYBEN)
    w = np.linalg.det(np.eye(2) + loop) - 1
    assert (20 * np.log10(np.abs(w / (1 + w)))).max() == pytest.approx(4, abs=0.1)


def tuning(gain, integral):
    loops = standard_pid(
        gain=gain, integral_time=integral, setpoint=0.0, low=-2.0, high=2.0, dt=SPEC.dt,
        measured=[0, 1],
    )  # fmt: skip
    return TrackingPID(loops, (2, 3))


@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_loops_together_are_as_robust_as_by_the_published_transfer_functions(plants, factor):
    gain, integral = LUYBEN
    gain = tuple(factor * one for one in gain)
    sensitivity = np.linalg.inv(np.eye(2) + published(gain, integral, sampled=True))
    expected = np.abs(np.diagonal(sensitivity, axis1=1, axis2=2)).max()
    found = sensitivity_together(plants.model, tuning(gain, integral))
    assert found == pytest.approx(expected, rel=0.15)


def test_loops_that_ring_together_are_refused_and_calmer_ones_on_the_way_are_not(plants):
    """Larger gains than Luyben's, at which each loop alone has a peak sensitivity below 2."""
    gain, integral = LUYBEN
    today = tuning(gain, integral)
    factors = np.array([1.2, 1.8])
    loop = published(factors * gain, integral, sampled=True)
    assert max(np.abs(1 / (1 + loop[:, i, i])).max() for i in range(2)) < 2
    # Steps of half a logarithm of the gain and the integral time of each loop.
    ringing = np.stack([np.log(factors) / 0.5, np.zeros(2)], axis=1).ravel()
    table = retune(plants, today, 0, QUICK, proposed={"a": ringing}).table
    said = {
        one.name: [x.sentence for x in one.refused_by if x.subject == "together"] for one in table
    }
    assert "ring when all of them are closed: the peak sensitivity of a loop is" in said["a 1"][0]
    assert not said["a 0.0625"]
