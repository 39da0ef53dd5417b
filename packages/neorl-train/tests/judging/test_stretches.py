"""What a policy would have done in the best, the median and the worst stretch of a log."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Channel, CostChannel, Spec
from neorl_core.control import StateFeedback
from neorl_envs.datasets import dataset_from_columns
from neorl_safety.constraints import action_constraints
from neorl_safety.guards import guard
from neorl_train import evaluate_offline, verdict
from neorl_train._job.evaluation import write_results
from neorl_train.judging import Band, read_evaluation
from neorl_train.judging._shadow import declared_bands, shown_channels, stretches
from neorl_train.pages import write_report

LENGTH, EPISODES = 60, 6
SPEC = Spec(
    obs=(Channel("x", "m", -9.0, 9.0), Channel("y", "m", -9.0, 9.0)),
    action=(Channel("u", "%", -9.0, 9.0),),
    cost=(CostChannel("high", "m", limit=0.5, per="step"),),
    dt=60.0,
    horizon=LENGTH,
)
DECLARED = {
    "reward": {"expression": "-abs(y - 1)"},
    "cost": [{"name": "high", "expression": "greatest(x - 1.0, 0)"}],
}


def log_of(**columns):
    """Episodes under u = -x / 2, the third the best and the fifth the worst of them."""
    rng = np.random.default_rng(0)
    n = LENGTH * EPISODES
    obs = rng.uniform(-2, 2, size=(n, 2)).astype(np.float32)
    given = {
        "obs": obs,
        "action": -0.5 * obs[:, :1],
        "reward": np.repeat([0.0, 1.0, 5.0, 2.0, -5.0, 3.0], LENGTH) + rng.normal(size=n),
        "next_obs": obs,
        "terminated": np.zeros(n, bool),
        "truncated": np.arange(n) % LENGTH == LENGTH - 1,
        "cost": np.maximum(obs[:, :1] - 1.0, 0),
        "time": np.arange(n) * 60.0,
        "attributes": {"name": "tank", "provenance": {"configuration": DECLARED}},
    }
    return dataset_from_columns(SPEC, **(given | columns))


def feedback(gain):
    """``u = -gain x``, within the range of the valve."""
    numbers = ([[gain, 0.0]], [0.0, 0.0], [0.0], [-9.0], [9.0])
    return StateFeedback(*(jnp.asarray(number, jnp.float32) for number in numbers))


def test_proposals_stand_beside_the_logged_actions_of_three_stretches():
    log = log_of()
    found = stretches(feedback(0.7), log, name="p-0", channels=("y",), held_out=[4])
    assert [(one.label, one.episode, one.held_out) for one in found] == [
        ("best", 2, False),
        ("median", 1, False),
        ("worst", 4, True),
    ]
    rows = log.transitions
    for one in found:
        part = slice(one.episode * LENGTH, (one.episode + 1) * LENGTH)
        assert (one.stamp, one.first) == (part.start * 60.0, 0)
        assert one.when == f"{part.start * 60} s", "this log does not say where its times begin"
        assert one.reward == pytest.approx(rows.reward[part].mean())
        np.testing.assert_allclose(one.logged, rows.action[part])
        np.testing.assert_allclose(one.obs, rows.obs[part, 1:])
        np.testing.assert_allclose(one.proposed, -0.7 * rows.obs[part, :1], rtol=1e-5)
        np.testing.assert_allclose(one.cost, rows.cost[part])


def test_what_the_log_did_in_similar_situations_is_that_of_the_nearest_rows():
    """Row by row, in units of the spread of every observation, without the stretch itself."""
    log = log_of()
    one = stretches(feedback(3.0), log, name="p-0", channels=("x",))[0]
    obs, action = log.transitions.obs.astype(np.float64), log.transitions.action[:, 0]
    part = np.arange(one.episode * LENGTH, (one.episode + 1) * LENGTH)
    rest = np.setdiff1d(np.arange(log.n_rows), part)
    scale = obs[rest].std(axis=0)
    for place, row in enumerate(part):
        away = (((obs[rest] - obs[row]) / scale) ** 2).sum(axis=1)
        near = action[rest][np.argsort(away)[:50]]
        assert one.low[place, 0] == pytest.approx(near.min(), rel=1e-6)
        assert one.high[place, 0] == pytest.approx(near.max(), rel=1e-6)
    beyond = (one.proposed < one.low) | (one.proposed > one.high)
    np.testing.assert_array_equal(one.outside(one.proposed), beyond)
    assert beyond.mean() > 0.3
    assert one.outside(one.logged).mean() < 0.2


def test_long_episodes_are_cut_into_days():
    """A day of 60-second steps has 1440 rows; the rest of an episode is too short to be judged."""
    n = 3 * 1440 + 100
    rng = np.random.default_rng(1)
    obs = rng.normal(size=(n, 2)).astype(np.float32)
    reward = np.repeat([1.0, 3.0, 2.0, 99.0], [1440, 1440, 1440, 100])
    log = log_of(
        obs=obs,
        action=obs[:, :1],
        next_obs=obs,
        reward=reward,
        terminated=np.zeros(n, bool),
        truncated=np.arange(n) == n - 1,
        cost=np.zeros((n, 1)),
        time=np.arange(n) * 60.0,
    )
    found = stretches(feedback(1.0), log, name="p-0", channels=("x",))
    assert [(one.first, len(one.known)) for one in found] == [
        (1440, 1440),
        (2880, 1440),
        (0, 1440),
    ]
    for one in found:
        np.testing.assert_allclose(one.proposed, -one.logged, rtol=1e-5)


def test_unknown_rows_count_nowhere_and_are_drawn_by_nobody():
    mask = np.ones(LENGTH * EPISODES, bool)
    mask[2 * LENGTH + 5] = False
    log = log_of(mask=mask)
    for column in (log.transitions.obs, log.transitions.next_obs, log.transitions.action):
        column[~mask] = np.nan
    limits = action_constraints(SPEC, [1.0])
    safe = guard(feedback(3.0), limits, feedback(0.0), SPEC)
    best = stretches(safe, log, name="p-0", channels=("x",))[0]
    assert best.episode == 2
    assert not best.known[5]
    assert not best.outside(best.proposed)[5].any()
    assert np.isfinite(best.proposed).all(), "the guard answers an unknown measurement"
    assert np.isfinite(best.low[best.known]).all()


def test_limits_and_channels_come_from_the_declarations_of_the_plant():
    log = log_of()
    assert declared_bands(log, SPEC) == (Band("x", -np.inf, 1.5),)
    assert shown_channels(log, SPEC, ["y"], declared_bands(log, SPEC)) == ("y", "x")
    assert shown_channels(log, SPEC, [], ()) == ("y", "x")
    below = {**DECLARED, "cost": [{"name": "high", "expression": "greatest(-1.5 - y, 0.0)"}]}
    low = log_of(attributes={"provenance": {"configuration": below}})
    assert declared_bands(low, SPEC) == (Band("y", -2.0, np.inf),)
    unlike = {**DECLARED, "cost": [{"name": "high", "expression": "greatest(x - 1, 0) * 2"}]}
    assert declared_bands(log_of(attributes={"provenance": {"configuration": unlike}}), SPEC) == ()
    plain = log_of(attributes={})
    assert declared_bands(plain, SPEC) == ()
    assert shown_channels(plain, SPEC, [], ()) == ("x", "y")


def test_the_report_of_a_log_alone_shows_them(tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")
    configuration = DECLARED | {"log": {"time_zone": "Europe/Vienna"}}
    log = log_of(
        attributes={
            "name": "tank",
            "time_origin": "1970-01-01T00:00:00Z",
            "provenance": {"configuration": configuration},
        }
    )
    result = evaluate_offline(
        {"iql-0": feedback(3.0)},
        dataset=log,
        held_out=log.select_episodes(np.array([2, 4])),
        training=log.transitions,
        held_out_episodes=[2, 4],
    )
    write_results(tmp_path, result, verdict(result.tables))
    again = read_evaluation(tmp_path)
    np.testing.assert_array_equal(again.stretches[2].proposed, result.stretches[2].proposed)
    assert again.bands == result.bands
    page = write_report(tmp_path).read_text()
    outside = result.stretches[0].outside(result.stretches[0].proposed).mean()
    for words in (
        "What it would have done on the log",
        "The best stretch of the log",
        "A median stretch",
        "The worst stretch",
        "Episode 3, from 1970-01-01 03:00 CET, 60 min, not trained on",
        f"outside the range of the log in {100 * outside:.1f}\N{NO-BREAK SPACE}% of the steps",
        "x was beyond its limit of 1.5 in",
    ):
        assert words in page, words
    assert page.count('<svg role="img" aria-labelledby="stretch') == 3
    without = dataclasses.replace(result, stretches=())
    write_results(tmp_path, without, verdict(without.tables))
    assert "What it would have done" not in write_report(tmp_path).read_text()
