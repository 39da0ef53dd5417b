"""Errors of predictions near visited rows: closed forms, coverage, and what is refused."""

import numpy as np
import pytest

from neorl_agents.calibration import neighbour_calibration
from neorl_core import InputError

EPISODES, ROWS = 40, 25


def logged(rng, spread=0.0, of_episode=0.0):
    """Rows of which those with a positive first channel are predicted 3 and -1 too low."""
    episode = np.repeat(np.arange(EPISODES), ROWS)
    x = rng.uniform(-1, 1, (len(episode), 2))
    error = np.where(x[:, :1] > 0, [[3.0, -1.0]], 0.0)
    error = error + of_episode * rng.normal(size=(EPISODES, 1))[episode]
    return x, error + spread * rng.normal(size=error.shape), episode


def visited(rng, right=0.25, count=200):
    """Rows of which a part is in the wrong half, and none within 0.4 of its edge."""
    side = np.where(np.arange(count) < right * count, 1, -1)
    return np.stack([side * rng.uniform(0.6, 1, count), rng.uniform(-0.8, 0.8, count)], axis=1)


@pytest.mark.parametrize("right", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_error_in_one_region_is_weighted_by_how_much_of_it_is_visited(right, dtype):
    rng = np.random.default_rng(0)
    (x, error, episode), points = logged(rng), visited(rng, right)
    weight = np.full(len(points), 10 / len(points))
    one = neighbour_calibration(
        points.astype(dtype), weight, x.astype(dtype), error.astype(dtype), episode
    )
    np.testing.assert_allclose(one.bias, [30 * right, -10 * right], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.standard_error, 0, atol=1e-6)
    np.testing.assert_allclose(one.local, np.where(points[:, :1] > 0, [[3.0, -1.0]], 0))
    assert one.far < 0.05
    assert one.neighbours == 10


def test_units_and_the_order_of_rows_change_nothing():
    rng = np.random.default_rng(1)
    (x, error, episode), points = logged(rng, 0.5), visited(rng)
    weight = rng.uniform(size=len(points))
    one = neighbour_calibration(points, weight, x, error, episode)
    factors, order = np.array([2.0**12, 2.0**-9]), rng.permutation(len(x))
    other = neighbour_calibration(
        points * factors, weight, (x * factors)[order], error[order], episode[order]
    )
    np.testing.assert_allclose(one.bias, other.bias, rtol=1e-9)
    np.testing.assert_allclose(one.standard_error, other.standard_error, rtol=1e-9)
    assert one.far == other.far


def test_the_deviation_is_that_of_one_error_and_a_still_channel_changes_nothing():
    rng = np.random.default_rng(2)
    (x, error, episode), points = logged(rng, 0.5), visited(rng)
    one = neighbour_calibration(points, np.ones(200), x, error, episode)
    np.testing.assert_allclose(one.deviation, 0.5, rtol=0.1)
    still = [np.concatenate([part, np.full((len(part), 1), 0.1)], axis=1) for part in (points, x)]
    other = neighbour_calibration(still[0], np.ones(200), still[1], error, episode)
    np.testing.assert_array_equal(one.bias, other.bias)


def test_rows_that_the_log_does_not_show_are_counted_as_far():
    rng = np.random.default_rng(3)
    (x, error, episode), points = logged(rng, 0.5), visited(rng)
    points[:50] += 9
    one = neighbour_calibration(points, np.ones(200), x, error, episode)
    assert one.far == pytest.approx(0.25, abs=0.03)
    points[0] = np.nan
    lost = neighbour_calibration(points, np.ones(200), x, error, episode)
    assert lost.far == 1
    assert np.isinf(lost.standard_error).all()


def test_without_rows_of_a_second_episode_nothing_is_known_of_the_error():
    rng = np.random.default_rng(5)
    x, error, episode = logged(rng, 0.5)
    x[episode == 0] += 9
    one = neighbour_calibration(x[episode == 0], np.ones(ROWS), x, error, episode)
    assert one.episodes == 1
    assert np.isinf(one.standard_error).all()


def coverage(repetitions, spread, of_episode):
    inside = []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        (x, error, episode), points = logged(rng, spread, of_episode), visited(rng)
        one = neighbour_calibration(points, np.full(200, 0.05), x, error, episode)
        inside.append(abs(one.bias[0] - 7.5) <= 1.96 * one.standard_error[0])
    return np.mean(inside)


@pytest.mark.nightly
@pytest.mark.parametrize(("spread", "of_episode"), [(1.0, 0.0), (0.2, 1.0), (1.0, 0.5)])
def test_the_interval_covers_at_its_level(spread, of_episode):
    """600 logs of 40 episodes, with errors of rows, of episodes and both; three standard errors."""
    share = coverage(600, spread, of_episode)
    assert 0.92 <= share <= 0.98, share


# x' = a x + b u + w, r = x, and the policy holds u = -x: its value is x / (1 - discount (a - b)).
A, B, DISCOUNT, OFF = 0.9, 0.4, 0.9, 2.0


def values(x, u):
    """Q of the policy, but for a constant that is missing where x is positive."""
    after = A * x + B * u
    return x + DISCOUNT * after / (1 - DISCOUNT * (A - B)) - OFF * (x > 0)


def test_what_a_value_lacks_in_one_region_is_given_back():
    """The errors of later steps cancel, so what remains is the constant of the first state."""
    rng = np.random.default_rng(4)
    episode = np.repeat(np.arange(200), 40)
    x, u = rng.uniform(-3, 3, len(episode)), rng.uniform(-3, 3, len(episode))
    after = A * x + B * u + 0.3 * rng.normal(size=len(x))
    error = x + DISCOUNT * values(after, -after) - values(x, u)
    for start, missing in ((2.0, OFF), (-2.0, 0.0)):
        state, path = np.full(64, start), []
        for _ in range(60):
            path.append(state)
            state = (A - B) * state + 0.3 * rng.normal(size=64)
        points = np.stack([np.ravel(path), -np.ravel(path)], axis=1)
        weight = np.repeat(DISCOUNT ** np.arange(60), 64) / 64
        rows = np.stack([x, u], axis=1)
        one = neighbour_calibration(points, weight, rows, error[:, None], episode)
        assert abs(one.bias[0] - missing) < 3 * one.standard_error[0] + 0.02 * OFF
        assert one.standard_error[0] < 0.35 * OFF


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"episode": np.zeros(1000, int)}, InputError, "at least two logged episodes, got 1"),
        ({"error": np.full((1000, 1), np.nan)}, InputError, "must be finite"),
        ({"neighbours": 0}, ValueError, "neighbours must be at least 1, got 0"),
        ({"weight": np.zeros(200)}, ValueError, "weight must be finite and not negative"),
        ({"weight": np.ones(199)}, ValueError, r"expected visited \(visited, channel\), weight"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(change, kind, message):
    rng = np.random.default_rng(0)
    x, error, episode = logged(rng)
    given = {
        "visited": visited(rng), "weight": np.ones(200), "logged": x, "error": error,
        "episode": episode,
    } | change  # fmt: skip
    with pytest.raises(kind, match=message):
        neighbour_calibration(**given)
