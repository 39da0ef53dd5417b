"""Shadow mode: the numbers against a step-by-step recomputation, and who is refused."""

import dataclasses
import json

import numpy as np
import pytest

from neorl_deploy import DeployError
from neorl_deploy._command.replay_text import HELD, replay_lines, trend, typical_episode
from neorl_deploy.bundle import read_bundle
from neorl_deploy.runtime import LastSent, Runtime
from neorl_deploy.shadow import read_log, replay


@pytest.fixture(scope="module")
def log(finished_run):
    return read_log(finished_run / "dataset.h5")


@pytest.fixture(scope="module")
def replayed(exported, log):
    return replay(read_bundle(exported), log)


def test_the_scan_equals_the_runtime_step_by_step(replayed, exported, log):
    # One of its own: a latch outlives a reset, and tests share the other one.
    runtime = Runtime(read_bundle(exported))
    starts = set(log.starts.tolist())
    for row in range(len(log.obs)):
        if row in starts:
            runtime.reset()
        sent = LastSent.UNKNOWN if row in starts else log.action[row - 1]
        decision = runtime.step(log.obs[row], sent)
        np.testing.assert_allclose(decision.action, replayed.shadow.action[row], rtol=1e-6)
        assert decision.flags == replayed.shadow.flags[row]


def test_numpy_alone_proposes_the_same(exported, log, replayed):
    alone = replay(read_bundle(exported), log, "numpy").shadow
    for mine, theirs in zip(alone, replayed.shadow, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(alone.action, replayed.shadow.action, rtol=1e-5)
    np.testing.assert_array_equal(alone.flags, replayed.shadow.flags)


def test_the_numbers_are_those_of_the_rows(replayed, log):
    report = replayed.report
    difference = replayed.shadow.action[:, 0] - log.action[:, 0]
    numbers = report["difference"]["valve"]
    assert numbers["unit"] == "%"
    assert numbers["mean"] == pytest.approx(difference.mean(), rel=1e-4, abs=1e-4)
    assert numbers["p95"] == pytest.approx(np.quantile(np.abs(difference), 0.95), rel=1e-4)
    assert numbers["max"] == pytest.approx(np.abs(difference).max(), rel=1e-5)
    assert report["log"] | {"path": ""} == {
        "path": "",
        "content_hash": log.content_hash,
        "attribution": "",
        "rows": 200,
        "episodes": 5,
        "rows_skipped": 0,
        "other_ranges": [],
        "learned_from": False,
        "named_by_run": False,
    }
    assert report["filter"]["flags"]["previous_unknown"] == 5 / 200
    # Only the valve has a rate: where it acts, the valve moves by 0.5 %/s for 30 s exactly.
    moved = np.abs(replayed.shadow.action[1:, 0] - log.action[:-1, 0])
    at_the_rate = np.append(False, np.isclose(moved, 15.0, atol=1e-4))
    at_the_rate[log.starts] = False
    assert 0 < at_the_rate.sum() < 195
    assert report["filter"]["flags"]["rate_active"] == pytest.approx(at_the_rate.mean())
    assert report["filter"]["fallback"] == 0
    assert report["finite"]
    json.dumps(report, allow_nan=False)


def test_an_archive_without_a_hash_is_not_called_new(exported, log):
    bundle = read_bundle(exported)
    archive = dataclasses.replace(log, content_hash="", source="/data/plant.npz")
    unknown = replay(bundle, archive)
    assert unknown.report["log"]["learned_from"] is None
    assert "Whether the policy learned from this log is not known" in "\n".join(
        replay_lines(unknown)
    )
    bundle.manifest.document["provenance"]["record"] = {"dataset": {"file": archive.source}}
    named = replay(bundle, archive)
    assert named.report["log"]["named_by_run"]
    assert "The run names this file as the log" in "\n".join(replay_lines(named))


def test_the_rate_limit_is_explained_only_where_it_acted(replayed):
    sentence = "the limit on the rate of"
    assert sentence in "\n".join(replay_lines(replayed))
    flags = {**replayed.report["filter"]["flags"], "rate_active": 0.0}
    report = {**replayed.report, "filter": {**replayed.report["filter"], "flags": flags}}
    without = dataclasses.replace(replayed, report=report)
    assert sentence not in "\n".join(replay_lines(without))


def test_limits_that_held_an_actuator_are_said_in_words(exported, replayed, log):
    """The valve, which alone has a rate, falls or rises by 0.5 %/s for 30 s exactly."""
    moved = replayed.shadow.action[1:, 0] - log.action[:-1, 0]
    moved[log.starts[1:] - 1] = 0
    down, up = (f"{np.isclose(moved, size, atol=1e-4).sum() / 200:.1%}" for size in (-15.0, 15.0))
    (line,) = [line for line in replay_lines(replayed) if line.startswith("  valve  ")][1:2]
    assert f"held as it falls in {down}, as it rises in {up}" in line
    assert " of the steps; moved by at most " in line
    assert {*read_bundle(exported).manifest.limits} == {*HELD}


def test_every_action_is_within_the_rate_of_the_logged_one(replayed, log):
    first = np.isin(np.arange(200), log.starts)
    moved = np.abs(replayed.shadow.action[1:, 0] - log.action[:-1, 0])[~first[1:]]
    assert (moved <= 0.5 * 30 + 1e-4).all()


def test_an_episode_does_not_feel_the_one_before(exported, log, replayed):
    """The carry starts anew at the start of an episode: the third episode alone gives the same."""
    rows = slice(80, 120)
    alone = dataclasses.replace(
        log,
        obs=log.obs[rows],
        action=log.action[rows],
        mask=log.mask[rows],
        starts=np.array([0]),
    )
    shadow = replay(read_bundle(exported), alone).shadow
    np.testing.assert_array_equal(shadow.action, replayed.shadow.action[rows])


def test_an_end_of_the_range_that_float32_rounded_is_inside(exported, log):
    high = np.float32(read_bundle(exported).manifest.obs[2].high)
    obs = log.obs.copy()
    obs[5, 2] = np.nextafter(high, np.float32(np.inf))
    result = replay(read_bundle(exported), dataclasses.replace(log, obs=obs))
    assert result.report["observations"]["out_of_range"] == 0
    obs[5, 2] = high + np.float32(1e-3) * abs(high)
    result = replay(read_bundle(exported), dataclasses.replace(log, obs=obs))
    assert result.report["observations"]["out_of_range_channels"] == {
        read_bundle(exported).manifest.obs[2].name: pytest.approx(1 / len(obs))
    }


def test_masked_and_broken_rows_are_stepped_but_not_counted(exported, log):
    mask, action, obs = log.mask.copy(), log.action.copy(), log.obs.copy()
    mask[:10] = False
    action[50] = np.nan
    obs[100, 1] = np.nan
    obs[101:111, 2] = 50.0
    spoiled = dataclasses.replace(log, mask=mask, action=action, obs=obs)
    result = replay(read_bundle(exported), spoiled)
    manifest = read_bundle(exported).manifest
    assert result.report["log"]["rows_skipped"] == 11
    assert result.report["observations"]["not_finite"] == pytest.approx(1 / 189)
    assert result.report["observations"]["out_of_range_channels"] == {
        "pressure": pytest.approx(10 / 189)
    }
    # The fallback acts from the missing measurement through the ten beyond their range, and
    # hands back in the fifth row in which all is well again.
    in_charge = np.isin(np.arange(200), np.arange(100, 111 + 4))
    used = (result.shadow.flags & np.uint32(manifest.flags["fallback_used"])) != 0
    np.testing.assert_array_equal(used, in_charge)
    assert result.report["filter"]["fallback"] == pytest.approx(15 / 189)
    # The row behind the missing action takes the own one for it: the rate counts from there.
    assert "previous_assumed" in manifest.flag_names(int(result.shadow.flags[51]))
    assert result.report["filter"]["flags"]["previous_assumed"] == pytest.approx(1 / 189)
    own = np.abs(result.shadow.action[51, 0] - result.shadow.action[50, 0])
    assert own <= 0.5 * 30 + 1e-4
    assert np.isfinite(result.shadow.action).all()
    json.dumps(result.report, allow_nan=False)
    nothing = dataclasses.replace(log, mask=np.zeros(200, bool))
    with pytest.raises(DeployError, match="no row to compare"):
        replay(read_bundle(exported), nothing)


@pytest.mark.parametrize(
    ("field", "channels", "message"),
    [
        (
            "obs_channels",
            (("level", "m"), ("temperature", "degC"), ("pressure", "bar")),
            r"observation: the bundle expects 'temperature' \[K\], the log has .*\[degC\]",
        ),
        (
            "obs_channels",
            (("temperature", "K"), ("level", "m"), ("pressure", "bar")),
            "observation: the same channels in another order",
        ),
        ("action_channels", (("valve", "%"),), r"action: the bundle expects 'jacket' \[K\]"),
        (
            "action_channels",
            (("valve", "%"), ("jacket", "K"), ("pump", "%")),
            r"action: the bundle expects no other, the log has 'pump'",
        ),
        (
            "action_channels",
            tuple((f"a{i}", "?") for i in range(30)),
            r"'a3' \[\?\] and 26 more$",
        ),
    ],
)
def test_a_log_of_another_plant_is_refused_by_channel(exported, log, field, channels, message):
    other = dataclasses.replace(log, **{field: channels})
    with pytest.raises(DeployError, match=message):
        replay(read_bundle(exported), other)


def test_a_trend_shows_both_curves():
    lines = trend(np.array([0.0, 1.0, 2.0]), np.array([2.0, 1.0, 0.0]), height=3)
    assert lines == [
        "           2 |o .",
        "           1 | @",
        "           0 |. o",
    ]
    flat = trend(np.zeros(200), np.zeros(200), width=10, height=3)
    assert flat[-1].endswith("|@@@@@@@@@@")


def test_a_typical_episode_is_the_median_one():
    chosen = typical_episode(np.array([0, 2, 4]), np.array([9.0, 9, 1, 1, 5, 5]), 6)
    assert (chosen.start, chosen.stop) == (4, 6)


def test_a_log_of_another_period_is_refused_and_other_ranges_are_named(
    exported, finished_run, capsys
):
    log = read_log(finished_run / "dataset.h5")
    bundle = read_bundle(exported)
    assert log.dt == 30.0
    with pytest.raises(DeployError, match="has a row every 5 s, and the bundle acts every 30 s"):
        replay(bundle, dataclasses.replace(log, dt=5.0))
    wider = log.ranges + np.array([[-1.0, 0], [0, 0], [0, 0], [0, 0], [0, 7.0]])
    report = replay(bundle, dataclasses.replace(log, ranges=wider)).report
    assert report["log"]["other_ranges"] == ["level", "jacket"]
    assert replay(bundle, log).report["log"]["other_ranges"] == []
