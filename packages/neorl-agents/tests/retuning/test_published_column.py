"""The distillation column of Wood and Berry: what a model of its log knows, and what it repeats.

The plant is the published transfer matrix, whose step responses are known exactly: a gain, a lag
and a dead time in minutes for each path, from reflux, steam and feed to the top and the bottom
composition. Two sluggish PI loops run it, with moves of set points and stretches in manual.

Source: Wood and Berry, Terminal composition control of a binary distillation column, 1973.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.controllers import TrackingPID
from neorl_agents.models import HistoryModelSettings, replayed_plant
from neorl_agents.retuning import (
    MoveResponse,
    PlantFacts,
    RetuneSettings,
    StepResponse,
    learned_plants,
    replayed,
    responses,
)
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
GAIN, INTEGRAL = (0.075, -0.015), (796.0, 2266.0)  # a fifth of the published ones
TARGETS = ("top target", "bottom target")


def analytic(action, channel, steps):
    """The response to a unit step in rows after it: ``K (1 - exp(-(t - d) / T))``."""
    gain, lag, dead_time = PATHS[channel][action]
    t = np.arange(1, steps + 1) - dead_time
    return gain * np.where(t > 0, 1 - np.exp(-np.maximum(t, 0) / lag), 0.0)


def recording(seed):
    """Columns of the log, ``(row, ...)``: measurements, targets and actions."""
    rng = np.random.default_rng(seed)
    gain, lag, dead_time = np.asarray(PATHS, float).reshape(6, 3).T
    pole, dead_time = np.exp(-1 / lag), dead_time.astype(int)
    state, past, feed = np.zeros(6), np.zeros((9, 3)), 0.0
    target, action, integral = np.zeros(2), np.zeros(2), np.zeros(2)
    rows = []
    for t in range(ROWS + 1):
        y = state.reshape(2, 3).sum(axis=1) + np.asarray([0.03, 0.05]) * rng.normal(size=2)
        if t % 300 == 0:
            target[rng.integers(2)] = 0.75 * rng.uniform(-1, 1)
        error = target - y
        if t % 1_000 < 100:  # in manual
            if t % 50 == 0:
                action = np.clip(action + 0.12 * rng.choice([-1, 1], 2), -1.8, 1.8)
            integral = action - GAIN * error
        else:
            integral = integral + np.asarray(GAIN) / INTEGRAL * 60 * error
            action = np.clip(integral + GAIN * error, -2, 2)
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


QUICK = HistoryModelSettings(members=2, updates=200, width=16)
FACTS = PlantFacts(exogenous=TARGETS, setpoints=TARGETS, running=True)


POLICY = TrackingPID(
    standard_pid(
        gain=GAIN, integral_time=INTEGRAL, derivative_time=[0.0, 0.0], setpoint=[0.0, 0.0],
        bias=[0.0, 0.0], low=[-2.0, -2.0], high=[2.0, 2.0], dt=SPEC.dt, measured=[0, 1],
    ),
    (2, 3),
)  # fmt: skip


def in_automatic(starts):
    """Whether no row of an episode is in manual."""
    return ~((starts[:, None] + np.arange(LENGTH)) % 1_000 < 100).any(axis=1)


@pytest.fixture(scope="module")
def plants():
    return learned_plants(log_of(0), SPEC, 0, FACTS, RetuneSettings(model=QUICK))


def test_dead_time_sign_and_gain_are_those_of_the_column(plants):
    """One step ahead, four past steps predict as well as eight; only many steps show the rest."""
    assert plants.model.history >= 8
    assert plants.responses.objections == ()
    assert len(plants.responses.steps) == 2
    for action, found in enumerate(plants.responses.steps):
        channel = [c.name for c in SPEC.obs].index(found.channel)
        true = found.size * analytic(action, channel, found.response.shape[1])
        peak = np.abs(true).max()
        dead_time = PATHS[channel][action][2]
        assert np.abs(found.response[:, : dead_time - 1]).max(initial=0.0) < 0.05 * peak
        assert np.abs(found.middle - true)[:60].max() < 0.2 * peak
        assert (np.sign(found.settled) == np.sign(true[-1])).all()


def test_a_model_of_the_wrong_sign_repeats_the_log_and_is_refused(plants):
    """Its residuals are replayed, so that a controller that acts as logged gets what was logged."""
    model = plants.model
    linear, history = np.asarray(model.dynamics.linear).copy(), model.history
    steam = SPEC.n_obs + 2 * (history - 1) + 1 + 2 * np.arange(history + 1)
    linear[steam] *= -1
    wrong = eqx.tree_at(lambda m: m.dynamics.linear, model, jnp.asarray(linear))
    starts = plants.evaluation_starts
    replay = replayed(replayed_plant(wrong, plants.rows, starts, lead=history), POLICY)
    own = in_automatic(starts)
    np.testing.assert_allclose(
        replay.returns[:, own], np.broadcast_to(plants.logged[own], replay.returns[:, own].shape),
        rtol=5e-3,
    )  # fmt: skip
    fitted = np.setdiff1d(np.unique(plants.rows.start), starts)
    found = responses(wrong, plants.rows, fitted, starts, QUICK, setpoints=TARGETS)
    assert any("does to top: a step by" in sentence for sentence in found.objections)


def test_the_exact_controller_repeats_the_log(plants):
    """Its integrals are those of its action in force, though the log was cut anywhere."""
    starts = plants.evaluation_starts
    own = in_automatic(starts)
    predicted = np.asarray(replayed(plants.evaluation_plant, POLICY).returns)[:, own]
    assert own.sum() >= 10
    np.testing.assert_allclose(
        predicted, np.broadcast_to(plants.logged[own], predicted.shape), rtol=2e-3
    )
    cold = dataclasses.replace(
        plants.evaluation_plant,
        episodes=plants.evaluation_plant.episodes._replace(
            lead=jnp.zeros((len(starts), 0, 2), jnp.float32)
        ),
    )
    assert np.abs(np.asarray(replayed(cold, POLICY).returns)[:, own] - plants.logged[own]).max() > 5


def step_response(*members):
    return StepResponse("steam", "top", 1.0, np.asarray(members, float))


RISING = np.linspace(0.1, 1.0, 10)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((RISING, 0.9 * RISING, 1.1 * RISING), ""),
        ((-RISING, -0.8 * RISING, -1.3 * RISING), ""),
        ((RISING, 0.9 * RISING, 2.5 * RISING), "more than a factor of 2"),
        ((RISING, 0.9 * RISING, -0.5 * RISING), "more than a factor of 2"),
        ((RISING, RISING, RISING - 0.5 * (np.arange(10) < 3)), "answers in the other direction"),
        ((RISING, RISING, np.full(10, np.nan)), "diverges"),
    ],
)  # fmt: skip
def test_members_must_agree_in_sign_and_within_a_factor_of_two(members, words):
    objection = step_response(*members).objection
    assert (words in objection) if words else objection == ""


@pytest.mark.parametrize(
    ("logged", "error", "refused"),
    [(1.0, 0.1, False), (0.4, 0.1, False), (0.1, 0.1, True), (-1.0, 0.1, True), (2.6, 0.1, True),
     (-1.0, 0.6, False)],
)  # fmt: skip
def test_the_log_contradicts_only_what_is_surely_outside(logged, error, refused):
    at = np.asarray([5])
    found = MoveResponse(
        "steam", "top", at, np.ones(1), np.asarray([logged]), np.asarray([error]), 40
    )
    assert bool(found.objection) == refused
