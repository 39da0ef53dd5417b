"""What an ensemble does not know, on a public log, and intervals that cover what they state."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.critics import (
    EnsembleLearner,
    assess_ensemble,
    disagreement,
    fit_ensemble,
    predicted,
)
from neorl_agents.critics._ensemble_fit import _calibrate, _width, member_predictions
from neorl_agents.critics._log_rows import checked_columns, column_statistics
from neorl_agents.sampling import bootstrap_weights
from neorl_agents.testing import sized
from neorl_core import Channel, InputError, Spec, Transition, as_arrays
from neorl_core.statistics import area_under_roc

from ..classical.neorl2 import DMSD_SPEC, dmsd_log

FEW = sized(EnsembleLearner(members=5), hidden=(32, 32), batch_size=128)
UPDATES = 1500
KEY = jax.random.key(0)
SPEC = Spec(
    (Channel("level", "m", -3.0, 3.0), Channel("load", "1", -3.0, 3.0)),
    (Channel("valve", "%", -100.0, 100.0),),
    (),
    60.0,
    25,
)


@jax.jit
def _scores(ensemble, obs, action):
    return jax.vmap(disagreement, in_axes=(None, 0, 0))(ensemble, obs, action)


def scores(ensemble, obs, action) -> np.ndarray:
    return np.asarray(_scores(ensemble, jnp.asarray(obs), jnp.asarray(action)))


def plant_log(episodes: int, seed: int) -> Transition:
    """A level with a load that differs between episodes, and noise that differs too."""
    rng = np.random.default_rng(seed)
    load = np.repeat(rng.normal(size=episodes), 25)
    loud = np.repeat(rng.uniform(0.02, 0.3, size=episodes), 25)
    level, valve = rng.normal(size=episodes * 25), rng.uniform(-100, 100, size=episodes * 25)
    after = 0.8 * level + 0.3 * np.tanh(load) + 2e-3 * valve + loud * rng.normal(size=len(load))
    return Transition(
        np.stack([level, load], axis=1),
        valve[:, None],
        np.zeros(len(load)),
        next_obs=np.stack([after, load], axis=1),
        terminated=np.zeros(len(load), bool),
        truncated=np.arange(len(load)) % 25 == 24,
    )


PREDICTED = jax.jit(jax.vmap(predicted, in_axes=(None, 0, 0)))


def covered(ensemble, log) -> np.ndarray:
    """Share of the steps of every episode within the interval of the level."""
    obs, action = (np.asarray(x, np.float32) for x in (log.obs, log.action))
    prediction = PREDICTED(ensemble, obs, action)
    change = log.next_obs - log.obs
    inside = (change >= prediction.low) & (change <= prediction.high)
    return np.asarray(inside)[:, 0].reshape(-1, 25).mean(axis=1)


@pytest.fixture(scope="module")
def fitted():
    return fit_ensemble(plant_log(400, seed=0), SPEC, KEY, learner=FEW, updates=UPDATES)


def test_the_edge_of_the_log_and_a_false_reading_are_told_from_the_log(data):
    """Trained on the inner nine tenths of an official log; asked about episodes it never saw.

    Row N16: an ensemble disagrees more where the log has not been.
    """
    log = dmsd_log(data / "neorl2/DMSD-high-100000-train.npz")
    log, fresh = (jax.tree.map(lambda x, a=a: x[a : a + 15_000], log) for a in (0, 50_000))
    middle, inverse = log.obs.mean(0), np.linalg.inv(np.cov(log.obs.T))

    def distance(obs):
        return np.einsum("ij,jk,ik->i", obs - middle, inverse, obs - middle)

    edge = np.quantile(distance(log.obs), 0.9)
    inner = log._replace(mask=distance(log.obs) <= edge)
    ensemble = fit_ensemble(inner, DMSD_SPEC, KEY, learner=FEW, updates=UPDATES).ensemble
    score, outside = scores(ensemble, fresh.obs, fresh.action), distance(fresh.obs) > edge
    assert area_under_roc(score, outside) >= 0.9
    known = fresh.obs[~outside]
    false = known.copy()
    false[:, 1] += 3 * log.obs[:, 1].std()
    both = scores(ensemble, np.concatenate([known, false]), np.tile(
        fresh.action[~outside], (2, 1)))  # fmt: skip
    assert area_under_roc(both, np.arange(len(both)) >= len(known)) >= 0.9
    # Half of these are not typical: the scale is that of the inner rows.
    assert 0.5 < np.median(score[~outside]) < 1.2


def test_the_stated_coverage_is_the_measured_one(fitted):
    """90 % of the steps of 400 fresh episodes; the mean of 400 shares has a deviation below 1 %."""
    fresh = plant_log(400, seed=7)
    share = covered(fitted.ensemble, fresh)
    assert abs(share.mean() - 0.9) < 0.03
    actual, low, high = assess_ensemble(fitted.ensemble, fresh, SPEC)["level"]
    np.testing.assert_allclose(actual, share.mean(), atol=1e-3)
    deviation = share.std() / 20
    np.testing.assert_allclose([low, high], share.mean() + 1.96 * deviation * np.array([-1, 1]),
        atol=0.5 * deviation)  # fmt: skip
    assert fitted.report["calibration_episodes"] == 100
    # Loud episodes, cut to two steps, have one vote each as the others.
    obs, action = (jnp.asarray(x, jnp.float32) for x in (fresh.obs, fresh.action))
    prediction = PREDICTED(fitted.ensemble, obs, action)
    change = fresh.next_obs - fresh.obs
    inside = np.asarray((change >= prediction.low) & (change <= prediction.high))[:, 0].reshape(
        -1, 25
    )
    loud, step = np.repeat(inside.mean(1) < 0.85, 25), np.arange(400 * 25) % 25
    ends = step == np.where(loud, 1, 24)
    short = jax.tree.map(lambda x: x[~loud | (step < 2)], fresh._replace(truncated=ends))
    votes = np.where(loud[::25], inside[:, :2].mean(1), inside.mean(1)).mean()
    assert abs(votes - np.concatenate([inside[loud[::25], :2].ravel(), inside[~loud[::25]].ravel()]
        ).mean()) > 0.04  # fmt: skip
    actual = assess_ensemble(fitted.ensemble, short, SPEC, replicates=2)["level"][0]
    np.testing.assert_allclose(actual, votes, atol=1e-3)


def test_the_deviation_is_the_residual_in_the_mean(fitted):
    log = plant_log(200, seed=8)
    obs, action = (np.asarray(x, np.float32) for x in (log.obs, log.action))
    prediction = PREDICTED(fitted.ensemble, obs, action)
    level, load = log.obs.T
    truth = 0.3 * np.tanh(load) + 2e-3 * log.action[:, 0] - 0.2 * level
    off = np.sqrt(np.mean((truth - np.asarray(prediction.mean)[:, 0]) ** 2))
    assert off < 0.1 * truth.std()
    # On the log every member says so too, its prior included.
    assert fitted.ensemble.typical[0] < 0.08
    residual = (log.next_obs - log.obs)[:, 0] - np.asarray(prediction.mean)[:, 0]
    ratio = np.mean(residual**2) / np.mean(np.asarray(prediction.deviation)[:, 0] ** 2)
    assert 0.85 < ratio < 1.15


def test_the_disagreement_is_that_of_numpy(fitted, in_numpy):
    ensemble = fitted.ensemble
    obs, action = np.array([0.3, -1.2]), np.array([40.0])
    at = [(obs - ensemble.obs.offset) / ensemble.obs.scale, action / 100]
    x = np.concatenate(at)[None]
    collected = []
    for m in range(5):
        member, prior = (
            jax.tree.map(lambda leaf, m=m: leaf[m], n) for n in (ensemble.members, ensemble.priors)
        )
        collected.append(in_numpy(member, x)[0] + in_numpy(prior, x)[0])
    expected = np.sqrt(np.mean((np.std(collected, axis=0) / ensemble.typical) ** 2))
    actual = disagreement(ensemble, *(jnp.asarray(one, jnp.float32) for one in (obs, action)))
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    assert np.isnan(disagreement(ensemble, jnp.array([jnp.nan, 0.0]), jnp.zeros(1)))


def test_a_member_sees_every_episode_as_often_as_it_was_drawn():
    """One that never saw any stays as it was."""
    columns = checked_columns(plant_log(300, seed=0), SPEC, cost=False)
    weights = bootstrap_weights(KEY, 300, 5)
    assert weights.shape == (300, 5)
    assert (bootstrap_weights(KEY, 1, 50) > 0).all()
    tables = FEW.log_tables(SPEC, plant_log(300, seed=0))
    np.testing.assert_array_equal(tables.rows.weight, columns.episode)
    np.testing.assert_allclose(np.bincount(np.asarray(weights, int).ravel())[:3] / 1500,
        [np.exp(-1), np.exp(-1), np.exp(-1) / 2], atol=0.04)  # fmt: skip
    learner = as_arrays(replace(FEW, decay_updates=0))
    fresh = learner.init(SPEC, column_statistics(columns), KEY)
    rows = jax.tree.map(lambda x: x[None, :128], tables.rows)
    batch = rows._replace(weight=weights.at[:, 4].set(0)[rows.weight])
    state, _ = jax.jit(EnsembleLearner.update)(learner, fresh, batch, KEY)
    pairs = zip(state.parameters["members"].weights, fresh.parameters["members"].weights)  # noqa: B905
    moved = [np.abs(a - b).max((1, 2)) for a, b in pairs]
    assert all(one[4] == 0 and (one[:4] > 0).all() for one in moved)


def test_noise_and_spread_make_the_mean_variance_that_of_the_residuals(fitted):
    """To the last digit on the episodes that they are worked out on, however few the data."""
    columns = checked_columns(plant_log(40, seed=5), SPEC, cost=False)
    members = fitted.ensemble.members
    for apart in (0.0, 4.0):  # members that agree too much, and too little about the same mean
        offset = apart * jnp.arange(-2.0, 3.0)[:, None]
        wide = replace(members, biases=(*members.biases[:-1], members.biases[-1] + offset))
        result = _calibrate(replace(fitted.ensemble, members=wide), columns, 0.9)
        assert (result.spread[0] < 1) == (apart > 0)
        mean, std = member_predictions(result, columns)
        variance = np.asarray(result.noise) ** 2 + (np.asarray(result.spread) * std) ** 2
        residual = columns.next_obs - columns.obs - mean
        np.testing.assert_allclose(variance.mean(0)[0], (residual**2).mean(0)[0], rtol=1e-4)


def test_an_episode_has_one_vote_in_the_width_however_long_it_is():
    """Of eleven, with the unseen one, at infinity: nine of the ten seen are 82 %."""
    score = np.concatenate([np.full(100, 10.0), np.arange(1.0, 10.0)])[:, None]
    episode = np.concatenate([np.zeros(100, int), np.arange(1, 10)])
    assert _width(score, episode, 0.8) == [9.0]
    assert _width(score, episode, 0.85) == [10.0]
    assert np.isinf(_width(score, episode, 0.95)).all()


def test_units_change_nothing(fitted):
    log, factor = plant_log(400, seed=0), np.array([2.0**-10, 2.0**6])
    spec = replace(
        SPEC,
        obs=tuple(
            Channel(c.name, "other", c.low * f, c.high * f)
            for c, f in zip(SPEC.obs, factor, strict=True)
        ),
    )
    other = log._replace(obs=log.obs * factor, next_obs=log.next_obs * factor)
    again = fit_ensemble(other, spec, KEY, learner=FEW, updates=UPDATES).ensemble
    some = slice(0, 50)
    expected = scores(fitted.ensemble, log.obs[some], log.action[some])
    np.testing.assert_allclose(
        scores(again, other.obs[some], other.action[some]), expected, rtol=1e-3
    )


def test_a_behaviour_ensemble_ignores_the_action():
    log = plant_log(40, seed=1)
    learner = replace(FEW, target="behaviour")
    ensemble = fit_ensemble(
        log, SPEC, KEY, learner=learner, updates=20, calibration_share=0.0
    ).ensemble
    first, second = (scores(ensemble, log.obs[:4], a * log.action[:4]) for a in (1, 0))
    np.testing.assert_array_equal(first, second)
    assert np.isnan(ensemble.width).all()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (plant_log(1, 0), "holds out whole episodes.*the log has 1"),
        (plant_log(12, 0), "a coverage of 0.9 needs at least 9 held-out episodes, but there are 3"),
        (plant_log(12, 0)._replace(next_obs=None), "column next_obs of the log is missing"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused(log, words):
    with pytest.raises(InputError, match=words):
        fit_ensemble(log, SPEC, KEY, learner=FEW, updates=1)


def test_a_bad_setting_is_named():
    with pytest.raises(ValueError, match=r"EnsembleLearner\.members must be .* 2, got 1"):
        fit_ensemble(plant_log(2, 0), SPEC, KEY, learner=replace(FEW, members=1))
    with pytest.raises(ValueError, match="fit_ensemble: coverage must be in"):
        fit_ensemble(plant_log(2, 0), SPEC, KEY, coverage=1.0)
