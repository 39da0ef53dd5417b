"""Monitors and supervisor of a run act in its bundle, say why, and the emergency stop holds."""

import json
import logging
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_core.control import ConstantPolicy
from neorl_deploy import DeployError
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import export_run
from neorl_deploy.runtime import LastSent, Runtime
from neorl_deploy.shadow import read_log, replay
from neorl_safety.guards import GuardSettings, settings_to_dict, supervision
from neorl_safety.monitoring import (
    NamedMonitor,
    calibrate,
    formula_monitor,
    mahalanobis_monitor,
    policy_ensemble,
    range_monitor,
    read_formula,
)

MIDDLE = np.array([1.0, 330.0, 3.0], np.float32)
FULL = "always[0 s, 30 s] (level <= 1.5 m)"


@pytest.fixture(scope="module")
def watched(tmp_path_factory, finished_run, spec, log_columns):
    """A run whose guard has monitors, a supervisor and two fallbacks, exported."""
    run = tmp_path_factory.mktemp("watched") / "runs" / "0001"
    shutil.copytree(finished_run, run)
    columns = log_columns(episodes=30)
    shape = (30, 40, -1)
    obs = jnp.asarray(columns["obs"]).reshape(shape)
    sent = jnp.asarray(columns["action"]).reshape(shape)
    pair = [load_policy(run / f"policies/iql-{i}.safetensors").policy for i in (0, 1)]
    far = calibrate(mahalanobis_monitor(columns["obs"]), obs, sent, false_alarms=0.1)
    apart = calibrate(policy_ensemble(pair, spec), obs, sent, false_alarms=0.1)
    watches = (
        NamedMonitor("range", range_monitor(spec)),
        NamedMonitor("full", formula_monitor(read_formula(FULL, spec), spec)),
        NamedMonitor("far", far, 0.1, 30),
        NamedMonitor("apart", apart, 0.1, 30, ("iql-0", "iql-1")),
    )
    settings = GuardSettings(
        supervision(trip_after=2, reset_after=3, dwell=3, latch_after=2, settle=0.0),
        watches, ("fallback", "fallback-2"), {"temperature": 60.0},
    )  # fmt: skip
    observed = columns["obs"][:40]
    calm = ConstantPolicy(jnp.array([40.0, 300.0]))
    save_policy(run / "policies/fallback-2.safetensors", calm, spec, observed, {})
    (run / "guard.json").write_text(json.dumps(settings_to_dict(settings, spec)))
    return export_run(run)


@pytest.fixture(scope="module")
def shared(watched):
    """One runtime, and so one compiled program, for all tests."""
    return Runtime(watched)


@pytest.fixture
def acting(shared):
    shared.release("a test begins")
    shared.reset()
    return shared


def drive(runtime, rows, sent=LastSent.UNKNOWN):
    decisions = []
    for row in rows:
        decision = runtime.step(row, sent, ages=np.zeros(3))
        decisions.append(decision)
        sent = decision.action
    return decisions


def fallback_used(runtime, decisions):
    return ["fallback_used" in runtime.flag_names(one.flags) for one in decisions]


def test_the_bundle_says_its_monitors_and_what_they_promise(watched):
    read = read_bundle(watched.path)
    assert read.manifest.monitors == ("range", "full", "far", "apart")
    assert read.manifest.max_age == {"temperature": 60.0}
    guard = read.manifest.document["guard"]
    assert [one["false_alarms"] for one in guard["monitors"]] == [None, None, 0.1, 0.1]
    assert any("disagree (iql-0, iql-1)" in sentence for sentence in guard["words"])
    stored = json.loads(watched.files["guard.json"])
    assert len(stored["monitors"]["monitors"][2]["whitening"]) == 3


def test_a_violated_formula_trips_after_two_steps_names_its_monitor_and_latches(acting):
    high = MIDDLE + np.array([0.8, 0, 0])
    decisions = drive(acting, [MIDDLE] * 4 + [high] * 3 + [MIDDLE] * 12)
    alarms = [acting.alarm_names(one.alarms) for one in decisions]
    assert [("full" in names) for names in alarms[:8]] == [False] * 4 + [True] * 4
    used = fallback_used(acting, decisions)
    assert not any(used[:5])
    assert all(used[5:9])
    assert not used[-1]
    events = [(one.kind, one.reason) for one in acting.events[-2:]]
    assert events[0][0] == "fallback acts"
    assert "monitor full" in events[0][1]
    assert events[1][0] == "policy acts"
    decisions = drive(acting, [high] * 3 + [MIDDLE] * 20, decisions[-1].action)
    assert fallback_used(acting, decisions)[-1]
    assert "latched" in acting.flag_names(decisions[-1].flags)
    acting.reset()
    held = drive(acting, [MIDDLE] * 12)
    assert all(fallback_used(acting, held))  # a new episode releases nothing
    acting.release("shift leader: level sensor was cleaned")
    assert not fallback_used(acting, drive(acting, [MIDDLE] * 12, held[-1].action))[-1]


def test_an_observation_far_from_the_log_alarms_though_every_range_holds(acting):
    odd = MIDDLE + np.array([0.7, -40.0, 2.0])
    (decision,) = drive(acting, [odd])
    assert {"far"} <= set(acting.alarm_names(decision.alarms))
    assert "range" not in acting.alarm_names(decision.alarms)


def test_the_second_fallback_acts_where_the_first_cannot(acting):
    lost = np.array([1.0, np.nan, 3.0])
    decisions = drive(acting, [MIDDLE] * 3 + [lost] * 12)
    assert all(fallback_used(acting, decisions[3:]))
    assert decisions[-1].action == pytest.approx([40.0, 300.0], abs=1e-3)
    reason = acting.events[-1].reason
    assert "a measurement is missing" in reason
    assert "nonfinite" not in reason


def test_sealed_ages_are_asked_for_and_old_measurements_lost(acting):
    with pytest.raises(ValueError, match="old measurements of temperature; give ages"):
        acting.step(MIDDLE, LastSent.UNKNOWN)
    old = acting.step(MIDDLE, LastSent.UNKNOWN, ages=np.array([1e9, 61.0, 1e9]))
    assert "observation_nonfinite" in acting.flag_names(old.flags)
    fresh = acting.step(MIDDLE, LastSent.UNKNOWN, ages=np.array([1e9, 59.0, 1e9]))
    assert "observation_nonfinite" not in acting.flag_names(fresh.flags)


def test_an_emergency_stop_acts_at_once_latches_and_is_logged(acting, caplog):
    drive(acting, [MIDDLE] * 5)
    with caplog.at_level(logging.INFO, "neorl_deploy.runtime"):
        acting.stop("operator: smell of solvent")
        decisions = drive(acting, [MIDDLE] * 30)
        acting.reset()
        decisions += drive(acting, [MIDDLE] * 5)
        acting.release("shift leader: false smell")
        after = drive(acting, [MIDDLE] * 6)
    assert all(fallback_used(acting, decisions))
    assert all("emergency_stop" in acting.flag_names(one.flags) for one in decisions)
    assert not fallback_used(acting, after)[-1]
    messages = [record.getMessage() for record in caplog.records]
    assert any("emergency stop (operator: smell of solvent)" in line for line in messages)
    assert any("release (shift leader: false smell)" in line for line in messages)
    for empty in (acting.stop, acting.release):
        with pytest.raises(ValueError, match="say who decides this and why"):
            empty(" ")


def test_a_replay_counts_the_alarms_of_every_monitor(watched, tmp_path, log_columns, write_log):
    log = read_log(write_log(tmp_path / "log.h5", log_columns()))
    result = replay(watched, log).report["monitors"]
    assert list(result) == ["range", "full", "far", "apart"]
    assert (result["range"]["episodes"], result["range"]["of_episodes"]) == (0, 5)
    assert (result["range"]["promised"], result["far"]["promised"]) == (None, 0.1)
    assert result["far"]["episodes"] <= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda guard: guard["fallbacks"].append("third"), "third.safetensors is missing"),
        (lambda guard: guard["monitors"]["monitors"][3]["policies"].append("iql-9"), "iql-9"),
        (lambda guard: guard["monitors"].update(monitors=3), "it lists no monitors"),
        (lambda guard: guard["supervisor"].update(dwell=-1), "dwell must be an integer"),
        (lambda guard: guard["max_age"].update(temprature=3.0), "did you mean 'temperature'"),
    ],
)
def test_damaged_settings_are_refused_before_anything_is_written(watched, tmp_path, change, words):
    run = tmp_path / "runs" / "0001"
    shutil.copytree(watched.path.parent, run)
    shutil.rmtree(run / "policy.bundle")
    guard = json.loads((run / "guard.json").read_text())
    change(guard)
    (run / "guard.json").write_text(json.dumps(guard))
    with pytest.raises(DeployError, match=words):
        export_run(run)
    assert not (run / "policy.bundle").exists()
