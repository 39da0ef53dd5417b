"""Monitors and supervisor of a configuration: fitted, promised, sealed, kept and told."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from neorl_core import Channel, Spec
from neorl_deploy.export import export_run
from neorl_deploy.runtime import LastSent, Runtime
from neorl_deploy.shadow import read_log, replay
from neorl_envs import write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train._command.main import main

SPEC = Spec(
    obs=(Channel("level", "m", -9.0, 9.0), Channel("flow", "m3/h", -9.0, 9.0)),
    action=(Channel("valve", "%", -9.0, 9.0),),
    cost=(),
    dt=60.0,
    horizon=5,
)
HELD_OUT, SHARE, FRESH = 199, 0.05, 2000
NAMES = ["range", "frozen", "low", "mahalanobis", "neighbours", "drift", "disagreement"]
RUN = """
[data]
source = "log.h5"
held_out = 0.3317
[training]
algorithms = ["bc"]
seeds = [0, 1]
updates = 2
chunk = 1
[evaluation]
candidate = "bc"
[checkpoints]
interval = 2
[output]
tracking = false
[algorithms.bc]
steps.batch_size = 16
networks.hidden = [8]
[fallback]
kind = "constant"
values = { valve = 1.5 }
[monitors]
novelty = ["mahalanobis", "neighbours"]
drift = true
disagreement = true
rows = 50
false_alarms = 0.2
max_age = { flow = 90.0 }
frozen = { level = 120.0 }
formulas = { low = "always[0 min, 1 min] (level <= 6 m)" }
[supervisor]
trip_after = 2
reset_after = 2
dwell = 1
latch_after = 3
settle = 0.0
"""


def log_of(episodes: int, seed: int) -> object:
    """Readings that depend on one another within an episode; all episodes are drawn alike."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(episodes, 6, 2))
    obs = np.cumsum(noise * [0.6, 0.3], axis=1) + rng.normal(size=(episodes, 1, 2))
    now, after = obs[:, :-1].reshape(-1, 2), obs[:, 1:].reshape(-1, 2)
    rows = len(now)
    return dataset_from_columns(
        SPEC,
        obs=now.astype(np.float32),
        action=(now @ [[0.5], [-0.25]]).astype(np.float32),
        reward=np.zeros(rows),
        cost=np.zeros((rows, 0)),
        next_obs=after.astype(np.float32),
        terminated=np.zeros(rows, bool),
        truncated=np.arange(1, rows + 1) % 5 == 0,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, made as a user makes it."""
    here = tmp_path_factory.mktemp("monitored")
    write_dataset(here / "log.h5", log_of(600, 1))
    write_dataset(here / "fresh.h5", log_of(FRESH, 2))
    (here / "run.toml").write_text(RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._command.main.prepare_process", lambda: None)
        patch.chdir(here)
        assert main(["run", "run.toml", "--quiet"]) == 0
    return SimpleNamespace(here=here, run=here / "runs" / "0001")


@pytest.fixture(scope="module")
def sealed(finished):
    """The same and its bundle."""
    bundle = export_run(finished.run)
    return SimpleNamespace(**vars(finished), bundle=bundle, runtime=Runtime(bundle))


def test_record_settings_and_page_say_the_same_of_every_monitor(finished):
    record = json.loads((finished.run / "run.json").read_text())
    assert [one["name"] for one in record["monitors"]] == NAMES
    settings = json.loads((finished.run / "guard.json").read_text())
    assert [one["name"] for one in settings["monitors"]["monitors"]] == NAMES
    decided = {"trip_after": 2, "reset_after": 2, "dwell": 1, "latch_after": 3, "settle": 0.0}
    assert decided.items() <= settings["supervisor"].items()
    assert settings["max_age"] == {"flow": 90.0}
    page = (finished.run / "report.html").read_text()
    for words in (
        "Promised false alarms",
        "not always[0 s, 60 s] (level",
        "policies that disagree",
    ):
        assert words in page
    calibrated = [one for one in record["monitors"] if one["promised"] is not None]
    assert [one["name"] for one in calibrated] == NAMES[3:]
    assert {one["log_episodes"] for one in record["monitors"]} == {HELD_OUT}
    assert [one["promised"] for one in calibrated] == pytest.approx([SHARE] * 4)


@pytest.mark.nightly
def test_the_bundle_says_what_the_record_says(sealed):
    record = json.loads((sealed.run / "run.json").read_text())
    assert list(sealed.bundle.manifest.monitors) == NAMES
    assert record["supervision"] == sealed.bundle.manifest.document["guard"]["words"]


@pytest.mark.nightly
def test_the_false_alarms_that_are_promised_are_those_of_fresh_episodes_in_the_bundle(sealed):
    """End to end: 2,000 episodes that nobody saw, through the exported program.

    With ``n`` calibration episodes and ``k = ceil((n + 1)(1 - alpha))`` the part of false alarms is
    drawn from Beta(n + 1 - k, k), whatever the distribution of the scores.
    """
    result = replay(sealed.bundle, read_log(sealed.here / "fresh.h5")).report["monitors"]
    rank = int(np.ceil((HELD_OUT + 1) * (1 - SHARE)))
    law = scipy.stats.betabinom(FRESH, HELD_OUT + 1 - rank, rank)
    low, high = law.interval(1 - 1e-4)
    assert high < 0.14 * FRESH
    for name in ("mahalanobis", "neighbours", "drift", "disagreement"):
        assert result[name]["promised"] == pytest.approx(SHARE)
        assert result[name]["of_episodes"] == FRESH
        # What drift remembers ran on while its threshold was set; these episodes begin anew.
        assert (0 if name == "drift" else low) <= result[name]["episodes"] <= high, name
    assert result["range"]["episodes"] == result["frozen"]["episodes"] == 0


@pytest.mark.nightly
def test_the_supervisor_of_the_configuration_decides_in_the_bundle(sealed):
    runtime, sent, seen = sealed.runtime, LastSent.UNKNOWN, []
    rng = np.random.default_rng(0)
    for level in (0.0, 0.1, 6.5, 6.6, 0.0, 0.1, 0.2, 0.1):
        obs = np.array([level, rng.normal() * 0.1])
        decision = runtime.step(obs, sent, ages=np.array([1e6, 30.0]))
        sent = decision.action
        names = runtime.alarm_names(decision.alarms)
        used = "fallback_used" in runtime.flag_names(decision.flags)
        seen.append(("low" in names, used))
    assert [alarm for alarm, _ in seen[:6]] == [False, False, True, True, True, False]
    # Two alarms in a row trip it; two clean steps in a row hand back.
    assert [used for _, used in seen[:4]] == [False, False, False, True]
    taken = [event for event in runtime.events if event.kind == "fallback acts"][-1]
    assert "monitor low" in taken.reason
    assert not seen[-1][1]
    with pytest.raises(ValueError, match="old measurements of flow; give ages"):
        runtime.step(np.zeros(2), sent)


def test_the_safety_report_of_a_run_exits_1_where_a_hard_constraint_is_broken(
    finished, tmp_path, monkeypatch, capsys
):
    """Row N36: judged by a box that the guard does not keep, the command fails, and says which."""
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)
    words = ["safety-report", str(finished.run), "--data", str(finished.here / "log.h5")]
    document = json.loads((finished.run / "constraints.json").read_text())
    document["constraints"][0]["high"] = -8.0
    (tmp_path / "tighter.json").write_text(json.dumps(document))
    with pytest.raises(SystemExit) as stop:
        main([*words, "--judged-by", str(tmp_path / "tighter.json"), "--out", str(tmp_path / "b")])
    assert stop.value.code == 1
    assert "broke hard constraints with the filter on: valve: range" in capsys.readouterr().out
    result = json.loads((tmp_path / "b" / "safety.json").read_text())
    assert not result["passed"]
    assert [one["name"] for one in result["monitors"]][-1] == "disagreement"
    # What the policy's actions would have led to was not seen: the log's own outcome alone.
    assert list(result["metrics"]) == ["as logged"]
    assert main(["safety-report", str(tmp_path / "none")]) == 2
    assert "is not a run, a policy artefact or a bundle" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_safety_report_of_a_bundle_exits_0_where_every_hard_constraint_is_kept(
    sealed, tmp_path, monkeypatch
):
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)
    words = ["safety-report", str(sealed.bundle.path), "--data", str(sealed.here / "log.h5")]
    assert main([*words, "--out", str(tmp_path)]) == 0
    kept = json.loads((tmp_path / "safety.json").read_text())
    assert (kept["passed"], kept["broken"]) == (True, [])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "frozen = { level",
            "frozen = { levle",
            "monitors.frozen: unknown channel 'levle'; did you",
        ),
        ("(level <= 6 m)", "(T <= 4 K)", "monitors.formulas.low: formula 'always[0 min, 1 min] (T"),
        ("formulas = { low", "formulas = { range", "'range', which is the name of another monitor"),
        (
            "flow = 90.0",
            "flow = -1.0",
            "monitors.max_age.flow must be a positive number of seconds",
        ),
        (
            "false_alarms = 0.2",
            "false_alarms = 0.0",
            "monitors.false_alarms must be a number in (0, 1)",
        ),
        ("false_alarms = 0.2", "false_alarms = 0.01", "for it: 399 episodes are needed"),
        (
            "dwell = 1",
            "dwell = -2",
            "supervisor.dwell must be an integer of at least 0, got -2",
        ),
        ("dwell = 1", "dwel = 1", "did you mean 'dwell'?"),
        ("seeds = [0, 1]", "seeds = [0]", "monitors.disagreement compares seeds"),
        ("1.5 }", '1.5 }\nthen = ["reference"]', "a log has no controller"),
        ("1.5 }", '1.5 }\nthen = ["constant"]', "fallback.kind and fallback.then repeat a kind"),
    ],
)
def test_a_bad_configuration_is_one_line_that_names_it_and_nothing_is_trained(
    finished, tmp_path, monkeypatch, capsys, old, new, said
):
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert old in RUN
    source = f'source = "{finished.here / "log.h5"}"'
    text = RUN.replace(old, new).replace('source = "log.h5"', source)
    Path("run.toml").write_text(text)
    assert main(["run", "run.toml", "--quiet"]) == 2
    assert said in capsys.readouterr().err
    assert not list(Path("runs").glob("*/policies"))
