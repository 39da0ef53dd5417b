"""Every score against NumPy, and the false alarms that were promised against those counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError
from neorl_core.statistics import conformal_quantile
from neorl_safety.monitoring import (
    CriticMonitor,
    EnsembleMonitor,
    Monitor,
    MonitorInput,
    alarms_per_day,
    calibrate,
    drift_monitor,
    episode_scores,
    frozen_monitor,
    mahalanobis_monitor,
    neighbour_monitor,
    operation_scores,
    range_monitor,
    violation_depth,
)

RNG = np.random.default_rng(5)
MIX = np.array([[1.0, 0.0], [8.0, 3.0]])
LOG = RNG.normal(size=(3000, 2)) @ MIX.T + [1.0, 330.0]


def run(monitor, obs):
    """Scores of one sequence of observations."""
    carry, scores = monitor.initial_carry(), []
    for row in obs:
        row = jnp.asarray(row, jnp.float32)
        carry, score = monitor(carry, MonitorInput(row, jnp.zeros(2), jnp.zeros(2)))
        scores.append((float(score.value), bool(score.alarm)))
    return scores


def linear(parameters, obs, action):
    return jnp.sum(parameters * obs) + jnp.sum(action)


def episodes(count, shift=0.0):
    noise = RNG.normal(size=(count, 30, 2)) @ MIX.T + [1.0, 330.0 + shift]
    return jnp.asarray(noise, jnp.float32), jnp.zeros((count, 30, 2))


FITTED = {
    "mahalanobis": mahalanobis_monitor(LOG),
    "neighbours": neighbour_monitor(LOG, keep=100),
    "drift": drift_monitor(LOG),
}


def test_the_mahalanobis_distance_is_that_of_numpy():
    covariance = np.cov(LOG, rowvar=False, bias=True)
    for row in LOG[:5]:
        apart = row - LOG.mean(axis=0)
        expected = apart @ np.linalg.solve(covariance, apart)
        ((value, _),) = run(FITTED["mahalanobis"], [row])
        np.testing.assert_allclose(value, expected, rtol=2e-3, atol=1e-3)


def test_the_neighbour_is_the_fifth_nearest_of_rows_that_cover_the_log():
    monitor = FITTED["neighbours"]
    rows, scale = np.asarray(monitor.rows), LOG.std(axis=0)
    standard = (LOG - LOG.mean(axis=0)) / scale
    for row in standard[:5]:
        expected = np.sort(np.linalg.norm(rows - row, axis=1))[4]
        ((value, _),) = run(monitor, [row * scale + LOG.mean(axis=0)])
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-3)
    cover = np.linalg.norm(standard[:, None] - rows[None], axis=2).min(axis=1).max()
    random = standard[RNG.choice(3000, 100, replace=False)]
    chance = np.linalg.norm(standard[:, None] - random[None], axis=2).min(axis=1).max()
    assert cover < 0.5 * chance


@pytest.mark.parametrize("weight", [0.05, 0.5])
def test_the_drift_is_the_weighted_mean_of_numpy(weight):
    rows = LOG[:50]
    z, expected = np.zeros(2), []
    for row in (rows - LOG.mean(axis=0)) / LOG.std(axis=0):
        z = z + weight * (row - z)
        expected.append(np.abs(z).max() / np.sqrt(weight / (2 - weight)))
    values = [value for value, _ in run(drift_monitor(LOG, weight=weight), rows)]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


@pytest.mark.parametrize("weight", [0.0, 1.5, np.nan])
def test_a_weight_that_is_no_share_is_refused(weight):
    with pytest.raises(InputError, match=r"weight must lie in \(0, 1\], got"):
        drift_monitor(LOG, weight=weight)


def test_learned_scores_are_those_of_their_functions():
    members = jnp.asarray(RNG.normal(size=(5, 2)), jnp.float32)
    obs, action = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.25])
    seen = MonitorInput(obs, action, action)
    critic = CriticMonitor(members[0], jnp.asarray(100.0, jnp.float32), linear)
    ensemble = EnsembleMonitor(members, jnp.asarray(0.0, jnp.float32), linear)
    assert isinstance(critic, Monitor)
    predictions = np.asarray(members) @ np.asarray(obs) + 0.75
    np.testing.assert_allclose(critic((), seen)[1].value, predictions[0], rtol=1e-6)
    assert not critic((), seen)[1].alarm
    np.testing.assert_allclose(ensemble((), seen)[1].value, predictions.std(), rtol=1e-5)
    assert ensemble((), seen)[1].alarm


@pytest.mark.parametrize("name", FITTED)
def test_the_false_alarms_promised_are_those_measured(name):
    """20 calibrations of 99 episodes, each tried on 200 fresh ones: 10 % on average."""
    score = jax.jit(lambda obs, action: episode_scores(FITTED[name], obs, action))
    rates = []
    for _ in range(20):
        scores = np.asarray(score(*episodes(299)))
        threshold = float(conformal_quantile(jnp.asarray(scores[:99]), miscoverage=0.1))
        rates.append(np.mean(scores[99:] > threshold))
    held_out = episodes(99)
    monitor = calibrate(FITTED[name], *held_out, false_alarms=0.1)
    again = np.asarray(operation_scores(FITTED[name], *held_out))
    np.testing.assert_allclose(monitor.threshold, np.sort(again)[89], rtol=1e-5)
    # Each rate is Beta(10, 90) and binomial noise: the mean of 20 has a deviation below 0.01.
    assert 0.07 < np.mean(rates) < 0.13
    detected = np.asarray(score(*episodes(299, shift=40.0))) > float(monitor.threshold)
    assert detected.mean() > 0.9


def test_too_few_episodes_promise_nothing():
    with pytest.raises(InputError, match=r"0.05 false alarms per episode .* with 18 .*: 19 with"):
        calibrate(FITTED["drift"], *episodes(18), false_alarms=0.05)


@pytest.mark.parametrize("name", FITTED)
def test_a_lost_reading_is_an_alarm_or_does_not_count(name):
    monitor = calibrate(FITTED[name], *episodes(99), false_alarms=0.1)
    ((value, alarm),) = run(monitor, [[1.0, np.nan]])
    assert (value, alarm) == (np.inf, True) or (name == "drift" and not alarm)


def test_a_frozen_channel_is_told_and_a_resting_one_may_be_left_out(spec):
    rows = LOG[:20].copy()
    rows[8:16, 1] = rows[8, 1]
    alarms = [alarm for _, alarm in run(frozen_monitor(spec, 5), rows)]
    assert np.flatnonzero(alarms).tolist() == [14, 15]
    watched = frozen_monitor(spec, 5, channels=("level",))
    assert not any(alarm for _, alarm in run(watched, rows))
    noisy = rows + RNG.normal(0, 1e-3, rows.shape)
    assert any(alarm for _, alarm in run(frozen_monitor(spec, 5, min_change=1e-3), noisy))
    with pytest.raises(InputError, match="no observation is called flow"):
        frozen_monitor(spec, 5, channels=("flow",))


def test_the_range_counts_in_parts_of_it(spec):
    values = run(range_monitor(spec, tolerance=0.1), [[1.0, 400.0], [2.1, 300.0], [1.0, 415.0]])
    np.testing.assert_allclose([value for value, _ in values], [0.0, 0.05, 0.125], atol=1e-6)
    assert [alarm for _, alarm in values] == [False, False, True]


def test_the_depth_of_violations_is_that_of_numpy():
    excess = RNG.normal(-1, 1, (6, 40))
    mask = np.arange(40) < np.array([40, 30, 0, 40, 10, 40])[:, None]
    over = np.where(mask, np.maximum(excess, 0), 0)
    depth = violation_depth(excess, mask, dt=5.0)
    np.testing.assert_allclose(depth.largest, over.max(), rtol=1e-5)
    np.testing.assert_allclose(depth.mean, over.sum() / (over > 0).sum(), rtol=1e-5)
    np.testing.assert_allclose(depth.integral, over.sum() * 5 / 5, rtol=1e-5)
    none = violation_depth(-jnp.ones((2, 3)), dt=1.0)
    assert none == (0.0, 0.0, 0.0)
    assert violation_depth(np.asarray([[0.0, np.nan]]), dt=1.0).largest == np.inf
    with pytest.raises(ValueError, match="shape"):
        violation_depth(jnp.ones(3), dt=1.0)


def slow(rng, runs, steps):
    """A process with a memory of a hundred steps, from its stationary law on."""
    x = np.empty((runs, steps, 2), np.float32)
    x[:, 0] = rng.normal(size=(runs, 2))
    for t in range(1, steps):
        x[:, t] = 0.99 * x[:, t - 1] + np.sqrt(1 - 0.99**2) * rng.normal(size=(runs, 2))
    return x


def test_scores_of_operation_run_on_and_are_cut_into_stretches():
    rng = np.random.default_rng(2)
    obs, none = slow(rng, 3, 50), np.zeros((3, 50, 1))
    mask = np.arange(50) < np.array([50, 45, 7])[:, None]
    monitor = drift_monitor(slow(rng, 20, 100).reshape(-1, 2))
    mean, scale = np.asarray(monitor.mean), np.asarray(monitor.scale)
    z, expected = np.zeros(2), []
    for count in (None, 10):
        for row, counts in zip(obs, mask, strict=True):
            values = []
            for x in row[counts]:
                z = z + 0.05 * ((x - mean) / scale - z)
                values.append(np.abs(z).max() / np.sqrt(0.05 / 1.95))
            whole = len(values) if count is None else len(values) // count * count
            parts = [values] if count is None else np.reshape(values[:whole], (-1, count))
            expected += [] if count is None else [max(part) for part in parts]
    actual = operation_scores(monitor, obs, none, mask, stretch=10)
    np.testing.assert_allclose(actual, expected, rtol=1e-3)
    assert len(actual) == 9


def test_a_slow_healthy_plant_keeps_the_promised_alarms_a_day():
    """Runs of forty stretches; a monitor that begins anew in each of them looks quieter."""
    rng = np.random.default_rng(6)
    monitor = drift_monitor(slow(rng, 400, 50).reshape(-1, 2))
    held_out, operation = slow(rng, 400, 50), slow(rng, 40, 2000)
    none = np.zeros((400, 50, 1))
    anew = conformal_quantile(episode_scores(monitor, held_out, none), miscoverage=0.05)
    kept = calibrate(monitor, held_out, none, false_alarms=0.05).threshold
    scores = np.asarray(operation_scores(monitor, operation, np.zeros((40, 2000, 1)), stretch=50))
    assert float(anew) < float(kept)
    assert (scores > float(anew)).mean() > (scores > float(kept)).mean()
    # The runs have a memory longer than a stretch: 40 of them leave the rate open by about a third.
    assert 0.02 < (scores > float(kept)).mean() < 0.075
    assert alarms_per_day(0.05, 6000.0) == pytest.approx(0.72)
